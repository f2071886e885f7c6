"""What an extractor is: something that turns the captions of a dataset into triplets."""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, TypedDict, runtime_checkable

from pyterrier_grasp.concepts.triplets import Triplet
from pyterrier_grasp.ids import first_repeated


class CaptionTriplets(TypedDict):
    """The triplets of one caption of one image."""

    qid: str
    docno: str
    triplets: list[Triplet]


class CaptionText(NamedTuple):
    """A caption and the image that it describes."""

    qid: str
    docno: str
    text: str


@runtime_checkable
class Extractor(Protocol):
    """Anything that yields the triplets of a dataset's captions.

    Three further members are used where they exist: ``settings() -> dict``, what decides about the triplets, in JSON
    types (a build extracts anew when it changes); ``refiner() -> Refiner | None``, the refiner that goes with the
    extractor; and ``outcome() -> dict``, called after the extraction, what a report should keep of it (such as
    ``"failures"`` and ``"cost"``).
    """

    def extract(self, dataset: Any) -> Iterator[CaptionTriplets]:
        """Yield one row for each caption of each of its images, in the order of the dataset's topics.

        Args:
            dataset: A PyTerrier dataset with ``get_topics`` and ``get_qrels``.
        """
        ...


def captions(dataset: Any) -> list[CaptionText]:
    """Join the topics of a dataset with its relevant images.

    Args:
        dataset: A PyTerrier dataset: topics ``qid, query``, qrels ``qid, docno, label``.

    Returns:
        One row for each caption and relevant image, in the order of the topics.

    Raises:
        ValueError: If it is no dataset, its topics have no captions, a qid occurs twice in them, or a caption is no
            string or has no relevant image.
    """
    if not hasattr(dataset, "get_topics") or not hasattr(dataset, "get_qrels"):
        raise ValueError(f"a dataset with get_topics and get_qrels is needed, got {dataset!r}")
    topics, qrels = dataset.get_topics(), dataset.get_qrels()
    if "query" not in topics:
        raise ValueError(
            f"the topics of {dataset!r} have no captions but {list(topics.columns)}; concepts are mined from a dataset "
            "whose topics have the columns qid and query (not from one whose id ends in /i2t)"
        )
    images: dict[str, list[str]] = {}
    for qid, docno, label in zip(qrels["qid"], qrels["docno"], qrels["label"], strict=True):
        if label > 0:
            images.setdefault(str(qid), []).append(str(docno))
    qids = [str(qid) for qid in topics["qid"]]
    repeated = first_repeated(qids)
    if repeated is not None:
        raise ValueError(f"the qid {repeated!r} occurs twice in the topics of {dataset!r}")
    lonely = [qid for qid in qids if qid not in images]
    if lonely:
        raise ValueError(
            f"{len(lonely)} of {len(qids)} captions of {dataset!r} have no relevant image in the qrels: {lonely[:3]}"
        )
    texts = topics["query"].tolist()
    for qid, text in zip(qids, texts, strict=True):
        if not isinstance(text, str):
            raise ValueError(f"the caption {qid!r} of {dataset!r} is {text!r}, which is not a string")
    return [CaptionText(qid, docno, text) for qid, text in zip(qids, texts, strict=True) for docno in images[qid]]
