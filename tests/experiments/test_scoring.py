"""Scores by matrix product against the pipelines a user builds."""

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from ir_measures import RR, R

from experiments.scoring import NAMES, Scores, choose_reverse_w, choose_w, measure, score
from pyterrier_grasp import GraspIndex, TokenStateCache
from pyterrier_grasp.training.validation import W_GRID


@pytest.fixture(scope="module", params=["grasp", "visualsparta", "sdlbt", "dense"])
def model(request, fit):
    return fit(method=request.param).model


def test_scores_are_those_of_the_encoders(model, toy, toy_cache):
    scored = score(model, toy.test, TokenStateCache(toy_cache, model.backbone), batch_size=7)
    text, text_sparse = model.encode_texts(toy.test.topics["query"].tolist())
    image, image_sparse = model.encode_images([doc["path"] for doc in toy.test.docs])
    # cached token states are float16
    np.testing.assert_allclose(scored.dense, text @ image.T, atol=5e-3)
    assert (scored.sparse is None) == (model.method.name == "dense") == (scored.active is None)
    if scored.sparse is not None:
        expected = text_sparse.toarray() @ image_sparse.toarray().T
        np.testing.assert_allclose(scored.sparse, expected, atol=5e-3 * max(1, expected.max()))
        sizes = [vectors.nnz / vectors.shape[0] for vectors in (text_sparse, image_sparse)]
        np.testing.assert_allclose(scored.active, sizes, rtol=0.02)


def test_measures_are_those_of_an_experiment(model, toy, toy_cache, tmp_path):
    scored = score(model, toy.test, TokenStateCache(toy_cache, model.backbone))
    index = GraspIndex(tmp_path / "index", verbose=False)
    (model.doc_encoder() >> index).index(toy.test.get_corpus_iter())
    encode = model.query_encoder()
    systems = [encode >> index.dense()]
    if model.has_concepts:
        systems += [encode >> index.sparse(), encode >> index.fused(w=0.3)]
    for system in systems:
        results = system(toy.test.topics)
        table = results.pivot(index="qid", columns="docno", values="score").reindex(scored.qids, columns=scored.docnos)
        found = table.notna().to_numpy()
        ours = measure(table.fillna(0).to_numpy(), scored, toy.test.qrels, "t2i", retrieved=found)
        measures = [R @ 1, R @ 5, RR @ 10]
        theirs = pt.Experiment([results], toy.test.topics, toy.test.qrels, measures, perquery=True)
        theirs = theirs.pivot(index="qid", columns="measure", values="value").reindex(index=ours.index).fillna(0)
        np.testing.assert_allclose(ours, theirs[["R@1", "R@5", "RR@10"]], atol=1e-9)


def test_the_other_direction(model, toy, toy_cache):
    scored = score(model, toy.test, TokenStateCache(toy_cache, model.backbone))
    qrels = toy.test.qrels.rename(columns={"qid": "docno", "docno": "qid"})
    table = measure(scored.dense, scored, qrels, "i2t")
    assert table.index.tolist() == sorted(scored.docnos)
    relevant = {(row.qid, row.docno) for row in qrels.itertuples()}
    for docno in scored.docnos:
        order = sorted(range(len(scored.qids)), key=lambda i: scored.qids[i], reverse=True)
        order.sort(key=lambda i: -scored.dense[i, scored.docnos.index(docno)])
        rank = next(k for k, i in enumerate(order) if (docno, scored.qids[i]) in relevant)
        assert table.loc[docno].tolist() == [rank < 1, rank < 5, 1 / (rank + 1) if rank < 10 else 0]


def test_nothing_retrieved_counts_as_zero(model, toy, toy_cache):
    scored = score(model, toy.test, TokenStateCache(toy_cache, model.backbone))
    nothing = np.zeros_like(scored.dense)
    table = measure(nothing, scored, toy.test.qrels, "t2i", retrieved=nothing > 0)
    assert len(table) == len(toy.test.topics) and (table == 0).all().all()


@pytest.mark.parametrize("method", ["grasp", "d2s", "stair"])
def test_w_is_chosen_as_in_training(fit, toy, toy_cache, method):
    trainer = fit(method=method, tune_w=True)
    chosen = choose_w(trainer.model, toy.val, TokenStateCache(toy_cache, trainer.backbone))
    assert chosen["w"] == trainer.model.w
    assert chosen["D+S_w_R@1"] == pytest.approx(trainer.validation_scores()["D+S_w_R@1"])


@pytest.mark.parametrize("seed", range(4))
def test_the_weight_of_the_other_direction_is_the_best_of_the_grid(seed):
    """Against the measures of each weight, with equal scores, an image without captions and judgements of no use."""
    generator = np.random.default_rng(seed)
    docnos, qids = [f"i{i}" for i in range(13)], [f"t{i}" for i in range(60)]
    relevant = np.arange(60)[:, None] // 5 == np.arange(13)[None]
    dense = (0.2 * relevant + generator.random((60, 13))).round(1).astype(np.float32)
    sparse = (0.1 * relevant + generator.random((60, 13))).round(1).astype(np.float32)
    scored = Scores(qids, docnos, dense, sparse, (1.0, 1.0))
    qrels = pd.DataFrame([(docnos[j], qids[i], 1) for i, j in np.argwhere(relevant)], columns=["qid", "docno", "label"])
    useless = pd.DataFrame([("elsewhere", "t1", 1), ("i1", "elsewhere", 1), ("i2", "t0", 0)], columns=qrels.columns)
    qrels = pd.concat([qrels, useless], ignore_index=True)
    means = {}
    for w in W_GRID:
        table = measure(dense + w * sparse, scored, qrels, "i2t")[list(NAMES)].mean()
        means[w] = (round(table["R@1"], 9), round(table["RR@10"], 9), -w)
    assert choose_reverse_w(scored, qrels) == max(W_GRID, key=means.get)
    assert len({mean[0] for mean in means.values()}) > 1
