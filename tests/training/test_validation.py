"""Validation figures against ir_measures on the same scores."""

import numpy as np
import pandas as pd
import pytest
import torch
from ir_measures import RR, R, calc_aggregate

from pyterrier_grasp.training import Validation
from pyterrier_grasp.training.pairs import collect_paths, make_pairs, relevant_pairs


def measured(scores, qids, docnos, qrels, only_positive=False):
    rows = [
        (q, d, s)
        for q, row in zip(qids, scores, strict=True)
        for d, s in zip(docnos, row, strict=True)
        if s > 0 or not only_positive
    ]
    run = pd.DataFrame(rows, columns=["query_id", "doc_id", "score"])
    qrels = qrels.rename(columns={"qid": "query_id", "docno": "doc_id", "label": "relevance"})
    return {str(k): v for k, v in calc_aggregate([R @ 1, R @ 5, RR @ 10], qrels, run).items()}


@pytest.fixture
def validation(toy, toy_model, toy_cache):
    from pyterrier_grasp import TokenStateCache

    relevant = relevant_pairs(toy.val.topics, toy.val.qrels)
    paths = collect_paths(toy.val, relevant["docno"])
    pairs = make_pairs(relevant, paths, TokenStateCache(toy_cache, toy_model.backbone))
    return Validation(pairs, toy_model.method, tune_w=True)


def test_figures_equal_ir_measures(validation, toy, toy_model):
    figures = validation(toy_model.encoder)
    qids, docnos = toy.val.topics["qid"].tolist(), [doc["docno"] for doc in toy.val.docs]
    text_dense, text_sparse = toy_model.encode_texts(toy.val.topics["query"].tolist())
    image_dense, image_sparse = toy_model.encode_images([doc["path"] for doc in toy.val.docs])
    dense, sparse = text_dense @ image_dense.T, (text_sparse @ image_sparse.T).toarray()
    for name, scores in (("D", dense), ("S", sparse), ("D+S", dense + 0.1 * sparse)):
        expected = measured(scores, qids, docnos, toy.val.qrels, only_positive=name == "S")
        for measure, value in expected.items():
            # The cache holds float16 states, so a near-tie may fall the other way.
            assert figures[f"{name}_{measure}"] == pytest.approx(value, abs=0.051), (name, measure)
    assert figures["text_active"] == pytest.approx((text_sparse.toarray() > 0).mean(), abs=1e-3)


def test_ties_are_broken_by_docno_descending(validation, toy):
    tied = torch.zeros(len(validation.pairs.qids), len(validation.pairs.docnos))
    docnos = np.array(validation.pairs.docnos)[validation.order].tolist()
    expected = measured(tied.numpy(), validation.pairs.qids, docnos, toy.val.qrels)
    figures = validation._measures("T", tied)
    assert {name.removeprefix("T_"): value for name, value in figures.items()} == pytest.approx(expected)


def test_scores_that_are_no_numbers_find_nothing(validation):
    scores = torch.full((len(validation.pairs.qids), len(validation.pairs.docnos)), torch.nan)
    assert set(validation._measures("T", scores).values()) == {0.0}


def test_several_relevant_images_count_as_trec_recall_does(validation, toy):
    qrels = pd.concat([toy.val.qrels, toy.val.qrels.assign(docno=np.roll(toy.val.qrels["docno"], 7))])
    pairs = validation.pairs
    position = {docno: i for i, docno in enumerate(pairs.docnos)}
    merged = qrels.drop_duplicates(["qid", "docno"])
    query = {qid: i for i, qid in enumerate(pairs.qids)}
    pairs = pairs.__class__(
        pairs.qids,
        pairs.queries,
        pairs.docnos,
        merged["qid"].map(query).to_numpy(),
        merged["docno"].map(position).to_numpy(),
        pairs.texts,
        pairs.text_rows,
        pairs.images,
        pairs.image_rows,
    )
    several = Validation(pairs, validation.method)
    scores = np.random.default_rng(0).random((len(pairs.qids), len(pairs.docnos)))
    docnos = np.array(pairs.docnos)[several.order].tolist()
    figures = several._measures("T", torch.tensor(scores))
    expected = measured(scores, pairs.qids, docnos, merged)
    assert {name.removeprefix("T_"): value for name, value in figures.items()} == pytest.approx(expected)
