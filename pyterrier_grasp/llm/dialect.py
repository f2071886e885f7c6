"""What an endpoint understands, found out from its refusals."""

import re
from dataclasses import dataclass, replace

RUNGS = ("json_schema", "json_object", "text")

_FORMAT = re.compile(r"response_format|json_schema|json_object|json mode|structured.?output|guided|grammar", re.I)
_REFUSED = re.compile(
    r"unsupported|(not|n't|no longer) (be )?(support|permit|allow|recogni)|unrecogni|unknown|unexpected|"
    r"extra (input|field)|deprecated",
    re.I,
)
_OPTIONAL = ("max_completion_tokens", "max_tokens", "temperature", "seed")


@dataclass(frozen=True)
class Dialect:
    """How requests are put to an endpoint.

    Attributes:
        rung: How a schema is asked for, one of :data:`RUNGS`.
        length_field: The field for the room of an answer.
        without: Fields that are left out.
    """

    rung: str = RUNGS[0]
    length_field: str = "max_tokens"
    without: frozenset[str] = frozenset()

    def after(self, words: str, param: str | None, structured: bool) -> tuple["Dialect", str] | None:
        """The next dialect to try after a refusal (HTTP 400 or 422).

        Args:
            words: What the endpoint said.
            param: The field that it named, if it did.
            structured: Whether the request asked for a schema.

        Returns:
            The dialect and what changed, in words; None if the refusal is about something else.
        """
        if structured and self.rung != RUNGS[-1] and _FORMAT.search(param or words):
            rung = RUNGS[RUNGS.index(self.rung) + 1]
            return replace(self, rung=rung), f"answers are asked for as {rung}, not {self.rung}"
        field = self._field(words, param)
        if field is None or not _REFUSED.search(words):
            return None
        if field == "max_tokens":
            return replace(self, length_field="max_completion_tokens"), "max_completion_tokens stands for max_tokens"
        name = "max_tokens" if field == "max_completion_tokens" else field
        return replace(self, without=self.without | {name}), f"{name} is left out"

    def _field(self, words: str, param: str | None) -> str | None:
        """The optional field that was sent and that a refusal is about."""
        sent = {"temperature", "seed", self.length_field}
        if "max_tokens" in self.without:
            sent.discard(self.length_field)
        sent -= self.without
        if param:
            return param if param in sent else None
        found = [match.group() for match in re.finditer("|".join(_OPTIONAL), words) if match.group() in sent]
        return found[0] if found else None
