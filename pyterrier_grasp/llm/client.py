"""The chat client: many questions to any OpenAI-compatible endpoint, every answer kept."""

import sys
import threading
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from pyterrier_grasp.llm.apart import run_apart
from pyterrier_grasp.llm.batched import BatchedTurn
from pyterrier_grasp.llm.cache import AnswerCache
from pyterrier_grasp.llm.endpoint import Endpoint
from pyterrier_grasp.llm.keyed import keyed
from pyterrier_grasp.llm.limits import Limits
from pyterrier_grasp.llm.meter import CostLimit, Meter
from pyterrier_grasp.llm.options import check_number, checked_params, checked_requests, default_cache, where
from pyterrier_grasp.llm.prices import Estimate, Prices, dollars
from pyterrier_grasp.llm.progress import Progress
from pyterrier_grasp.llm.request import Answer, ChatRequest, Usage
from pyterrier_grasp.llm.run import Run
from pyterrier_grasp.llm.schemas import form_of
from pyterrier_grasp.llm.structured import AskingSettings

__all__ = ["ChatClient", "CostLimit"]

_LISTED = 5


class ChatClient:
    """Asks a chat model many questions and keeps every valid answer on disk.

    Equal questions are asked once, ever: answers are looked up by model, texts, images, sampling settings and schema.
    Nothing that was answered is lost when a run is interrupted or killed; the same run again goes on where it stopped.
    An answer must fit the schema and pass the check of its request; the model is told once what is wrong, and may
    answer again. Requests that get no valid answer are reported and not kept, so that the next run asks them again.

    Endpoints differ: a schema is asked for as ``json_schema`` first, then ``json_object``, then in words; parameters
    that a model does not take are left out, with a warning.

    Args:
        model: Name of the model.
        base_url: URL of the endpoint, None for the environment variable ``OPENAI_BASE_URL``, or OpenAI.
        api_key: Key, None for the environment variable ``OPENAI_API_KEY``. An endpoint of one's own needs none, nor
            do estimates and kept answers.
        cache: File of the answers or an :class:`~pyterrier_grasp.llm.cache.AnswerCache`; None for
            ``grasp/answers.sqlite`` in PyTerrier's home.
        concurrency: Requests under way at the same time.
        requests_per_minute: Limit, retries included; None for none.
        tokens_per_minute: Limit on tokens of questions and answers; None for none.
        timeout: Seconds for one answer.
        max_retries: How often a request is sent again after an error that may pass.
        temperature: 0 for the likeliest answer; None for the model's own.
        seed: For endpoints that can repeat an answer; None for none.
        max_tokens: Room for an answer; None for the model's own.
        params: Further fields of the request body, such as ``{"top_p": 0.9}``; part of what an answer is looked up by.
        prices: ``{model: (input, output)}`` in US dollars for a million tokens, for models not in
            :mod:`~pyterrier_grasp.llm.prices`, or a :class:`~pyterrier_grasp.llm.prices.Prices`.
        max_cost: US dollars that this client may spend, by its own count; None for no limit.
        batch: Whether to use the Batch API: half the price, an answer within 24 hours.
        verbose: Whether to show progress.

    Attributes:
        model: The model.
        batch_interval: Seconds between looks at batches under way.
        usage: All that this client has paid for.

    Raises:
        ImportError: If the libraries of the extra ``llm`` are missing.
        ValueError: If a setting is wrong, ``max_cost`` comes without a known price, or the cache is some other file.
        OSError: If the cache cannot be opened.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        cache: str | Path | AnswerCache | None = None,
        concurrency: int = 16,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        timeout: float = 120.0,
        max_retries: int = 6,
        temperature: float | None = 0.0,
        seed: int | None = 0,
        max_tokens: int | None = 4096,
        params: Mapping[str, Any] | None = None,
        prices: Mapping[str, tuple[float, float]] | Prices | None = None,
        max_cost: float | None = None,
        batch: bool = False,
        verbose: bool = True,
    ) -> None:
        try:
            import openai  # noqa: F401
            import pydantic  # noqa: F401
        except ModuleNotFoundError as error:
            raise ImportError("ChatClient needs the extra 'llm': pip install 'pyterrier-grasp[llm]'") from error
        if not isinstance(model, str) or not model.strip():
            raise ValueError(f"model must be the name of a model, got {model!r}")
        check_number("concurrency", concurrency, at_least=1, whole=True)
        check_number("max_retries", max_retries, at_least=0, whole=True)
        check_number("timeout", timeout, above=0)
        for name, number in (("requests_per_minute", requests_per_minute), ("tokens_per_minute", tokens_per_minute)):
            check_number(name, number, above=0, optional=True)
        check_number("temperature", temperature, at_least=0, optional=True)
        check_number("seed", seed, whole=True, optional=True)
        check_number("max_tokens", max_tokens, at_least=1, whole=True, optional=True)
        check_number("max_cost", max_cost, at_least=0, optional=True)
        self.model = model
        self.concurrency = concurrency
        self.batch = batch
        self.batch_interval = 60.0
        self.verbose = verbose
        self._settings = AskingSettings(model, temperature, seed, max_tokens, checked_params(params))
        url, key = where(base_url, api_key)
        self._limits = Limits(requests_per_minute, tokens_per_minute)
        self._rates = (requests_per_minute, tokens_per_minute)
        self._endpoint = Endpoint(url, key, model, timeout, max_retries, self._limits)
        self.cache = (
            cache if isinstance(cache, AnswerCache) else AnswerCache(default_cache() if cache is None else cache)
        )
        self._meter = Meter(
            model, prices if isinstance(prices, Prices) else Prices(prices), max_cost, self.cache, max_tokens
        )
        self._asking = threading.Lock()

    def __repr__(self) -> str:
        return f"ChatClient({self.model!r}, base_url={self._endpoint.url!r})"

    @property
    def usage(self) -> Usage:
        """All that this client has paid for, requests without a valid answer included."""
        return self._meter.usage

    def settings(self) -> dict[str, Any]:
        """What decides about answers, in JSON types: ``model, temperature, seed, max_tokens, params``."""
        settings = self._settings
        return {
            "model": settings.model,
            "temperature": settings.temperature,
            "seed": settings.seed,
            "max_tokens": settings.max_tokens,
            "params": dict(settings.params),
        }

    def ask(self, requests: Sequence[ChatRequest], *, desc: str = "requests") -> list[Answer]:
        """Answer requests, from the cache where it has the answer.

        Args:
            requests: Any number. Requests with equal contents count as equal, whatever their ``check``.
            desc: Words before the progress bar.

        Returns:
            An answer for each request, in their order. Those that failed say why; a warning lists them.

        Raises:
            ValueError: If something is no request, no key and no endpoint was given, the key, model or URL is wrong, or
                there is no credit left.
            CostLimit: If ``max_cost`` is reached (a ValueError).
            ConnectionError: If the endpoint is down.
            CacheFullError: If answers cannot be kept (an OSError).
            KeyboardInterrupt: On Ctrl-C.
        """
        requests = checked_requests(requests)
        if not requests:
            return []
        with self._asking:
            batched = BatchedTurn(self._settings, self._endpoint, self.cache, self._meter, self.batch_interval)
            if self.batch:
                batched.ask(requests, desc, self.verbose)
            progress = Progress(len(requests), desc, self.verbose)
            run = Run(
                self._settings,
                self._endpoint,
                self.cache,
                self._meter,
                self._limits,
                progress,
                requests,
                batched.fresh,
                batched.first,
            )
            try:
                answers = run_apart(lambda: run.main(self.concurrency))
            except KeyboardInterrupt:
                tqdm.write(
                    f"{desc}: interrupted. {progress.done:,} new answers are kept in {self.cache.path}; run the same "
                    "again to go on.",
                    file=sys.stderr,
                )
                raise
            finally:
                progress.close(self.usage)
        return self._checked_answers(answers, run)

    def estimate(self, requests: Sequence[ChatRequest]) -> Estimate:
        """What asking would take; nothing is asked. Equal requests count once.

        Args:
            requests: As for :meth:`ask`.

        Returns:
            Tokens and cost of the requests without a kept answer. The length of their answers is the mean of kept
            answers with the same schema, or a guess. Seconds are known where rate limits are given, or such answers
            are kept.
        """
        requests = checked_requests(requests)
        total, cached, sent, received = 0, 0, 0, 0.0
        shapes: Counter[str] = Counter()
        for key, request, images in keyed(self._settings, requests, "estimate", self.verbose):
            total += 1
            if self.cache.get(key) is not None:
                cached += 1
                continue
            sent += self._meter.input_tokens(request, images)
            received += self._meter.output_tokens(request)
            shapes[form_of(request.schema).digest] += 1
        cost = self._meter.cost(sent, received, self.batch)
        seconds = self._seconds(shapes, sent + received)
        return Estimate(total, cached, sent, round(received), cost, seconds)

    def _seconds(self, shapes: Mapping[str, int], tokens: float) -> float | None:
        """Seconds that requests will take: so many of each shape, with so many tokens."""
        requests = sum(shapes.values())
        if requests == 0:
            return 0.0
        if self.batch:
            return None
        known = []
        latencies = [(self.cache.averages(self.model, shape), count) for shape, count in shapes.items()]
        if all(mean is not None and mean.seconds is not None for mean, _ in latencies):
            total = sum(mean.seconds * count for mean, count in latencies if mean and mean.seconds is not None)
            known.append(total / min(self.concurrency, requests))
        for amount, per_minute in ((requests, self._rates[0]), (tokens, self._rates[1])):
            if per_minute is not None:
                known.append(60 * amount / per_minute)
        return max(known, default=None)

    def _checked_answers(self, answers: Sequence[Answer | None], run: Run) -> list[Answer]:
        """The answers, if all requests have one; a warning lists those that failed."""
        given = [answer for answer in answers if answer is not None]
        failed = [answer for answer in given if answer.failure is not None]
        if failed:
            listed = "; ".join(f"{answer.request.id}: {answer.failure}" for answer in failed[:_LISTED])
            more = f"; and {len(failed) - _LISTED:,} more" if len(failed) > _LISTED else ""
            words = f"{len(failed):,} of {len(answers):,} requests failed: {listed}{more}"
            if self._endpoint.lost and not self._endpoint.heard:
                raise self._endpoint.unreachable(str(failed[0].failure))
            warnings.warn(words, stacklevel=3)
        if run.broke:
            raise CostLimit(
                f"stopped before max_cost is passed: {dollars(self.usage.cost or 0.0)} spent; {len(given):,} of "
                f"{len(answers):,} requests are done ({len(failed):,} failed), {len(answers) - len(given):,} are left. "
                "The answers are kept: run it again with a higher max_cost to go on"
            )
        return given
