"""Triplets that were extracted elsewhere."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pyterrier_grasp.concepts.extract.base import CaptionText, CaptionTriplets, captions
from pyterrier_grasp.concepts.triplets import Triplet, read_rows


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

    def settings(self) -> dict[str, Any]:
        """What decides about the triplets: the content of the file and ``missing``. A build resumes while they stay.

        Raises:
            FileNotFoundError: If there is no such file.
        """
        if not self.path.is_file():
            raise FileNotFoundError(f"there is no triplet file {self.path}")
        content = hashlib.sha256()
        with self.path.open("rb") as file:
            while block := file.read(1 << 20):
                content.update(block)
        return {"content": content.hexdigest()[:16], "missing": self.missing}

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
