import base64
import hashlib
import io
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from pyterrier_grasp.llm.images import data_url

RED = (250, 10, 20)
PREFIX = "data:image/jpeg;base64,"


def decoded(encoded):
    assert encoded.url.startswith(PREFIX)
    content = base64.b64decode(encoded.url[len(PREFIX) :], validate=True)
    assert encoded.sha256 == hashlib.sha256(content).hexdigest()
    image = Image.open(io.BytesIO(content))
    assert image.format == "JPEG" and image.mode == "RGB"
    image.load()
    return image


def pixel(image, x=None, y=None):
    return np.asarray(image)[image.height // 2 if y is None else y, image.width // 2 if x is None else x].astype(int)


def close(found, expected, within=10):
    return np.abs(found - np.asarray(expected)).max() <= within


@pytest.mark.parametrize(
    ("size", "max_side", "expected"),
    [
        ((640, 480), 512, (512, 384)),
        ((480, 640), 512, (384, 512)),
        ((512, 512), 512, (512, 512)),
        ((513, 100), 512, (512, 100)),
        ((100, 60), 512, (100, 60)),
        ((1, 1), 512, (1, 1)),
        ((4000, 1), 512, (512, 1)),
        ((4000, 3000), 512, (512, 384)),
        ((4000, 3000), 5000, (4000, 3000)),
        ((300, 200), 1, (1, 1)),
    ],
)
@pytest.mark.parametrize("suffix", ["jpg", "png"])
def test_longer_side_is_bounded_and_never_enlarged(tmp_path, size, max_side, expected, suffix):
    path = tmp_path / f"image.{suffix}"
    Image.new("RGB", size, RED).save(path)
    image = decoded(data_url(path, max_side=max_side))
    assert image.size == expected
    assert close(pixel(image), RED)


def test_patches_are_counted(tmp_path):
    for size, patches in (((512, 384), 16 * 12), ((33, 32), 2), ((1, 1), 1)):
        Image.new("RGB", size).save(tmp_path / "image.png")
        assert data_url(tmp_path / "image.png").tokens == patches


def test_a_large_jpeg_keeps_its_picture(tmp_path):
    """Large JPEGs are decoded at a fraction of their size; the picture must be that of a full decode."""
    x, y = np.meshgrid(np.linspace(0, 6, 2400), np.linspace(0, 6, 1600))
    waves = np.stack([np.sin(x) * np.cos(y), np.sin(y), np.cos(x + y)], -1)
    full = Image.fromarray(((waves + 1) * 127).astype(np.uint8))
    full.save(tmp_path / "large.jpg", quality=95)
    found = decoded(data_url(tmp_path / "large.jpg", max_side=300, quality=95))
    expected = full.resize((300, 200), Image.Resampling.BICUBIC)
    assert np.abs(np.asarray(found).astype(int) - np.asarray(expected)).mean() < 2


def test_grey_palette_bilevel_cmyk(tmp_path):
    plain = Image.new("RGB", (20, 10), RED)
    plain.convert("CMYK").save(tmp_path / "cmyk.jpg", quality=100)
    plain.convert("CMYK").save(tmp_path / "cmyk.tif")
    plain.quantize(4).save(tmp_path / "palette.png")
    for name in ("cmyk.jpg", "cmyk.tif", "palette.png"):
        assert close(pixel(decoded(data_url(tmp_path / name))), RED), name
    Image.new("L", (20, 10), 77).save(tmp_path / "grey.png")
    assert close(pixel(decoded(data_url(tmp_path / "grey.png"))), (77, 77, 77), 2)
    Image.new("1", (20, 10), 1).save(tmp_path / "bilevel.png")
    assert close(pixel(decoded(data_url(tmp_path / "bilevel.png"))), (255, 255, 255), 2)


def test_transparent_pixels_become_white(tmp_path):
    image = Image.new("RGBA", (64, 32), (*RED, 255))
    image.paste((0, 0, 0, 0), (0, 0, 32, 32))
    image.save(tmp_path / "alpha.png")
    image.convert("LA").save(tmp_path / "grey-alpha.png")
    palette = Image.new("P", (64, 32), 1)
    palette.putpalette([0, 0, 0, *RED])
    palette.paste(0, (0, 0, 32, 32))
    palette.save(tmp_path / "palette.png", transparency=0)
    for name in ("alpha.png", "grey-alpha.png", "palette.png"):
        found = decoded(data_url(tmp_path / name))
        assert close(pixel(found, 8, 16), (255, 255, 255), 2), name
        assert not close(pixel(found, 56, 16), (255, 255, 255), 60), name


def test_sixteen_bit_grey_is_scaled_not_clipped(tmp_path):
    Image.fromarray(np.full((16, 16), 100 * 257, np.uint16)).save(tmp_path / "deep.png")
    assert close(pixel(decoded(data_url(tmp_path / "deep.png"))), (100, 100, 100), 2)
    Image.fromarray(np.full((16, 16), 100 * 257, np.int32)).save(tmp_path / "deep.tif")
    assert close(pixel(decoded(data_url(tmp_path / "deep.tif"))), (100, 100, 100), 2)


@pytest.mark.parametrize(("orientation", "size", "corner"), [(1, (400, 100), (10, 50)), (6, (100, 400), (50, 10))])
def test_exif_orientation_is_applied(tmp_path, orientation, size, corner):
    exif = Image.Exif()
    exif[0x0112] = orientation
    photo = Image.new("RGB", (400, 100), "blue")
    photo.paste(RED, (0, 0, 100, 100))
    photo.save(tmp_path / "turned.jpg", exif=exif)
    image = decoded(data_url(tmp_path / "turned.jpg"))
    assert image.size == size
    assert close(pixel(image, *corner), RED)
    assert not image.getexif(), "a viewer would turn it again"


@pytest.mark.parametrize(
    "data", [b"Exif\x00\x00garbage", b"Exif\x00\x00MM\x00*\xff\xff\xff\xff", b"Exif\x00\x00II*\x00\x08"]
)
@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_damaged_exif_does_not_matter(tmp_path, data):
    Image.new("RGB", (40, 10), RED).save(tmp_path / "odd.jpg", exif=data)
    assert decoded(data_url(tmp_path / "odd.jpg")).size == (40, 10)


@pytest.mark.parametrize("suffix", ["gif", "webp", "png"])
def test_animation_gives_its_first_frame(tmp_path, suffix):
    frames = [Image.new("RGB", (32, 32), colour) for colour in (RED, "blue", "green")]
    path = tmp_path / f"animation.{suffix}"
    frames[0].save(path, save_all=True, append_images=frames[1:], lossless=True)
    assert close(pixel(decoded(data_url(path))), RED)


def test_same_file_same_bytes_and_no_metadata(tmp_path):
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (90, 90, 3), dtype=np.uint8))
    exif = Image.Exif()
    exif[0x010F] = "secret camera"
    noise.save(tmp_path / "a.jpg", exif=exif, comment=b"secret place", dpi=(300, 300))
    first = data_url(tmp_path / "a.jpg")
    assert data_url(str(tmp_path / "a.jpg")) == first
    assert b"secret" not in base64.b64decode(first.url[len(PREFIX) :])
    noise.save(tmp_path / "b.jpg")
    assert data_url(tmp_path / "b.jpg") == first, "metadata does not change what is sent"
    assert data_url(tmp_path / "a.jpg", quality=50).sha256 != first.sha256
    assert data_url(tmp_path / "a.jpg", max_side=64).sha256 != first.sha256


def test_missing_file_folder_and_empty_file_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.jpg"):
        data_url(tmp_path / "nowhere.jpg")
    with pytest.raises(ValueError, match="no image file"):
        data_url(tmp_path)
    (tmp_path / "empty.jpg").touch()
    with pytest.raises(ValueError, match=r"empty\.jpg.*empty"):
        data_url(tmp_path / "empty.jpg")
    (tmp_path / "words.jpg").write_text("not an image")
    with pytest.raises(ValueError, match=r"words\.jpg"):
        data_url(tmp_path / "words.jpg")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("suffix", ["jpg", "png", "gif", "webp", "tif", "bmp"])
@settings(max_examples=40, deadline=None)
@given(cut=st.integers(1, 5000), flips=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=8))
def test_damaged_file_gives_an_image_or_is_named(tmp_path_factory, suffix, cut, flips):
    folder = tmp_path_factory.getbasetemp()
    whole = folder / f"whole.{suffix}"
    if not whole.exists():
        noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(noise).save(whole)
    content = bytearray(whole.read_bytes()[:cut])
    for position, value in flips:
        content[position % len(content)] = value
    path = folder / f"damaged.{suffix}"
    path.write_bytes(content)
    with mock.patch.object(Image, "MAX_IMAGE_PIXELS", 10**6):
        try:
            decoded(data_url(path))
        except ValueError as error:
            assert f"damaged.{suffix}" in str(error)


def test_decompression_bomb_is_refused_in_words(tmp_path, monkeypatch):
    Image.new("L", (300, 300)).save(tmp_path / "bomb.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(ValueError, match=r"bomb\.png has too many pixels.*MAX_IMAGE_PIXELS"):
        data_url(tmp_path / "bomb.png")


@pytest.mark.parametrize("arguments", [{"max_side": 0}, {"max_side": -5}, {"quality": 0}, {"quality": 96}])
def test_settings_out_of_range(tmp_path, arguments):
    Image.new("L", (3, 3)).save(tmp_path / "image.png")
    with pytest.raises(ValueError, match="max_side"):
        data_url(tmp_path / "image.png", **arguments)
