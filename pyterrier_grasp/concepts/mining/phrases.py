"""The phrases of the training captions, counted; and those that become concepts."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from pyterrier_grasp.concepts.corpus import Corpus
from pyterrier_grasp.concepts.triplets import PART_KINDS, normalise
from pyterrier_grasp.concepts.vocabulary import KINDS, Vocabulary


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
