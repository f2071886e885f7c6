"""The answer that a chat model must give for a cluster of phrases. Needs pydantic."""

from pydantic import BaseModel, ConfigDict

from pyterrier_grasp.concepts.mining.refine import Cluster, Group, Refinement, check_refinement
from pyterrier_grasp.concepts.triplets import normalise

# The docstrings of these classes are sent to the model, as descriptions in the schema.


class GroupAnswer(BaseModel):
    """Phrases that mean the same."""

    model_config = ConfigDict(extra="forbid")
    canonical: str
    members: list[str]


class ClusterAnswer(BaseModel):
    """Every phrase of the list, in one group or dropped."""

    model_config = ConfigDict(extra="forbid")
    groups: list[GroupAnswer]
    dropped: list[str]

    def refinement(self) -> Refinement:
        """The answer with its phrases normalised; one that stands twice in a group counts once."""
        groups = (Group(normalise(group.canonical), _distinct(group.members)) for group in self.groups)
        return Refinement(tuple(groups), _distinct(self.dropped))


def _distinct(phrases: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(normalise, phrases)))


def check_answer(answer: ClusterAnswer, cluster: Cluster) -> None:
    """Check an answer against its cluster.

    Raises:
        ValueError: As :func:`~pyterrier_grasp.concepts.mining.refine.check_refinement`; also if a group is named after
            a phrase that is in another group, or dropped.
    """
    refinement = answer.refinement()
    problems = []
    try:
        check_refinement(cluster, refinement)
    except ValueError as error:
        problems.append(str(error))
    phrases = set(cluster.phrases)
    foreign = [name for name, members in refinement.groups if name in phrases - set(members)]
    if foreign:
        problems.append(f"canonical names that are phrases of the list, but no members of their group: {foreign}")
    if problems:
        raise ValueError("; ".join(problems))
