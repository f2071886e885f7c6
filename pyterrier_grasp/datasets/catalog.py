"""The datasets known by name."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Captioned:
    """A collection of captioned photos in Karpathy's format.

    Attributes:
        annotations: Name of the JSON file.
        splits: Public splits.
        counts: Images of each split in the file; another number means that it is another file.
    """

    annotations: str
    splits: tuple[str, ...]
    counts: dict[str, int]


CATALOG: dict[str, Captioned] = {
    "coco": Captioned(
        "dataset_coco.json",
        ("train", "train-norestval", "val", "test"),
        {"train": 82_783, "restval": 30_504, "val": 5_000, "test": 5_000},
    ),
    "flickr30k": Captioned(
        "dataset_flickr30k.json", ("train", "val", "test"), {"train": 29_000, "val": 1_014, "test": 1_000}
    ),
    "flickr8k": Captioned(
        "dataset_flickr8k.json", ("train", "val", "test"), {"train": 6_000, "val": 1_000, "test": 1_000}
    ),
}

#: Splits of the embedded corpus, which is generated and needs no files.
SCENES_SPLITS = ("train", "val", "test")

TOPS = (*CATALOG, "scenes")

#: After a split: images are the queries and captions the documents.
I2T = "/i2t"

#: Other judgements of COCO's test split, which a package brings.
_JUDGED = {"test/eccv": "eccv", "test/cxc": "cxc"}


def names() -> list[str]:
    """Every dataset id of the catalogue."""
    found = []
    for top in TOPS:
        parts = [*_splits(top), *(_JUDGED if top == "coco" else ())]
        found += [top, *(f"{top}/{part}{end}" for part in parts for end in ("", I2T))]
    return found


def _splits(top: str) -> tuple[str, ...]:
    return SCENES_SPLITS if top == "scenes" else CATALOG[top].splits


def build(top: str, split: str | None) -> Any:
    """Build a catalogued dataset. Nothing is read or downloaded before it is asked for.

    Args:
        top: A member of ``TOPS``.
        split: One of its splits, or ``None`` for the whole collection. A split may be followed by ``/i2t``.

    Returns:
        An ``ir_datasets.Dataset``.

    Raises:
        KeyError: If there is no such split, with those there are.
    """
    part, i2t = direction(split)
    splits = _splits(top)
    if top == "coco" and part in _JUDGED:
        from pyterrier_grasp.datasets import eccv

        return eccv.dataset(_JUDGED[part], i2t, build(top, f"test{I2T}" if i2t else "test"))
    if part is not None and part not in splits:
        known = ", ".join((*splits, *(_JUDGED if top == "coco" else ())))
        raise KeyError(f"{top} has no split {split!r}; it has {known}, each also with {I2T} behind it")
    dataset = _captioned(top, part)
    if i2t:
        from pyterrier_grasp.datasets.i2t import image_to_text

        return image_to_text(dataset)
    return dataset


def direction(split: str | None) -> tuple[str | None, bool]:
    """``"test/i2t"`` -> ``("test", True)``; without the ending, ``(split, False)``."""
    if split is not None and split.endswith(I2T):
        return split.removesuffix(I2T), True
    return split, False


def _captioned(top: str, split: str | None) -> Any:
    """The dataset of a split, captions to images."""
    if top == "scenes":
        from pyterrier_grasp.datasets import scenes_dataset

        return scenes_dataset.dataset(SCENES_SPLITS if split is None else (split,))
    from pyterrier_grasp.datasets import files, karpathy

    return karpathy.dataset(top, split, _reader(top), lambda dataset_id, wanted: files.images(top, dataset_id, wanted))


_READERS: dict[str, Any] = {}


def _reader(top: str) -> Any:
    """The splits of a collection share one reader, so that its file is parsed once."""
    from pyterrier_grasp.datasets import files, karpathy

    entry = CATALOG[top]

    def check(counts: dict[str, int]) -> None:
        if counts != entry.counts:
            raise ValueError(
                f"{entry.annotations} is not the usual file of {top}: it has {counts} images, expected "
                f"{entry.counts}. For other splits, use pyterrier_grasp.datasets.local"
            )

    if top not in _READERS:
        _READERS[top] = karpathy.KarpathyFile(lambda: files.annotations(top, entry.annotations), check)
    return _READERS[top]
