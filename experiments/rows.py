"""The rows of the tables: which method in which sparse space."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
        label: How the paper calls it.
        method: Name of the method.
        space: ``concepts``, ``entities``, ``tokens`` (all), ``positions`` (what ``--tokens`` says) or None.
        options: Of the method.
        of: The row whose trained models this one scores with its options; None for a row that is trained itself.
    """

    label: str
    method: str
    space: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    of: str | None = None


ROWS = {
    "dense": Row("Dense", "dense"),
    "visualsparta": Row("VisualSparta", "visualsparta", "positions"),
    "lexlip": Row("LexLIP (fine-tuning)", "lexlip", "positions"),
    "stair": Row("STAIR", "stair", "positions"),
    "d2s": Row("D2S", "d2s", "tokens"),
    "sdlbt": Row("SDLBT", "sdlbt", "tokens"),
    "grasp": Row("GRASP", "grasp", "concepts"),
    "grasp-evidence": Row("GRASP, evidence", "grasp", "concepts", {"similarity": "evidence"}, of="grasp"),
    "grasp-blend": Row("GRASP, blend", "grasp", "concepts", {"similarity": "blend"}, of="grasp"),
    "sdlbt-concepts": Row("SDLBT on the concept space", "sdlbt", "concepts"),
    "grasp-entities": Row("GRASP, entities only", "grasp", "entities"),
}
TABLE1 = ("dense", "visualsparta", "lexlip", "stair", "d2s", "sdlbt", "grasp", "grasp-evidence", "grasp-blend")
