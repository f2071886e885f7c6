"""The baselines as a user meets them: trained, saved, in pipelines, pruned."""

import numpy as np
import pyterrier as pt
import pytest
import torch
from ir_measures import R

from pyterrier_grasp import GraspIndex, GraspModel, TokenSpace
from pyterrier_grasp.pruning import top_activated

BASELINES = ("visualsparta", "lexlip", "stair", "d2s", "sdlbt")


@pytest.fixture(scope="module", params=BASELINES)
def model(request, fit):
    return fit(method=request.param).model


def queries(toy):
    return toy.test.get_topics()["query"].tolist()


def paths(toy):
    return [doc["path"] for doc in toy.test.docs]


def test_by_default_the_space_is_the_tokenizers_vocabulary(model, toy_backbone):
    assert model.space == TokenSpace.of(toy_backbone)


def test_sparse_vectors_are_the_formula_of_the_trained_weights(model, toy, toy_backbone):
    texts = queries(toy)[:5]
    _, sparse = model.encode_texts(texts)
    _, images = model.encode_images(paths(toy)[:5])
    got = {"text": sparse.toarray(), "image": images.toarray()}
    assert all((vectors >= 0).all() and np.isfinite(vectors).all() for vectors in got.values())
    if model.method.name == "visualsparta":
        ids = toy_backbone.token_ids(texts)
        expected = np.zeros_like(got["text"])
        for row, own in enumerate(ids):
            expected[row, own] = 1
        assert np.array_equal(got["text"], expected)
    states = {"text": toy_backbone.encode_text(texts), "image": toy_backbone.encode_images(paths(toy)[:5])}
    for modality in got if model.method.name != "visualsparta" else ("image",):
        np.testing.assert_allclose(got[modality], plain(model, states[modality], modality), rtol=1e-4, atol=1e-5)


def plain(model, tokens, modality):
    """The head written out in float64: every position, then the maximum."""
    state = {name: tensor.double().numpy() for name, tensor in model.encoder.state_dict().items()}
    kind = "shared" if model.encoder.token_source == "pooled" else modality
    weight = {name.removeprefix(f"heads.{kind}."): value for name, value in state.items() if f"heads.{kind}." in name}
    if kind == "shared":
        p = {name: state[f"projections.{modality}.{name}"] for name in ("weight", "bias")}
        pooled = np.stack([s[m].mean(0) for s, m in zip(*arrays(tokens)[:2], strict=True)])
        dense = pooled @ p["weight"].T + p["bias"]
        inputs = [row[None] for row in dense / np.linalg.norm(dense, axis=1, keepdims=True)]
    else:
        states, mask, special = arrays(tokens)
        keep = mask if model.method.name == "visualsparta" else mask & ~special
        inputs = [s[k] for s, k in zip(states, keep, strict=True)]
    return np.stack([np.log1p(np.maximum(scores(x, weight).max(0), 0)) for x in inputs])


def arrays(tokens):
    return tokens.states.double().numpy(), tokens.mask.numpy(), tokens.special.numpy()


def scores(x, weight):
    if "transform.weight" in weight:
        x = x @ weight["transform.weight"].T + weight["transform.bias"]
    else:
        x = x @ weight["transform.0.weight"].T + weight["transform.0.bias"]
        last = max(int(name.split(".")[1]) for name in weight if name.startswith("transform."))
        if last == 2:
            x = torch.nn.functional.gelu(torch.tensor(x)).numpy()
        eps = 1e-5 if "bias" not in weight else 1e-12
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)
        x = x * weight[f"transform.{last}.weight"] + weight[f"transform.{last}.bias"]
    return x @ weight["weight"].T + weight.get("bias", 0)


def test_pipelines_and_a_saved_model(model, toy, tmp_path):
    model.save(tmp_path / "model")
    loaded = GraspModel.load(tmp_path / "model", backbone=model.backbone)
    assert loaded.fingerprint == model.fingerprint and loaded.space == model.space
    index = GraspIndex(tmp_path / "index", verbose=False)
    (loaded.doc_encoder() >> index).index(toy.test.get_corpus_iter())
    table = pt.Experiment(
        [
            loaded.dense_encoder() >> index.dense(),
            loaded.concept_encoder() >> index.sparse(),
            loaded.query_encoder() >> index.fused(w=0.01),
            loaded.dense_encoder() >> index.dense() >> index.fuser(loaded, w=0.01),
        ],
        toy.test.topics,
        toy.test.qrels,
        [R @ 8],
        names=["D", "S", "D+S", "D>>fuse"],
    ).set_index("name")["R@8"]
    assert table["D"] == table["D+S"] == table["D>>fuse"] == 1  # 8 images
    assert 0 < table["S"] <= 1


def test_the_same_seed_gives_the_same_weights(fit, model):
    again = fit(method=model.method.name).model
    assert again.fingerprint == model.fingerprint


def test_pruning_keeps_the_strongest_tokens(model, toy):
    _, texts = model.encode_texts(queries(toy))
    _, images = model.encode_images(paths(toy))
    kept = top_activated([texts, images], 12)
    pruned = model.restrict(kept)
    assert pruned.space.names == [model.space.names[column] for column in kept]
    for vectors, encode, items in (
        (texts, pruned.encode_texts, queries(toy)),
        (images, pruned.encode_images, paths(toy)),
    ):
        np.testing.assert_allclose(encode(items)[1].toarray(), vectors.toarray()[:, kept], rtol=1e-4, atol=1e-6)


def test_a_token_method_in_another_tokenizers_part(fit, toy, toy_backbone):
    space = TokenSpace.of(toy_backbone).seen_in(toy_backbone, toy.train.topics["query"], min_texts=3)
    assert len(fit(method="stair", space=space).model.space) == len(space) < len(TokenSpace.of(toy_backbone))


@pytest.mark.parametrize("method", ["sdlbt", "d2s"])
def test_shared_heads_also_work_in_a_concept_space(fit, toy, method):
    model = fit(method=method, space=toy.space).model
    assert model.space == toy.space
    assert set(model.to_toks(model.encode_texts(["a dog"])[1])[0]) <= set(toy.space.names)


@pytest.mark.parametrize("method", ["stair", "lexlip", "visualsparta"])
def test_per_position_heads_refuse_a_concept_space(fit, toy, method):
    with pytest.raises(ValueError, match="needs a space of tokens"):
        fit(method=method, space=toy.space)


def test_d2s_leaves_the_projections_alone(fit, toy_backbone):
    model = fit(method="d2s").model
    assert torch.equal(model.encoder.projections["text"].weight, toy_backbone.text_projection().weight)
    assert model.encoder.temperature.item() == pytest.approx(toy_backbone.temperature)
