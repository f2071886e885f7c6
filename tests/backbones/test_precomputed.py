import json
import pickle

import numpy as np
import pytest
import torch
from PIL import Image

from pyterrier_grasp.backbones import Backbone, StatesBackbone, TokenStateCache

NAMES = ["one.jpg", "two.jpg", "three.jpg"]


@pytest.fixture
def folder(tmp_path):
    target = tmp_path / "states"
    target.mkdir()
    np.save(target / "states.npy", np.random.default_rng(0).normal(size=(3, 4, 6)).astype(np.float16))
    (target / "ids.txt").write_text("\n".join(NAMES) + "\n")
    (target / "meta.json").write_text(json.dumps({"encoder": "test"}))
    return target


def load(folder, encoders, **options):
    return StatesBackbone(folder, encoders / "bert", embed_dim=8, device="cpu", **options)


def test_states_are_found_by_file_name(folder, encoders):
    backbone = load(folder, encoders)
    array = torch.from_numpy(np.load(folder / "states.npy")).float()
    found = backbone.encode_images(["/any/where/three.jpg", "one.jpg"])
    torch.testing.assert_close(found.states, array[[2, 0]])
    assert found.mask.all() and not found.special.any()
    assert (backbone.image_dim, backbone.text_dim, backbone.image_pool, backbone.kind) == (6, 16, "mean", "states")
    assert backbone.image_projection().weight.shape == (8, 6)
    assert backbone.encode_text(["a dog"]).states.shape == (1, 4, 16)


def test_cache_gives_the_ready_states(folder, encoders, tmp_path):
    backbone = load(folder, encoders)
    cache = TokenStateCache(tmp_path / "cache", backbone)
    store = cache.images(["x/two.jpg"])
    assert store is backbone.image_store and store.rows([backbone.image_key("x/two.jpg")]).tolist() == [1]
    assert len(cache.texts(["a dog"])) == 1
    with pytest.raises(KeyError, match=r"four\.jpg.*among the 3"):
        cache.images(["one.jpg", "four.jpg"])


def test_unseen_images_are_errors(folder, encoders, photos):
    backbone = load(folder, encoders)
    with pytest.raises(KeyError, match=r"photo0\.png.*among the 3"):
        backbone.encode_images([photos[0]])
    with pytest.raises(KeyError, match=r"photo0\.png"):
        backbone.encode_images([Image.open(photos[0])])
    with pytest.raises(ValueError, match="no image encoder"):
        backbone.encode_images([Image.new("RGB", (4, 4))])
    assert backbone.encode_images([]).states.shape == (0, 0, 6)


def test_load_and_spec(folder, encoders):
    backbone = load(folder, encoders)
    loaded = Backbone.load(folder, text=encoders / "bert", embed_dim=8)
    again = Backbone.from_spec(json.loads(json.dumps(backbone.spec())))
    assert loaded.fingerprint == backbone.fingerprint == again.fingerprint
    with pytest.raises(ValueError, match="no text encoder"):
        Backbone.load(folder)


def test_fingerprint_follows_the_states(folder, encoders, tmp_path):
    first = load(folder, encoders).fingerprint
    moved = folder.rename(tmp_path / "moved")
    assert load(moved, encoders).fingerprint == first
    array = np.load(moved / "states.npy")
    array[1, 2, 3] += 1
    np.save(moved / "states.npy", array)
    assert load(moved, encoders).fingerprint != first


def test_incomplete_folders(folder, encoders, tmp_path):
    with pytest.raises(FileNotFoundError, match="no folder of precomputed states"):
        load(tmp_path / "nowhere", encoders)
    (folder / "progress.txt").write_text("2")
    with pytest.raises(ValueError, match="2 of 3 images"):
        load(folder, encoders)
    (folder / "meta.json").unlink()
    (folder / "ids.txt").unlink()
    with pytest.raises(ValueError, match=r"incomplete: 2 images are done, ids\.txt, meta\.json"):
        Backbone.load(folder, text=encoders / "bert")
    (folder / "progress.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"lacks ids\.txt"):
        load(folder, encoders)


@pytest.mark.parametrize(
    ("names", "message"),
    [(NAMES[:2], "2 lines, but states.npy has 3 rows"), (["a", "b", "a"], "'a' twice")],
)
def test_ids_that_do_not_fit(folder, encoders, names, message):
    (folder / "ids.txt").write_text("\n".join(names) + "\n")
    with pytest.raises(ValueError, match=message):
        load(folder, encoders)


def test_arrays_that_do_not_fit(folder, encoders):
    content = (folder / "states.npy").read_bytes()
    (folder / "states.npy").write_bytes(content[:-20])
    with pytest.raises(ValueError, match="no complete numpy array"):
        load(folder, encoders)
    np.save(folder / "states.npy", np.zeros((3, 4), np.float16))
    with pytest.raises(ValueError, match="must be float16 or float32"):
        load(folder, encoders)


def test_fortran_order_is_refused(folder, encoders):
    np.save(folder / "states.npy", np.asfortranarray(np.load(folder / "states.npy")))
    with pytest.raises(ValueError, match="Fortran order"):
        load(folder, encoders)


def test_store_is_pickled_by_its_file(folder, encoders):
    store = load(folder, encoders).image_store
    again = pickle.loads(pickle.dumps(store))
    assert torch.equal(again.batch([2, 1]).states, store.batch([2, 1]).states)


def test_cls_pool_marks_the_first_state(folder, encoders):
    assert load(folder, encoders, image_pool="cls").encode_images(NAMES).special.sum(1).tolist() == [1, 1, 1]
