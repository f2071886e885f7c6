"""A run over many requests: a fixed number of workers that take one after the other."""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from pyterrier_grasp.llm.cache import AnswerCache, KeptAnswer
from pyterrier_grasp.llm.endpoint import Endpoint, RequestFailedError
from pyterrier_grasp.llm.images import EncodedImage
from pyterrier_grasp.llm.keyed import encode
from pyterrier_grasp.llm.limits import Limits
from pyterrier_grasp.llm.meter import Meter
from pyterrier_grasp.llm.progress import Progress
from pyterrier_grasp.llm.request import Answer, ChatRequest, Usage
from pyterrier_grasp.llm.schemas import form_of
from pyterrier_grasp.llm.structured import (
    AskingSettings,
    Reading,
    Repair,
    build_body,
    cache_key,
    read_completion,
    read_text,
)

_SHOWN = 200


@dataclass(frozen=True)
class FirstTurn:
    """A completion that a request has had already, and that will not do."""

    reading: Reading
    usage: Usage


class _OutOfMoneyError(Exception):
    """The next turn might cost more than is left."""


@dataclass
class Run:
    """Answers requests.

    Attributes:
        settings: Model and sampling.
        endpoint: Who is asked.
        cache: Where answers are kept.
        meter: Counts what they cost.
        limits: How fast requests may be sent.
        progress: Shows what is done.
        requests: The requests.
        fresh: Keys of answers in the cache that this run paid for, in a batch.
        first: First turns, by key, that came from a batch.
        stopped: Whether no further request is taken.
        broke: Whether that is because the money ran out.
    """

    settings: AskingSettings
    endpoint: Endpoint
    cache: AnswerCache
    meter: Meter
    limits: Limits
    progress: Progress
    requests: Sequence[ChatRequest]
    fresh: Set[str] = frozenset()
    first: Mapping[str, FirstTurn] = field(default_factory=dict)
    stopped: bool = False
    broke: bool = False

    async def main(self, concurrency: int) -> list[Answer | None]:
        """Answer all requests.

        Args:
            concurrency: Requests that are under way at the same time, at most.

        Returns:
            Answers in the order of the requests; None where the money ran out.
        """
        answers: list[Answer | None] = [None] * len(self.requests)
        leaders: dict[str, int] = {}
        followers: dict[int, int] = {}
        work = iter(enumerate(self.requests))
        async with self.endpoint.open() as api:
            workers = [
                asyncio.create_task(self._work(api, work, answers, leaders, followers))
                for _ in range(min(concurrency, len(self.requests)))
            ]
            try:
                await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
            finally:
                for worker in workers:
                    worker.cancel()
                ends = await asyncio.gather(*workers, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end
        for index, leader in followers.items():
            answer = answers[leader]
            answers[index] = answer and replace(answer, request=self.requests[index])
        return answers

    async def _work(
        self,
        api: Any,
        work: Iterator[tuple[int, ChatRequest]],
        answers: list[Answer | None],
        leaders: dict[str, int],
        followers: dict[int, int],
    ) -> None:
        while not self.stopped:
            index, request = next(work, (-1, None))
            if request is None:
                return
            try:
                images = await _encoded(request)
            except (OSError, ValueError) as error:
                answers[index] = self._count(Answer(request, failure=str(error)))
                continue
            key = cache_key(self.settings, request, images)
            leader = leaders.setdefault(key, index)
            if leader != index:
                followers[index] = leader
                self.progress.repeated += 1
                continue
            answer = self._kept(request, key)
            if answer is not None:
                answers[index] = self._count(answer)
                # a run over kept answers can be interrupted too
                await asyncio.sleep(0)
                continue
            try:
                answers[index] = self._count(await self._asked(api, request, images, key))
            except _OutOfMoneyError:
                self.stopped = self.broke = True

    def _count(self, answer: Answer) -> Answer:
        if answer.failure is not None:
            self.progress.failed += 1
        elif answer.cached:
            self.progress.cached += 1
        else:
            self.progress.done += 1
        self.progress.count(self.meter.usage, self.limits.held())
        return answer

    def _kept(self, request: ChatRequest, key: str) -> Answer | None:
        """The kept answer, if there is one that still will do."""
        kept = self.cache.get(key)
        if kept is None:
            return None
        reading = read_text(request, kept.text)
        if reading.problem is not None:
            return None
        return Answer(request, reading.value, cached=key not in self.fresh, usage=kept.usage)

    async def _asked(self, api: Any, request: ChatRequest, images: tuple[EncodedImage, ...], key: str) -> Answer:
        """Ask, and once more if the answer will not do."""
        first = self.first.get(key)
        reading, usage = (first.reading, first.usage) if first else (None, Usage())
        start = time.monotonic()
        for turn in range(2):
            if first is None or turn == 1:
                repair = Repair(reading.text, reading.problem or "", reading.cut_off) if reading else None
                try:
                    completion, took = await self._turn(api, request, images, repair)
                except RequestFailedError as error:
                    before = f" (when asked to mend an answer: {reading.problem})" if reading else ""
                    return Answer(request, failure=f"{error}{before}", usage=usage)
                usage += took
                reading = read_completion(request, completion)
                if reading.problem is None:
                    seconds = time.monotonic() - start
                    keep(self.cache, self.settings.model, request, key, completion, reading, usage, seconds)
                    return Answer(request, reading.value, usage=usage)
            if reading is None or reading.final or (reading.cut_off and self.settings.max_tokens is None):
                break
        return Answer(request, failure=_failure_words(reading), usage=usage)

    async def _turn(
        self, api: Any, request: ChatRequest, images: tuple[EncodedImage, ...], repair: Repair | None
    ) -> tuple[dict[str, Any], Usage]:
        """One completion and what it took.

        Raises:
            _OutOfMoneyError: If it might cost more than is left.
        """
        sent = self.meter.input_tokens(request, images)
        received = self.meter.output_tokens(request)
        if repair is not None:
            sent += round(received)
        cost = self.meter.cost(sent, received)
        if not self.meter.reserve(cost):
            raise _OutOfMoneyError
        try:
            completion = await self.endpoint.complete(
                api,
                lambda dialect: build_body(self.settings, request, images, dialect, repair),
                request.schema is not None,
                sent + received,
            )
        finally:
            self.meter.release(cost)
        took = self.meter.count(request, completion, sent)
        self.limits.correct(sent + received, took.input_tokens + took.output_tokens)
        return completion, took


async def _encoded(request: ChatRequest) -> tuple[EncodedImage, ...]:
    """The images of a request, read and encoded in a thread."""
    if not request.images:
        return ()
    return await asyncio.to_thread(encode, request)


def keep(
    cache: AnswerCache,
    model: str,
    request: ChatRequest,
    key: str,
    completion: Mapping[str, Any],
    reading: Reading,
    usage: Usage,
    seconds: float | None,
) -> None:
    """Put a valid answer into the cache."""
    snapshot = completion.get("model")
    cache.put(
        KeptAnswer(
            key=key,
            request=request.id.encode("utf-8", "replace").decode("utf-8"),
            model=model,
            snapshot=snapshot if isinstance(snapshot, str) else "",
            shape=form_of(request.schema).digest,
            text=reading.text,
            usage=usage,
            seconds=seconds,
        )
    )


def _failure_words(reading: Reading | None) -> str:
    """Why an answer will not do, and how it begins."""
    if reading is None:
        return "not asked"
    text = " ".join(reading.text.split())
    begins = f"; the answer begins: {text[:_SHOWN]}" if text else ""
    return f"{reading.problem}{begins}"
