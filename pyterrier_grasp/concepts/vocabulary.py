"""The concepts of a space, the phrases that name them, and the labels of triplets."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from pyterrier_grasp.concepts.triplets import PART_KINDS, check_triplets, normalise

KINDS = ("entity", "relation")


class Concept(NamedTuple):
    """One dimension of the sparse space.

    Attributes:
        name: Its label, normalised.
        kind: ``"entity"`` (a subject or object) or ``"relation"``.
        df: Number of training images whose captions, taken together, name it.
        text_df: Number of training captions that name it.
        members: The phrases that count as it, its name among them.
    """

    name: str
    kind: str
    df: int
    text_df: int
    members: tuple[str, ...]


class Alias(NamedTuple):
    """A further phrase that counts as a concept."""

    phrase: str
    kind: str
    concept: str


class Vocabulary:
    """Ordered concepts and the map from phrases to them.

    Args:
        concepts: ``(kind, name, members)`` in the order of the dimensions; the name always counts as a member.
        aliases: Further phrases.

    Raises:
        ValueError: If there are no concepts, a kind is unknown, a name is empty or occurs twice in a kind, a phrase
            belongs to two concepts of its kind, or an alias points to a concept that does not exist.
    """

    def __init__(self, concepts: Iterable[tuple[str, str, Sequence[str]]], aliases: Iterable[Alias] = ()) -> None:
        entries = [(kind, normalise(name), [normalise(m) for m in members]) for kind, name, members in concepts]
        if not entries:
            raise ValueError("a concept space needs at least one concept")
        self.kinds = [kind for kind, _, _ in entries]
        self.plain_names = [name for _, name, _ in entries]
        self.own_members = [tuple(dict.fromkeys([name, *members])) for _, name, members in entries]
        self.aliases = [Alias(normalise(a.phrase), a.kind, normalise(a.concept)) for a in aliases]
        self.dimension: dict[tuple[str, str], int] = {}
        position: dict[tuple[str, str], int] = {}
        for j, (kind, name, _) in enumerate(entries):
            if kind not in KINDS:
                raise ValueError(f"the concept {name!r} has the kind {kind!r}; the kinds are {', '.join(KINDS)}")
            if not name:
                raise ValueError(f"concept number {j} ({kind}) has an empty name")
            if (kind, name) in position:
                raise ValueError(f"the {kind} {name!r} occurs twice")
            position[kind, name] = j
        for j, members in enumerate(self.own_members):
            for phrase in members:
                self._claim(self.kinds[j], phrase, j)
        for alias in self.aliases:
            if (alias.kind, alias.concept) not in position:
                raise ValueError(
                    f"the alias {alias.phrase!r} points to the {alias.kind} {alias.concept!r}, which is not among the "
                    f"concepts; remove the alias, or point it to another concept"
                )
            self._claim(alias.kind, alias.phrase, position[alias.kind, alias.concept])
        self.names = self._dimension_names()

    def _claim(self, kind: str, phrase: str, j: int) -> None:
        if not phrase:
            raise ValueError(f"the {kind} {self.plain_names[j]!r} has an empty phrase among its members or aliases")
        owner = self.dimension.setdefault((kind, phrase), j)
        if owner != j:
            raise ValueError(
                f"the phrase {phrase!r} belongs to two {kind} concepts, {self.plain_names[owner]!r} and "
                f"{self.plain_names[j]!r}; leave it in one of them"
            )

    def _dimension_names(self) -> list[str]:
        shared = Counter(self.plain_names)
        names = [n if shared[n] == 1 else f"{k}:{n}" for k, n in zip(self.kinds, self.plain_names, strict=True)]
        clash = [name for name, count in Counter(names).items() if count > 1]
        if clash:
            raise ValueError(f"the dimension name {clash[0]!r} is not unique; rename one of the concepts")
        return names

    def __len__(self) -> int:
        return len(self.kinds)

    def members(self) -> list[tuple[str, ...]]:
        """The phrases of each concept, aliases included, its name first."""
        phrases: list[dict[str, None]] = [dict.fromkeys(own) for own in self.own_members]
        for (_, phrase), j in self.dimension.items():
            phrases[j].setdefault(phrase)
        return [tuple(p) for p in phrases]

    def fingerprint(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of the ordered concepts and their phrases."""
        content = [
            [kind, name, sorted(members)]
            for kind, name, members in zip(self.kinds, self.plain_names, self.members(), strict=True)
        ]
        return hashlib.sha256(json.dumps(content, ensure_ascii=True).encode()).hexdigest()[:16]

    def labels(self, triplets: Sequence[Sequence[Any]]) -> csr_array:
        """Multi-hot labels: row i has a 1 for each concept that a triplet of ``triplets[i]`` names.

        Args:
            triplets: For each text, its triplets.

        Returns:
            float32 {0, 1} of shape ``[len(triplets), |C|]``, indices sorted.

        Raises:
            ValueError: If a triplet is not three strings.
        """
        known: dict[tuple[str, str], int] = {}  # phrases as written, so that each is normalised once
        rows: list[int] = []
        columns: list[int] = []
        for i, text in enumerate(triplets):
            for triplet in check_triplets(text, f"text number {i}"):
                for key in zip(PART_KINDS, triplet, strict=True):
                    j = known.get(key)
                    if j is None:
                        j = known[key] = self.dimension.get((key[0], normalise(key[1])), -1)
                    if j >= 0:
                        rows.append(i)
                        columns.append(j)
        return multi_hot(np.asarray(rows, np.int64), np.asarray(columns, np.int64), (len(triplets), len(self)))


def multi_hot(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> csr_array:
    """The float32 {0, 1} matrix with a 1 at each (row, column) pair, however often the pair occurs."""
    pairs = np.unique(rows * max(shape[1], 1) + columns)
    rows, columns = pairs // max(shape[1], 1), pairs % max(shape[1], 1)
    indptr = np.zeros(shape[0] + 1, np.int32)
    np.cumsum(np.bincount(rows, minlength=shape[0]), out=indptr[1:])
    return csr_array((np.ones(len(pairs), np.float32), columns.astype(np.int32), indptr), shape=shape)
