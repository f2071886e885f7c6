"""One document on its way into the index: checks and conversion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np


class Document(NamedTuple):
    """A checked document.

    Attributes:
        docno: Document id.
        vec: [d] float32, or None.
        names: Concept names with a weight above 0, or None.
        weights: float32, one a name, or None.
        model: Fingerprint of the model that made the document, or None.
    """

    docno: str
    vec: np.ndarray | None
    names: list[str] | None
    weights: np.ndarray | None
    model: str | None


def check_docno(docno: Any) -> str:
    """Return ``docno`` if it can be stored.

    Raises:
        ValueError: If it is not a str, is empty, or holds a line break or NUL.
    """
    if not isinstance(docno, str):
        raise ValueError(f"docno must be a str, got {docno!r} of type {type(docno).__name__}; cast it with str()")
    if not docno or "\n" in docno or "\r" in docno or "\0" in docno:
        raise ValueError(f"docno must be non-empty and free of line breaks and NUL characters, got {docno!r}")
    try:
        docno.encode()
    except UnicodeEncodeError:
        raise ValueError(f"docno {docno!r} cannot be written as UTF-8") from None
    return docno


def check_names(names: Any, owner: str) -> None:
    """Check that concept names are non-empty strings.

    Raises:
        ValueError: Naming ``owner`` and the bad name.
    """
    for name in names:
        if not isinstance(name, str) or not name:
            raise ValueError(f"{owner}: concept names must be non-empty strings, got {name!r}")


def parse_document(doc: Mapping[str, Any]) -> Document:
    """Check one ``{docno, doc_vec?, toks?, doc_model?}``; other keys are ignored, None counts as absent.

    Raises:
        ValueError: On a bad docno, on vectors or weights that are not finite, on negative weights, and if both
            ``doc_vec`` and ``toks`` are absent. The message names the document.
    """
    if "docno" not in doc:
        raise ValueError(f"a document has no 'docno'; its keys are {sorted(map(str, doc))}")
    docno = check_docno(doc["docno"])
    vec = _vector(docno, doc["doc_vec"]) if doc.get("doc_vec") is not None else None
    names, weights = _toks(docno, doc["toks"]) if doc.get("toks") is not None else (None, None)
    if vec is None and names is None:
        raise ValueError(f"document {docno!r} has neither 'doc_vec' nor 'toks'; run the documents through an encoder")
    model = doc.get("doc_model")
    return Document(docno, vec, names, weights, model if isinstance(model, str) else None)


def _vector(docno: str, value: Any) -> np.ndarray:
    try:
        with np.errstate(over="ignore"):
            vec = np.array(value, dtype=np.float32)
    except (TypeError, ValueError):
        raise ValueError(f"doc_vec of document {docno!r} is not an array of numbers: {type(value).__name__}") from None
    if vec.ndim != 1 or not len(vec):
        raise ValueError(f"doc_vec of document {docno!r} must be one-dimensional, got shape {vec.shape}")
    if not np.isfinite(vec).all():
        raise ValueError(f"doc_vec of document {docno!r} holds NaN or infinite values")
    return vec


def _toks(docno: str, value: Any) -> tuple[list[str], np.ndarray]:
    if not isinstance(value, Mapping):
        raise ValueError(f"toks of document {docno!r} must be a dict concept -> weight, got {type(value).__name__}")
    check_names(value, f"toks of document {docno!r}")
    try:
        with np.errstate(over="ignore"):
            weights = np.array(list(value.values()), dtype=np.float64).astype(np.float32)
    except (TypeError, ValueError):
        raise ValueError(f"toks of document {docno!r} holds weights that are not numbers") from None
    bad = ~np.isfinite(weights) | (weights < 0)
    if bad.any():
        name = list(value)[int(np.argmax(bad))]
        raise ValueError(
            f"toks of document {docno!r}: weight of {name!r} is {value[name]!r}; weights are finite and >= 0"
        )
    keep = weights > 0
    return [name for name, kept in zip(value, keep, strict=True) if kept], weights[keep]
