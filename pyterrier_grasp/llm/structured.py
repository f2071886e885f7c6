"""From a request to the body that is sent, and from a completion to a value or what is wrong with it."""

import contextlib
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyterrier_grasp.llm.dialect import Dialect
from pyterrier_grasp.llm.images import EncodedImage
from pyterrier_grasp.llm.request import ChatRequest
from pyterrier_grasp.llm.schemas import form_of

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.S)
_MAX_PROBLEMS = 10


@dataclass(frozen=True)
class AskingSettings:
    """What decides about answers, besides the request.

    Attributes:
        model: Name of the model.
        temperature: None for the endpoint's own.
        seed: None for none.
        max_tokens: Room for an answer; None for the endpoint's own.
        params: Further fields of the request body.
    """

    model: str
    temperature: float | None
    seed: int | None
    max_tokens: int | None
    params: Mapping[str, Any]


class Repair(NamedTuple):
    """A second turn: an answer, what was wrong with it, and whether it was only too long."""

    answer: str
    problem: str
    cut_off: bool = False


class Reading(NamedTuple):
    """What a completion says.

    Attributes:
        text: The answer as it came.
        value: An instance of the schema, or the text; None if it will not do.
        problem: Why it will not do; None if it will.
        final: Whether asking again is no use.
        cut_off: Whether the answer ran out of room.
    """

    text: str
    value: Any = None
    problem: str | None = None
    final: bool = False
    cut_off: bool = False


def cache_key(settings: AskingSettings, request: ChatRequest, images: Sequence[EncodedImage] = ()) -> str:
    """Digest of everything that decides about an answer, 64 hexadecimal digits."""
    parts = {
        "model": settings.model,
        "system": request.system,
        "user": request.user,
        "images": [image.sha256 for image in images],
        "temperature": settings.temperature,
        "seed": settings.seed,
        "max_tokens": settings.max_tokens,
        "params": dict(settings.params),
        "schema": form_of(request.schema).json,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def build_body(
    settings: AskingSettings,
    request: ChatRequest,
    images: Sequence[EncodedImage] = (),
    dialect: Dialect | None = None,
    repair: Repair | None = None,
) -> dict[str, Any]:
    """The body of ``POST /v1/chat/completions``.

    Args:
        settings: Model and sampling.
        request: The question.
        images: The encoded ``request.images``.
        dialect: What the endpoint understands; None for everything.
        repair: For the second turn.
    """
    dialect = dialect or Dialect()
    body: dict[str, Any] = {"model": settings.model, "messages": _messages(request, images, dialect, repair)}
    room = settings.max_tokens
    if room is not None and repair is not None and repair.cut_off:
        room *= 2
    for name, field, value in (
        ("temperature", "temperature", settings.temperature),
        ("seed", "seed", settings.seed),
        ("max_tokens", dialect.length_field, room),
    ):
        if value is not None and name not in dialect.without:
            body[field] = value
    wanted = form_of(request.schema).formats[dialect.rung]
    if wanted is not None:
        body["response_format"] = wanted
    return body | dict(settings.params)


def _messages(
    request: ChatRequest, images: Sequence[EncodedImage], dialect: Dialect, repair: Repair | None
) -> list[dict[str, Any]]:
    system, user = request.system, request.user
    if request.schema is not None and dialect.rung != "json_schema":
        system = f"{system}\n\n{form_of(request.schema).words}".lstrip()
    again: list[dict[str, Any]] = []
    if repair is not None and not repair.cut_off:
        words = f"This answer will not do: {repair.problem}. Answer the question again, in full."
        if repair.answer.strip():
            again = [_message("assistant", repair.answer), _message("user", words)]
        else:
            user = f"{user}\n\n{words.replace('This', 'An earlier', 1)}"
    messages = [_message("system", system)] if system else []
    question = _message("user", user)
    if images:
        shown = [{"type": "image_url", "image_url": {"url": image.url, "detail": "low"}} for image in images]
        question["content"] = [*shown, {"type": "text", "text": question["content"]}]
    return [*messages, question, *again]


def _message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": _sendable(text)}


def _sendable(text: str) -> str:
    """The text with ``?`` for halves of surrogate pairs, which UTF-8 has no bytes for."""
    return text.encode("utf-8", "replace").decode("utf-8")


def read_completion(request: ChatRequest, completion: Mapping[str, Any]) -> Reading:
    """Read a chat completion.

    Args:
        request: The question.
        completion: The answer of the endpoint, JSON types; it has at least one choice, see :func:`has_choice`.
    """
    choice = completion["choices"][0]
    message = choice.get("message") or {}
    text = _sendable(_text(message.get("content")))
    if message.get("refusal"):
        return Reading(text, problem=f"the model refused: {_sendable(str(message['refusal']))[:300]}", final=True)
    if choice.get("finish_reason") == "content_filter":
        return Reading(text, problem="the endpoint's content filter stopped the answer", final=True)
    cut_off = choice.get("finish_reason") == "length"
    if cut_off and request.schema is None:
        return Reading(text, problem="the answer ran out of room (max_tokens)", cut_off=True)
    reading = read_text(request, text)
    if cut_off and reading.problem is not None:
        return Reading(text, problem="the answer ran out of room (max_tokens)", cut_off=True)
    return reading


def has_choice(completion: Any) -> bool:
    """Whether something is a chat completion with an answer in it."""
    if not isinstance(completion, dict):
        return False
    choices = completion.get("choices")
    return isinstance(choices, list) and bool(choices) and isinstance(choices[0], dict)


def read_text(request: ChatRequest, text: str) -> Reading:
    """Parse and check the text of an answer."""
    text = text.rpartition("</think>")[2]
    if not text.strip():
        return Reading(text, problem="the answer is empty")
    if request.schema is None:
        value, problem = text.strip(), None
    else:
        value, problem = _parsed(request.schema, text)
    if problem is None and request.check is not None:
        try:
            request.check(value)
        except ValueError as error:
            problem = _sendable(str(error))
    return Reading(text, problem=problem) if problem is not None else Reading(text, value)


def _text(content: Any) -> str:
    """The text of a message, which some endpoints give in parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _parsed(schema: type[Any], text: str) -> tuple[Any, str | None]:
    """The first JSON value in a text that fits a schema, or what is wrong."""
    import pydantic

    # most answers are JSON and nothing else
    with contextlib.suppress(pydantic.ValidationError):
        return schema.model_validate_json(text), None
    values, broken = _json_values(text, form_of(schema).opening)
    problem = None
    for value in values:
        try:
            return schema.model_validate_json(value), None
        except pydantic.ValidationError as error:
            problem = problem or _words(error)
    if problem is None:
        problem = "it breaks off in the middle of its JSON" if broken else "there is no JSON in it"
    return None, problem


def _json_values(text: str, opening: str) -> tuple[list[str], bool]:
    """The outermost JSON objects (or arrays) in a text, and whether the text ends inside one.

    Nothing inside a value is looked at by itself: the inner objects of an answer that breaks off are no answers.
    """
    found: list[str] = []
    start = text.find(opening)
    while start >= 0:
        depth, end = 0, -1
        for token in _TOKEN.finditer(text, start):
            if token.group() in "{[":
                depth += 1
            elif token.group() in "}]":
                depth -= 1
                if depth == 0:
                    end = token.end()
                    break
        if end < 0:
            return found, True
        value = _proper(text[start:end])
        if value is not None:
            found.append(value)
        start = text.find(opening, end)
    return found, False


def _proper(text: str) -> str | None:
    """The text as JSON by the book (models write line breaks inside strings); None if it is no JSON at all."""
    try:
        return json.dumps(json.loads(text, strict=False), ensure_ascii=False).encode("utf-8", "replace").decode("utf-8")
    except (ValueError, RecursionError):
        return None


def _words(error: Any) -> str:
    """What a pydantic error says, in a line."""
    details = error.errors(include_url=False, include_context=False, include_input=False)
    parts = [f"{'.'.join(map(str, detail['loc'])) or 'the answer'}: {detail['msg']}" for detail in details]
    more = [f"and {len(parts) - _MAX_PROBLEMS} more"] if len(parts) > _MAX_PROBLEMS else []
    return "it does not fit the schema: " + "; ".join(parts[:_MAX_PROBLEMS] + more)
