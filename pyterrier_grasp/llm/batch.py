"""Many questions through the Batch API: half the price, an answer within 24 hours.

Requests become JSONL files, each file a batch at the endpoint. What a batch leaves unanswered is left to the caller.
"""

import io
import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tqdm.auto import tqdm

from pyterrier_grasp.llm.batch_book import BatchBook, BatchRecord

URL = "/v1/chat/completions"
MAX_REQUESTS = 50_000
MAX_BYTES = 100_000_000
#: Key of a batch's metadata under which its fingerprint stands.
MARK = "pyterrier_grasp"

_OVER = ("completed", "failed", "expired", "cancelled")
_NO_BATCHES = (404, 405, 501)
_QUEUE_FULL = "token_limit_exceeded"
_LISTED_FOR = 30 * 24 * 3600.0
_MAX_LISTED = 5000
_MAX_LOST_POLLS = 60


@dataclass
class BatchRun:
    """Asks requests in batches.

    Attributes:
        api: A synchronous ``openai.OpenAI``.
        book: Remembers the batches until their answers are fetched.
        body: Gives the body of a request, as for ``POST /v1/chat/completions``, from its cache key.
        accept: Called with a cache key and a chat completion (JSON types) as soon as an answer is fetched; stores it if
            it will do.
        interval: Seconds between looks at the batches.
        verbose: Whether to show progress.
        desc: Words before the progress bar.
        max_requests: Requests a batch, at most.
        max_bytes: Bytes of a batch's file, at most.
    """

    api: Any
    book: BatchBook
    body: Callable[[str], dict[str, Any]]
    accept: Callable[[str, dict[str, Any]], None]
    interval: float = 60.0
    verbose: bool = True
    desc: str = "requests"
    max_requests: int = MAX_REQUESTS
    max_bytes: int = MAX_BYTES

    def run(self, keys: Sequence[str]) -> None:
        """Ask, wait, and hand every answer to ``accept``.

        Batches that an earlier run left behind are taken up again. If the endpoint has no batches, or a batch fails, a
        warning says so, and the answers are missing.

        Args:
            keys: Cache keys of the requests, each once.

        Raises:
            KeyboardInterrupt: On Ctrl-C; the batches go on at the endpoint, and the next run fetches them.
            openai.OpenAIError: If the endpoint refuses a request, or cannot be reached.
        """
        import openai

        running: list[BatchRecord] = []
        try:
            listed = self._listed()
            running += self._taken_up(keys, listed)
            covered = {key for record in running for key in record.keys}
            known = {mark: batch.id for mark, batch in listed.items() if batch.status != "expired"}
            for file in self._files([key for key in keys if key not in covered]):
                running.append(self._submitted(file, known))
            self._wait(running, set(keys))
        except openai.APIStatusError as error:
            # some endpoints list batches but cannot create any
            if error.status_code not in _NO_BATCHES or running:
                raise
            warnings.warn(
                f"the endpoint {self.api.base_url} has no Batch API ({error}): the requests are asked one by one, at "
                "the full price",
                stacklevel=2,
            )
        except KeyboardInterrupt:
            if running:
                ids = ", ".join(str(record.id) for record in running)
                tqdm.write(
                    f"{self.desc}: the batches go on at the endpoint ({ids}). Run the same again with the same cache "
                    "to fetch their answers.",
                    file=sys.stderr,
                )
            raise

    def _listed(self) -> dict[str, Any]:
        """The batches of the last 30 days at the endpoint, by fingerprint."""
        found: dict[str, Any] = {}
        since = time.time() - _LISTED_FOR
        for number, batch in enumerate(self.api.batches.list(limit=100)):
            if number >= _MAX_LISTED or batch.created_at < since:
                break
            mark = (batch.metadata or {}).get(MARK)
            if mark and batch.status not in ("failed", "cancelling", "cancelled"):
                found.setdefault(mark, batch)
        return found

    def _taken_up(self, keys: Sequence[str], listed: dict[str, Any]) -> list[BatchRecord]:
        """The batches of earlier runs that answer some of these requests."""
        wanted, running = set(keys), []
        for record in self.book.records():
            if wanted.isdisjoint(record.keys):
                continue
            if record.id is None and record.fingerprint in listed:
                record = self.book.started(record, listed[record.fingerprint].id)
            if record.id is None:
                self.book.fetched(record, record.keys)
            else:
                running.append(record)
        return running

    def _files(self, keys: Sequence[str]) -> Iterator[tuple[list[str], bytes]]:
        """The requests as JSONL files, each within the limits, with the keys of its lines."""
        lines: list[bytes] = []
        names: list[str] = []
        size = 0
        for key in keys:
            record = {"custom_id": key, "method": "POST", "url": URL, "body": self.body(key)}
            line = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
            if lines and (len(lines) >= self.max_requests or size + len(line) > self.max_bytes):
                yield names, b"".join(lines)
                lines, names, size = [], [], 0
            lines.append(line)
            names.append(key)
            size += len(line)
        if lines:
            yield names, b"".join(lines)

    def _submitted(self, file: tuple[list[str], bytes], known: dict[str, str]) -> BatchRecord:
        """Hand a file in, unless a batch with its fingerprint is known by its id."""
        keys, content = file
        record = self.book.plan(keys)
        id_ = known.get(record.fingerprint)
        if id_ is None:
            upload = self.api.files.create(file=("requests.jsonl", io.BytesIO(content)), purpose="batch")
            id_ = self.api.batches.create(
                input_file_id=upload.id,
                endpoint=URL,
                completion_window="24h",
                metadata={MARK: record.fingerprint},
            ).id
        return self.book.started(record, id_)

    def _wait(self, running: list[BatchRecord], wanted: set[str]) -> None:
        """Look at the batches until all are over, and fetch each as soon as it is."""
        import openai

        done: dict[str, int] = {}
        postponed: list[BatchRecord] = []
        lost_polls = 0
        total = len(wanted.intersection(key for record in running for key in record.keys))
        with tqdm(total=total, desc=f"{self.desc} in batches", unit="request", disable=not self.verbose) as bar:
            while running:
                for record in list(running):
                    try:
                        batch = self.api.batches.retrieve(record.id)
                        lines = self._results(batch) if batch.status in _OVER else []
                    except openai.NotFoundError as error:
                        warnings.warn(f"the batch {record.id} is gone ({error}): its requests are lost", stacklevel=3)
                        self.book.fetched(record, record.keys)
                        running.remove(record)
                        continue
                    except (openai.APIConnectionError, openai.RateLimitError, openai.InternalServerError):
                        lost_polls += 1
                        if lost_polls >= _MAX_LOST_POLLS:
                            raise
                        continue
                    lost_polls = 0
                    counts = batch.request_counts
                    done[record.fingerprint] = counts.completed + counts.failed if counts else 0
                    bar.n = min(total, sum(done.values()))
                    bar.refresh()
                    if batch.status not in _OVER:
                        continue
                    running.remove(record)
                    if _queue_full(batch) and running:
                        self.book.fetched(record, record.keys)
                        postponed.append(record)
                        continue
                    self._take(record, batch, lines, wanted)
                    if postponed:
                        again = postponed.pop(0)
                        running += [self._submitted(file, {}) for file in self._files(again.keys)]
                if running:
                    time.sleep(self.interval)

    def _results(self, batch: Any) -> list[bytes]:
        """The lines of a batch's output file and error file."""
        lines: list[bytes] = []
        for file in (batch.output_file_id, batch.error_file_id):
            if file:
                lines += self.api.files.content(file).content.split(b"\n")
        return lines

    def _take(self, record: BatchRecord, batch: Any, lines: list[bytes], wanted: set[str]) -> None:
        """Hand the answers of a batch that is over to ``accept``, and say what is missing."""
        unanswered = wanted.intersection(record.keys)
        asked = len(unanswered)
        reasons: Counter[str] = Counter()
        for line in lines:
            key, completion, reason = _read_line(line)
            if key not in unanswered:
                continue
            if completion is None:
                reasons[reason] += 1
            else:
                unanswered.discard(key)
                self.accept(key, completion)
        self.book.fetched(record, wanted)
        if unanswered:
            for problem in (batch.errors.data or []) if batch.errors else []:
                reasons[problem.message or str(problem.code)] += 1
            words = "; ".join(f"{reason} ({times} x)" for reason, times in reasons.most_common(3))
            warnings.warn(
                f"the batch {batch.id} is {batch.status}, and {len(unanswered):,} of {asked:,} requests have no answer "
                f"({words or 'no reason given'}): they are asked one by one, at the full price",
                stacklevel=4,
            )


def _queue_full(batch: Any) -> bool:
    """Whether a batch was refused because too many tokens of other batches wait at the endpoint."""
    problems = (batch.errors.data or []) if batch.errors else []
    return batch.status == "failed" and any(problem.code == _QUEUE_FULL for problem in problems)


def _read_line(line: bytes) -> tuple[str, dict[str, Any] | None, str]:
    """Read a line of a result file.

    Returns:
        The cache key (empty if the line is damaged), the chat completion or None, and why there is none.
    """
    try:
        record = json.loads(line)
        response = record.get("response") or {}
        body = response.get("body")
        if response.get("status_code") == 200 and isinstance(body, dict):
            return str(record["custom_id"]), body, ""
        error = record.get("error") or (body or {}).get("error") or {}
        return str(record["custom_id"]), None, str(error.get("message") or error.get("code") or "no reason given")
    except (ValueError, KeyError, AttributeError):
        return "", None, ""
