"""JSON schemas of answers: as an endpoint wants them, and in words for one that takes none."""

import hashlib
import json
from typing import Any, NamedTuple


class AnswerForm(NamedTuple):
    """A schema in every form that is needed of it.

    Attributes:
        json: The JSON schema, sorted and on one line; empty where the answer is plain text.
        digest: Digest of ``json``, 16 hexadecimal digits.
        opening: The character that a fitting JSON value begins with.
        formats: The field ``response_format`` of a request body by rung; None where there is none.
        words: Instructions for a model that cannot be held to a schema.
    """

    json: str
    digest: str
    opening: str
    formats: dict[str, dict[str, Any] | None]
    words: str


_FORMS: dict[Any, AnswerForm] = {}


def form_of(schema: type[Any] | None) -> AnswerForm:
    """The forms of a schema, worked out once.

    Args:
        schema: A pydantic model; None for plain text.

    Raises:
        ValueError: If it is no pydantic model.
    """
    form = _FORMS.get(schema)
    if form is None:
        form = _FORMS[schema] = _work_out(schema)
    return form


def _work_out(schema: type[Any] | None) -> AnswerForm:
    if schema is None:
        return AnswerForm("", _digest(""), "", {"json_schema": None, "json_object": None, "text": None}, "")
    if not hasattr(schema, "model_json_schema") or not hasattr(schema, "model_validate_json"):
        raise ValueError(f"the schema of a request must be a pydantic model (a class), got {schema!r}")
    plain = schema.model_json_schema()
    text = json.dumps(plain, sort_keys=True)
    name = "".join(char if char.isascii() and char.isalnum() else "_" for char in schema.__name__)[:64]
    return AnswerForm(
        json=text,
        digest=_digest(text),
        opening="[" if plain.get("type") == "array" else "{",
        formats={
            "json_schema": {
                "type": "json_schema",
                "json_schema": {"name": name, "schema": _strict(plain), "strict": True},
            },
            "json_object": {"type": "json_object"},
            "text": None,
        },
        words="Answer with one JSON value and nothing else: no explanation, no code fence. It must fit this "
        f"JSON schema:\n{text}",
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _strict(node: Any) -> Any:
    """Make a schema one that OpenAI's strict mode takes: every property required, no others, no defaults."""
    if isinstance(node, list):
        return [_strict(part) for part in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        # nothing may stand beside a reference
        return {"$ref": node["$ref"]}
    parts = {
        # the names of properties and definitions are not keywords
        key: {name: _strict(part) for name, part in value.items()} if key in ("properties", "$defs") else _strict(value)
        for key, value in node.items()
        if key not in ("default", "title")
    }
    if "properties" in node:
        parts |= {"required": list(node["properties"]), "additionalProperties": False}
    return parts
