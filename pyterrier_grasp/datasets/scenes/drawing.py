"""Rendering a scene with Pillow.

Only exact operations are used (binary masks, pasting, averaging of 2 x 2 blocks), no antialiased primitives and no
fonts, so that pixels do not depend on the version of Pillow.
"""

from functools import lru_cache

from PIL import Image

from pyterrier_grasp.datasets.scenes.masks import shape_mask, texture_mask
from pyterrier_grasp.datasets.scenes.scene import CANVAS, Scene, SceneObject
from pyterrier_grasp.datasets.scenes.vocabulary import RGB

SUPERSAMPLE = 2
_PERIOD = 6 * SUPERSAMPLE
_GROUND_PERIOD = 10 * SUPERSAMPLE
_Colour = tuple[int, int, int]


def _mix(colour: _Colour, other: int, parts: int) -> _Colour:
    """``parts`` tenths of grey level ``other``, the rest ``colour``."""
    red, green, blue = ((c * (10 - parts) + other * parts) // 10 for c in colour)
    return red, green, blue


def _second(colour: _Colour) -> _Colour:
    """A clearly lighter or darker tone, for the pattern on an object."""
    luminance = (colour[0] * 3 + colour[1] * 6 + colour[2]) // 10
    return _mix(colour, 0, 5) if luminance > 120 else _mix(colour, 255, 6)


@lru_cache(maxsize=4096)
def _shape_image(shape: str, half: int) -> Image.Image:
    return Image.fromarray(shape_mask(shape, half).astype("uint8") * 255)


@lru_cache(maxsize=64)
def _texture_image(texture: str, side: int, period: int) -> Image.Image:
    return Image.fromarray(texture_mask(texture, side, period).astype("uint8") * 255)


def _fill(colour: _Colour, second: _Colour, texture: str, side: int, period: int) -> Image.Image:
    fill = Image.new("RGB", (side, side), colour)
    if texture != "solid":
        fill.paste(second, (0, 0), _texture_image(texture, side, period))
    return fill


def _paste(canvas: Image.Image, item: SceneObject) -> None:
    half = item.r * SUPERSAMPLE
    x, y = item.x * SUPERSAMPLE, item.y * SUPERSAMPLE
    colour = RGB[item.colour]
    if item.outlined:
        edge = (255, 255, 255) if item.colour == "black" else (0, 0, 0)
        canvas.paste(edge, (x - half, y - half), _shape_image(item.shape, half))
        half -= 2 * SUPERSAMPLE
    fill = _fill(colour, _second(colour), item.texture, 2 * half, _PERIOD)
    canvas.paste(fill, (x - half, y - half), _shape_image(item.shape, half))


def render(scene: Scene) -> Image.Image:
    """Draw a scene.

    Returns:
        RGB image of 96 x 96 pixels; the same scene always gives the same pixels.
    """
    side = CANVAS * SUPERSAMPLE
    pale = _mix(RGB[scene.ground_colour], 255, 5)
    canvas = _fill(pale, _mix(pale, 255 if scene.ground_colour != "white" else 160, 4), scene.ground_texture, side,
                   _GROUND_PERIOD)  # fmt: skip
    for item in scene.objects:
        _paste(canvas, item)
    return canvas.reduce(SUPERSAMPLE)
