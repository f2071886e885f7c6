"""One exchange with an endpoint: sent again where that may help, explained in words where it does not."""

import asyncio
import random
import time
import warnings
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from pyterrier_grasp.llm.dialect import Dialect
from pyterrier_grasp.llm.limits import Limits
from pyterrier_grasp.llm.structured import has_choice

#: Stands for a key where the endpoint wants none.
NO_KEY = "no-key"
#: Requests in a row without any reply before an endpoint that never replied counts as down.
GIVE_UP_UNHEARD = 3
#: Requests in a row that fail in spite of retries before an endpoint that once worked counts as down.
GIVE_UP_LOST = 20
#: Refused requests before an endpoint that never answered one counts as wrongly asked.
GIVE_UP_REFUSED = 20

_FIRST_WAIT = 1.0
_LONGEST_WAIT = 60.0
_CONNECT_SECONDS = 10.0
_LONG_HOLD = 60.0
_QUOTA = ("insufficient_quota", "billing_hard_limit_reached")


class RequestFailedError(Exception):
    """A request got no completion, for a reason of its own; the words say which."""


class Endpoint:
    """An OpenAI-compatible endpoint as all requests of a client see it.

    Args:
        url: Its base URL.
        key: Its key, :data:`NO_KEY` where it wants none, or empty if it is missing; never shown, not even where the
            endpoint repeats it in an error.
        model: Name of the model, for errors.
        timeout: Seconds for one answer.
        max_retries: How often a request is sent again.
        limits: How fast requests may be sent.

    Attributes:
        dialect: What it has been found to understand.
        heard: Whether it has ever replied.
        lost: Requests in a row that failed in spite of retries.
    """

    def __init__(self, url: str, key: str, model: str, timeout: float, max_retries: int, limits: Limits) -> None:
        self.url, self._key, self._model = url, key, model
        self._timeout, self._max_retries, self._limits = timeout, max_retries, limits
        self.dialect = Dialect()
        self.heard = False
        self.lost = 0
        self._answered = False
        self._refused = 0

    def open(self) -> Any:
        """A new ``openai.AsyncOpenAI``, for one event loop."""
        import openai

        return openai.AsyncOpenAI(**self._options())

    def open_blocking(self) -> Any:
        """A new ``openai.OpenAI``, which retries by itself.

        Raises:
            ValueError: If the key is missing.
        """
        import openai

        self._check_key()

        return openai.OpenAI(**self._options() | {"max_retries": self._max_retries})

    def _options(self) -> dict[str, Any]:
        import openai

        timeout = openai.Timeout(self._timeout, connect=min(self._timeout, _CONNECT_SECONDS))
        return {"api_key": self._key or NO_KEY, "base_url": self.url, "timeout": timeout, "max_retries": 0}

    def _check_key(self) -> None:
        if not self._key:
            raise ValueError(
                "there is no key for a chat model: set the environment variable OPENAI_API_KEY or give api_key=...; "
                "for an endpoint of your own give base_url=... (or set OPENAI_BASE_URL)"
            )

    async def complete(
        self, api: Any, body: Callable[[Dialect], dict[str, Any]], structured: bool, tokens: float
    ) -> dict[str, Any]:
        """Get a chat completion.

        Args:
            api: An ``openai.AsyncOpenAI``.
            body: Gives the body of the request in a dialect.
            structured: Whether it asks for a schema.
            tokens: Expected tokens of question and answer.

        Raises:
            RequestFailedError: If this request failed.
            ValueError: If the key is missing, the key, the model or the URL is wrong, or there is no credit left.
            ConnectionError: If the endpoint is down.
        """
        import anyio
        import openai

        self._check_key()
        retries = 0
        while True:
            await self._limits.admit(tokens)
            dialect = self.dialect
            wait = 0.0
            try:
                with anyio.fail_after(self._timeout):
                    completion = await api.post("/chat/completions", body=body(dialect), cast_to=object)
            except openai.APIStatusError as error:
                self.heard = True
                if error.status_code in (400, 422) and self._adapted(error, dialect, structured):
                    continue
                trouble, wait = self._retryable(error)
            except (openai.APITimeoutError, TimeoutError):
                trouble = f"no answer within {self._timeout:g} s"
            except openai.APIConnectionError as error:
                trouble = f"the connection failed ({error.__cause__ or error})"
            except ValueError as error:
                # a reply that says it is JSON and is not
                self.heard = True
                trouble = f"the endpoint sent no chat completion ({error})"
            else:
                self.heard = True
                if has_choice(completion):
                    self.lost = 0
                    self._answered = True
                    return completion
                trouble = f"the endpoint sent no chat completion but {self._shown(str(completion))!r}"
            if retries >= self._max_retries:
                self._note_lost(trouble)
                raise RequestFailedError(f"{trouble} (tried {retries + 1} times)")
            pause = min(_LONGEST_WAIT, _FIRST_WAIT * 2**retries) * random.uniform(0.5, 1)
            await asyncio.sleep(max(wait, pause))
            retries += 1

    def explain(self, error: Exception) -> Exception:
        """An error of the ``openai`` package in words of ours: a ValueError, or a ConnectionError."""
        import openai

        if isinstance(error, openai.APIStatusError):
            fatal = self._fatal(error)
            return fatal or ValueError(f"the endpoint {self.url} refuses: {self._said(error)}")
        return ConnectionError(f"the endpoint {self.url} cannot be reached ({error.__cause__ or error})")

    def _adapted(self, error: Any, used: Dialect, structured: bool) -> bool:
        """Whether the request may be sent again in another dialect."""
        if used != self.dialect:
            return True
        change = used.after(_message(error), _text_or_none(error.param), structured)
        if change is None:
            return False
        self.dialect, words = change
        warnings.warn(f"the endpoint {self.url} said {self._said(error)!r}: from now on {words}", stacklevel=2)
        return True

    def _retryable(self, error: Any) -> tuple[str, float]:
        """What is wrong and how long to wait, for an error that may pass.

        Raises:
            RequestFailedError: If it will not.
            ValueError: If no request will ever pass.
        """
        fatal = self._fatal(error)
        if fatal is not None:
            raise fatal from error
        if error.status_code not in (408, 409, 429) and error.status_code < 500:
            self._refused += 1
            if not self._answered and self._refused >= GIVE_UP_REFUSED:
                raise ValueError(
                    f"the endpoint {self.url} refused all of the first {self._refused} requests: {self._said(error)}"
                ) from error
            raise RequestFailedError(f"the endpoint refused: {self._said(error)}") from error
        wait = retry_after(error.response.headers)
        if wait is None:
            return self._said(error), 0.0
        if wait > max(_LONG_HOLD, self._limits.held()):
            warnings.warn(f"the endpoint {self.url} wants no requests for {wait:.0f} s: waiting", stacklevel=2)
        self._limits.hold(wait)
        return self._said(error), wait

    def _fatal(self, error: Any) -> ValueError | None:
        """The error to stop with, if no request will ever pass."""
        said = self._said(error)
        status, code = error.status_code, error.code
        if status == 401:
            return ValueError(
                f"the endpoint {self.url} does not accept the key ({said}): set OPENAI_API_KEY or give api_key=..."
            )
        if status == 403:
            return ValueError(f"the key has no right to ask {self._model!r} at {self.url} ({said})")
        if status == 402 or code in _QUOTA or _text_or_none(getattr(error, "type", None)) in _QUOTA:
            return ValueError(
                f"there is no credit left at {self.url} ({said}): top it up and run again; what was answered is kept"
            )
        if status in (404, 405) or code == "model_not_found":
            return ValueError(
                f"{self.url} has no model {self._model!r}, or is not the base URL of an OpenAI-compatible endpoint, "
                f"which usually ends in /v1 ({said}): give another model=... or base_url=..."
            )
        return None

    def _note_lost(self, trouble: str) -> None:
        """Count a request that failed in spite of retries.

        Raises:
            ConnectionError: If there have been too many.
        """
        self.lost += 1
        if not self.heard and self.lost >= GIVE_UP_UNHEARD:
            raise self.unreachable(trouble)
        if self.lost >= GIVE_UP_LOST:
            raise ConnectionError(
                f"the endpoint {self.url} seems to be down: the last {self.lost} requests failed, the latest because "
                f"{trouble}. What was answered is kept; run it again to go on"
            )

    def unreachable(self, trouble: str) -> ConnectionError:
        """The error for an endpoint that never replied."""
        return ConnectionError(
            f"the endpoint {self.url} cannot be reached: {trouble}. Is it running, and is base_url right?"
        )

    def _said(self, error: Any) -> str:
        return self._shown(f"HTTP {error.status_code}: {_message(error)}")

    def _shown(self, words: str) -> str:
        """Words of the endpoint without the key, and not too many of them."""
        if self._key and self._key != NO_KEY:
            words = words.replace(self._key, "***")
        words = " ".join(words.split())
        return words if len(words) <= 300 else f"{words[:300]}..."


def _message(error: Any) -> str:
    """What an endpoint said about an HTTP error."""
    if isinstance(error.body, Mapping):
        return str(error.body.get("message") or error.body.get("detail") or dict(error.body))
    return str(error.body or error.response.reason_phrase or "no reason given")


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait from ``Retry-After`` (seconds or an HTTP date) or ``retry-after-ms``; None if not said."""
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) * unit
        except ValueError:
            try:
                seconds = parsedate_to_datetime(value).timestamp() - time.time()
            except (ValueError, TypeError):
                continue
        if 0 <= seconds < float("inf"):
            return seconds
        if seconds < 0:
            return 0.0
    return None
