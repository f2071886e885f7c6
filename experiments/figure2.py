"""The paper's Figure 2: (a) token spaces pruned to the size of the concept space, (b) what images activate.

Trains what ``table1`` has not trained yet under the same ``--out``. A pruned model keeps the tokens with the largest
weights on the training split, texts and images alike; its ``w`` is chosen on validation anew.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_array

import pyterrier_grasp as ptg
from experiments import cells
from experiments.arguments import add_arguments, parse
from experiments.cells import Cell
from experiments.corpora import Corpus
from experiments.corpora import add_arguments as add_corpus
from experiments.protocol import Protocol, saved_fingerprint
from experiments.report import Report, parser
from experiments.rows import ROWS
from experiments.scoring import NAMES
from experiments.tables import LABELS, markdown
from pyterrier_grasp.pruning import top_activated

BARS = ("S", "calibrated")


def main(argv: list[str] | None = None) -> None:
    """Run the experiment."""
    arguments = parser(__doc__, "tables", seeds=True)
    add_corpus(arguments)
    add_arguments(arguments)
    arguments.add_argument("--baselines", nargs="+", choices=("sdlbt", "d2s"), default=["sdlbt"], help="(%(default)s)")
    arguments.add_argument("--images", type=int, default=5, help="of val, for (b) (%(default)s)")
    arguments.add_argument("--top", type=int, default=10, help="activations of each (%(default)s)")
    args = parse(arguments, argv)
    corpus = Corpus(args)
    protocol = Protocol(args, corpus)
    report = Report(args, file="figure2.json")
    if not args.only_table:
        cells.run(protocol.cells([*args.baselines, "grasp"]), report.step)
        pruned = [
            pruned_cell(protocol, backbone, row, seed)
            for backbone in corpus.backbones
            for row in args.baselines
            for seed in args.seeds
            if protocol.folder(backbone, row, seed).is_dir()
        ]
        cells.run(pruned, report.step)
    for backbone in corpus.backbones:
        report.step(f"{corpus.name}, {backbone}: (a) R@1")
        bars = size_matched(protocol, backbone, args.baselines)
        bars.to_csv(args.out / f"figure2a-{backbone}.csv", index=False)
        print(markdown(shown(bars)))
        report.add(f"{backbone} size-matched", bars)
        draw(bars, args.out / f"figure2a-{backbone}.png")
        report.step(f"{corpus.name}, {backbone}: (b) the strongest dimensions of {args.images} images of val")
        rows = [row for row in (*args.baselines, "grasp") if protocol.folder(backbone, row, args.seeds[0]).is_dir()]
        examples = activations(protocol, backbone, rows)
        text = "\n".join(json.dumps(example, ensure_ascii=False) for example in examples)
        (args.out / f"figure2b-{backbone}.jsonl").write_text(text + "\n", encoding="utf-8")
        for example in examples:
            print(f"\n{example['docno']}: {example['captions'][0]}")
            for row in rows:
                print(f"  {ROWS[row].label:8}" + ", ".join(f"{name} {weight:.2f}" for name, weight in example[row]))
        report.add(f"{backbone} activations", examples)


def trained(protocol: Protocol, backbone: str, row: str, seed: int) -> ptg.GraspModel:
    """The model of a finished cell."""
    return ptg.GraspModel.load(protocol.folder(backbone, row, seed) / "model", backbone=protocol.backbone(backbone))


def pruned_cell(protocol: Protocol, backbone: str, row: str, seed: int) -> Cell:
    """A cell with the figures of a row's model pruned to as many tokens as there are concepts."""

    def work(folder: Path) -> None:
        model = trained(protocol, backbone, row, seed)
        kept = top_activated(sums(protocol, model), len(protocol.corpus.space))
        protocol.write_scores(model.restrict(kept), BARS, folder, saved)

    saved = protocol.folder(backbone, row, seed) / "model"
    settings = {"model": saved_fingerprint(saved), "space": protocol.corpus.space.fingerprint}
    return Cell(protocol.scores_folder(backbone, f"{row}-pruned", seed), settings, work)


def sums(protocol: Protocol, model: ptg.GraspModel, batch_size: int = 256) -> list[csr_array]:
    """Sums of a model's sparse vectors over the texts and over the images of the training split, CSR ``[1, |V|]``."""
    split = protocol.corpus.splits.train
    states = protocol.states(model.backbone)
    queries = split.get_topics()["query"].tolist()
    paths = [doc["path"] for doc in split.get_corpus_iter(verbose=False)]
    stores = {"text": states.texts(queries), "image": states.images(paths)}
    keys = {"text": queries, "image": [model.backbone.image_key(path) for path in paths]}
    found = []
    for modality, store in stores.items():
        rows, total = store.rows(keys[modality]), np.zeros(len(model.space or ()))
        for start in range(0, len(rows), batch_size):
            part = slice(start, start + batch_size)
            texts = queries[part] if modality == "text" else None
            total += model.encode_states(store.batch(rows[part]), modality, texts=texts)[1].sum(axis=0)
        found.append(csr_array(total[None]))
    return found


def size_matched(protocol: Protocol, backbone: str, baselines: list[str]) -> pd.DataFrame:
    """A row a model, seed and system: ``model, seed, dimensions, system, R@1, R@5, RR@10``.

    Measures are in [0, 1]; those of a missing cell are NaN, and its dimensions 0.
    """
    rows = []
    for row in [*(name for base in baselines for name in (base, f"{base}-pruned")), "grasp"]:
        label = ROWS[row.removesuffix("-pruned")].label + (", pruned" if row.endswith("-pruned") else "")
        for seed in protocol.args.seeds:
            path = protocol.scores_folder(backbone, row, seed) / "metrics.json"
            figures: dict[str, Any] = {"dimensions": 0, "systems": {}}
            if path.is_file():
                figures = json.loads(path.read_text(encoding="utf-8"))
            systems = figures["systems"].get("t2i", {})
            for system in BARS:
                found = {"model": label, "seed": seed, "dimensions": figures["dimensions"], "system": system}
                rows.append(found | systems.get(system, dict.fromkeys(NAMES, np.nan)))
    return pd.DataFrame(rows)


def shown(bars: pd.DataFrame) -> pd.DataFrame:
    """The bars as text, percent, mean ± standard deviation over seeds."""
    rows = []
    for (model, system), part in bars.groupby(["model", "system"], sort=False):
        values = 100 * part["R@1"].dropna()
        text = f"{values.mean():.2f}" + (f" ± {values.std(ddof=1):.2f}" if len(values) > 1 else "")
        if 0 < len(values) < len(part):
            text += f" ({len(values)} of {len(part)} seeds)"
        row = {"model": model, "dims": f"{part['dimensions'].max():,}", "system": LABELS[str(system)]}
        rows.append(row | {"R@1": text if len(values) else "missing"})
    return pd.DataFrame(rows)


def activations(protocol: Protocol, backbone: str, rows: list[str]) -> list[dict[str, Any]]:
    """The strongest dimensions of some validation images, by the models of the first seed."""
    args = protocol.args
    val = protocol.corpus.splits.val
    docs = list(val.get_corpus_iter(verbose=False))
    chosen = np.random.default_rng(args.seeds[0]).permutation(len(docs))[: args.images]
    models = {row: trained(protocol, backbone, row, args.seeds[0]) for row in rows}
    captions = val.get_qrels().merge(val.get_topics(), on="qid").groupby("docno")["query"].apply(list)
    store = protocol.states(protocol.backbone(backbone)).images([docs[i]["path"] for i in chosen])
    examples = []
    for i in chosen:
        doc = docs[i]
        tokens = store.batch(store.rows([protocol.backbone(backbone).image_key(doc["path"])]))
        example: dict[str, Any] = {"docno": doc["docno"], "captions": captions[doc["docno"]]}
        for row, model in models.items():
            example[row] = list(model.to_toks(model.encode_states(tokens, "image")[1])[0].items())[: args.top]
        examples.append(example)
    return examples


def draw(bars: pd.DataFrame, path: Path) -> None:
    """Bars of R@1, if matplotlib is installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    figure = Figure(figsize=(7, 3.5), layout="constrained")
    axes = figure.subplots()
    names = list(dict.fromkeys(bars["model"]))
    for offset, system in enumerate(BARS):
        parts = [100 * bars[(bars["model"] == name) & (bars["system"] == system)]["R@1"] for name in names]
        spread = [part.std(ddof=1) if part.count() > 1 else 0 for part in parts]
        axes.bar(
            np.arange(len(names)) + 0.4 * offset - 0.2,
            [p.mean() for p in parts],
            0.38,
            yerr=spread,
            label=LABELS[system],
        )
    sizes = bars.groupby("model")["dimensions"].max()
    axes.set_xticks(range(len(names)), [f"{name}\n{sizes[name]:,} dims" for name in names])
    axes.set_ylabel("R@1 (%)")
    axes.set_title("Spaces of equal size")
    axes.legend()
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
