import numpy as np
import pytest
from PIL import Image

from pyterrier_grasp.backbones.images import Preprocess, open_image

RED = (250, 10, 20)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere.jpg"):
        open_image(tmp_path / "nowhere.jpg")


def test_folder_and_empty_file_are_errors(tmp_path):
    with pytest.raises(ValueError, match="is a folder"):
        open_image(tmp_path)
    (tmp_path / "empty.jpg").touch()
    with pytest.raises(ValueError, match=r"empty\.jpg.*empty"):
        open_image(tmp_path / "empty.jpg")


@pytest.mark.parametrize("suffix", ["jpg", "png", "gif", "webp"])
def test_truncated_file_is_named(tmp_path, suffix):
    path = tmp_path / f"cut.{suffix}"
    noise = np.random.default_rng(0).integers(0, 256, (90, 90, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match=rf"cut\.{suffix}"):
        open_image(path)


def test_file_that_is_no_image_is_named(tmp_path):
    path = tmp_path / "words.jpg"
    path.write_text("not an image")
    with pytest.raises(ValueError, match=r"words\.jpg"):
        open_image(path)


def test_cmyk_and_grey_and_palette(tmp_path):
    plain = Image.new("RGB", (20, 10), RED)
    plain.convert("CMYK").save(tmp_path / "cmyk.jpg", quality=100)
    plain.convert("L").save(tmp_path / "grey.jpg")
    plain.quantize(4).save(tmp_path / "palette.png")
    for name in ("cmyk.jpg", "grey.jpg", "palette.png"):
        image = open_image(tmp_path / name)
        assert image.mode == "RGB" and image.size == (20, 10)
    assert np.abs(np.asarray(open_image(tmp_path / "cmyk.jpg"))[5, 5].astype(int) - RED).max() < 8
    assert len(set(np.asarray(open_image(tmp_path / "grey.jpg"))[5, 5].tolist())) == 1
    assert np.asarray(open_image(tmp_path / "palette.png"))[5, 5].tolist() == list(RED)


def test_transparent_pixels_become_white(tmp_path):
    image = Image.new("RGBA", (4, 2), (*RED, 255))
    image.putpixel((0, 0), (0, 0, 0, 0))
    image.save(tmp_path / "alpha.png")
    palette = Image.new("P", (4, 2), 1)
    palette.putpalette([0, 0, 0, *RED])
    palette.putpixel((0, 0), 0)
    palette.save(tmp_path / "palette.png", transparency=0)
    for name in ("alpha.png", "palette.png"):
        pixels = np.asarray(open_image(tmp_path / name))
        assert pixels[0, 0].tolist() == [255, 255, 255]
        assert pixels[1, 1].tolist() == list(RED)


def test_animation_gives_its_first_frame(tmp_path):
    frames = [Image.new("RGB", (8, 8), colour) for colour in (RED, "blue", "green")]
    for name in ("anim.gif", "anim.webp"):
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:], lossless=True)
        assert np.abs(np.asarray(open_image(tmp_path / name))[4, 4].astype(int) - RED).max() < 8


def test_exif_orientation_is_applied(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (40, 10), RED).save(tmp_path / "turned.jpg", exif=exif)
    assert open_image(tmp_path / "turned.jpg").size == (10, 40)


@pytest.mark.parametrize(
    "data", [b"Exif\x00\x00garbage", b"Exif\x00\x00MM\x00*\xff\xff\xff\xff", b"Exif\x00\x00II*\x00\x08"]
)
@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_damaged_exif_does_not_matter(tmp_path, data):
    Image.new("RGB", (40, 10), RED).save(tmp_path / "odd.jpg", exif=data)
    assert open_image(tmp_path / "odd.jpg").size == (40, 10)


def test_sixteen_bit_grey_is_scaled_not_clipped(tmp_path):
    values = np.array([[0, 128 * 257], [65535, 1000]], np.uint16)
    Image.fromarray(values).save(tmp_path / "deep.png")
    assert np.asarray(open_image(tmp_path / "deep.png"))[..., 0].tolist() == [[0, 128], [255, 4]]


def test_pil_image_is_taken_and_not_changed():
    image = Image.new("L", (5, 5), 7)
    assert open_image(image).mode == "RGB"
    assert image.mode == "L"


def test_squash_matches_pillow_and_numpy():
    image = Image.fromarray(np.random.default_rng(1).integers(0, 256, (50, 31, 3), dtype=np.uint8))
    preprocess = Preprocess((24, 16), mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
    expected = np.asarray(image.resize((16, 24), Image.Resampling.BICUBIC)) / 255
    expected = (expected - [0.5, 0.4, 0.3]) / [0.2, 0.3, 0.4]
    np.testing.assert_allclose(preprocess(image), expected.transpose(2, 0, 1), atol=1e-5)


NUMBERS = {"image_mean": [0.48, 0.45, 0.4], "image_std": [0.27, 0.26, 0.28]}


@pytest.mark.parametrize(
    ("class_name", "config"),
    [
        ("ViTImageProcessorPil", {"size": {"height": 24, "width": 24}, "resample": 2}),
        (
            "CLIPImageProcessorPil",
            {"size": {"shortest_edge": 24}, "do_center_crop": True, "crop_size": {"height": 24, "width": 24}},
        ),
        (
            "BitImageProcessorPil",
            {"size": {"shortest_edge": 30}, "do_center_crop": True, "crop_size": {"height": 24, "width": 24}},
        ),
        ("ConvNextImageProcessorPil", {"size": {"shortest_edge": 24}, "crop_pct": 0.875, "resample": 3}),
    ],
)
@pytest.mark.parametrize("shape", [(60, 47), (33, 80), (24, 24)])
def test_same_pixels_as_the_processors_of_transformers(class_name, config, shape):
    transformers = pytest.importorskip("transformers")
    processor_class = getattr(transformers, class_name, None)
    if processor_class is None:
        pytest.skip(f"this release of transformers has no {class_name}")
    image = Image.fromarray(np.random.default_rng(2).integers(0, 256, (*shape, 3), dtype=np.uint8))
    expected = processor_class(**config, **NUMBERS)(image, return_tensors="np")["pixel_values"][0]
    kind = class_name.removesuffix("Pil")
    found = Preprocess.from_config({**config, **NUMBERS, "image_processor_type": kind}, "test")(image)
    assert found.shape == expected.shape
    # one step of 255 may differ where the library rounds the side lengths in another order
    np.testing.assert_allclose(found, expected, atol=2e-2)


def test_old_files_with_one_number_for_a_size():
    assert Preprocess.from_config({"size": 24, **NUMBERS}, "test").resize == "squash"
    clip = Preprocess.from_config({"size": 24, "do_center_crop": True, "crop_size": 20, **NUMBERS}, "test")
    assert (clip.resize, clip.shortest, clip.size) == ("shortest", 24, (20, 20))


def test_config_round_trip():
    for preprocess in (
        Preprocess((24, 16), mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4), resample=2),
        Preprocess((24, 24), "shortest", 30, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4)),
        Preprocess((24, 24), "none"),
    ):
        assert Preprocess.from_config(preprocess.to_config(), "test") == preprocess


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"size": {"longest_edge": 24}, **NUMBERS}, "size"),
        ({"size": {"height": 24, "width": 24}}, "image_mean"),
        ({"size": {"height": 24, "width": 24}, "image_mean": [0, 0, 0], "image_std": [1, 0, 1]}, "positive"),
        (NUMBERS, "size"),
    ],
)
def test_bad_config_is_named(config, word):
    with pytest.raises(ValueError, match=rf"the-folder.*{word}"):
        Preprocess.from_config(config, "the-folder")
