"""The embedded corpus: deterministic, true to its geometry, and frozen."""

import hashlib
import itertools
import json
import re

import numpy as np
import pytest
from PIL import Image

from pyterrier_grasp.datasets import scenes
from pyterrier_grasp.datasets.scenes import files
from pyterrier_grasp.datasets.scenes.masks import shape_mask, texture_mask
from pyterrier_grasp.datasets.scenes.vocabulary import (
    COLOURS,
    GROUND_NOUNS,
    NUMBERS,
    OBJECT_NOUNS,
    OUTLINED,
    RELATIONS,
    SHAPES,
    SIZES,
    TEXTURES,
)

SHAPE_OF = {word: name for name, words in SHAPES.items() for word in words}
ATTRIBUTE_OF = {
    **{word: ("colour", name) for name, words in COLOURS.items() for word in words},
    **{word: ("texture", name) for name, words in TEXTURES.items() for word in words},
    **{word: ("size", name) for name, words in SIZES.items() for word in words},
    **{word: ("outlined", True) for word in OUTLINED},
}
RELATION_OF = {phrase.name: (name, phrase.inverse) for name, phrases in RELATIONS.items() for phrase in phrases}


@pytest.fixture(scope="module")
def val() -> list[scenes.Scene]:
    return list(scenes.generate("val"))


def footprint(item: scenes.SceneObject) -> np.ndarray:
    """Pixels of an object on the canvas, bool [96, 96]."""
    canvas = np.zeros((scenes.CANVAS, scenes.CANVAS), dtype=bool)
    canvas[item.y - item.r : item.y + item.r, item.x - item.r : item.x + item.r] = shape_mask(item.shape, item.r)
    return canvas


def test_counts_and_ids(val):
    assert scenes.SPLITS == {"train": 4000, "val": 500, "test": 500}
    assert len(val) == 500
    assert val[7].docno == "val-000007"
    assert [caption.qid for caption in val[7].captions] == [f"val-000007-{k}" for k in range(5)]
    assert {len(scene.objects) for scene in val} == {2, 3, 4, 5}


def test_a_scene_does_not_depend_on_the_others(val):
    assert scenes.scene("val", 123) == val[123]
    assert list(scenes.generate("val", 3)) == val[:3]
    assert scenes.render(val[5]).tobytes() == scenes.render(scenes.scene("val", 5)).tobytes()


def test_streams_differ():
    firsts = {scenes.scene(split, 0).objects for split in ("train", "val", "test", "pretrain")}
    assert len(firsts) == 4


def test_streams_share_no_image():
    seen: dict[str, str] = {}
    for split, count in (("val", 500), ("test", 500), ("train", 1000), ("pretrain", 1000)):
        for scene in scenes.generate(split, count):
            key = repr((scene.objects, scene.ground_colour, scene.ground_texture))
            assert seen.setdefault(key, split) == split


def test_generate_refuses_what_it_does_not_have():
    with pytest.raises(KeyError, match="dev"):
        scenes.generate("dev")
    with pytest.raises(ValueError, match="n"):
        scenes.generate("pretrain")
    with pytest.raises(ValueError, match="500"):
        scenes.generate("test", 501)
    with pytest.raises(ValueError, match="negative"):
        scenes.generate("val", -1)


def test_captions_differ_and_name_only_a_part(val):
    for scene in val:
        texts = [caption.text for caption in scene.captions]
        assert len(set(texts)) == 5
        for caption in scene.captions:
            nouns = [word for word in re.findall(r"\w+", caption.text) if word in SHAPE_OF]
            assert 1 <= len(nouns) <= 2


def test_triplets_use_the_words_of_the_caption(val):
    for caption in itertools.chain.from_iterable(scene.captions for scene in val):
        words = set(re.findall(r"\w+", caption.text))
        plural = {word.removesuffix("s") for word in words}
        assert len(set(caption.triplets)) == len(caption.triplets) >= 1
        for subject, relation, target in caption.triplets:
            assert subject in words | plural
            assert target in words
            if relation in RELATION_OF:
                phrases = [p.words for p in RELATIONS[RELATION_OF[relation][0]] if p.name == relation]
                assert any(phrase in caption.text for phrase in phrases)
            elif relation == "against":
                assert target in GROUND_NOUNS
            else:
                assert relation == "is"


def test_attributes_in_the_triplets_are_true(val):
    for scene in val:
        for caption in scene.captions:
            for subject, relation, target in caption.triplets:
                if relation != "is":
                    continue
                if subject in OBJECT_NOUNS:
                    assert target == NUMBERS[len(scene.objects)]
                elif subject in GROUND_NOUNS:
                    kind, value = ATTRIBUTE_OF[target]
                    assert value == (scene.ground_colour if kind == "colour" else scene.ground_texture)
                else:
                    kind, value = ATTRIBUTE_OF[target]
                    shape = SHAPE_OF[subject]
                    assert any(o.shape == shape and getattr(o, kind) == value for o in scene.objects)


def test_relations_in_the_triplets_are_true(val):
    seen = set()
    for scene in val:
        true = {(scene.objects[i].shape, name, scene.objects[j].shape) for i, name, j in scene.relations()}
        for caption in scene.captions:
            for subject, relation, target in caption.triplets:
                if relation in RELATION_OF:
                    name, inverse = RELATION_OF[relation]
                    pair = (SHAPE_OF[subject], name, SHAPE_OF[target])
                    assert (pair[::-1] if inverse else pair) in true
                    seen.add(relation)
    assert seen == set(RELATION_OF)


def test_relations_hold_in_the_drawing(val):
    for scene in val:
        for i, name, j in scene.relations():
            a, b = footprint(scene.objects[i]), footprint(scene.objects[j])
            (ay, ax), (by, bx) = np.nonzero(a), np.nonzero(b)
            if name == "left of":
                assert ax.max() < bx.min()
            elif name == "above":
                assert ay.max() < by.min()
            elif name == "inside":
                assert i > j and not (a & ~b).any()
            elif name == "on":
                assert not (a & b).any()
                assert ay.max() + 1 == by.min()
                assert bx.min() <= ax.mean() <= bx.max()
            else:
                assert name == "behind" and i < j
                assert 0.1 < (a & b).sum() / a.sum() <= 0.5


def test_objects_stay_on_the_canvas_and_apart(val):
    for scene in val:
        together = {frozenset((i, j)) for i, _, j in scene.placed}
        for i, a in enumerate(scene.objects):
            assert a.r <= a.x <= scenes.CANVAS - a.r and a.r <= a.y <= scenes.CANVAS - a.r
            assert a.colour != scene.ground_colour
            for j in range(i):
                if frozenset((i, j)) not in together:
                    assert not (footprint(a) & footprint(scene.objects[j])).any()


def test_families_share_most_attributes(val):
    def attributes(scene):
        return {(o.shape, o.colour) for o in scene.objects}

    siblings = [len(attributes(val[k]) & attributes(val[k + 1])) for k in range(0, 500, 4)]
    strangers = [len(attributes(val[k]) & attributes(val[k - 3])) for k in range(4, 500, 4)]
    assert np.mean(siblings) > 1.0 > 0.3 > np.mean(strangers)


def test_vocabulary_size():
    words, concepts = set(), set()
    for scene in scenes.generate("train", 1000):
        for caption in scene.captions:
            words.update(re.findall(r"\w+", caption.text))
            for subject, relation, target in caption.triplets:
                concepts.update((("entity", subject), ("relation", relation), ("entity", target)))
    assert 140 <= len(words) <= 300
    assert 100 <= len(concepts) <= 250


def test_masks_against_an_independent_raster():
    assert shape_mask("square", 50).sum() == 88 * 88
    assert abs(shape_mask("circle", 100).sum() / (np.pi * 96**2) - 1) < 0.01
    assert abs(shape_mask("diamond", 100).sum() / (2 * 100 * 100) - 1) < 0.01
    assert abs(shape_mask("ring", 100).sum() / (np.pi * (100**2 - 58**2)) - 1) < 0.01
    assert not texture_mask("solid", 24, 12).any()
    assert texture_mask("checked", 24, 12).mean() == 0.5
    with pytest.raises(ValueError, match="blob"):
        shape_mask("blob", 10)
    with pytest.raises(ValueError, match="furry"):
        texture_mask("furry", 10, 4)


def test_render_shows_the_colours():
    scene = scenes.Scene(
        "x-000000",
        (scenes.SceneObject("square", "red", "large", "solid", False, x=30, y=40, r=16),),
        "white",
        "solid",
        (),
    )
    image = scenes.render(scene)
    assert image.size == (96, 96) and image.mode == "RGB"
    assert image.getpixel((30, 40)) == (208, 28, 36)
    assert min(image.getpixel((80, 80))) > 240


def test_materialise_writes_whole_files_and_resumes(tmp_path, monkeypatch):
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path))
    monkeypatch.setitem(files.SPLITS, "val", 8)
    folder = scenes.materialise("val")
    assert folder == tmp_path / "scenes" / scenes.version_hash() / "val"
    assert sorted(path.name for path in folder.glob("*.png")) == [f"val-{k:06d}.png" for k in range(8)]
    drawn = scenes.render(scenes.scene("val", 4))
    assert Image.open(folder / "val-000004.png").tobytes() == drawn.tobytes()

    (folder / "complete.json").unlink()
    (folder / "val-000002.png").unlink()
    kept = (folder / "val-000003.png").stat().st_mtime_ns
    assert scenes.materialise("val") == folder
    assert (folder / "val-000002.png").exists()
    assert (folder / "val-000003.png").stat().st_mtime_ns == kept
    assert not list(folder.glob(".*"))
    with pytest.raises(KeyError, match="dev"):
        scenes.materialise("dev")


def test_write_triplets(tmp_path, val):
    path = scenes.write_triplets(tmp_path / "triplets.jsonl", ["val"])
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) == 2500
    first = val[0].captions[0]
    expected = [list(triplet) for triplet in first.triplets]
    assert rows[0] == {"sentid": first.qid, "imgid": "val-000000", "triplets": expected}
    assert [path.name for path in tmp_path.iterdir()] == ["triplets.jsonl"]


def digest_of_descriptions() -> str:
    digest = hashlib.sha256()
    for split in scenes.SPLITS:
        for scene in scenes.generate(split):
            digest.update(repr(scene).encode())
    return digest.hexdigest()


def digest_of_pixels() -> str:
    digest = hashlib.sha256()
    for split in (*scenes.SPLITS, "pretrain"):
        for scene in scenes.generate(split, 25):
            digest.update(scenes.render(scene).tobytes())
    return digest.hexdigest()


def test_frozen_descriptions():
    """The shipped backbone was trained on this generator: a change needs a new VERSION and new weights."""
    assert digest_of_descriptions() == "ed106226ad828fa1edec5fbb74ba138b8e4a35e126429e338d1a24d20dd043ae"


def test_frozen_pixels():
    assert digest_of_pixels() == "503ef938a7219ff6580adad3d3a69d8cc48cda0cc9d94dddef4c4cb95d40564f"
