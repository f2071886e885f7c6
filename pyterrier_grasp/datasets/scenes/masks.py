"""Binary masks of shapes and textures, in integer arithmetic so that they are the same on every platform."""

import math
from functools import lru_cache

import numpy as np

UNIT = 1024
"""Outlines are given in 1/1024 of the half-side, so that rounding does not depend on the maths library."""

_Points = list[tuple[int, int]]


def _points(*pairs: tuple[float, float]) -> _Points:
    return [(round(x * UNIT), round(y * UNIT)) for x, y in pairs]


def _star() -> _Points:
    corners = []
    for k in range(10):
        radius = 1.0 if k % 2 == 0 else 0.42
        corners.append((radius * math.sin(k * math.pi / 5), -radius * math.cos(k * math.pi / 5)))
    return _points(*corners)


def _heart() -> _Points:
    steps = [2 * math.pi * k / 48 for k in range(48)]
    return _points(
        *(
            (math.sin(t) ** 3, -(13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)) / 15)
            for t in steps
        )
    )


POLYGONS: dict[str, _Points] = {
    "square": _points((-0.88, -0.88), (0.88, -0.88), (0.88, 0.88), (-0.88, 0.88)),
    "triangle": _points((0, -0.95), (1, 0.9), (-1, 0.9)),
    "star": _star(),
    "cross": _points(
        (-0.34, -1), (0.34, -1), (0.34, -0.34), (1, -0.34), (1, 0.34), (0.34, 0.34),
        (0.34, 1), (-0.34, 1), (-0.34, 0.34), (-1, 0.34), (-1, -0.34), (-0.34, -0.34),
    ),
    "heart": _heart(),
    "hexagon": _points((-0.55, -0.9), (0.55, -0.9), (1, 0), (0.55, 0.9), (-0.55, 0.9), (-1, 0)),
    "diamond": _points((0, -1), (1, 0), (0, 1), (-1, 0)),
    "arrow": _points((-1, -0.3), (0.1, -0.3), (0.1, -0.85), (1, 0), (0.1, 0.85), (0.1, 0.3), (-1, 0.3)),
    "rectangle": _points((-1, -0.48), (1, -0.48), (1, 0.48), (-1, 0.48)),
    "hourglass": _points((-0.85, -1), (0.85, -1), (0.2, 0), (0.85, 1), (-0.85, 1), (-0.2, 0)),
}  # fmt: skip


def _inside_polygon(points: _Points, half: int) -> np.ndarray:
    """Even-odd rule at pixel centres; every quantity is an exact integer."""
    # Doubled coordinates put the pixel centres on odd integers.
    centres = (2 * np.arange(2 * half, dtype=np.int64) + 1 - 2 * half) * UNIT
    px, py = centres[None, :], centres[:, None]
    inside = np.zeros((2 * half, 2 * half), dtype=bool)
    scaled = [(2 * x * half, 2 * y * half) for x, y in points]
    for (x1, y1), (x2, y2) in zip(scaled, scaled[1:] + scaled[:1], strict=True):
        if y1 == y2:
            continue
        crosses = (y1 > py) != (y2 > py)
        side = (px - x1) * (y2 - y1) - (x2 - x1) * (py - y1)
        inside ^= crosses & ((side < 0) if y2 > y1 else (side > 0))
    return inside


def _disc(half: int, radius: float, shift: tuple[float, float] = (0.0, 0.0)) -> np.ndarray:
    centres = (2 * np.arange(2 * half, dtype=np.int64) + 1 - 2 * half) * UNIT
    dx, dy = (round(2 * s * half * UNIT) for s in shift)
    limit = round(2 * radius * half * UNIT)
    return (centres[None, :] - dx) ** 2 + (centres[:, None] - dy) ** 2 <= limit**2


@lru_cache(maxsize=4096)
def shape_mask(shape: str, half: int) -> np.ndarray:
    """Mask of a shape.

    Args:
        shape: a name from the vocabulary.
        half: half the side of the mask in pixels.

    Returns:
        bool [2 * half, 2 * half], rows from the top. Shared between calls: do not write to it.
    """
    if shape in POLYGONS:
        mask = _inside_polygon(POLYGONS[shape], half)
    elif shape == "circle":
        mask = _disc(half, 0.96)
    elif shape == "ring":
        mask = _disc(half, 1.0) & ~_disc(half, 0.58)
    elif shape == "crescent":
        mask = _disc(half, 1.0) & ~_disc(half, 0.82, (0.5, -0.2))
    else:
        raise ValueError(f"unknown shape {shape!r}")
    mask.flags.writeable = False
    return mask


@lru_cache(maxsize=64)
def texture_mask(texture: str, side: int, period: int) -> np.ndarray:
    """Where the second colour of a texture goes.

    Args:
        texture: a name from the vocabulary.
        side: side of the mask in pixels.
        period: period of the pattern in pixels.

    Returns:
        bool [side, side]; all False for "solid". Shared between calls: do not write to it.
    """
    at = np.arange(side)
    x, y = at[None, :] % period, at[:, None] % period
    half = period // 2
    if texture == "solid":
        mask = np.zeros((side, side), dtype=bool)
    elif texture == "striped":
        mask = np.broadcast_to(y < half, (side, side)).copy()
    elif texture == "dotted":
        mask = (2 * x - period + 1) ** 2 + (2 * y - period + 1) ** 2 <= (period * 5 // 8) ** 2
    elif texture == "checked":
        mask = (x < half) ^ (y < half)
    elif texture == "hatched":
        thin = max(1, period // 4)
        diagonal, other = (at[None, :] + at[:, None]) % period, (at[None, :] - at[:, None]) % period
        mask = (diagonal < thin) | (other < thin)
    else:
        raise ValueError(f"unknown texture {texture!r}")
    mask.flags.writeable = False
    return mask
