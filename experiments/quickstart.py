"""The whole path on the embedded corpus ``scenes``, in a few minutes on two cores and with no download.

Caches token states of the shipped backbone, builds the concept space from the training captions' triplets, trains the
dense baseline (D0) and GRASP, indexes the 500 test images and prints the ``pt.Experiment`` table.
"""

from pathlib import Path

import pyterrier as pt

import pyterrier_grasp as ptg
from experiments.compare import Splits, compare, grounding, show, train_both
from experiments.report import Report, parser
from pyterrier_grasp.datasets import scenes
from pyterrier_grasp.training.pairs import cache_folder

LEARNING_RATES = (1e-5, 1e-4, 1e-3, 1e-2)
EPOCHS = 6
# Chosen on scenes/val: the dense vectors have 16 dimensions, too few to read 100 concepts from.
OPTIONS = {"token_source": "hidden"}
# "is" is in every image: it tells none apart.
MAX_DF = 0.5


def main() -> None:
    """Run the experiment."""
    arguments = parser(__doc__, "quickstart")
    arguments.add_argument("--epochs", type=int, default=EPOCHS, help="passes over the pairs (default: %(default)s)")
    args = arguments.parse_args()
    report = Report(args, dataset="scenes", learning_rates=LEARNING_RATES, options=OPTIONS, max_df=MAX_DF)

    report.step("rendering scenes (4,000 training, 500 validation and 500 test images) and their triplets")
    splits = Splits(*(pt.get_dataset(f"grasp:scenes/{split}") for split in ("train", "val", "test")))
    for split in scenes.SPLITS:
        scenes.materialise(split)
    scenes.write_triplets(report.out / "triplets.jsonl", ["train", "val"])
    extractor = ptg.TripletFile(report.out / "triplets.jsonl")

    report.step("building the concept space")
    space = ptg.ConceptSpace.build(
        splits.train, extractor, report.out / "scenes.concepts", max_df=MAX_DF, overwrite=True, verbose=False
    )
    print(f"{len(space)} concepts: {', '.join(concept.name for concept in space.concepts[::8])}, ...")
    report.add("concepts", len(space))

    backbone = ptg.Backbone.load("scenes")
    dense, grasp = train_both(
        backbone,
        space,
        splits,
        report,
        learning_rates=LEARNING_RATES,
        options=OPTIONS,
        epochs=args.epochs,
        patience=None,
        seed=args.seed,
        cache_dir=args.cache,
        verbose=False,
    )
    grasp.save(report.out / "scenes.grasp", overwrite=True)

    report.step("grounding: micro average precision of the concept labels of scenes/val")
    figures = grounding(grasp, splits.val, extractor, ptg.TokenStateCache(cache_folder(args.cache), backbone), report)
    for modality in ("text", "image"):
        ap, by_df, active = (figures[f"{modality}_{name}"] for name in ("ap", "ap_by_df", "active"))
        print(f"{modality:5}  AP {ap:.3f}   by document frequency {by_df:.3f}   active {100 * active:.1f} %")

    table = compare(dense, grasp, splits.test, report)
    print(show(table))

    report.step("what one image and one query activate")
    doc, topic = next(iter(splits.test.get_corpus_iter(verbose=False))), splits.test.get_topics().iloc[0]
    example = {"image": grasp.concepts(Path(doc["path"])), "query": grasp.concepts(topic["query"])}
    for title, concepts in zip((f"image {doc['docno']}", f"query {topic['query']!r}"), example.values(), strict=True):
        print(f"{title}: " + ", ".join(f"{name} {weight:.2f}" for name, weight in concepts))
    report.add("example", example | {"docno": doc["docno"], "text": topic["query"]})
    report.step(f"done; everything is in {report.out}")


if __name__ == "__main__":
    main()
