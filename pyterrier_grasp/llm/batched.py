"""A first turn of many requests through the Batch API."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyterrier_grasp.llm.batch import BatchRun
from pyterrier_grasp.llm.batch_book import BatchBook
from pyterrier_grasp.llm.cache import AnswerCache
from pyterrier_grasp.llm.endpoint import Endpoint
from pyterrier_grasp.llm.keyed import encode, keyed
from pyterrier_grasp.llm.meter import CostLimit, Meter
from pyterrier_grasp.llm.prices import dollars
from pyterrier_grasp.llm.request import ChatRequest
from pyterrier_grasp.llm.run import FirstTurn, keep
from pyterrier_grasp.llm.structured import AskingSettings, build_body, has_choice, read_completion


@dataclass
class BatchedTurn:
    """Asks what is not in the cache yet, in batches.

    Attributes:
        settings: Model and sampling.
        endpoint: Who is asked.
        cache: Where answers are kept.
        meter: Counts what they cost.
        interval: Seconds between looks at batches under way.
        fresh: Keys of the answers that were put into the cache.
        first: Answers that will not do, by key.
    """

    settings: AskingSettings
    endpoint: Endpoint
    cache: AnswerCache
    meter: Meter
    interval: float = 60.0
    fresh: set[str] = field(default_factory=set)
    first: dict[str, FirstTurn] = field(default_factory=dict)

    def ask(self, requests: Sequence[ChatRequest], desc: str, verbose: bool) -> None:
        """Ask and wait for the answers.

        Args:
            requests: Any number.
            desc: Words before the progress bar.
            verbose: Whether to show it.

        Raises:
            CostLimit: If the batches might cost more than is left; nothing was asked then.
            ValueError: If the endpoint refuses, or another process has batches under way with the same cache.
            ConnectionError: If the endpoint cannot be reached.
        """
        import openai

        missing: dict[str, ChatRequest] = {}
        sent, received = 0, 0.0
        for key, request, images in keyed(self.settings, requests, desc, verbose):
            if self.cache.get(key) is None:
                missing[key] = request
                sent += self.meter.input_tokens(request, images)
                received += self.meter.output_tokens(request)
        if not missing:
            return
        self._check_cost(len(missing), self.meter.cost(sent, received, batch=True))

        def body(key: str) -> dict[str, Any]:
            request = missing[key]
            return build_body(self.settings, request, encode(request), self.endpoint.dialect)

        def accept(key: str, completion: dict[str, Any]) -> None:
            if key in missing and has_choice(completion):
                self._take(key, missing[key], completion)

        book = BatchBook(self.cache.path, self.endpoint.url)
        try:
            with self.endpoint.open_blocking() as api:
                BatchRun(api, book, body, accept, self.interval, verbose, desc).run(list(missing))
        except openai.OpenAIError as error:
            raise self.endpoint.explain(error) from error
        finally:
            book.close()

    def _check_cost(self, requests: int, cost: float | None) -> None:
        left = self.meter.left()
        if left is not None and cost is not None and cost > left:
            raise CostLimit(
                f"batches of {requests:,} requests would cost about {dollars(cost)}, and max_cost leaves "
                f"{dollars(max(0.0, left))}: give a higher max_cost, or fewer requests"
            )

    def _take(self, key: str, request: ChatRequest, completion: dict[str, Any]) -> None:
        usage = self.meter.count(request, completion, 0, batch=True)
        reading = read_completion(request, completion)
        if reading.problem is None:
            keep(self.cache, self.settings.model, request, key, completion, reading, usage, None)
            self.fresh.add(key)
        else:
            self.first[key] = FirstTurn(reading, usage)
