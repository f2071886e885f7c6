"""The cost of a training step: every method, and GRASP with a head that materialises [B, L, |C|].

Random token states of the width of BERT and ViT (768), captions of 30 tokens, images of L positions; a step is forward,
backward, clipping and AdamW. Each cell runs in a process of its own, the cells in turn, several rounds. Extra memory is
the peak of the resident set during a step less what was resident before it, with batch, parameters and optimizer state
in place.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from experiments.report import Report, parser
from pyterrier_grasp.backbones import Backbone, TokenSpace, TokenStates
from pyterrier_grasp.backbones.projections import random_projections
from pyterrier_grasp.concepts import ConceptSpace, TripletFile
from pyterrier_grasp.methods import DualEncoder, load_method
from pyterrier_grasp.training.module import TrainingModule

TEXT_LENGTH, WIDTH, DIM, VOCABULARY = 30, 768, 256, 30_522
PER_POSITION = ("stair", "lexlip", "visualsparta")


class Cell(NamedTuple):
    """What is measured: a method (``grasp-naive`` for the naive head), image positions, concepts, pairs a step."""

    method: str
    length: int
    concepts: int
    batch: int


def main() -> None:
    """Run the benchmark."""
    arguments = parser(__doc__, "bench_training")
    arguments.add_argument("--lengths", type=int, nargs="+", default=[577, 50], help="positions (%(default)s)")
    arguments.add_argument("--concepts", type=int, nargs="+", default=[4046, 9771], help="|C| (%(default)s)")
    arguments.add_argument("--batch", type=int, default=256, help="pairs a step (%(default)s)")
    arguments.add_argument("--naive-batch", type=int, default=32, help="for the naive head where L > 100 (%(default)s)")
    arguments.add_argument(
        "--methods", nargs="+", default=["dense", "sdlbt", "d2s", *PER_POSITION, "grasp"], help="(%(default)s)"
    )
    arguments.add_argument("--threads", type=int, default=2, help="(%(default)s)")
    arguments.add_argument("--rounds", type=int, default=3, help="processes a cell (%(default)s)")
    arguments.add_argument("--steps", type=int, default=3, help="timed steps a process (%(default)s)")
    arguments.add_argument("--cell", help="used by the benchmark itself: one cell, as JSON")
    args = arguments.parse_args()
    if args.cell:
        torch.set_num_threads(args.threads)
        print(json.dumps(measure(Cell(**json.loads(args.cell)), args.steps, args.seed, args.out)))
        return
    report = Report(args)
    cells = plan(args)
    measured: dict[Cell, list[dict[str, float]]] = {cell: [] for cell in cells}
    for number in range(args.rounds):
        for cell in cells:
            if number and cell.method in PER_POSITION:
                continue  # a minute a step: once is enough
            report.step(
                f"round {number + 1}: {cell.method}, L = {cell.length}, |C| = {cell.concepts}, B = {cell.batch}"
            )
            measured[cell].append(alone(cell, args))
            print(measured[cell][-1], flush=True)
            report.add("steps", table(measured))
    print()
    print(table(measured).to_string(index=False, float_format=lambda value: f"{value:.3g}"))
    print()
    print(ratios(table(measured)).to_string(index=False, float_format=lambda value: f"{value:.3g}"))
    report.add("ratios", ratios(table(measured)))


def plan(args: Any) -> list[Cell]:
    """The cells; without heads over every position of 30,522 tokens where L is large, for they take minutes a step."""
    cells = []
    for length in args.lengths:
        small = args.naive_batch if length > 100 else args.batch
        for concepts in args.concepts:
            if "grasp" in args.methods:
                cells += [Cell(name, length, concepts, small) for name in ("grasp", "grasp-naive")]
                if small != args.batch:
                    cells.append(Cell("grasp", length, concepts, args.batch))
        cells += [
            Cell(method, length, VOCABULARY if method != "dense" else 0, args.batch)
            for method in args.methods
            if method != "grasp" and not (method in PER_POSITION and length > 100)
        ]
    return cells


def alone(cell: Cell, args: Any) -> dict[str, float]:
    """Measure a cell in a process of its own."""
    command = [sys.executable, "-m", "experiments.bench_training", "--cell", json.dumps(cell._asdict())]
    steps = 1 if cell.method in PER_POSITION else args.steps
    command += ["--threads", str(args.threads), "--steps", str(steps), "--seed", str(args.seed)]
    command += ["--out", str(args.out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{cell} failed:\n{done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(cell: Cell, steps: int, seed: int, folder: Path) -> dict[str, float]:
    """Median seconds and largest extra memory (GiB) of a step."""
    torch.manual_seed(seed)
    method = load_method(cell.method.removesuffix("-naive"))
    backbone = _Widths()
    space: Any = None
    if method.space_kind == "concepts":
        space = _concepts(cell.concepts, folder)
    elif method.space_kind is not None:
        space = TokenSpace.of(backbone)
    encoder = method.build(backbone, space, seed)
    if cell.method.endswith("-naive"):
        _use_naive_heads(encoder)
    module = TrainingModule(encoder, method)
    optimizer = torch.optim.AdamW([p for p in module.parameters() if p.requires_grad], lr=1e-4)
    batch = _batch(cell, method.needs_labels, method.space_kind == "concepts", 0 if space is None else len(space))

    def step() -> None:
        optimizer.zero_grad()
        module(**batch)["loss"].backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()

    step()  # allocates the optimizer's state
    seconds, extra = [], []
    for _ in range(steps):
        before = _resident("VmRSS", reset=True)
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
        extra.append(_resident("VmHWM") - before)
    return {"seconds": float(np.median(seconds)), "extra_gib": max(extra)}


def table(measured: dict[Cell, list[dict[str, float]]]) -> pd.DataFrame:
    """A row a cell: medians over rounds."""
    figures = ("seconds", "extra_gib")
    return pd.DataFrame(
        cell._asdict() | {name: float(np.median([run[name] for run in runs])) for name in figures}
        for cell, runs in measured.items()
        if runs
    )


def ratios(measured: pd.DataFrame) -> pd.DataFrame:
    """GRASP against its naive head, and against SDLBT where that has the same batch and length."""
    rows = []
    for (length, concepts, batch), cells in measured[measured["method"].str.startswith("grasp")].groupby(
        ["length", "concepts", "batch"]
    ):
        by_name = cells.set_index("method")
        own = by_name.loc["grasp"]
        row: dict[str, Any] = {"length": length, "concepts": concepts, "batch": batch}
        if "grasp-naive" in by_name.index:
            naive = by_name.loc["grasp-naive"]
            row |= {"naive / grasp, time": naive["seconds"] / own["seconds"]}
            row |= {"grasp / naive, extra memory": own["extra_gib"] / naive["extra_gib"]}
        other = measured.query("method == 'sdlbt' and length == @length and batch == @batch")
        if len(other):
            row |= {"grasp / sdlbt, time": own["seconds"] / other["seconds"].iloc[0]}
        rows.append(row)
    return pd.DataFrame(rows)


class _Widths(Backbone):
    """The sizes of a backbone of BERT and ViT width, without encoders."""

    kind = "widths"

    def __init__(self) -> None:
        sizes: dict[str, Any] = {"text_dim": WIDTH, "image_dim": WIDTH, "embed_dim": DIM, "temperature": 0.07}
        super().__init__(source="sizes only", text_pool="cls", image_pool="cls", device="cpu", **sizes)
        self._projections = random_projections(WIDTH, WIDTH, DIM, 0)

    def spec(self) -> dict[str, Any]:
        return {"kind": self.kind}

    def encode_text(self, texts: Any) -> TokenStates:
        raise NotImplementedError

    def encode_images(self, images: Any) -> TokenStates:
        raise NotImplementedError

    def text_projection(self) -> nn.Linear:
        return self._projections[0]

    def image_projection(self) -> nn.Linear:
        return self._projections[1]

    def token_names(self) -> list[str]:
        return [str(number) for number in range(VOCABULARY)]

    def word_embeddings(self) -> Tensor:
        return 0.02 * torch.randn(VOCABULARY, WIDTH)

    @property
    def special_ids(self) -> frozenset[int]:
        return frozenset()

    def to(self, device: Any) -> "_Widths":
        return self

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def _compute_fingerprint(self) -> str:
        return "widths"


class _NaiveHead(nn.Module):
    """Eq. 5 as it stands, but for the activation, which GRASP's loss applies itself."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        scores = states @ self.weight.T + self.bias
        return scores.masked_fill(~mask.unsqueeze(2), -torch.inf).amax(1)


def _use_naive_heads(encoder: DualEncoder) -> None:
    for name, head in list(encoder.heads.items()):
        encoder.heads[name] = _NaiveHead(head.weight, head.bias)  # type: ignore[arg-type]


def _concepts(n: int, folder: Path) -> ConceptSpace:
    """A space of n concepts, kept beside the results."""
    path = folder / f"{n}.concepts"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        triplets = path.with_suffix(".triplets.jsonl")
        with triplets.open("w", encoding="utf-8") as file:
            for first in range(0, n, 2):
                last = min(first + 1, n - 1)
                row = {"sentid": f"t{first}", "imgid": f"i{first}", "triplets": [[f"c{first}", "is", f"c{last}"]]}
                file.write(json.dumps(row) + "\n")
        ConceptSpace.build(_NoDataset(n), TripletFile(triplets), path, max_df=0.5, verbose=False)
    return ConceptSpace(path)


class _NoDataset:
    """As many captions and images as :func:`_concepts` needs."""

    def __init__(self, n: int) -> None:
        self.ids = range(0, n, 2)

    def get_topics(self) -> pd.DataFrame:
        return pd.DataFrame({"qid": [f"t{i}" for i in self.ids], "query": ["a"] * len(self.ids)})

    def get_qrels(self) -> pd.DataFrame:
        columns = {"qid": [f"t{i}" for i in self.ids], "docno": [f"i{i}" for i in self.ids]}
        return pd.DataFrame({**columns, "label": 1})

    def get_corpus_iter(self, verbose: bool = False) -> Any:
        return iter([{"docno": f"i{i}", "path": ""} for i in self.ids])


def _batch(cell: Cell, labels: bool, image_labels: bool, dimensions: int) -> dict[str, Tensor]:
    batch: dict[str, Tensor] = {"image_ids": torch.arange(cell.batch)}
    for modality, length in (("text", TEXT_LENGTH), ("image", cell.length)):
        batch[f"{modality}_states"] = torch.randn(cell.batch, length, WIDTH)
        batch[f"{modality}_mask"] = torch.ones(cell.batch, length, dtype=torch.bool)
        batch[f"{modality}_special"] = torch.zeros(cell.batch, length, dtype=torch.bool)
        batch[f"{modality}_special"][:, 0] = True
        if labels and (modality == "text" or image_labels):
            batch[f"{modality}_labels"] = (torch.rand(cell.batch, dimensions) < 0.005).float()
    return batch


def _resident(field: str, *, reset: bool = False) -> float:
    """A field of /proc/self/status in GiB; ``reset`` starts the peak (VmHWM) anew."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 2**20
    raise ValueError(f"/proc/self/status has no {field}")


if __name__ == "__main__":
    main()
