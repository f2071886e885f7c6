"""What chat models cost, and what a run will cost.

The prices are OpenAI's list prices for synchronous requests as of September 2026
(https://developers.openai.com/api/docs/pricing, as quoted by third parties between March and September 2026). Prices
change: pass ``prices={"model": (input, output)}`` for others. Discounts for cached input are not counted: a run may
cost less. Tokens of images are those of OpenAI's guide to images of 2025; later models are taken to count as those
before them.
"""

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

BATCH_DISCOUNT = 0.5


class ModelPrice(NamedTuple):
    """Prices of a model and how it counts an image.

    Attributes:
        input: US dollars for a million input tokens.
        output: US dollars for a million output tokens.
        image: Tokens of an image sent with ``"detail": "low"``; None where the model counts patches.
        patch: Tokens of a patch of 32 x 32 pixels, for models that count patches.
    """

    input: float
    output: float
    image: int | None = None
    patch: float = 1.0


PRICES: dict[str, ModelPrice] = {
    "gpt-4o": ModelPrice(2.50, 10.00, image=85),
    "gpt-4o-2024-05-13": ModelPrice(5.00, 15.00, image=85),
    "gpt-4o-mini": ModelPrice(0.15, 0.60, image=2833),
    "gpt-4.1": ModelPrice(2.00, 8.00, image=85),
    "gpt-4.1-mini": ModelPrice(0.40, 1.60, patch=1.62),
    "gpt-4.1-nano": ModelPrice(0.10, 0.40, patch=2.46),
    "gpt-5": ModelPrice(1.25, 10.00, image=70),
    "gpt-5-mini": ModelPrice(0.25, 2.00, patch=1.62),
    "gpt-5-nano": ModelPrice(0.05, 0.40, patch=2.46),
    "gpt-5.1": ModelPrice(1.25, 10.00, image=70),
    "gpt-5.2": ModelPrice(1.75, 14.00, image=70),
    "gpt-5.4": ModelPrice(2.50, 15.00),
    "gpt-5.4-mini": ModelPrice(0.75, 4.50, patch=1.62),
    "gpt-5.4-nano": ModelPrice(0.20, 1.25, patch=2.46),
    "o3": ModelPrice(2.00, 8.00, image=75),
    "o3-mini": ModelPrice(1.10, 4.40),
    "o4-mini": ModelPrice(1.10, 4.40, patch=1.72),
}

_SNAPSHOT = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8}|\d{4}|latest)$")


class Prices:
    """Prices by the name of the model.

    A dated snapshot (``gpt-4o-mini-2024-07-18``) costs what its model costs. Any other relative does not:
    ``gpt-5-pro`` costs twelve times what ``gpt-5`` costs, so an unknown name has no price.

    Args:
        overrides: ``{model: (input, output)}`` in US dollars for a million tokens, for models that are not in
            :data:`PRICES` or cost something else with you; ``(0, 0)`` for a model of your own.

    Raises:
        ValueError: If ``overrides`` is no mapping, or a price no pair of finite numbers >= 0.
    """

    def __init__(self, overrides: Mapping[str, tuple[float, float]] | None = None) -> None:
        self._prices = dict(PRICES)
        if overrides is not None and not isinstance(overrides, Mapping):
            raise ValueError(f"prices must be {{model: (input, output)}}, not {overrides!r}")
        for model, pair in (overrides or {}).items():
            _check(model, pair)
            price = self._find(model) or ModelPrice(0, 0)
            self._prices[model] = price._replace(input=float(pair[0]), output=float(pair[1]))

    def _find(self, model: str) -> ModelPrice | None:
        return self._prices.get(model) or self._prices.get(_SNAPSHOT.sub("", model))

    def known(self, model: str) -> bool:
        """Whether the price of ``model`` is known."""
        return self._find(model) is not None

    def cost(self, model: str, input_tokens: int, output_tokens: int, batch: bool = False) -> float | None:
        """US dollars for so many tokens, None where the price is not known; ``batch`` halves it."""
        price = self._find(model)
        if price is None:
            return None
        full = (input_tokens * price.input + output_tokens * price.output) / 1e6
        return full * BATCH_DISCOUNT if batch else full

    def image_tokens(self, model: str, patches: int) -> int:
        """Input tokens of an image.

        Args:
            model: Its name; a model that is not in the table is taken to count each patch as a token.
            patches: Of 32 x 32 pixels, as in :attr:`EncodedImage.tokens
                <pyterrier_grasp.llm.images.EncodedImage.tokens>`.
        """
        price = self._find(model) or ModelPrice(0, 0)
        return price.image if price.image is not None else math.ceil(patches * price.patch)


def _check(model: object, pair: object) -> None:
    if not isinstance(model, str) or not model:
        raise ValueError(f"a price needs the name of a model, not {model!r}")
    if not isinstance(pair, tuple | list) or len(pair) != 2 or not all(_is_price(number) for number in pair):
        raise ValueError(
            f"the price of {model!r} must be (input, output) in US dollars for a million tokens, two numbers >= 0, "
            f"not {pair!r}"
        )


def _is_price(number: object) -> bool:
    return isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number) and number >= 0


def count_tokens(text: str) -> int:
    """Estimate the tokens of a text without a tokenizer.

    A token is about 4 characters of ASCII or about 3 bytes of UTF-8 otherwise: one character of Chinese, Japanese,
    Korean, Thai or Hindi, one and a half of Cyrillic, Greek or Arabic. This is meant to err on the high side; expect it
    to be some 10 to 20 % off.
    """
    ascii_bytes = len(text.encode("ascii", "ignore"))
    other_bytes = len(text.encode("utf-8", "surrogatepass")) - ascii_bytes
    return math.ceil(ascii_bytes / 4 + other_bytes / 3)


class Estimate(NamedTuple):
    """What a run will take.

    Attributes:
        requests: All requests, those with a stored answer included.
        cached: Requests with a stored answer, which cost nothing.
        input_tokens: Of the questions yet to ask.
        output_tokens: Of their answers, a guess.
        cost: US dollars; None where the price of the model is not known.
        seconds: None where nothing is known about it.
    """

    requests: int = 0
    cached: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = 0.0
    seconds: float | None = 0.0

    def __add__(self, other: object) -> "Estimate":
        if not isinstance(other, Estimate):
            return NotImplemented
        return Estimate(
            self.requests + other.requests,
            self.cached + other.cached,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            None if self.cost is None or other.cost is None else self.cost + other.cost,
            None if self.seconds is None or other.seconds is None else self.seconds + other.seconds,
        )

    def __str__(self) -> str:
        parts = [
            f"{self.requests:,} request{'' if self.requests == 1 else 's'} ({self.cached:,} cached)",
            f"{_count(self.input_tokens)} input tokens",
            f"{_count(self.output_tokens)} output tokens",
            "price not known" if self.cost is None else f"about {dollars(self.cost)}",
        ]
        if self.seconds is not None:
            parts.append(f"about {duration(self.seconds)}")
        return ", ".join(parts)


def _count(number: int) -> str:
    """``812``, ``45.1 k``, ``12.3 M``."""
    if number < 1000:
        return str(number)
    return f"{number / 1e3:.1f} k" if number < 999_950 else f"{number / 1e6:,.1f} M"


def dollars(cost: float) -> str:
    """``$4.30``; a sum below a cent with two digits that count."""
    if 0 < cost < 0.01:
        return f"${cost:.{1 - math.floor(math.log10(cost))}f}"
    return f"${cost:,.2f}"


def duration(seconds: float) -> str:
    """``45 s``, ``12 min``, ``1 h 05 min``."""
    if round(seconds) < 60:
        return f"{round(seconds)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"
