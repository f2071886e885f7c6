"""Image files as data URLs, small enough to send."""

import base64
import hashlib
import io
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps

PATCH = 32
_TRANSPARENT = ("RGBA", "LA", "PA", "La", "RGBa")


class EncodedImage(NamedTuple):
    """An image as it is sent.

    Attributes:
        url: ``data:image/jpeg;base64,...``.
        sha256: Hex digest of the JPEG bytes, for a cache key.
        tokens: Patches of 32 x 32 pixels that cover it: what many models count. See
            :meth:`~pyterrier_grasp.llm.prices.Prices.image_tokens` for those that count otherwise.
    """

    url: str
    sha256: str
    tokens: int


def data_url(path: str | Path, max_side: int = 512, quality: int = 85) -> EncodedImage:
    """Encode an image file as a JPEG data URL.

    The first frame of an animation is taken and turned as its EXIF data says. Transparent pixels are laid on white and
    greyscale of 16 bits is scaled to 8. The same file gives the same bytes each time with the same release of Pillow;
    no metadata (place, camera, comments) is sent.

    Args:
        path: The file, of any kind that Pillow reads.
        max_side: The longer side in pixels is at most this; a smaller image keeps its size.
        quality: Of the JPEG, 1 to 95.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is damaged, no image, or has more pixels than Pillow's limit against decompression bombs
            (2 * ``PIL.Image.MAX_IMAGE_PIXELS``, about 179 million); it names the file. Also for settings out of range.
    """
    if max_side < 1 or not 1 <= quality <= 95:
        raise ValueError(f"max_side must be at least 1 and quality 1 to 95, not {max_side!r} and {quality!r}")
    image = _open(Path(path).expanduser(), max_side)
    buffer = io.BytesIO()
    image.save(buffer, format="JPEG", quality=quality)
    content = buffer.getvalue()
    width, height = image.size
    return EncodedImage(
        url="data:image/jpeg;base64," + base64.b64encode(content).decode("ascii"),
        sha256=hashlib.sha256(content).hexdigest(),
        tokens=-(-width // PATCH) * -(-height // PATCH),
    )


def _open(path: Path, max_side: int) -> Image.Image:
    """An upright RGB image without metadata, its longer side at most ``max_side`` pixels."""
    if not path.exists():
        raise FileNotFoundError(f"there is no image file {path}")
    if not path.is_file():
        raise ValueError(f"{path} is no image file")
    if path.stat().st_size == 0:
        raise ValueError(f"cannot read the image {path}: the file is empty")
    try:
        with Image.open(path) as image:
            # a JPEG is decoded at a half, quarter or eighth of its size where that leaves twice the pixels needed
            image.draft(None, (2 * max_side, 2 * max_side))
            image.load()
            rgb = _to_rgb(_upright(image))
            scale = max_side / max(rgb.size)
            if scale < 1:
                width, height = (max(1, round(side * scale)) for side in rgb.size)
                rgb = rgb.resize((width, height), Image.Resampling.BICUBIC)
            rgb.info.clear()
            return rgb
    except PermissionError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ValueError(
            f"the image {path} has too many pixels: {error}. Shrink it, or raise PIL.Image.MAX_IMAGE_PIXELS if you "
            "trust it"
        ) from error
    except Exception as error:  # decoders raise anything on damaged data
        raise ValueError(f"cannot read the image {path}: {error}") from error


def _upright(image: Image.Image) -> Image.Image:
    """Turn a photo as its EXIF data says; one whose EXIF data is damaged is taken as it lies."""
    try:
        return ImageOps.exif_transpose(image)
    except (OSError, ValueError, SyntaxError, EOFError, TypeError, KeyError, ZeroDivisionError, struct.error):
        return image


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I") or image.mode == "F":
        image = _to_eight_bits(image)
    if image.mode in _TRANSPARENT or "transparency" in image.info:
        layers = image.convert("RGBA")
        ground = Image.new("RGBA", layers.size, "white")
        return Image.alpha_composite(ground, layers).convert("RGB")
    return image.convert("RGB")


def _to_eight_bits(image: Image.Image) -> Image.Image:
    """Scale greyscale of 16 or 32 bits; Pillow's own conversion would clip everything above 255 to white."""
    values = np.asarray(image, dtype=np.float32)
    factor = 257 if image.mode.startswith("I;16") or values.max(initial=0) > 255 else 1
    return Image.fromarray((values / factor).clip(0, 255).round().astype(np.uint8), mode="L")
