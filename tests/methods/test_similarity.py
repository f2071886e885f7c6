"""Sparse similarities of the concept space: formulas in float64, and the same from vectors, index and fuser."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_grasp import GraspIndex, GraspModel
from pyterrier_grasp.methods.grasp import Grasp

SIMILARITIES = ("cosine", "dot", "evidence", "blend")


def unit(z):
    return z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-300)


def formula(similarity, text, image, eps=0.03, threshold=0.5, blend=10.0):
    """The score of every text and image from raw scores, without vectors."""
    z_t, z_i = np.log1p(np.maximum(text, 0)), np.log1p(np.maximum(image, 0))
    cosine = unit(z_t) @ unit(z_i).T
    if similarity in ("cosine", "dot"):
        return cosine if similarity == "cosine" else z_t @ z_i.T
    p_t, p_i = 1 / (1 + np.exp(-text)), 1 / (1 + np.exp(-image))
    evidence = np.maximum(0, np.log(p_i / eps))
    if similarity == "evidence":
        return (p_t * (p_t > threshold)) @ evidence.T
    return unit(z_t) @ evidence.T + blend * cosine


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(SIMILARITIES), st.floats(0.001, 0.9), st.floats(0.1, 0.9))
def test_vectors_give_the_formula_and_are_not_negative(seed, similarity, eps, threshold):
    rng = np.random.default_rng(seed)
    text, image = rng.normal(-1, 3, size=(5, 8)), rng.normal(-2, 3, size=(4, 8))
    text[0] = image[0] = -5  # nothing is believed
    method = Grasp(similarity=similarity, evidence_eps=eps, evidence_threshold=threshold)
    q = method.sparse_vectors(torch.tensor(text), "text").numpy()
    v = method.sparse_vectors(torch.tensor(image), "image").numpy()
    assert (q >= 0).all() and (v >= 0).all() and np.isfinite(q).all() and np.isfinite(v).all()
    np.testing.assert_allclose(q @ v.T, formula(similarity, text, image, eps, threshold), atol=1e-12)
    assert not q[0].any()


def test_blend_weighs_the_two():
    rng = np.random.default_rng(0)
    text, image = rng.normal(size=(5, 8)), rng.normal(size=(4, 8))
    for blend in (0.0, 3.0):
        method = Grasp(similarity="blend", blend=blend)
        q, v = (method.sparse_vectors(torch.tensor(x), m).numpy() for x, m in ((text, "text"), (image, "image")))
        np.testing.assert_allclose(q @ v.T, formula("blend", text, image, blend=blend), atol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"similarity": "euclid"}, "choose one of 'cosine', 'dot', 'evidence', 'blend'"),
        ({"evidence_eps": 0.0}, "evidence_eps is 0.0; it must be between 0 and 1"),
        ({"evidence_threshold": 1.0}, "evidence_threshold is 1.0"),
        ({"blend": -1.0}, "blend is -1.0; it must be at least 0"),
        ({"similarity": "blend", "bce_input": "z", "bias_init": "zeros"}, "use bce_input='logit'"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Grasp(**options)


def test_training_contrasts_the_cosine_whatever_scores(fit):
    trained = {name: fit(validate=False, options={"similarity": name}).model for name in ("cosine", "evidence")}
    weights = [model.encoder.heads["shared"].weight for model in trained.values()]
    torch.testing.assert_close(weights[0], weights[1])
    assert trained["cosine"].fingerprint != trained["evidence"].fingerprint


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_index_and_fuser_score_by_it(toy_model, toy, tmp_path, similarity):
    model = toy_model.with_options(similarity=similarity, w=0.02)
    assert model.w == 0.02 and toy_model.method.similarity == "cosine"
    model.save(tmp_path / "model")
    model = GraspModel.load(tmp_path / "model", backbone=toy_model.backbone)
    assert model.method.similarity == similarity
    index = GraspIndex(tmp_path / "index", verbose=False)
    (model.doc_encoder() >> index).index(toy.test.get_corpus_iter())
    topics = toy.test.topics.head(6)
    fused = (model.query_encoder() >> index.fused(w=0.02))(topics)
    twice = (model.dense_encoder() >> index.dense() >> index.fuser(model, w=0.02))(topics)
    raw = {
        "text": model.encoder.encode(model.backbone.encode_text(topics["query"].tolist()), "text"),
        "image": model.encoder.encode(model.backbone.encode_images([d["path"] for d in toy.test.docs]), "image"),
    }
    dense = (raw["text"].dense @ raw["image"].dense.T).detach().numpy()
    sparse = formula(similarity, *(raw[m].raw.detach().double().numpy() for m in ("text", "image")))
    docnos = [doc["docno"] for doc in toy.test.docs]
    for results in (fused, twice):
        scores = results.pivot(index="qid", columns="docno", values="score").loc[topics["qid"], docnos]
        np.testing.assert_allclose(scores, dense + 0.02 * sparse, atol=1e-5)
