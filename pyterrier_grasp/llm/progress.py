"""A progress bar of requests: how many are done, what they took, and how long it goes on."""

import time

from tqdm.auto import tqdm

from pyterrier_grasp.llm.prices import dollars
from pyterrier_grasp.llm.request import Usage

_REFRESH_SECONDS = 0.4


class Progress:
    """Counts answers and shows them, a few times a second at most.

    Args:
        total: Requests in all.
        desc: Words before the bar.
        verbose: Whether to show it.

    Attributes:
        done: Requests answered now.
        cached: Requests answered before.
        failed: Requests without an answer.
        repeated: Requests that equal an earlier one.
    """

    def __init__(self, total: int, desc: str, verbose: bool) -> None:
        self.done = self.cached = self.failed = self.repeated = 0
        self._bar = tqdm(total=total, desc=desc, unit="request", disable=not verbose, mininterval=_REFRESH_SECONDS)
        self._next = 0.0

    def count(self, usage: Usage, held: float) -> None:
        """Show the counts, if it is time to.

        Args:
            usage: What was paid so far.
            held: Seconds for which the endpoint wants no requests.
        """
        now = time.monotonic()
        if now >= self._next and not self._bar.disable:
            self._next = now + _REFRESH_SECONDS
            self._show(usage, held)

    def close(self, usage: Usage) -> None:
        """Show the last counts and leave the bar where it is."""
        if not self._bar.disable:
            self._show(usage, 0.0)
        self._bar.close()

    def _show(self, usage: Usage, held: float) -> None:
        parts = [f"done={self.done:,}", f"cached={self.cached:,}", f"failed={self.failed:,}"]
        parts.append(f"tokens={tqdm.format_sizeof(usage.input_tokens + usage.output_tokens)}")
        if usage.cost is not None:
            parts.append(f"cost={dollars(usage.cost)}")
        if held > 1:
            parts.append(f"held back for {held:.0f} s")
        self._bar.set_postfix_str(" ".join(parts), refresh=False)
        self._bar.update(self.done + self.cached + self.failed + self.repeated - self._bar.n)
