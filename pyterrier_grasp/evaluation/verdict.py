"""The answer that a chat model must give when it compares two pictures. Needs pydantic."""

from typing import Literal

from pydantic import BaseModel, ConfigDict


class VerdictAnswer(BaseModel):
    """Which picture fits the caption better."""

    model_config = ConfigDict(extra="forbid")
    choice: Literal["A", "B", "tie"]
