"""The checks of a chat client's arguments."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyterrier_grasp.llm.endpoint import NO_KEY
from pyterrier_grasp.llm.request import ChatRequest
from pyterrier_grasp.llm.schemas import form_of

_OPENAI_URL = "https://api.openai.com/v1"
#: Fields of a request body that the client sets, or takes as an argument of its own.
_OWN = ("messages", "model", "n", "response_format", "stream", "temperature", "seed", "max_tokens")


def default_cache() -> Path:
    """``grasp/answers.sqlite`` in PyTerrier's home."""
    import pyterrier as pt

    return Path(pt.io.pyterrier_home()) / "grasp" / "answers.sqlite"


def where(base_url: str | None, api_key: str | None) -> tuple[str, str]:
    """URL and key of the endpoint; the key is empty if there is none and OpenAI would want one.

    Raises:
        ValueError: If the URL is none, or the key cannot be one.
    """
    key = api_key or os.environ.get("OPENAI_API_KEY") or ""
    url = base_url or os.environ.get("OPENAI_BASE_URL") or _OPENAI_URL
    if not isinstance(url, str) or urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
        raise ValueError(f"base_url must be a URL like http://localhost:8000/v1, got {url!r}")
    if not isinstance(key, str) or (key and not (key.isascii() and key.isprintable() and key.strip() == key)):
        raise ValueError("api_key must be a string of printable ASCII characters without spaces around it")
    own = urlsplit(url).hostname != urlsplit(_OPENAI_URL).hostname
    return url.rstrip("/"), key or (NO_KEY if own else "")


def checked_requests(requests: Sequence[ChatRequest]) -> list[ChatRequest]:
    """The requests as a list.

    Raises:
        ValueError: If something is none, or its schema is no pydantic model.
    """
    requests = list(requests)
    for request in requests:
        if not isinstance(request, ChatRequest):
            raise ValueError(f"requests must be ChatRequest objects, got {request!r:.200}")
        form_of(request.schema)
    return requests


def checked_params(params: Mapping[str, Any] | None) -> dict[str, Any]:
    """Further fields of the request body as a dict.

    Raises:
        ValueError: If they are no JSON values, or the client's own.
    """
    if params is None:
        return {}
    if not isinstance(params, Mapping):
        raise ValueError(f"params must be further fields of the request body, a dict, got {params!r}")
    own = [name for name in params if name in _OWN]
    if own:
        raise ValueError(f"params holds {own}, which the client sets itself or takes as an argument of its own")
    try:
        json.dumps(dict(params), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"params must be JSON values: {error}") from error
    return dict(params)


def check_number(
    name: str,
    number: Any,
    *,
    at_least: float | None = None,
    above: float | None = None,
    whole: bool = False,
    optional: bool = False,
) -> None:
    """Check a number.

    Raises:
        ValueError: If it is none, or out of bounds.
    """
    if optional and number is None:
        return
    fits = isinstance(number, int if whole else int | float) and not isinstance(number, bool) and math.isfinite(number)
    if not fits or (at_least is not None and number < at_least) or (above is not None and number <= above):
        bound = f" of at least {at_least}" if at_least is not None else f" above {above}" if above is not None else ""
        raise ValueError(
            f"{name} must be a {'whole ' if whole else ''}number{bound}{' or None' if optional else ''}, got {number!r}"
        )
