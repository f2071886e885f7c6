"""How fast requests may be sent: requests and tokens a minute, and waits that the endpoint asks for."""

import asyncio
import random
import time


class Pace:
    """A token bucket: an allowance that grows steadily and is handed out in the order it was asked for.

    What is asked for is granted as soon as nothing is owed, even if it is more than the bucket holds.

    Args:
        per_minute: Growth of the allowance.
        burst: Seconds of growth that are saved up at most.
    """

    def __init__(self, per_minute: float, burst: float = 1.0) -> None:
        self._per_second = per_minute / 60
        self._burst = burst
        self._paid_until = float("-inf")

    def take(self, amount: float, now: float) -> float:
        """Take an amount.

        Args:
            amount: What is taken.
            now: Seconds of a clock.

        Returns:
            Seconds to wait before using it.
        """
        start = max(self._paid_until, now - self._burst)
        self._paid_until = start + amount / self._per_second
        return max(0.0, start - now)

    def correct(self, amount: float) -> None:
        """Take an amount more (or less, if negative) after the fact."""
        self._paid_until += amount / self._per_second


class Limits:
    """The limits that all requests of a client share.

    Args:
        requests_per_minute: None for no limit.
        tokens_per_minute: None for no limit; tokens of questions and answers together.
    """

    def __init__(self, requests_per_minute: float | None = None, tokens_per_minute: float | None = None) -> None:
        self._requests = None if requests_per_minute is None else Pace(requests_per_minute)
        self._tokens = None if tokens_per_minute is None else Pace(tokens_per_minute)
        self._held_until = 0.0

    async def admit(self, tokens: float) -> None:
        """Wait until a request with so many tokens, expected ones of the answer included, may be sent."""
        await self._released()
        now = time.monotonic()
        wait = 0.0 if self._requests is None else self._requests.take(1, now)
        if self._tokens is not None:
            wait = max(wait, self._tokens.take(tokens, now))
        if wait > 0:
            await asyncio.sleep(wait)
            await self._released()

    def correct(self, expected: float, tokens: float) -> None:
        """Put the tokens that a request took in place of those expected."""
        if self._tokens is not None:
            self._tokens.correct(tokens - expected)

    def hold(self, seconds: float) -> None:
        """Let no request through for so many seconds from now."""
        self._held_until = max(self._held_until, time.monotonic() + seconds)

    def held(self) -> float:
        """Seconds for which no request is let through."""
        return max(0.0, self._held_until - time.monotonic())

    async def _released(self) -> None:
        while (left := self.held()) > 0:
            # not all of them at the same moment
            await asyncio.sleep(left + random.uniform(0, min(1.0, left / 10)))
