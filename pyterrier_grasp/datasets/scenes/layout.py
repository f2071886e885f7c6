"""Sampling of scenes: what is in them and where it stands.

Scenes come in families of four that share most attributes, so that a caption about one of them often fits its
siblings but for one word. Every scene is drawn from streams of its own, seeded by split and number.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import TypeVar

import numpy as np

from pyterrier_grasp.datasets.scenes.masks import shape_mask
from pyterrier_grasp.datasets.scenes.scene import CANVAS, Scene, SceneObject
from pyterrier_grasp.datasets.scenes.vocabulary import (
    COLOURS,
    CONTAINERS,
    FLAT_TOPS,
    GROUND_COLOURS,
    SHAPES,
    TEXTURES,
)

FAMILY = 4
"""Number of scenes that share a base."""

_MUTATION = 0.5
_COUNTS = (2, 2, 2, 2, 3, 3, 3, 4, 4, 5)
_RADII = {"small": (9, 10), "medium": (12, 14), "large": (16, 18)}
_MARGIN = 2
_T = TypeVar("_T")
Placed = tuple[int, str, int]


def pick(rng: Random, items: Sequence[_T]) -> _T:
    """One of ``items``, from ``Random.random`` alone, whose sequence Python guarantees."""
    return items[int(rng.random() * len(items))]


def between(rng: Random, low: int, high: int) -> int:
    """An integer from ``low`` to ``high``, both included."""
    return low + int(rng.random() * (high - low + 1))


def _texture(rng: Random) -> str:
    return "solid" if rng.random() < 0.4 else pick(rng, [t for t in TEXTURES if t != "solid"])


def _new_object(rng: Random) -> SceneObject:
    return SceneObject(
        shape=pick(rng, list(SHAPES)),
        colour=pick(rng, list(COLOURS)),
        size=pick(rng, ("small", "small", "medium", "medium", "large")),
        texture=_texture(rng),
        outlined=rng.random() < 0.25,
    )


def _mutate(rng: Random, item: SceneObject) -> SceneObject:
    """The same object with at most one attribute drawn anew."""
    if rng.random() >= _MUTATION:
        return item
    attribute = pick(rng, ("shape", "colour", "texture", "size", "outlined"))
    return replace(item, **{attribute: getattr(_new_object(rng), attribute)})


def _distinct(rng: Random, items: list[SceneObject], ground: str) -> list[SceneObject]:
    """Give every object a colour apart from the ground's, and no two objects the same shape and colour."""
    seen: set[tuple[str, str]] = set()
    out = []
    for item in items:
        while item.colour == ground or (item.shape, item.colour) in seen:
            item = replace(item, colour=pick(rng, list(COLOURS)))
        seen.add((item.shape, item.colour))
        out.append(item)
    return out


def hidden_share(back: SceneObject, front: SceneObject) -> float:
    """Share of the pixels of ``back`` that ``front`` covers."""
    a: np.ndarray = shape_mask(back.shape, back.r)
    b: np.ndarray = shape_mask(front.shape, front.r)
    dx: int = (front.x - front.r) - (back.x - back.r)
    dy: int = (front.y - front.r) - (back.y - back.r)
    left, top = max(0, dx), max(0, dy)
    right, bottom = min(a.shape[1], dx + b.shape[1]), min(a.shape[0], dy + b.shape[0])
    if right <= left or bottom <= top:
        return 0.0
    both = a[top:bottom, left:right] & b[top - dy : bottom - dy, left - dx : right - dx]
    return float(both.sum()) / float(a.sum())


def _other_colour(rng: Random, item: SceneObject, other: SceneObject, ground: str) -> SceneObject:
    while item.colour in (other.colour, ground):
        item = replace(item, colour=pick(rng, list(COLOURS)))
    return item


def _inside(rng: Random, pair: list[SceneObject], ground: str) -> list[SceneObject]:
    outer, inner = pair
    if outer.shape not in CONTAINERS:
        outer = replace(outer, shape=pick(rng, CONTAINERS))
    outer = replace(outer, size="large", r=between(rng, 21, 22))
    inner = _other_colour(rng, replace(inner, size="small", r=between(rng, 8, 9)), outer, ground)
    return [outer, replace(inner, x=between(rng, -1, 1), y=between(rng, -1, 1))]


def _on(rng: Random, pair: list[SceneObject], ground: str) -> list[SceneObject]:
    support, top = pair
    if support.shape not in FLAT_TOPS:
        support = replace(support, shape=pick(rng, FLAT_TOPS))
    if top.size == "large":
        top = replace(top, size="medium")
    support, top = (replace(item, r=between(rng, *_RADII[item.size])) for item in (support, top))
    top = _other_colour(rng, top, support, ground)
    roof = int(np.flatnonzero(shape_mask(support.shape, support.r).any(axis=1))[0]) - support.r
    foot = int(np.flatnonzero(shape_mask(top.shape, top.r).any(axis=1))[-1]) + 1 - top.r
    return [support, replace(top, x=between(rng, -2, 2), y=roof - foot)]


def _behind(rng: Random, pair: list[SceneObject], ground: str) -> list[SceneObject]:
    back, front = (replace(item, r=between(rng, *_RADII[item.size])) for item in pair)
    front = _other_colour(rng, front, back, ground)
    reach = back.r + front.r
    for _ in range(20):
        side = 1 if rng.random() < 0.5 else -1
        dx = side * between(rng, reach // 2, reach * 4 // 5)
        moved = replace(front, x=dx, y=between(rng, -reach // 3, reach // 3))
        if 0.12 <= hidden_share(back, moved) <= 0.5:
            return [back, moved]
    # Thin shapes hardly overlap: a square of the same size in front always does.
    return _behind(rng, [replace(back, shape="circle"), replace(front, shape="square")], ground)


_PAIRS = {"inside": (_inside, (1, 0)), "on": (_on, (1, 0)), "behind": (_behind, (0, 1))}
"""Maker and (subject, object) position of each relation that needs purposeful placement."""


def _groups(rng: Random, items: list[SceneObject], ground: str) -> list[tuple[list[SceneObject], str]]:
    """Split the objects into pairs with a relation and single objects, each around its own origin."""
    groups: list[tuple[list[SceneObject], str]] = []
    rest = list(items)
    for chance in (0.75, 0.5):
        if len(rest) >= 2 and rng.random() < chance:
            relation = pick(rng, list(_PAIRS))
            if relation == "inside" and any(kind == "inside" for _, kind in groups):
                relation = "on"
            groups.append((_PAIRS[relation][0](rng, rest[:2], ground), relation))
            rest = rest[2:]
    large = 0
    for item in rest:
        if item.size == "large":
            large += 1
            if large + len(groups) > 2:
                item = replace(item, size="medium")
        groups.append(([replace(item, r=between(rng, *_RADII[item.size]))], ""))
    return groups


def _box(group: list[SceneObject]) -> tuple[int, int, int, int]:
    return (
        min(o.x - o.r for o in group),
        min(o.y - o.r for o in group),
        max(o.x + o.r for o in group),
        max(o.y + o.r for o in group),
    )


def _place(rng: Random, groups: list[tuple[list[SceneObject], str]]) -> list[list[SceneObject]] | None:
    """Positions without overlap between groups, or None when the draw does not fit."""
    taken: list[tuple[int, int, int, int]] = []
    out = []
    for group, _ in groups:
        left, top, right, bottom = _box(group)
        if right - left > CANVAS - 2 or bottom - top > CANVAS - 2:
            return None
        for _ in range(40):
            dx = between(rng, 1 - left, CANVAS - 1 - right)
            dy = between(rng, 1 - top, CANVAS - 1 - bottom)
            box = (left + dx, top + dy, right + dx, bottom + dy)
            if all(
                box[0] >= t[2] + _MARGIN or box[2] <= t[0] - _MARGIN
                or box[1] >= t[3] + _MARGIN or box[3] <= t[1] - _MARGIN
                for t in taken
            ):  # fmt: skip
                taken.append(box)
                out.append([replace(o, x=o.x + dx, y=o.y + dy) for o in group])
                break
        else:
            return None
    return out


def sample(seed: str, split: str, index: int) -> Scene:
    """One scene without captions.

    Args:
        seed: name of the corpus version.
        split: name of the stream.
        index: number of the scene in it.

    Returns:
        The scene; the same for the same arguments, whatever was sampled before.
    """
    base = Random(f"{seed}/{split}/family/{index // FAMILY}")
    rng = Random(f"{seed}/{split}/scene/{index}")
    ground = pick(base, GROUND_COLOURS)
    ground_texture = "solid" if base.random() < 0.45 else pick(base, ("striped", "dotted", "checked", "hatched"))
    items = [_new_object(base) for _ in range(pick(base, _COUNTS))]
    if rng.random() < 0.3:
        ground = pick(rng, GROUND_COLOURS)
    items = [_mutate(rng, item) for item in items]
    while True:
        items = _distinct(rng, items, ground)
        for _ in range(20):
            groups = _groups(rng, items, ground)
            # Nested pairs come first (largest), which makes room easiest to find.
            groups.sort(key=lambda group: group[1] == "")
            placed = _place(rng, groups)
            if placed is not None:
                return _assemble(split, index, ground, ground_texture, placed, [kind for _, kind in groups])
        largest = max(range(len(items)), key=lambda k: _RADII[items[k].size])
        items[largest] = replace(items[largest], size="small")


def _assemble(
    split: str, index: int, ground: str, texture: str, groups: list[list[SceneObject]], kinds: list[str]
) -> Scene:
    objects: list[SceneObject] = []
    placed: list[Placed] = []
    for group, kind in zip(groups, kinds, strict=True):
        if kind:
            subject, target = _PAIRS[kind][1]
            placed.append((len(objects) + subject, kind, len(objects) + target))
        objects.extend(group)
    return Scene(f"{split}-{index:06d}", tuple(objects), ground, texture, tuple(placed))
