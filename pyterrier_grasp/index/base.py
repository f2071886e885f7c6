"""What the index's transformers share: identity by constructor arguments, and the rank cut-off."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import pyterrier as pt


class IndexTransformer(pt.Transformer):
    """A transformer over a :class:`GraspIndex`.

    Two are equal if they are of one class and agree in the attributes named by ``_identity``, which are those that
    change the result. ``_method`` is the method of the index that makes one, for ``repr``.
    """

    index: Any
    _identity: tuple[str, ...] = ("index",)
    _method: str = ""

    def _key(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self._identity)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, IndexTransformer) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._key()))

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._identity if name != "index")
        return f"{self.index!r}.{self._method}({settings})"


def check_num_results(num_results: Any, optional: bool = False) -> None:
    """Raise ValueError unless ``num_results`` is a whole number of at least 1 (or None where ``optional``)."""
    if num_results is None and optional:
        return
    if isinstance(num_results, bool) or not isinstance(num_results, Integral) or int(num_results) < 1:
        raise ValueError(f"num_results must be a whole number of at least 1, got {num_results!r}")


def check_w(w: Any) -> float:
    """Return ``w`` as a float; ValueError if it is not a finite number."""
    if not isinstance(w, Real) or not math.isfinite(w):
        raise ValueError(f"w must be a finite number, got {w!r}")
    return float(w)


def cut_off(transformer: pt.Transformer, num_results: int | None, k: int) -> pt.Transformer | None:
    """A copy of a transformer that returns only ``k`` results, or None if it returns no more than that already."""
    if k < 1 or (num_results is not None and k >= num_results):
        return None
    return pt.inspect.transformer_apply_attributes(transformer, num_results=k)
