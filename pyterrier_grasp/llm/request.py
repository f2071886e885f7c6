"""A question to a chat model, and what came back."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple


@dataclass(frozen=True)
class ChatRequest:
    """One question to a chat model.

    Attributes:
        id: Names it to people, as in ``"image 1000092795"``. It takes no part in the cache key.
        user: The question.
        system: Instructions that come before it; empty for none.
        schema: A pydantic model that the answer must fit; None for plain text.
        images: Image files, shown before the question. They are read when the request is sent.
        check: Called with the parsed answer; raises ValueError with words if the answer will not do. The model is told
            these words once and may answer again.
    """

    id: str
    user: str
    system: str = ""
    schema: type[Any] | None = None
    images: tuple[Path, ...] = ()
    check: Callable[[Any], None] | None = field(default=None, compare=False)


class Usage(NamedTuple):
    """What answers took, as reported by the endpoint.

    Attributes:
        requests: Requests that the endpoint answered with tokens, repairs included.
        input_tokens: Tokens of the questions.
        output_tokens: Tokens of the answers.
        cost: US dollars; None where the price of the model is not known.
    """

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = 0.0

    def __add__(self, other: object) -> "Usage":
        if not isinstance(other, Usage):
            return NotImplemented
        cost = None if self.cost is None or other.cost is None else self.cost + other.cost
        return Usage(
            self.requests + other.requests,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            cost,
        )


@dataclass(frozen=True)
class Answer:
    """What came back for a request.

    Attributes:
        request: The request.
        value: An instance of ``request.schema``, or the text where there is none; None if the request failed.
        failure: Why there is no value, in words; None if there is one.
        cached: Whether the answer was in the cache and cost nothing now.
        usage: What it took when it was asked, failed attempts and repairs included; for a cached answer, what it took
            then.
    """

    request: ChatRequest
    value: Any = None
    failure: str | None = None
    cached: bool = False
    usage: Usage = Usage()
