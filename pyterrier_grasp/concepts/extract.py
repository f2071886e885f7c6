"""Extractors: what turns the captions of a dataset into triplets."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypedDict, runtime_checkable

from pyterrier_grasp.concepts.triplets import Triplet, read_rows
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
    """Anything that yields the triplets of a dataset's captions."""

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
        ValueError: If a qid occurs twice in the topics, or a caption is no string or has no relevant image.
    """
    topics, qrels = dataset.get_topics(), dataset.get_qrels()
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


class TripletFile:
    """Extractor that reads triplets extracted elsewhere. A row belongs to the caption whose qid is its ``sentid``.

    Args:
        path: JSON lines, plain or ``.gz``: ``{"sentid", "imgid", "triplets": [[subject, relation, object], ...]}``.
            Rows of captions outside the dataset are passed over, so that one file may serve all splits.
        missing: What to do with a caption that has no row: ``"error"``, or ``"empty"`` for no triplets.
    """

    def __init__(self, path: str | Path, *, missing: Literal["error", "empty"] = "error") -> None:
        if missing not in ("error", "empty"):
            raise ValueError(f"missing must be 'error' or 'empty', got {missing!r}")
        self.path = Path(path)
        self.missing = missing

    def __repr__(self) -> str:
        return f"TripletFile({str(self.path)!r})"

    def extract(self, dataset: Any) -> Iterator[CaptionTriplets]:
        """Yield the triplets of the dataset's captions, in the order of its topics.

        Args:
            dataset: A PyTerrier dataset with ``get_topics`` and ``get_qrels``.

        Yields:
            ``{"qid", "docno", "triplets"}``.

        Raises:
            FileNotFoundError: If there is no such file.
            KeyError: If captions of the dataset have no row.
            ValueError: If a row is malformed, a ``sentid`` occurs twice, or the file groups captions into other images
                than the dataset does (it was made for another dataset).
        """
        wanted = captions(dataset)
        qids = {caption.qid for caption in wanted}
        triplets: dict[str, list[Triplet]] = {}
        imgids: dict[str, str | None] = {}
        for row in read_rows(self.path):
            if row.sentid not in qids:
                continue
            if row.sentid in triplets:
                raise ValueError(f"{self.path}: the sentid {row.sentid!r} occurs twice")
            triplets[row.sentid] = row.triplets
            imgids[row.sentid] = row.imgid
        absent = [caption.qid for caption in wanted if caption.qid not in triplets]
        if absent and (self.missing == "error" or not triplets):
            raise KeyError(
                f"{self.path} has no row for {len(absent)} of the {len(wanted)} captions of {dataset!r}, such as the "
                f"sentids {absent[:3]}; with missing='empty' they get no triplets"
            )
        self._check_grouping(wanted, imgids)
        for caption in wanted:
            yield {"qid": caption.qid, "docno": caption.docno, "triplets": triplets.get(caption.qid, [])}

    def _check_grouping(self, wanted: list[CaptionText], imgids: dict[str, str | None]) -> None:
        """Running numbers of two datasets overlap, so that a wrong file could join without a sign."""
        images_of: dict[str, set[str]] = {}
        for caption in wanted:
            images_of.setdefault(caption.qid, set()).add(caption.docno)
        common: dict[str, set[str]] = {}
        for qid, images in images_of.items():
            imgid = imgids.get(qid)
            if imgid is None:
                continue
            before = common.setdefault(imgid, images)
            common[imgid] = before & images
            if not common[imgid]:
                raise ValueError(
                    f"{self.path} does not belong to this dataset: it gives the imgid {imgid!r} to captions of the "
                    f"different images {min(before)!r} and {min(images)!r}"
                )
