"""What a refiner is: something that merges and drops the phrases of a cluster (the paper's Eq. 4)."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable


class Cluster(NamedTuple):
    """Phrases of one kind with similar meanings.

    Attributes:
        kind: ``"entity"`` or ``"relation"``.
        phrases: Distinct normalised phrases, the most frequent first.
    """

    kind: str
    phrases: tuple[str, ...]


class Group(NamedTuple):
    """Phrases that become one concept.

    Attributes:
        canonical: Its name; need not be one of the phrases.
        members: Phrases of the cluster, at least one.
    """

    canonical: str
    members: tuple[str, ...]


class Refinement(NamedTuple):
    """What became of a cluster. Every phrase of it is a member of exactly one group, or dropped.

    Attributes:
        groups: The concepts.
        dropped: Phrases that stand for nothing; they vanish from the labels.
        problem: Why the cluster was kept as it was; None where it was refined.
    """

    groups: tuple[Group, ...]
    dropped: tuple[str, ...] = ()
    problem: str | None = None


@runtime_checkable
class Refiner(Protocol):
    """Anything that refines clusters of phrases.

    ``settings()`` and ``outcome()`` are used where they exist, as with an
    :class:`~pyterrier_grasp.concepts.extract.Extractor`.
    """

    def refine(self, clusters: Sequence[Cluster]) -> Iterator[Refinement]:
        """Yield the refinement of each cluster, in their order."""
        ...


def unchanged(cluster: Cluster, problem: str | None = None) -> Refinement:
    """Each phrase a concept of its own."""
    return Refinement(tuple(Group(phrase, (phrase,)) for phrase in cluster.phrases), (), problem)


def check_refinement(cluster: Cluster, refinement: Refinement) -> None:
    """Check a refinement against its cluster.

    Raises:
        ValueError: If a member or a dropped phrase is not in the cluster, a phrase is missing or stands twice, a group
            has no members, a canonical name is empty, or two groups have the same one. The message lists every problem,
            so that a language model can mend its answer.
    """
    placed = Counter(phrase for group in refinement.groups for phrase in group.members)
    placed.update(refinement.dropped)
    names = Counter(group.canonical for group in refinement.groups)
    problems = [
        ("not in the list", sorted(set(placed) - set(cluster.phrases))),
        ("neither in a group nor dropped", [phrase for phrase in cluster.phrases if phrase not in placed]),
        ("placed more than once", sorted(phrase for phrase, times in placed.items() if times > 1)),
        ("canonical names of more than one group", sorted(name for name, times in names.items() if times > 1)),
        ("groups without members", [group.canonical for group in refinement.groups if not group.members]),
        (
            "groups with an empty canonical name",
            [list(g.members) for g in refinement.groups if not g.canonical.strip()],
        ),
    ]
    words = "; ".join(f"{what}: {which}" for what, which in problems if which)
    if words:
        raise ValueError(words)
