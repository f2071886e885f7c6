"""The answer that a chat model must give for an image that it describes. Needs pydantic."""

import re

from pydantic import BaseModel, ConfigDict

_REFUSAL = re.compile(r"((i['’]m|i am) )?sorry\b|i (can['’]?t|cannot)\b|(i['’]m|i am) (unable|not able)\b")


class DescriptionAnswer(BaseModel):
    """A description of the picture."""

    model_config = ConfigDict(extra="forbid")
    description: str

    def text(self, max_words: int) -> str:
        """The description on one line, cut off after ``max_words`` words."""
        return " ".join(self.description.split()[:max_words])


def check_answer(answer: DescriptionAnswer, max_words: int) -> None:
    """Check a description.

    Raises:
        ValueError: If it is empty, more than twice as long as it should be, or a refusal.
    """
    words = answer.description.split()
    if not words:
        raise ValueError("the description is empty")
    if len(words) > 2 * max_words:
        raise ValueError(f"the description has {len(words)} words, which is more than {max_words}")
    if _REFUSAL.match(" ".join(words).lower()):
        raise ValueError(f"this is no description of what can be seen: {' '.join(words[:20])}")
