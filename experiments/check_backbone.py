"""Does a frozen backbone give the figures published for it? Cosines of its own projections, nothing trained.

Prints R@1, R@5 and RR@10 of the test split, text -> image, beside what the literature reports for the same checkpoint,
and says that they match (within 0.3 points of R@1) or which step to look at.
"""

from pathlib import Path
from typing import Any

import pyterrier as pt

import pyterrier_grasp as ptg
from experiments.arguments import plain_value
from experiments.report import Report, parser
from experiments.scoring import NAMES, measure, score
from pyterrier_grasp.methods import load_method
from pyterrier_grasp.training.pairs import cache_folder

TOLERANCE = 0.3
# R@1 of the frozen dense backbones without re-ranking (SDLBT, Table 2), LAVIS checkpoints fine-tuned on the dataset
PUBLISHED = {
    ("albef", "flickr30k"): 79.1,
    ("albef", "coco"): 53.3,
    ("blip", "flickr30k"): 83.2,
    ("blip", "coco"): 57.0,
}
SIZES = {"flickr30k": (5_000, 1_000), "coco": (25_010, 5_000)}
# what a released checkpoint of the kind has
EXPECTED = {"text tokens at most": (30, 35), "text width": 768, "vector width": 256}


def main(argv: list[str] | None = None) -> None:
    """Run the check."""
    arguments = parser(__doc__, "check_backbone")
    arguments.add_argument("--backbone", required=True, help="checkpoint file, folder or hub id; or scenes")
    arguments.add_argument("--dataset", help="flickr30k, coco, flickr8k or scenes")
    arguments.add_argument("--data", type=Path, help="instead: folder with images/ and dataset_*.json")
    arguments.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of the backbone")
    args = arguments.parse_args(argv)
    if (args.dataset is None) == (args.data is None):
        raise SystemExit("give --dataset, or --data with a folder of your own")
    name = args.dataset or "photos"
    if args.data is not None:
        annotations = next(iter(sorted(args.data.glob("dataset_*.json"))), None)
        if annotations is None:
            raise SystemExit(f"{args.data} holds no dataset_*.json")
        ptg.datasets.local(name, annotations=annotations, images=args.data / "images")
    report = Report(args)
    options = {key: plain_value(value) for key, _, value in (text.partition("=") for text in args.option)}
    backbone = ptg.Backbone.load(args.backbone, **options)
    test = pt.get_dataset(f"irds:{name}/test")
    report.step(f"{backbone.source} on {name}/test")

    method = load_method("dense")
    model = ptg.GraspModel(backbone, method, method.build(backbone, None, seed=args.seed))
    scored = score(model, test, ptg.TokenStateCache(cache_folder(args.cache), backbone))
    table = measure(scored.dense, scored, test.get_qrels(), "t2i")
    found = {measure_name: 100 * float(table[measure_name].mean()) for measure_name in NAMES}
    published = PUBLISHED.get((backbone.kind, name))
    sizes = (len(scored.qids), len(scored.docnos))
    print(f"{sizes[0]:,} captions, {sizes[1]:,} images")
    print("  ".join(f"{measure_name} {value:.2f}" for measure_name, value in found.items()))
    report.add("frozen", found)
    report.add("published R@1", published)
    report.add("verdict", verdict(backbone, name, found["R@1"], published, sizes))
    print(report.figures["verdict"])


def verdict(backbone: ptg.Backbone, dataset: str, found: float, published: float | None, sizes: tuple[int, int]) -> str:
    """What to make of the figure.

    Args:
        backbone: The backbone.
        dataset: Its test split was used.
        found: R@1 in percent.
        published: The same from the literature; None if there is none.
        sizes: Captions and images of the split.
    """
    if published is None:
        return f"no figure is published for a frozen {backbone.kind} on {dataset}; nothing to compare with"
    difference = found - published
    if abs(difference) <= TOLERANCE:
        return f"match: R@1 is {found:.2f}, published {published:.1f}"
    return f"no match: R@1 is {found:.2f}, published {published:.1f} ({difference:+.2f}). Look at: " + "; ".join(
        suspects(backbone, dataset, difference, sizes)
    )


def suspects(backbone: Any, dataset: str, difference: float, sizes: tuple[int, int]) -> list[str]:
    """Steps to look at, the likeliest first."""
    likely = []
    if sizes != SIZES[dataset]:
        likely.append(f"the split, which has {sizes} captions and images instead of {SIZES[dataset]}")
    states = backbone.encode_text(["a man " * 100])
    for what, value in (
        ("text tokens at most", states.states.shape[1]),
        ("text width", backbone.text_dim),
        ("vector width", backbone.embed_dim),
    ):
        expected: Any = EXPECTED[what]
        if value != expected and not (isinstance(expected, tuple) and value in expected):
            likely.append(f"{what}: {value} instead of {expected}")
    if abs(difference) > 20:
        likely.append("the checkpoint: is it the one fine-tuned on this dataset, and are all its keys read?")
        likely.append("the projections: pooled state is CLS, in both towers")
    else:
        likely.append(
            "caption rules: the published figures are LAVIS's (layout='lavis'), the original cuts at 30 tokens"
        )
        likely.append("images: 384 pixels, squashed, bicubic by Pillow; a resized copy of the photos costs points")
        likely.append("text attention heads: 12; layer norms of the image encoder: eps 1e-6")
    return likely


if __name__ == "__main__":
    main()
