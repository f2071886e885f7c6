"""What everything that asks a chat model shares: opening a client, quoting texts, adding up what answers took."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pyterrier_grasp.llm.request import Answer, Usage

#: The paper's model for mining concepts (section 4, implementation details).
DEFAULT_MODEL = "gpt-4o-mini"


def open_client(model: str | None, client: Any, options: Mapping[str, Any], user: str) -> Any:
    """The client to ask with: the one given, or a new one for a model.

    Args:
        model: Name of the model; None for that of ``client``, or :data:`DEFAULT_MODEL`.
        client: A :class:`~pyterrier_grasp.llm.client.ChatClient`, or None.
        options: Options of a new client.
        user: Who asks, named in errors.

    Raises:
        ImportError: If the libraries of the extra ``llm`` are missing.
        ValueError: If ``client`` is no chat client, or comes with options or another model; or an option is wrong.
    """
    if model is not None and not isinstance(model, str):
        raise ValueError(f"{user}: model must be the name of a model, got {model!r}; a ready client is client=...")
    if client is not None:
        if not all(callable(getattr(client, name, None)) for name in ("ask", "estimate", "settings")):
            raise ValueError(f"{user}: client must be a ChatClient, got {client!r}")
        if options:
            raise ValueError(f"{user}: {', '.join(sorted(options))} belong to the client; give them to ChatClient(...)")
        if model not in (None, client.model):
            raise ValueError(f"{user}: model is {model!r}, but client asks {client.model!r}; leave one of them out")
        return client
    try:
        import pydantic  # noqa: F401

        from pyterrier_grasp.llm.client import ChatClient
    except ModuleNotFoundError as error:
        raise ImportError(f"{user} needs the extra 'llm': pip install 'pyterrier-grasp[llm]'") from error
    try:
        return ChatClient(model or DEFAULT_MODEL, **options)
    except TypeError as error:
        raise ValueError(f"{user}: {error}") from error


def quoted(text: str) -> str:
    """A text as a JSON string on one line, its white space collapsed: nothing in it can pass for the end of it."""
    return json.dumps(" ".join(text.split()), ensure_ascii=False)


def fingerprint(*texts: str) -> str:
    """Identifier of some texts, 16 hexadecimal digits."""
    return hashlib.sha256("\0".join(texts).encode("utf-8")).hexdigest()[:16]


def usage_of(answers: Iterable[Answer]) -> Usage:
    """What answers took, whenever they were asked; equal requests count once."""
    distinct = {replace(answer.request, id=""): answer.usage for answer in answers}
    return sum(distinct.values(), Usage())
