"""GRASP on 7,000 real photos (Flickr8k): image states computed elsewhere, MiniLM as the text tower.

The towers never saw each other, so a first dense training of the projections stands in for the public checkpoint the
paper starts from. D0 (the dense method trained further) and GRASP then start from it, with equal steps and the same
learning-rate grid, chosen on validation.
"""

from pathlib import Path
from typing import Any

import pyterrier as pt

import pyterrier_grasp as ptg
from experiments.arguments import plain_value
from experiments.compare import Splits, compare, grounding, show, train_both
from experiments.report import Report, parser
from pyterrier_grasp.concepts import Extractor
from pyterrier_grasp.concepts.mining.embed import DEFAULT
from pyterrier_grasp.training.pairs import cache_folder


def main() -> None:
    """Run the experiment."""
    arguments = parser(__doc__, "flickr8k")
    arguments.add_argument("--data", type=Path, required=True, help="folder with images/ and dataset_*.json")
    arguments.add_argument("--states", type=Path, required=True, help="folder with states.npy, ids.txt and meta.json")
    arguments.add_argument("--text", required=True, help="folder or hub id of the text encoder")
    arguments.add_argument("--triplets", type=Path, help="triplet file (default: triplets.jsonl.gz in --data)")
    arguments.add_argument(
        "--extractor", choices=("file", "spacy"), default="file", help="the triplet file, or SpacyExtractor"
    )
    arguments.add_argument("--embedder", default=DEFAULT, help="for the clusters of --extractor spacy (%(default)s)")
    arguments.add_argument("--min-df", type=int, default=5, help="fewest training images of a concept (%(default)s)")
    arguments.add_argument("--start-epochs", type=int, default=3, help="epochs of the common start (%(default)s)")
    arguments.add_argument("--epochs", type=int, default=4, help="epochs of D0 and of GRASP (%(default)s)")
    arguments.add_argument("--learning-rates", type=float, nargs="+", default=[1e-5, 1e-4], help="grid (%(default)s)")
    arguments.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="option of the method")
    args = arguments.parse_args()
    report = Report(args)

    annotations = next(iter(sorted(args.data.glob("dataset_*.json"))), None)
    if annotations is None:
        raise SystemExit(f"{args.data} holds no dataset_*.json")
    ptg.datasets.local("photos", annotations=annotations, images=args.data / "images")
    splits = Splits(*(pt.get_dataset(f"irds:photos/{split}") for split in ("train", "val", "test")))
    extractor: Extractor = ptg.TripletFile(args.triplets or args.data / "triplets.jsonl.gz")
    if args.extractor == "spacy":
        extractor = ptg.SpacyExtractor()

    report.step("building the concept space")
    space = ptg.ConceptSpace.build(
        splits.train,
        extractor,
        report.out / "photos.concepts",
        embedder=args.embedder,
        min_df=args.min_df,
        overwrite=True,
        verbose=False,
    )
    kinds = {kind: int((space.kinds == kind).sum()) for kind in ("entity", "relation")}
    print(f"{len(space)} concepts: {kinds}")
    report.add("concepts", kinds)

    report.step("common start: caching text states, dense training of the projections")
    backbone = ptg.Backbone.load(args.states, text=args.text)
    common: dict[str, Any] = {"patience": None, "seed": args.seed, "cache_dir": args.cache, "verbose": False}
    start = ptg.GraspTrainer(backbone, method="dense", epochs=args.start_epochs, learning_rate=1e-3, **common)
    start.fit(*splits.fit_arguments())
    print({name: round(value, 4) for name, value in start.validation_scores().items()})
    report.add("validation_start", start.validation_scores())

    dense, grasp = train_both(
        backbone,
        space,
        splits,
        report,
        learning_rates=tuple(args.learning_rates),
        options=dict(map(_option, args.option)),
        init=start.model,
        epochs=args.epochs,
        **common,
    )
    grasp.save(report.out / "photos.grasp", overwrite=True)

    report.step("grounding: micro average precision of the concept labels of val")
    figures = grounding(grasp, splits.val, extractor, ptg.TokenStateCache(cache_folder(args.cache), backbone), report)
    print({name: round(value, 4) for name, value in figures.items()})

    print(show(compare(dense, grasp, splits.test, report)))
    report.step(f"done; everything is in {report.out}")


def _option(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    return name, plain_value(value)


if __name__ == "__main__":
    main()
