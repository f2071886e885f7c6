"""From an image file of any kind to the pixels a vision encoder expects, with Pillow and numpy."""

import struct
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
_TRANSPARENT = ("RGBA", "LA", "PA", "La", "RGBa")


def open_image(source: str | Path | Image.Image) -> Image.Image:
    """Returns an upright RGB image, whatever the file holds.

    Takes the first frame of an animation, turns the photo as its EXIF orientation says, lays transparent pixels on
    white and scales 16-bit greyscale to 8 bits.

    Args:
        source: path of a file, or a PIL image.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is truncated or is no image; names it.
    """
    if isinstance(source, Image.Image):
        return _to_rgb(source, f"the given {source.mode} image")
    path = Path(source).expanduser()
    if not path.exists():
        raise FileNotFoundError(f"no image file {path}")
    if not path.is_file():
        raise ValueError(f"{path} is a folder, not an image file")
    if path.stat().st_size == 0:
        raise ValueError(f"cannot read the image {path}: the file is empty")
    try:
        with Image.open(path) as image:
            image.load()
            return _to_rgb(image, str(path))
    except PermissionError:
        raise
    except (OSError, SyntaxError, EOFError, struct.error, Image.DecompressionBombError) as error:
        raise ValueError(f"cannot read the image {path}: {error}") from error


def _to_rgb(image: Image.Image, name: str) -> Image.Image:
    try:
        image = _upright(image)
        if image.mode.startswith("I") or image.mode == "F":
            image = _to_eight_bits(image)
        if image.mode in _TRANSPARENT or "transparency" in image.info:
            layers = image.convert("RGBA")
            ground = Image.new("RGBA", layers.size, "white")
            return Image.alpha_composite(ground, layers).convert("RGB")
        return image.convert("RGB")
    except (OSError, ValueError, SyntaxError, EOFError) as error:
        raise ValueError(f"cannot turn {name} into an RGB image: {error}") from error


def _upright(image: Image.Image) -> Image.Image:
    """Turns a photo as its EXIF data says; a photo whose EXIF data is damaged is taken as it lies."""
    try:
        return ImageOps.exif_transpose(image)
    except (OSError, ValueError, SyntaxError, EOFError, TypeError, KeyError, ZeroDivisionError, struct.error):
        return image


def _to_eight_bits(image: Image.Image) -> Image.Image:
    """Scales greyscale of 16 or 32 bits; Pillow's own conversion would clip everything above 255 to white."""
    values = np.asarray(image, dtype=np.float32)
    factor = 257 if image.mode.startswith("I;16") or values.max(initial=0) > 255 else 1
    values = values / np.float32(factor)
    return Image.fromarray(values.clip(0, 255).round().astype(np.uint8), mode="L")


@dataclass(frozen=True)
class Preprocess:
    """Resizes, crops and normalises an image.

    Attributes:
        size: height and width of the result.
        resize: "squash" (both sides to ``size``, aspect ratio not kept), "shortest" (the shorter side to
            ``shortest``, then the centre is cropped to ``size``) or "none" (only cropped).
        shortest: length of the shorter side before the crop.
        resample: Pillow's resampling filter, 2 bilinear or 3 bicubic.
        scale: factor on the 8-bit values, 1/255 for values in [0, 1].
        mean: mean subtracted from each channel after scaling.
        std: divisor of each channel.
    """

    size: tuple[int, int]
    resize: str = "squash"
    shortest: int = 0
    resample: int = 3
    scale: float = 1 / 255
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)

    def __call__(self, source: str | Path | Image.Image) -> np.ndarray:
        """Returns float32 ``[3, H, W]``. Raises as :func:`open_image` does."""
        image = open_image(source)
        height, width = self.size
        filter_ = Image.Resampling(self.resample)
        if self.resize == "squash":
            image = image.resize((width, height), filter_)
        elif self.resize == "shortest":
            short = min(image.size)
            scaled = [max(1, int(self.shortest * side / short)) for side in image.size]
            image = image.resize((scaled[0], scaled[1]), filter_)
        if image.size != (width, height):
            left, top = (image.width - width) // 2, (image.height - height) // 2
            image = image.crop((left, top, left + width, top + height))
        pixels = np.asarray(image, dtype=np.float32) * np.float32(self.scale)
        pixels -= np.asarray(self.mean, np.float32)
        pixels /= np.asarray(self.std, np.float32)
        return np.ascontiguousarray(pixels.transpose(2, 0, 1))

    def settings(self) -> dict[str, Any]:
        """Returns everything that decides the pixels, for a fingerprint."""
        return asdict(self)

    @classmethod
    def from_config(cls, config: dict[str, Any], source: str) -> "Preprocess":
        """Reads the keys of a ``preprocessor_config.json``.

        Args:
            config: the file's content.
            source: where it came from, for messages.

        Raises:
            ValueError: if sizes, mean or std are missing or of an unknown form.
        """
        kind = str(config.get("image_processor_type") or config.get("feature_extractor_type") or "")
        squash, shortest, crop = _sizes(config, kind, source)
        resize = "none" if not config.get("do_resize", True) else "shortest" if shortest else "squash"
        size = crop or squash
        if size is None:
            raise ValueError(f"preprocessor_config.json of {source} gives no fixed size of images")
        values: dict[str, Any] = {}
        if config.get("do_normalize", True):
            for name, key in (("mean", "image_mean"), ("std", "image_std")):
                if not isinstance(config.get(key), list | tuple) or len(config[key]) != 3:
                    raise ValueError(f"preprocessor_config.json of {source} needs {key!r}, three numbers")
                values[name] = tuple(float(number) for number in config[key])
            if min(values["std"]) <= 0:
                raise ValueError(f"preprocessor_config.json of {source}: 'image_std' must be positive")
        scale = float(config.get("rescale_factor", 1 / 255)) if config.get("do_rescale", True) else 1.0
        resample = config.get("resample")
        if resample is None:
            # the library's class defaults
            resample = 2 if kind.startswith("ViT") else 3
        return cls(size=size, resize=resize, shortest=shortest, resample=int(resample), scale=scale, **values)

    def to_config(self) -> dict[str, Any]:
        """Returns a ``preprocessor_config.json`` that :meth:`from_config` reads back as an equal object."""
        height, width = self.size
        size = {"shortest_edge": self.shortest} if self.resize == "shortest" else {"height": height, "width": width}
        return {
            "image_processor_type": "BitImageProcessor",
            "do_convert_rgb": True,
            "do_resize": self.resize != "none",
            "size": size,
            "do_center_crop": self.resize != "squash",
            "crop_size": {"height": height, "width": width},
            "resample": self.resample,
            "do_rescale": True,
            "rescale_factor": self.scale,
            "do_normalize": True,
            "image_mean": list(self.mean),
            "image_std": list(self.std),
        }


def _sizes(
    config: dict[str, Any], kind: str, source: str
) -> tuple[tuple[int, int] | None, int, tuple[int, int] | None]:
    """Returns the squashed size, the length of the shorter side (0: squash) and the crop, as far as they are given."""
    size, crops = config.get("size"), bool(config.get("do_center_crop", False))
    crop = _pair(config.get("crop_size"), source) if crops and config.get("crop_size") is not None else None
    shortest = 0
    squash: tuple[int, int] | None = None
    if isinstance(size, dict) and set(size) >= {"height", "width"}:
        squash = _pair(size, source)
    elif isinstance(size, dict) and "shortest_edge" in size and "longest_edge" not in size:
        shortest = int(size["shortest_edge"])
    elif isinstance(size, int):
        # files of old releases: one number is the shorter side where a crop follows, and both sides elsewhere
        if crops or kind.startswith("ConvNext"):
            shortest = size
        else:
            squash = (size, size)
    elif size is not None:
        raise ValueError(f"preprocessor_config.json of {source}: cannot read 'size' {size!r}")
    if shortest and kind.startswith("ConvNext"):
        # ConvNeXt squashes large images; smaller ones are resized to size / crop_pct and cropped
        if shortest >= 384:
            return (shortest, shortest), 0, None
        return None, int(shortest / float(config.get("crop_pct") or 224 / 256)), (shortest, shortest)
    return squash, shortest, crop


def _pair(size: Any, source: str) -> tuple[int, int]:
    if isinstance(size, int):
        return size, size
    if isinstance(size, dict) and set(size) >= {"height", "width"}:
        return int(size["height"]), int(size["width"])
    if isinstance(size, dict) and "shortest_edge" in size:
        return int(size["shortest_edge"]), int(size["shortest_edge"])
    raise ValueError(f"preprocessor_config.json of {source}: cannot read the size {size!r}")
