import pickle
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
import torch
from filelock import FileLock

from pyterrier_grasp.backbones import ComposedBackbone, StateStore, TokenStateCache, TokenStates

CAPTIONS = ["a man runs on the beach", "a dog", "", "two dogs and a cat", "a dog", "\U0001f600", "word " * 500]


@pytest.fixture(scope="module")
def backbone(encoders):
    return ComposedBackbone(encoders / "vit", encoders / "bert", embed_dim=8, device="cpu")


class Counting:
    """Wraps a backbone, counts what is encoded and can change or stop it."""

    def __init__(self, backbone, hook=None):
        self._backbone = backbone
        self._hook = hook
        self.seen = []

    def __getattr__(self, name):
        return getattr(self._backbone, name)

    def encode_text(self, texts):
        self.seen.append(list(texts))
        return self._hook(texts) if self._hook else self._backbone.encode_text(texts)

    def encode_images(self, images):
        self.seen.append(list(images))
        return self._hook(images) if self._hook else self._backbone.encode_images(images)


def assert_equal_states(found, expected):
    assert torch.equal(found.mask, expected.mask) and torch.equal(found.special, expected.special)
    assert found.states.dtype == torch.float32
    torch.testing.assert_close(found.states, expected.states, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("batch_size", [1, 2, 100])
def test_texts_equal_direct_encoding(backbone, tmp_path, batch_size):
    store = TokenStateCache(tmp_path, backbone).texts(CAPTIONS, batch_size=batch_size)
    assert len(store) == 6
    assert_equal_states(store.batch(store.rows(CAPTIONS)), backbone.encode_text(CAPTIONS))
    short = [CAPTIONS[2], CAPTIONS[1]]
    assert_equal_states(store.batch(store.rows(short)), backbone.encode_text(short))


def test_images_equal_direct_encoding(backbone, tmp_path, photos):
    store = TokenStateCache(tmp_path, backbone).images([*photos, str(photos[0])], batch_size=4)
    order = [photos[3], photos[0], photos[3], photos[5]]
    rows = store.rows([backbone.image_key(path) for path in order])
    assert len(store) == 6
    assert_equal_states(store.batch(rows), backbone.encode_images(order))


def test_each_input_is_encoded_once(backbone, tmp_path):
    counting = Counting(backbone)
    cache = TokenStateCache(tmp_path, counting)
    cache.texts(CAPTIONS[:3], batch_size=2)
    cache.texts(CAPTIONS[:3])
    store = TokenStateCache(tmp_path, counting).texts(CAPTIONS)
    seen = [text for batch in counting.seen for text in batch]
    assert sorted(seen) == sorted(set(CAPTIONS))
    assert_equal_states(store.batch(store.rows(CAPTIONS)), backbone.encode_text(CAPTIONS))


def test_captions_of_one_length_go_together(backbone, tmp_path):
    counting = Counting(backbone)
    TokenStateCache(tmp_path, counting).texts(["a " * 9, "a", "a " * 8, "b"], batch_size=2)
    assert counting.seen == [["a", "b"], ["a " * 8, "a " * 9]]


def test_folder_is_named_by_the_fingerprint(backbone, tmp_path):
    TokenStateCache(tmp_path, backbone).texts(["a dog"])
    assert (tmp_path / backbone.fingerprint / "texts" / "states.f2").stat().st_size == 4 * 16 * 2


def test_nothing_asked_for(backbone, tmp_path):
    assert len(TokenStateCache(tmp_path, backbone).texts([])) == 0
    assert list(tmp_path.iterdir()) == []


def test_broken_image_is_named_and_the_ones_before_it_are_kept(backbone, tmp_path, photos):
    bad = tmp_path / "bad.png"
    bad.write_bytes(photos[3].read_bytes()[:300])
    cache = TokenStateCache(tmp_path / "cache", backbone)
    with pytest.raises(ValueError, match=r"bad\.png"):
        cache.images([*photos[:3], bad, *photos[3:]], batch_size=64)
    counting = Counting(backbone)
    store = TokenStateCache(tmp_path / "cache", counting).images(photos)
    assert [path for batch in counting.seen for path in batch] == [str(path) for path in photos[3:]]
    assert len(store) == 6


def test_missing_image_is_named(backbone, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.png"):
        TokenStateCache(tmp_path, backbone).images([tmp_path / "nowhere.png"])


def test_changed_image_is_encoded_again(backbone, tmp_path, photos):
    path = tmp_path / "photo.png"
    path.write_bytes(photos[0].read_bytes())
    cache = TokenStateCache(tmp_path / "cache", backbone)
    cache.images([path])
    path.write_bytes(photos[1].read_bytes())
    store = cache.images([path])
    found = store.batch(store.rows([backbone.image_key(path)]))
    assert_equal_states(found, backbone.encode_images([photos[1]]))


@pytest.mark.parametrize("value", [1e5, float("nan"), float("inf")])
def test_what_float16_cannot_hold_is_an_error(backbone, tmp_path, value):
    def hook(texts):
        states = backbone.encode_text(texts)
        states.states[-1, 0, 0] = value
        return states

    with pytest.raises(ValueError, match=r"'a man'.*float16"):
        TokenStateCache(tmp_path, Counting(backbone, hook)).texts(["a", "a man"])


def test_interrupt_keeps_whole_batches(backbone, tmp_path):
    def hook(texts):
        if "two dogs" in texts:
            raise KeyboardInterrupt
        return backbone.encode_text(texts)

    with pytest.raises(KeyboardInterrupt):
        TokenStateCache(tmp_path, Counting(backbone, hook)).texts(["a", "a dog", "two dogs"], batch_size=1)
    counting = Counting(backbone)
    TokenStateCache(tmp_path, counting).texts(["a", "a dog", "two dogs"])
    assert counting.seen == [["two dogs"]]


KILLED = """
import os, signal, sys, time
from pyterrier_grasp.backbones import ComposedBackbone, TokenStateCache
backbone = ComposedBackbone(sys.argv[1], sys.argv[2], embed_dim=8)
encode, count = backbone.encode_text, 0
def encode_some(texts):
    global count
    count += 1
    time.sleep(0.2)
    if count == 12:
        os.kill(os.getpid(), signal.SIGKILL)
    return encode(texts)
backbone.encode_text = encode_some
TokenStateCache(sys.argv[3], backbone, shard_bytes=2000).texts([f"a dog number {n}" for n in range(200)], batch_size=8)
"""


def test_a_waiting_process_goes_on_where_a_killed_one_stopped(backbone, encoders, tmp_path):
    command = [sys.executable, "-c", KILLED, str(encoders / "vit"), str(encoders / "bert"), str(tmp_path)]
    index = tmp_path / backbone.fingerprint / "texts" / "index.json"
    captions = [f"a dog number {n}" for n in range(200)]
    counting = Counting(backbone)
    process = subprocess.Popen(command)
    try:
        while not index.exists() and process.poll() is None:
            time.sleep(0.01)
        with pytest.warns(UserWarning, match="another process"):
            store = TokenStateCache(tmp_path, counting).texts(captions)
        assert process.wait(60) == -signal.SIGKILL
    finally:
        process.kill()
    # 11 batches of 8 were encoded before the kill, and at least one was committed
    assert 112 <= sum(len(batch) for batch in counting.seen) < 200
    assert len(store) == 200
    assert_equal_states(store.batch(store.rows(captions)), backbone.encode_text(captions))


def test_half_a_shard_after_the_last_commit_is_overwritten(backbone, tmp_path):
    TokenStateCache(tmp_path, backbone).texts(CAPTIONS[:2])
    for name in ("states.f2", "special.u1", "lengths.i4", "keys.jsonl"):
        with open(tmp_path / backbone.fingerprint / "texts" / name, "ab") as file:
            file.write(b'"half a shard ' * 1000)
    counting = Counting(backbone)
    store = TokenStateCache(tmp_path, counting).texts(CAPTIONS)
    assert sum(len(batch) for batch in counting.seen) == 4
    assert_equal_states(store.batch(store.rows(CAPTIONS)), backbone.encode_text(CAPTIONS))


@pytest.mark.parametrize("name", ["states.f2", "special.u1", "lengths.i4", "keys.jsonl"])
@pytest.mark.parametrize("left", [0.0, 0.5])
def test_a_file_that_lost_its_end_is_filled_again(backbone, tmp_path, name, left):
    captions = [f"a dog {'x' * n}" for n in range(20)]
    TokenStateCache(tmp_path, backbone, shard_bytes=1).texts(captions, batch_size=4)
    path = tmp_path / backbone.fingerprint / "texts" / name
    path.write_bytes(path.read_bytes()[: int(left * path.stat().st_size)])
    counting = Counting(backbone)
    with pytest.warns(UserWarning, match="shorter than they should be"):
        store = TokenStateCache(tmp_path, counting).texts(captions)
    again = sum(len(batch) for batch in counting.seen)
    assert again == 20 if left == 0 else 0 < again < 20
    assert len(store) == 20
    assert_equal_states(store.batch(store.rows(captions)), backbone.encode_text(captions))


def test_a_deleted_file_is_filled_again(backbone, tmp_path):
    TokenStateCache(tmp_path, backbone).texts(CAPTIONS)
    (tmp_path / backbone.fingerprint / "texts" / "states.f2").unlink()
    with pytest.warns(UserWarning, match="kept 0 inputs"):
        store = TokenStateCache(tmp_path, backbone).texts(CAPTIONS)
    assert len(store) == 6


def test_lock_timeout(backbone, tmp_path):
    folder = tmp_path / backbone.fingerprint / "texts"
    folder.mkdir(parents=True)
    with FileLock(folder / "lock"), pytest.raises(TimeoutError, match="another process"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            TokenStateCache(tmp_path, backbone, lock_timeout=0.1).texts(CAPTIONS)


def test_bad_arguments(backbone, tmp_path):
    with pytest.raises(ValueError, match="batch_size"):
        TokenStateCache(tmp_path, backbone).texts(["a"], batch_size=0)
    with pytest.raises(ValueError, match="caption 1 is None"):
        TokenStateCache(tmp_path, backbone).texts(["a", None])


def test_store_errors(backbone, tmp_path):
    store = TokenStateCache(tmp_path, backbone).texts(CAPTIONS)
    with pytest.raises(KeyError, match="'never seen'"):
        store.rows(["a dog", "never seen"])
    for row in (-1, 6):
        with pytest.raises(IndexError, match="within 0 and 5"):
            store.batch([0, row])
    assert store.batch([]).states.shape == (0, 0, 16)
    assert "a dog" in store and "never seen" not in store


def test_store_is_pickled_without_its_content(backbone, tmp_path):
    store = TokenStateCache(tmp_path, backbone).texts([f"a dog {n}" for n in range(300)])
    data = pickle.dumps(store)
    assert len(data) < store._states.nbytes
    rows = np.arange(5)
    assert_equal_states(pickle.loads(data).batch(rows), store.batch(rows))


def test_store_refuses_sizes_that_do_not_fit():
    with pytest.raises(ValueError, match="do not fit"):
        StateStore(np.zeros((5, 2), np.float16), np.array([0, 4]), ["a"], None, "here")


def test_a_batch_of_equal_and_of_unequal_lengths_agree():
    tokens = np.arange(24, dtype=np.float16).reshape(12, 2)
    special = np.arange(12) % 4 == 0
    equal = StateStore(tokens, np.array([0, 4, 8, 12]), list("abc"), special, "equal")
    unequal = StateStore(tokens, np.array([0, 4, 8, 11, 12]), list("abcd"), special, "unequal")
    for one, two in zip(equal.batch([1, 0]), unequal.batch([1, 0]), strict=True):
        assert torch.equal(one, two)
    mixed = unequal.batch([3, 2])
    assert isinstance(mixed, TokenStates)
    assert mixed.states[:, :, 0].tolist() == [[22, 0, 0], [16, 18, 20]]
    assert mixed.mask.tolist() == [[True, False, False], [True, True, True]]
    assert mixed.special.tolist() == [[False] * 3, [True, False, False]]


def test_large_batches_are_quick():
    store = StateStore(
        np.zeros((2000 * 12, 384), np.float16), np.arange(2001) * 12, [str(n) for n in range(2000)], None, "test"
    )
    rows = np.random.default_rng(0).integers(0, 2000, 256)
    store.batch(rows)
    start = time.perf_counter()
    store.batch(rows)
    assert time.perf_counter() - start < 1
