"""Asking a chat model about each image of a dataset: where the files are, and what to do about those that failed."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from warnings import warn


class Failure(NamedTuple):
    """An image that the model gave no valid answer for.

    Attributes:
        docno: The image.
        qids: Its captions that were asked about.
        reason: Why, in words.
    """

    docno: str
    qids: list[str]
    reason: str


def image_paths(dataset: Any, docnos: Iterable[str]) -> dict[str, Path]:
    """The image files of a dataset.

    Args:
        dataset: A PyTerrier dataset whose documents are dicts ``{docno, path}``.
        docnos: The images that are needed.

    Raises:
        ValueError: If the dataset has no documents, one has no path, or an image is not among them.
    """
    if not hasattr(dataset, "get_corpus_iter"):
        raise ValueError(f"{dataset!r} has no documents (get_corpus_iter), so there are no images to send")
    wanted = dict.fromkeys(docnos)
    paths: dict[str, Path] = {}
    for doc in dataset.get_corpus_iter(verbose=False):
        if not isinstance(doc, Mapping) or "docno" not in doc or "path" not in doc:
            raise ValueError(f"a document of {dataset!r} is {doc!r:.200}; it must be a dict with docno and path")
        if str(doc["docno"]) in wanted:
            paths[str(doc["docno"])] = Path(doc["path"])
    missing = [docno for docno in wanted if docno not in paths]
    if missing:
        raise ValueError(
            f"{len(missing)} of {len(wanted)} images in the qrels of {dataset!r} are not among its documents: "
            f"{missing[:3]}"
        )
    return paths


def check_max_failed(max_failed: float) -> float:
    """Check that a number is a share of the images.

    Raises:
        ValueError: If it is not in [0, 1].
    """
    if isinstance(max_failed, bool) or not isinstance(max_failed, int | float) or not 0 <= max_failed <= 1:
        raise ValueError(f"max_failed must be a share of the images, from 0 to 1, got {max_failed!r}")
    return float(max_failed)


def settle(failures: Sequence[Failure], asked: int, max_failed: float, consequence: str) -> None:
    """Stop if too many images failed, else warn of those that did.

    Args:
        failures: The images that failed.
        asked: Number of images that were asked about.
        max_failed: Largest share of them that may fail.
        consequence: What happens if it goes on without them.

    Raises:
        ValueError: If more failed.
    """
    if not failures:
        return
    reasons = "; ".join(f"image {failure.docno!r}: {failure.reason}" for failure in failures[:3])
    more = f"; and {len(failures) - 3} more" if len(failures) > 3 else ""
    words = f"{len(failures)} of {asked} images failed ({reasons}{more})"
    if len(failures) > max_failed * asked:
        raise ValueError(
            f"{words}. The answers for the others are kept in the cache: run it again, and only these are asked anew. "
            f"To go on without them, give max_failed={math.ceil(1000 * len(failures) / asked) / 1000}: {consequence}"
        )
    warn(f"{words}: {consequence}", stacklevel=3)
