"""From refined clusters to the vocabulary: equal concepts joined, rare and too common ones left out."""

from collections.abc import Iterable, Mapping

import numpy as np

from pyterrier_grasp.concepts.corpus import Corpus
from pyterrier_grasp.concepts.mining.refine import Cluster, Refinement
from pyterrier_grasp.concepts.triplets import normalise
from pyterrier_grasp.concepts.vocabulary import Alias, Vocabulary

Members = dict[tuple[str, str], list[str]]  # (kind, name) -> phrases


def join(refined: Iterable[tuple[Cluster, Refinement]], df: Mapping[tuple[str, str], int]) -> Members:
    """Put the groups of all clusters together; groups of one kind with the same canonical name are one concept.

    A canonical name that is itself a phrase, and a member of a group with another name, stays with that group: the
    group that wanted it is called by its most frequent member.

    Args:
        refined: The clusters and their refinements.
        df: Number of images of each (kind, phrase).

    Returns:
        The phrases of each concept.
    """
    groups: Members = {}
    for cluster, refinement in refined:
        for group in refinement.groups:
            groups.setdefault((cluster.kind, normalise(group.canonical)), []).extend(map(normalise, group.members))
    owner = {(kind, member): name for (kind, name), members in groups.items() for member in members}
    concepts: Members = {}
    for (kind, canonical), members in groups.items():
        free = owner.get((kind, canonical), canonical) == canonical
        name = canonical if free else min((-df.get((kind, member), 0), member) for member in members)[1]
        concepts[kind, name] = members
    return concepts


def select(concepts: Members, corpus: Corpus, *, min_df: int, max_df: float) -> Vocabulary:
    """Choose the concepts that occur in enough and not too many images.

    The order is by kind, document frequency (falling) and name, so that it does not depend on that of the captions.

    Args:
        concepts: The phrases of each (kind, name).
        corpus: The training captions.
        min_df: Smallest number of images.
        max_df: Largest share of images, in (0, 1].

    Returns:
        The vocabulary. Phrases other than a concept's name are aliases.

    Raises:
        ValueError: If no concept is frequent enough.
    """
    keys = list(concepts)
    df: list[int] = []
    if keys:
        everything = _vocabulary(concepts, keys)
        labels = corpus.image_labels(everything.labels(corpus.triplets))
        df = np.bincount(labels.indices, minlength=len(keys)).tolist()
    most = max_df * len(corpus.docnos)
    chosen = [(key, n) for key, n in zip(keys, df, strict=True) if min_df <= n <= most]
    if not chosen:
        raise ValueError(
            f"no concept occurs in at least {min_df} and at most {most:g} of the {len(corpus.docnos)} images "
            f"(the most frequent one is in {max(df, default=0)})"
        )
    chosen.sort(key=lambda item: (item[0][0], -item[1], item[0][1]))
    return _vocabulary(concepts, [key for key, _ in chosen])


def _vocabulary(concepts: Members, keys: list[tuple[str, str]]) -> Vocabulary:
    aliases = (Alias(m, kind, name) for kind, name in keys for m in sorted(set(concepts[kind, name])) if m != name)
    return Vocabulary(((kind, name, ()) for kind, name in keys), aliases)
