"""GraspModel on disk and as arrays."""

import dataclasses
import shutil

import numpy as np
import pyterrier as pt
import pytest
import torch

from pyterrier_grasp import Backbone, GraspModel


@pytest.fixture
def saved(toy_model, tmp_path):
    toy_model.save(tmp_path / "toy.grasp")
    return tmp_path / "toy.grasp"


def test_loads_back_bit_identically(toy_model, toy, saved):
    loaded = GraspModel.load(saved, device="cpu")
    for name, tensor in toy_model.encoder.state_dict().items():
        assert torch.equal(loaded.encoder.state_dict()[name], tensor)
    assert loaded.fingerprint == toy_model.fingerprint
    assert (loaded.w, loaded.metrics) == (toy_model.w, toy_model.metrics)
    paths = [doc["path"] for doc in toy.test.docs]
    (dense, sparse), (dense_again, sparse_again) = toy_model.encode_images(paths), loaded.encode_images(paths)
    assert np.array_equal(dense, dense_again) and np.array_equal(sparse.toarray(), sparse_again.toarray())


def test_is_an_artifact(toy_model, saved):
    assert pt.Artifact.load(str(saved)).fingerprint == toy_model.fingerprint


def test_dense_model_has_no_space(toy_dense_model, tmp_path):
    toy_dense_model.save(tmp_path / "dense")
    loaded = GraspModel.load(tmp_path / "dense", device="cpu")
    assert loaded.space is None and not loaded.has_concepts
    with pytest.raises(ValueError, match="no sparse branch"):
        loaded.concepts("a cat")


def test_vectors_have_unit_length_and_toks_are_positive(toy_model, toy):
    for dense, sparse in (
        toy_model.encode_texts(toy.test.topics["query"].tolist()),
        toy_model.encode_images([doc["path"] for doc in toy.test.docs]),
    ):
        np.testing.assert_allclose(np.linalg.norm(dense, axis=1), 1, atol=1e-6)
        assert dense.dtype == np.float32 and (sparse.data > 0).all()
        for toks, row in zip(toy_model.to_toks(sparse), sparse.toarray(), strict=True):
            assert {toy_model.space.names.index(name): weight for name, weight in toks.items()} == {
                j: pytest.approx(row[j]) for j in np.flatnonzero(row)
            }
            assert list(toks.values()) == sorted(toks.values(), reverse=True)


def test_one_string_is_no_batch_and_a_number_no_item(toy_model):
    for encode in (toy_model.encode_texts, toy_model.encode_images):
        with pytest.raises(ValueError, match="the string 'a dog'; give a list"):
            encode("a dog")
    with pytest.raises(ValueError, match="item is 42"):
        toy_model.concepts(42)


def test_fingerprints_tell_models_apart(toy_model, toy_dense_model, fit):
    assert len({toy_model.fingerprint, toy_dense_model.fingerprint, fit(seed=9).model.fingerprint}) == 3


def test_options_of_the_training_alone_do_not_change_the_fingerprint(toy_model):
    def with_option(**options):
        method = dataclasses.replace(toy_model.method, **options)
        return GraspModel(toy_model.backbone, method, toy_model.encoder, toy_model.space).fingerprint

    assert with_option(grounding_weight=3.0) == toy_model.fingerprint
    assert with_option(similarity="dot") != toy_model.fingerprint


def test_save_does_not_overwrite_unasked(toy_model, saved):
    with pytest.raises(FileExistsError, match="overwrite=True"):
        toy_model.save(saved)
    toy_model.save(saved, overwrite=True)
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_an_interrupted_save_leaves_the_old_model(toy_model, saved, monkeypatch):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("pyterrier_grasp.model.save_file", stop)
    with pytest.raises(KeyboardInterrupt):
        toy_model.save(saved, overwrite=True)
    assert GraspModel.load(saved, device="cpu").fingerprint == toy_model.fingerprint
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


@pytest.mark.parametrize("part", ["config.json", "model.safetensors", "space"])
def test_missing_files_are_named(saved, part):
    target = saved / part
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    with pytest.raises(FileNotFoundError, match=part):
        GraspModel.load(saved)


@pytest.mark.parametrize("part", ["config.json", "model.safetensors", "space/concepts.jsonl", "space/pt_meta.json"])
def test_damaged_files_are_named(saved, part):
    content = (saved / part).read_bytes()
    (saved / part).write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=part):
        GraspModel.load(saved, device="cpu")


def test_concepts_edited_after_the_training_are_refused(saved):
    file = saved / "space" / "concepts.jsonl"
    first, second, *others = file.read_text().splitlines(keepends=True)
    for lines in ([second, first, *others], [second, *others]):
        file.write_text("".join(lines))
        with pytest.raises(ValueError, match="edited after the training"):
            GraspModel.load(saved, device="cpu")


def test_a_folder_of_another_model_is_refused(toy_backbone):
    with pytest.raises(ValueError, match="not the configuration of a GRASP model"):
        GraspModel.load(toy_backbone.spec()["text"])


def test_another_backbone_is_refused(saved, toy_backbone):
    other = Backbone.from_spec(toy_backbone.spec() | {"image_pool": "cls"}, device="cpu")
    with pytest.raises(ValueError, match="was trained on backbone"):
        GraspModel.load(saved, backbone=other)
    assert GraspModel.load(saved, backbone=toy_backbone, device="cpu").backbone is toy_backbone
