"""The phrases that the training captions name, with the number of images and captions that do."""

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from pyterrier_grasp.concepts.corpus import Corpus
from pyterrier_grasp.concepts.triplets import PART_KINDS, normalise


class Phrase(NamedTuple):
    """A phrase of the training captions.

    Attributes:
        phrase: The phrase, normalised.
        kind: ``"entity"`` (a subject or object) or ``"relation"``.
        df: Number of images whose captions name it.
        text_df: Number of captions that name it.
    """

    phrase: str
    kind: str
    df: int
    text_df: int


def count_phrases(corpus: Corpus, kinds: Collection[str]) -> list[Phrase]:
    """Count the phrases of some kinds.

    Args:
        corpus: The training captions.
        kinds: The kinds.

    Returns:
        The phrases by kind, number of images (falling) and spelling, so that the order of the captions has no part in
        it.
    """
    per_text = [
        {(k, p) for t in triplets for k, p in zip(PART_KINDS, map(normalise, t), strict=True) if p and k in kinds}
        for triplets in corpus.triplets
    ]
    per_image: list[set[tuple[str, str]]] = [set() for _ in corpus.docnos]
    for image, text in corpus.links.tolist():
        per_image[image] |= per_text[text]
    text_df = Counter(key for keys in per_text for key in keys)
    df = Counter(key for keys in per_image for key in keys)
    return [
        Phrase(phrase, kind, df[kind, phrase], text_df[kind, phrase])
        for kind, phrase in sorted(df, key=lambda key: (key[0], -df[key], key[1]))
    ]
