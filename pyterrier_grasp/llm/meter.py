"""What requests took and cost, and the stop before they cost too much."""

from collections.abc import Mapping
from typing import Any

from pyterrier_grasp.llm.cache import AnswerCache
from pyterrier_grasp.llm.images import EncodedImage
from pyterrier_grasp.llm.prices import Prices, count_tokens
from pyterrier_grasp.llm.request import ChatRequest, Usage
from pyterrier_grasp.llm.schemas import form_of

#: Tokens of an answer, where none of its kind is known.
EXPECTED_TOKENS = 250
#: Tokens around the texts of a request.
_OVERHEAD = 10


class CostLimit(ValueError):  # noqa: N818 (a stop that was asked for, no mistake)
    """The next request might cost more than ``max_cost`` leaves."""


class Meter:
    """Counts tokens and US dollars of one client.

    Args:
        model: Name of the model.
        prices: Its prices.
        max_cost: US dollars that may be spent; None for no limit.
        cache: Tells how long answers are.
        max_tokens: Room for an answer; None if not known.

    Attributes:
        usage: All that was paid for.

    Raises:
        ValueError: If there is a limit, and the price of the model is not known.
    """

    def __init__(
        self, model: str, prices: Prices, max_cost: float | None, cache: AnswerCache, max_tokens: int | None
    ) -> None:
        if max_cost is not None and not prices.known(model):
            raise ValueError(
                f"max_cost needs the price of {model!r}, which is not known: give "
                f"prices={{{model!r}: (input, output)}}, US dollars for a million tokens each"
            )
        self._model, self._prices, self._max_cost, self._cache = model, prices, max_cost, cache
        self._most = max_tokens
        self._reserved = 0.0
        self._answers: dict[str, tuple[int, float]] = {}
        self.usage = Usage()

    def input_tokens(self, request: ChatRequest, images: tuple[EncodedImage, ...]) -> int:
        """Estimate the tokens of a question."""
        shown = sum(self._prices.image_tokens(self._model, image.tokens) for image in images)
        texts = (request.system, request.user, form_of(request.schema).json)
        return shown + sum(map(count_tokens, texts)) + _OVERHEAD

    def output_tokens(self, request: ChatRequest) -> float:
        """Expected tokens of an answer: the mean of those with the same schema, so far and in the cache."""
        shape = form_of(request.schema).digest
        if shape not in self._answers:
            known = self._cache.averages(self._model, shape)
            default = EXPECTED_TOKENS if self._most is None else min(EXPECTED_TOKENS, self._most)
            # what is not known by counting weighs as much as one answer
            self._answers[shape] = (1, known.output_tokens if known else default)
        count, total = self._answers[shape]
        return total / count

    def cost(self, input_tokens: float, output_tokens: float, batch: bool = False) -> float | None:
        """US dollars, None where the price is not known."""
        return self._prices.cost(self._model, round(input_tokens), round(output_tokens), batch)

    def left(self) -> float | None:
        """US dollars that may still be spent beyond what is spent or reserved; None for no limit."""
        return None if self._max_cost is None else self._max_cost - (self.usage.cost or 0.0) - self._reserved

    def reserve(self, cost: float | None) -> bool:
        """Set money aside for a request; False if there is not enough."""
        left = self.left()
        if left is not None and (cost or 0.0) > left:
            return False
        self._reserved += cost or 0.0
        return True

    def release(self, cost: float | None) -> None:
        """Give back what was set aside."""
        self._reserved -= cost or 0.0

    def count(self, request: ChatRequest, completion: Mapping[str, Any], expected: int, batch: bool = False) -> Usage:
        """Add what a completion took to :attr:`usage`.

        Args:
            request: The question.
            completion: The answer of the endpoint.
            expected: Tokens of the question to count if the endpoint does not say.
            batch: Whether it came from a batch, which costs half.
        """
        reported = completion.get("usage")
        reported = reported if isinstance(reported, Mapping) else {}
        sent, received = reported.get("prompt_tokens"), reported.get("completion_tokens")
        if not isinstance(sent, int) or not isinstance(received, int):
            sent, received = expected, round(self.output_tokens(request))
        shape = form_of(request.schema).digest
        self.output_tokens(request)
        count, total = self._answers[shape]
        self._answers[shape] = (count + 1, total + received)
        usage = Usage(1, sent, received, self.cost(sent, received, batch))
        self.usage += usage
        return usage
