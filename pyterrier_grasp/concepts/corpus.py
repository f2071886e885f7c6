"""The training captions as triplets, and the phrases that they name."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from scipy.sparse import csr_array

from pyterrier_grasp.concepts.extract import CaptionTriplets
from pyterrier_grasp.concepts.triplets import Triplet, check_triplets
from pyterrier_grasp.concepts.vocabulary import multi_hot


class Corpus:
    """The training captions as triplets: unique texts, unique images, and which text describes which image.

    Args:
        rows: Rows of an extractor; a caption of several images has a row for each.
        texts: The caption of each qid, where it is known.

    Raises:
        ValueError: If there are no rows, or one qid has different triplets in two rows.
    """

    def __init__(self, rows: Iterable[CaptionTriplets], texts: Mapping[str, str] | None = None) -> None:
        text_of: dict[str, int] = {}
        image_of: dict[str, int] = {}
        self.triplets: list[list[Triplet]] = []
        links: list[tuple[int, int]] = []
        for row in rows:
            qid, docno = str(row["qid"]), str(row["docno"])
            triplets = check_triplets(row["triplets"], f"caption {qid!r}")
            if text_of.setdefault(qid, len(text_of)) == len(self.triplets):
                self.triplets.append(triplets)
            elif self.triplets[text_of[qid]] != triplets:
                raise ValueError(f"the caption {qid!r} has different triplets in two rows")
            links.append((image_of.setdefault(docno, len(image_of)), text_of[qid]))
        if not links:
            raise ValueError("the extractor gave no captions: a concept space is built from at least one")
        self.qids, self.docnos = list(text_of), list(image_of)
        self.texts: Mapping[str, str] = texts or {}
        self.links = np.asarray(links, np.int64)

    def rows(self) -> Iterator[CaptionTriplets]:
        """The rows again."""
        for image, text in self.links.tolist():
            yield {"qid": self.qids[text], "docno": self.docnos[image], "triplets": self.triplets[text]}

    def image_labels(self, text_labels: csr_array) -> csr_array:
        """Labels of the images: the union of those of their texts.

        Args:
            text_labels: float32 {0, 1} ``[n_texts, |C|]``.

        Returns:
            float32 {0, 1} ``[n_images, |C|]``.
        """
        indptr = text_labels.indptr.astype(np.int64)
        texts = self.links[:, 1]
        lengths = np.diff(indptr)[texts]
        starts = np.repeat(indptr[texts] - (np.cumsum(lengths) - lengths), lengths)
        columns = text_labels.indices[starts + np.arange(lengths.sum())].astype(np.int64)
        return multi_hot(np.repeat(self.links[:, 0], lengths), columns, (len(self.docnos), text_labels.shape[1]))
