"""Build the concept space of a dataset: triplets, clusters, refinement; ``--dry-run`` first says what it will cost.

``python -m experiments.concepts irds:flickr30k/train --model gpt-4o-mini --dry-run`` asks nothing and needs no key.
Without ``--dry-run`` it builds, prints the report and the bill, and goes on where it stopped when it is run again.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyterrier as pt

import pyterrier_grasp as ptg
from experiments.report import Report, parser
from pyterrier_grasp.concepts import Cluster, Extractor, captions, estimate_descriptions
from pyterrier_grasp.concepts.mining.embed import DEFAULT
from pyterrier_grasp.llm import Estimate

# Distinct phrases for each distinct word of the captions: measured on Flickr8k and COCO with SpacyExtractor.
PHRASES_A_WORD = 1.5


class CaptionFrame:
    """A dataset without images, from a file of COCO captions (``{"annotations": [{"id", "image_id", "caption"}]}``)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        rows = pd.DataFrame(json.loads(path.read_text(encoding="utf-8"))["annotations"])
        rows = rows.astype({"id": str, "image_id": str})
        self._topics = pd.DataFrame({"qid": rows["id"], "query": rows["caption"]})
        self._qrels = pd.DataFrame({"qid": rows["id"], "docno": rows["image_id"], "label": 1})

    def __repr__(self) -> str:
        return f"CaptionFrame({self.path.name!r})"

    def get_topics(self) -> pd.DataFrame:
        """The captions."""
        return self._topics

    def get_qrels(self) -> pd.DataFrame:
        """Their images."""
        return self._qrels


def main() -> None:
    """Run the experiment."""
    arguments = parser(__doc__, "concepts")
    arguments.add_argument("dataset", nargs="?", help="training split, such as irds:flickr30k/train")
    arguments.add_argument("--data", type=Path, help="instead: a folder with dataset_*.json (Karpathy) and images/")
    arguments.add_argument("--captions", type=Path, help="instead: a file of COCO captions")
    arguments.add_argument("--extractor", choices=("openai", "spacy"), default="openai")
    arguments.add_argument("--triplets", type=Path, help="take the triplets from this file instead")
    arguments.add_argument("--model", help="chat model, or spaCy model (default: gpt-4o-mini, en_core_web_sm)")
    arguments.add_argument("--base-url", help="endpoint of the chat model (default: OPENAI_BASE_URL, or OpenAI)")
    arguments.add_argument("--with-image", action="store_true", help="send the images along with their captions")
    arguments.add_argument("--describe", metavar="MODEL", help="let this model describe each image first")
    arguments.add_argument("--refine", choices=("auto", "none"), default="auto")
    arguments.add_argument("--embedder", default=DEFAULT, help="hub id or folder (default: %(default)s)")
    arguments.add_argument("--concurrency", type=int, default=16, help="requests at a time (default: %(default)s)")
    arguments.add_argument("--max-failed", type=float, default=0.0, help="share of images that may fail (default: 0)")
    arguments.add_argument("--max-cost", type=float, help="US dollars after which to stop")
    arguments.add_argument("--batch", action="store_true", help="use the Batch API: half the price, within 24 hours")
    arguments.add_argument("--answers", type=Path, help="file of kept answers (default: under PyTerrier's home)")
    arguments.add_argument("--min-df", type=int, default=1, help="fewest images of a concept (default: %(default)s)")
    arguments.add_argument("--max-df", type=float, default=1.0, help="largest share of images (default: %(default)s)")
    arguments.add_argument("--overwrite", action="store_true", help="replace a space that was made otherwise")
    arguments.add_argument("--dry-run", action="store_true", help="only say what it would take")
    args = arguments.parse_args()
    try:
        run(args)
    except (ValueError, KeyError, OSError, ImportError) as error:
        sys.exit(f"error: {error}")


def run(args: argparse.Namespace) -> None:
    """Do what the arguments say."""
    dataset = open_dataset(args)
    client = {
        "base_url": args.base_url,
        "concurrency": args.concurrency,
        "max_cost": args.max_cost,
        "batch": args.batch,
        "cache": args.answers,
    }
    extractor = open_extractor(args, client)
    if args.dry_run:
        print(dry_run(args, dataset, extractor, client))
        return
    report = Report(args)
    if args.describe:
        report.step("descriptions")
        path = report.out / "descriptions.jsonl"
        dataset = (
            ptg.DescribedDataset(dataset, path)
            if path.exists()
            else ptg.describe(dataset, path, model=args.describe, max_failed=args.max_failed, **client)
        )
    report.step("concept space")
    space = ptg.ConceptSpace.build(
        dataset,
        extractor,
        report.out / "concepts",
        refiner=None if args.refine == "none" else "auto",
        embedder=args.embedder,
        seed=args.seed,
        min_df=args.min_df,
        max_df=args.max_df,
        overwrite=args.overwrite,
    )
    space.report()
    steps = json.loads((space.path / "build.json").read_text(encoding="utf-8"))["steps"]
    report.add("summary", space.summary())
    report.add("steps", {name: {"seconds": step["seconds"], **step["result"]} for name, step in steps.items()})
    for name, step in steps.items():
        cost = step["result"].get("cost")
        print(f"{name:<9}{step['seconds']:8.1f} s" + (f"   ${cost:.2f}" if cost else ""))
    report.step(f"done; the space is in {space.path}")


def open_dataset(args: argparse.Namespace) -> Any:
    """The dataset that the arguments name."""
    given = [one for one in (args.dataset, args.data, args.captions) if one is not None]
    if len(given) != 1:
        raise ValueError("give one of: a dataset id, --data FOLDER, --captions FILE")
    if args.captions is not None:
        if not args.captions.is_file():
            raise FileNotFoundError(f"there is no file of captions at {args.captions}")
        return CaptionFrame(args.captions)
    if args.data is not None:
        annotations = next(iter(sorted(args.data.glob("dataset_*.json"))), None)
        if annotations is None:
            raise FileNotFoundError(f"{args.data} holds no dataset_*.json")
        ptg.datasets.local("photos", annotations=annotations, images=args.data / "images")
        return pt.get_dataset("irds:photos/train")
    return pt.get_dataset(args.dataset)


def open_extractor(args: argparse.Namespace, client: dict[str, Any]) -> Extractor:
    """The extractor that the arguments name."""
    if args.triplets is not None:
        return ptg.TripletFile(args.triplets)
    if args.extractor == "spacy":
        return ptg.SpacyExtractor(args.model or "en_core_web_sm")
    return ptg.OpenAIExtractor(
        args.model or "gpt-4o-mini", with_image=args.with_image, max_failed=args.max_failed, **client
    )


def dry_run(args: argparse.Namespace, dataset: Any, extractor: Extractor, client: dict[str, Any]) -> str:
    """What the build will take, in words; nothing is asked."""
    texts = captions(dataset)
    lines = [f"{len(texts):,} captions of {len({text.docno for text in texts}):,} images"]
    total = Estimate(0, 0, 0, 0, 0.0, 0.0)
    if args.describe:
        described = estimate_descriptions(dataset, model=args.describe, **client)
        total += described
        lines.append(f"descriptions: {described} (and a little more for the extraction from them)")
    if not isinstance(extractor, ptg.OpenAIExtractor):
        return "\n".join([*lines, f"{extractor!r} asks no chat model: it costs nothing"])
    extraction = extractor.estimate(dataset)
    lines.append(f"extraction:   {extraction}")
    total += extraction
    if args.refine == "auto":
        words = sorted({word for text in texts for word in re.findall(r"\w+", text.text.lower())})
        each = max(1, round(10 / PHRASES_A_WORD))
        guessed = [Cluster("entity", tuple(words[start : start + each])) for start in range(0, len(words), each)]
        # a cluster of ten phrases, some of two words, where these have fewer words
        refinement = extractor.refiner().estimate(guessed)
        lines.append(f"refinement:   about {refinement} (the phrases are known only after the extraction)")
        total += refinement
    return "\n".join([*lines, f"together:     {total}"])


if __name__ == "__main__":
    main()
