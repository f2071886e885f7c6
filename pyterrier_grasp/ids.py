"""Ids that must be unique."""

from collections.abc import Hashable, Iterable
from typing import TypeVar

Id = TypeVar("Id", bound=Hashable)


def first_repeated(ids: Iterable[Id]) -> Id | None:
    """The first id that stands a second time; None if all are different."""
    seen: set[Id] = set()
    for one in ids:
        if one in seen:
            return one
        seen.add(one)
    return None
