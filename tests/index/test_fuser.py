"""ScoreFuser and IndexScorer."""

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest


def true_sparse(docs, toks, docno):
    by_docno = {doc["docno"]: doc["toks"] for doc in docs}
    return sum(weight * by_docno.get(docno, {}).get(name, 0.0) for name, weight in toks.items())


@pytest.fixture
def bm25():
    """Results of some lexical first stage: no vectors, no toks, scores on a scale of their own."""
    rng = np.random.default_rng(5)
    rows = [
        {
            "qid": f"q{q}",
            "docid": d,
            "docno": f"d{d}",
            "rank": r,
            "score": 25.0 - 3 * r,
            "query": f"text {q}",
            "text": "t",
        }
        for q in range(3)
        for r, d in enumerate(rng.choice(60, size=6, replace=False).tolist())
    ]
    return pd.DataFrame(rows)


def test_adds_the_exact_sparse_score(index, docs, queries, model, bm25):
    fused = index.fuser(model, w=0.5)(bm25)
    assert list(fused.columns) == list(bm25.columns)
    assert fused[["docid", "text"]].to_dict("records")[0].keys() == {"docid", "text"}
    incoming = bm25.set_index(["qid", "docno"])["score"]
    for _, row in fused.iterrows():
        toks = queries.set_index("qid")["query_toks"][row["qid"]]
        expected = incoming[row["qid"], row["docno"]] + 0.5 * true_sparse(docs, toks, row["docno"])
        assert row["score"] == pytest.approx(expected, abs=1e-6)
        assert row["docid"] == int(row["docno"][1:])
    for _, group in fused.groupby("qid"):
        assert group["rank"].tolist() == list(range(6)) and group["score"].is_monotonic_decreasing


def test_each_distinct_query_is_encoded_once(index, queries, model, bm25):
    doubled = pd.concat([bm25, bm25.assign(qid="again " + bm25["qid"])])
    fused = index.fuser(model)(doubled)
    assert sorted(model.encoder.seen) == ["text 0", "text 1", "text 2"]
    a, b = fused.iloc[: len(bm25)], fused.iloc[len(bm25) :]
    assert np.array_equal(a["score"], b["score"])


def test_query_toks_of_the_frame_come_first(index, queries, model):
    results = index.dense(5)(queries)
    own = index.fuser(model, w=0.7)(results)
    assert model.encoder.seen == []
    encoded = index.fuser(model, w=0.7)(results.drop(columns="query_toks"))
    pd.testing.assert_frame_equal(own[["qid", "docno", "score"]], encoded[["qid", "docno", "score"]])


def test_unknown_docno(index, docs, queries, model, bm25):
    bm25.loc[2, "docno"] = "nowhere"
    with pytest.raises(KeyError, match="'nowhere' is not in the index"):
        index.fuser(model)(bm25)
    fused = index.fuser(model, w=0.5, missing="zero")(bm25)
    assert fused.set_index("docno")["score"]["nowhere"] == bm25["score"][2]
    known = bm25[bm25["docno"] != "nowhere"]
    pd.testing.assert_frame_equal(
        fused[fused["docno"] != "nowhere"][["qid", "docno", "score"]].reset_index(drop=True),
        index.fuser(model, w=0.5)(known)[["qid", "docno", "score"]],
    )
    for stage in (index.vec_loader(), index.toks_loader()):
        with pytest.raises(KeyError, match="'nowhere'"):
            stage(bm25)
    with pytest.raises(KeyError, match="'nowhere'"):
        index.scorer("sparse")(bm25.merge(queries[["qid", "query_toks"]], on="qid"))


@pytest.mark.parametrize("how", ["minmax", "zscore"])
def test_normalise(index, model, bm25, how):
    bm25.loc[bm25["qid"] == "q1", "score"] = 0.1 + 0.2  # constant
    fused = index.fuser(model, w=0.0, normalise=how)(bm25)
    assert np.isfinite(fused["score"]).all()
    assert (fused["score"][fused["qid"] == "q1"] == 0).all()
    group = fused[fused["qid"] == "q0"]["score"]
    if how == "minmax":
        assert group.min() == 0 and group.max() == 1
    else:
        assert group.mean() == pytest.approx(0) and group.std(ddof=0) == pytest.approx(1)
    single = index.fuser(model, w=0.0, normalise=how)(bm25.iloc[:1])
    assert single["score"].tolist() == [0.0]


def test_ties_by_docno_descending_and_cut(index, queries):
    results = pd.DataFrame({"qid": "q0", "docno": ["d1", "d3", "d20", "d2"], "score": 1.0, "query_toks": [{}] * 4})
    assert index.fuser()(results)["docno"].tolist() == ["d3", "d20", "d2", "d1"]
    assert index.fuser(num_results=2)(results)["docno"].tolist() == ["d3", "d20"]
    assert index.fuser()(results)["rank"].tolist() == [0, 1, 2, 3]


def test_after_the_plus_operator(index, queries, model):
    """``+`` leaves NaN in the query columns of documents that only its right side found."""
    dense, sparse = index.dense(5), index.sparse(5)
    mixed = (dense + sparse)(queries)
    assert mixed["query_toks"].isna().any()
    fused = index.fuser(w=0.5)(mixed)
    assert len(fused) == len(mixed) and np.isfinite(fused["score"]).all()
    again = index.fuser(model, w=0.5)(mixed.drop(columns="query_toks"))
    assert np.array_equal(fused["score"], again["score"])


def test_linear_combination_and_reranking_pipelines(index, queries, model):
    pipelines = [
        0.7 * index.fused(0.1, 10) + 0.3 * index.dense(10),
        index.fused(0.1) % 10 >> index.scorer("sparse") >> index.fuser(model, normalise="zscore"),
        index.dense(10) >> (index.scorer("dense") ** index.scorer("sparse")),
    ]
    for pipeline in pipelines:
        assert len(pipeline(queries)) >= 10
    features = pipelines[2](queries)["features"]
    assert np.stack(features.to_list()).shape == (70, 2)


def test_bad_input(index, queries, model):
    results = index.dense(3)(queries)
    two = results.copy()
    two.at[1, "query_toks"] = {"entity:c 1": 7.0}
    cases = [
        (two, "query 'q0' has two different values of query_toks"),
        (results.assign(query_toks=None), "query 'q0' has no query_toks"),
        (results.assign(score=np.nan), "score of query 'q0'.*not finite"),
        (results.assign(qid=None), "no qid"),
    ]
    for frame, message in cases:
        with pytest.raises(ValueError, match=message):
            index.fuser()(frame)
    with pytest.raises(pt.validate.InputValidationError):
        index.fuser()(results.drop(columns="query_toks"))
    for arguments in ({"normalise": "max"}, {"missing": "skip"}, {"num_results": 0}):
        with pytest.raises(ValueError):
            index.fuser(**arguments)
    with pytest.raises(ValueError, match="kind"):
        index.scorer("bm25")
    with pytest.raises(ValueError, match="mode"):
        index.indexer("append")
