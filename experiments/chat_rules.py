"""What the loopback chat server answers: something that fits the schema it is asked for. No model is involved."""

import base64
import hashlib
import io
import json
import re
from typing import Any

import numpy as np
from PIL import Image

_LINE = re.compile(r'^(\d+): ("(?:[^"\\]|\\.)*")$', re.M)
_PHRASE = re.compile(r'^"(?:[^"\\]|\\.)*"$', re.M)


def schema_of(body: dict[str, Any]) -> dict[str, Any] | None:
    """The JSON schema in ``response_format``, or the one in the system message; None if there is neither."""
    wanted = body.get("response_format") or {}
    if wanted.get("type") == "json_schema":
        return wanted["json_schema"]["schema"]
    system = "".join(text_of(message) for message in body["messages"] if message["role"] == "system")
    _, found, rest = system.partition("JSON schema:\n")
    return json.JSONDecoder().raw_decode(rest)[0] if found else None


def question_of(body: dict[str, Any]) -> str:
    """The first thing that the user says."""
    return next((text_of(message) for message in body["messages"] if message["role"] == "user"), "")


def text_of(message: dict[str, Any]) -> str:
    """The text of a message, images left out."""
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def answer(body: dict[str, Any], invent: bool = False, variant: str = "") -> str:
    """The text of an answer.

    Args:
        body: The body of a chat completion.
        invent: Whether to speak of things that were not asked about.
        variant: Changes the words of the answer.
    """
    schema, question = schema_of(body), question_of(body)
    if schema is None:
        return f"You said {question!r:.40}{variant}"
    names = schema.get("properties", {})
    if "captions" in names:
        value: Any = _triplets(question, invent)
    elif "groups" in names:
        value = _groups(question, invent)
    elif "choice" in names:
        value = {"choice": _brighter(body)}
    elif "description" in names:
        value = {"description": f"A picture of {_word(question)}{variant}."}
    else:
        value = fit(schema, schema.get("$defs", {}), _word(question) + variant)
    return json.dumps(value, ensure_ascii=False)


def _triplets(question: str, invent: bool) -> dict[str, Any]:
    captions = []
    for number, quoted in _LINE.findall(question):
        words = re.findall(r"\w+", json.loads(quoted).lower()) or ["thing"]
        triplet = {"subject": words[0][:50], "relation": "with" if words[1:] else "", "object": words[-1][:50]}
        captions.append({"number": int(number), "triplets": [triplet]})
    if invent:
        captions.append({"number": len(captions) + 7, "triplets": []})
    return {"captions": captions}


def _groups(question: str, invent: bool) -> dict[str, Any]:
    phrases = [json.loads(quoted) for quoted in _PHRASE.findall(question)]
    groups = [{"canonical": phrase, "members": [phrase]} for phrase in phrases]
    if invent:
        groups.append({"canonical": "gryphon", "members": ["gryphon"]})
    return {"groups": groups, "dropped": []}


def _brighter(body: dict[str, Any]) -> str:
    """``A`` or ``B``, whichever of the two pictures shown is brighter; ``tie`` if none is."""
    shown = [
        part for message in body["messages"] if not isinstance(message["content"], str) for part in message["content"]
    ]
    urls = [part["image_url"]["url"] for part in shown if part["type"] == "image_url"]
    first, second = (_brightness(url) for url in urls[:2])
    return "tie" if first == second else "A" if first > second else "B"


def _brightness(url: str) -> float:
    with Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))) as image:
        return float(np.asarray(image.convert("L"), np.float64).mean())


def _word(text: str) -> str:
    return "w" + hashlib.sha256(text.encode()).hexdigest()[:8]


def fit(schema: dict[str, Any], definitions: dict[str, Any], word: str) -> Any:
    """A value that fits a JSON schema; its strings are ``word``."""
    if "$ref" in schema:
        return fit(definitions[schema["$ref"].rsplit("/", 1)[-1]], definitions, word)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return fit(schema["anyOf"][0], definitions, word)
    kind = schema.get("type")
    if kind == "object":
        return {name: fit(part, definitions, word) for name, part in schema.get("properties", {}).items()}
    if kind == "array":
        return [fit(schema.get("items", {}), definitions, word)]
    return {"integer": 1, "number": 0.5, "boolean": True, "null": None}.get(str(kind), word)
