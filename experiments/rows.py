"""The rows of the tables: which method in which sparse space."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Row:
    """A trained row of a table.

    Attributes:
        label: How the paper calls it.
        method: Name of the method.
        space: ``concepts``, ``entities``, ``tokens`` (all), ``positions`` (what ``--tokens`` says) or None.
        options: Of the method.
        rescored: Further ways to score with the same weights: name -> options.
    """

    label: str
    method: str
    space: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    rescored: dict[str, dict[str, Any]] = field(default_factory=dict)


ROWS = {
    "dense": Row("Dense", "dense"),
    "visualsparta": Row("VisualSparta", "visualsparta", "positions"),
    "lexlip": Row("LexLIP (fine-tuning)", "lexlip", "positions"),
    "stair": Row("STAIR", "stair", "positions"),
    "d2s": Row("D2S", "d2s", "tokens"),
    "sdlbt": Row("SDLBT", "sdlbt", "tokens"),
    "grasp": Row("GRASP", "grasp", "concepts", rescored={"evidence": {"similarity": "evidence"}}),
    "sdlbt-concepts": Row("SDLBT on the concept space", "sdlbt", "concepts"),
    "grasp-entities": Row("GRASP, entities only", "grasp", "entities"),
}
TABLE1 = ("dense", "visualsparta", "lexlip", "stair", "d2s", "sdlbt", "grasp")
