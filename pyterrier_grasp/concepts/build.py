"""Counting phrases over the training captions, and choosing those that become concepts."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array

from pyterrier_grasp.concepts.extract import CaptionTriplets
from pyterrier_grasp.concepts.triplets import PART_KINDS, Triplet, check_triplets, normalise
from pyterrier_grasp.concepts.vocabulary import KINDS, Vocabulary, multi_hot


class Corpus:
    """The training captions as triplets: unique texts, unique images, and which text describes which image.

    Args:
        rows: Rows of an extractor; a caption of several images has a row for each.

    Raises:
        ValueError: If there are no rows, or one qid has different triplets in two rows.
    """

    def __init__(self, rows: Sequence[CaptionTriplets]) -> None:
        if not rows:
            raise ValueError("the extractor gave no captions: a concept space is built from at least one")
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
        self.qids, self.docnos = list(text_of), list(image_of)
        self.links = np.asarray(links, np.int64)

    def rows(self) -> list[CaptionTriplets]:
        """The rows again."""
        return [
            {"qid": self.qids[text], "docno": self.docnos[image], "triplets": self.triplets[text]}
            for image, text in self.links.tolist()
        ]

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


def mine(corpus: Corpus, *, min_df: int = 1, max_df: float = 1.0, kinds: Sequence[str] = KINDS) -> Vocabulary:
    """Make each phrase of the training captions a concept.

    The order is by kind, document frequency (falling) and name, so that it does not depend on that of the captions.

    Args:
        corpus: The training captions.
        min_df: Smallest number of images.
        max_df: Largest share of images, in (0, 1]. A concept of nearly every image tells none apart.
        kinds: Which kinds to keep.

    Returns:
        The vocabulary.

    Raises:
        ValueError: If ``min_df``, ``max_df`` or ``kinds`` is out of range, or no phrase is frequent enough.
    """
    kinds = (kinds,) if isinstance(kinds, str) else tuple(kinds)
    if not kinds or not set(kinds) <= set(KINDS):
        raise ValueError(f"kinds must be some of {KINDS}, got {kinds}")
    if isinstance(min_df, bool) or not isinstance(min_df, int | np.integer) or min_df < 1:
        raise ValueError(f"min_df must be an integer of at least 1, got {min_df!r}")
    if isinstance(max_df, bool) or not isinstance(max_df, int | float) or not 0 < max_df <= 1:
        raise ValueError(f"max_df must be a share of the images, above 0 and at most 1, got {max_df!r}")
    phrases: list[set[tuple[str, str]]] = [set() for _ in corpus.docnos]
    per_text = [
        {(k, p) for t in triplets for k, p in zip(PART_KINDS, map(normalise, t), strict=True) if p and k in kinds}
        for triplets in corpus.triplets
    ]
    for image, text in corpus.links.tolist():
        phrases[image] |= per_text[text]
    df = Counter(key for image in phrases for key in image)
    most = max_df * len(corpus.docnos)
    chosen = sorted((key for key, n in df.items() if min_df <= n <= most), key=lambda key: (key[0], -df[key], key[1]))
    if not chosen:
        raise ValueError(
            f"no phrase occurs in at least {min_df} and at most {most:g} of the {len(corpus.docnos)} images "
            f"(the most frequent one is in {max(df.values(), default=0)})"
        )
    return Vocabulary((kind, name, ()) for kind, name in chosen)
