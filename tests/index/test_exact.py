"""Retrieval equals a float64 brute force in ids, order and scores."""

import math
import tempfile
import threading

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse
from threadpoolctl import threadpool_limits

from pyterrier_grasp.index import GraspIndex, kernels, search

SETTINGS = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def brute_force(dense, toks, vec, qtoks, w, kind):
    """Score every document with exactly rounded sums; return [(docno, score)], best first."""
    scored = []
    for i in range(len(dense)):
        d = math.fsum(float(a) * float(b) for a, b in zip(dense[i], vec, strict=True))
        s = math.fsum(float(a) * float(b) for a, b in zip(toks[i], qtoks, strict=True))
        score = {"dense": d, "sparse": s, "fused": d + w * s}[kind]
        if kind != "sparse" or score > 0:
            scored.append((score, f"d{i}"))
    scored.sort(reverse=True)  # score descending, then docno descending
    return [(docno, score) for score, docno in scored]


def assert_same(result, expected, k):
    """Equal ids and order, but for documents whose true scores differ by less than 1e-9; exact ties are no excuse."""
    assert len(result) == min(k, len(expected))
    true = dict(expected)
    for docno, score, (want, want_score) in zip(result["docno"], result["score"], expected[:k], strict=True):
        assert score == pytest.approx(true[docno], rel=1e-12, abs=1e-6)
        if docno != want:
            assert 0 < abs(true[docno] - want_score) < 1e-9, (docno, want)
    assert list(result["rank"]) == list(range(len(result)))


@st.composite
def corpora(draw):
    n, dim, n_concepts = draw(st.integers(1, 40)), draw(st.integers(1, 9)), draw(st.integers(1, 12))
    n_queries = draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dense = rng.normal(size=(n, dim)).astype(np.float32) * draw(st.sampled_from([1.0, 1e-3, 1e4]))
    density = draw(st.sampled_from([0.0, 0.2, 0.9]))
    toks = rng.random((n, n_concepts)).astype(np.float32) * (rng.random((n, n_concepts)) < density)
    if draw(st.booleans()):  # documents that are copies of others, so that scores tie exactly
        copies = rng.integers(0, n, size=n)
        dense, toks = dense[copies], toks[copies]
    vecs = rng.normal(size=(n_queries, dim)) * draw(st.sampled_from([0.0, 1.0, 1.0, 10.0]))
    qtoks = rng.random((n_queries, n_concepts)) * (rng.random((n_queries, n_concepts)) < 0.4)
    qtoks[rng.random(n_queries) < 0.2] = 0.0
    k, batch_size = draw(st.one_of(st.integers(1, 8), st.integers(1, 50))), draw(st.integers(1, 7))
    return dense, toks, vecs, qtoks, k, batch_size, draw(st.sampled_from([0.1, 5.0, 5.0, -2.0, 0.0]))


@pytest.mark.parametrize("kind", ["dense", "sparse", "fused"])
@SETTINGS
@given(corpus=corpora(), block=st.sampled_from([1, 3, 8192]))
def test_equals_brute_force(kind, corpus, block):
    dense, toks, vecs, qtoks, k, batch_size, w = corpus
    names = [f"c{j:02d}" for j in range(toks.shape[1])]
    topics = pd.DataFrame(
        {
            "qid": [str(q) for q in range(len(vecs))],
            "query_vec": list(vecs),
            "query_toks": [
                {names[j]: float(x) for j, x in enumerate(row) if x} | {"concept of no document": 9.0} for row in qtoks
            ],
        }
    )
    before, search.BLOCK = search.BLOCK, block
    try:
        with tempfile.TemporaryDirectory() as folder:
            index = GraspIndex(folder, verbose=False)
            docnos = [f"d{i}" for i in range(len(dense))]
            index.add_arrays(docnos, dense, sparse.csr_array(toks), names=names)
            retriever = {
                "dense": index.dense(k, batch_size=batch_size),
                "sparse": index.sparse(k, batch_size=batch_size),
                "fused": index.fused(w, k, batch_size=batch_size),
            }[kind]
            results = retriever(topics)
    finally:
        search.BLOCK = before
    for q in range(len(vecs)):
        expected = brute_force(dense, toks, vecs[q], qtoks[q], w, kind)
        assert_same(results[results["qid"] == str(q)], expected, k)


def test_float32_candidates_alone_would_be_wrong(tmp_path):
    """Scores that float32 cannot tell apart still come in the right order."""
    rng = np.random.default_rng(0)
    base = rng.normal(size=256)
    base /= np.linalg.norm(base)
    dense = np.repeat(base[None].astype(np.float32), 2000, axis=0)
    dense[:, 0] = np.float32(0.0)
    bits = dense[:, 1:].view(np.int32)
    bits += rng.integers(-2, 3, size=bits.shape, dtype=np.int32)  # neighbours within float32's resolution
    index = GraspIndex(tmp_path / "close", verbose=False)
    index.add_arrays([f"d{i:04d}" for i in range(2000)], dense)
    result = index.dense(20)(pd.DataFrame({"qid": ["1"], "query_vec": [base]}))
    exact = [math.fsum(float(a) * float(b) for a, b in zip(row, base, strict=True)) for row in dense]
    float32 = dense @ base.astype(np.float32)
    expected = sorted(range(2000), key=lambda i: (exact[i], i), reverse=True)[:20]
    naive = sorted(range(2000), key=lambda i: (float32[i], i), reverse=True)[:20]
    assert naive != expected  # the case is as hard as it is meant to be
    for got, want in zip(result["docno"], expected, strict=True):
        assert got == f"d{want:04d}" or abs(exact[int(got[1:])] - exact[want]) < 1e-9
    assert np.allclose(result["score"], [exact[i] for i in expected], rtol=0, atol=1e-12)


@pytest.fixture(scope="module")
def larger(tmp_path_factory):
    rng = np.random.default_rng(3)
    n = 20_000
    dense = rng.normal(size=(n, 32)).astype(np.float32)
    dense[n // 2 :] = dense[: n // 2]  # exact ties everywhere
    toks = sparse.random_array((n, 200), density=0.05, rng=rng, dtype=np.float32, format="csr")
    toks = sparse.vstack([toks[: n // 2], toks[: n // 2]], format="csr")
    index = GraspIndex(tmp_path_factory.mktemp("larger") / "index", verbose=False)
    names = [f"c{j}" for j in range(200)]
    index.add_arrays([f"d{i}" for i in range(n)], dense, toks, names=names)
    topics = pd.DataFrame(
        {
            "qid": [str(i) for i in range(24)],
            "query_vec": list(rng.normal(size=(24, 32))),
            "query_toks": [{names[j]: float(rng.random()) for j in rng.choice(200, 10)} for _ in range(24)],
        }
    )
    return index, topics


@pytest.mark.parametrize("kind", ["dense", "sparse", "fused"])
def test_larger_corpus_equals_brute_force(larger, kind):
    """Each document occurs twice, so every rank is decided by score and then by docno."""
    index, topics = larger
    names = {name: i for i, name in enumerate(index.concepts)}
    toks = index.data.toks
    documents = sparse.csr_array((toks.data.astype(np.float64), toks.ids, toks.indptr), shape=(20_000, 200))
    results = {"dense": index.dense(50), "sparse": index.sparse(50), "fused": index.fused(0.3, 50)}[kind](topics)
    docnos = np.array(index.docnos())
    for _, topic in topics.iterrows():
        query = np.zeros(200)
        for name, weight in topic["query_toks"].items():
            query[names[name]] = weight
        dense = (index.data.dense * topic["query_vec"]).sum(axis=1)
        scores = {"dense": dense, "sparse": documents @ query, "fused": dense + 0.3 * (documents @ query)}[kind]
        best = sorted(zip(scores, docnos, strict=True), reverse=True)[:50]
        result = results[results["qid"] == topic["qid"]]
        assert result["docno"].tolist() == [docno for _, docno in best]
        assert np.allclose(result["score"], [score for score, _ in best], rtol=0, atol=1e-9)


def test_equal_across_batches_and_threads(larger):
    index, topics = larger
    for make in (index.dense, index.sparse, lambda k, **kw: index.fused(0.3, k, **kw)):
        with threadpool_limits(1):
            reference = make(50)(topics)
        for batch_size in (1, 5, 24):
            with threadpool_limits(2):
                pd.testing.assert_frame_equal(make(50, batch_size=batch_size)(topics), reference, check_exact=True)
        one_by_one = pd.concat([make(50)(topics.iloc[[i]]) for i in range(len(topics))], ignore_index=True)
        pd.testing.assert_frame_equal(one_by_one, reference, check_exact=True)


def test_equal_when_called_from_several_threads(larger):
    index, topics = larger
    reference = index.fused(0.3, 50)(topics)
    results = {}
    threads = [
        threading.Thread(target=lambda i=i: results.update({i: index.fused(0.3, 50, batch_size=3)(topics)}))
        for i in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    for result in results.values():
        pd.testing.assert_frame_equal(result, reference, check_exact=True)


def test_fused_equals_dense_then_fuser_and_scorers(larger):
    index, topics = larger
    fused = index.fused(0.3, 50)(topics)
    everything = index.dense(20_000)(topics.iloc[:2])
    two_steps = index.fuser(w=0.3, num_results=50)(everything)
    pd.testing.assert_frame_equal(two_steps, fused[fused["qid"].isin(["0", "1"])], check_exact=True)
    shuffled = fused.sample(frac=1, random_state=0).sort_values("qid", key=lambda c: c.astype(int), kind="stable")
    pd.testing.assert_frame_equal(index.scorer("fused", w=0.3)(shuffled), fused, check_exact=True)
    dense = index.dense(50)(topics)
    pd.testing.assert_frame_equal(index.scorer("dense")(dense), dense, check_exact=True)
    found = index.sparse(50)(topics)
    pd.testing.assert_frame_equal(index.scorer("sparse")(found), found, check_exact=True)


def test_error_bound_holds(larger):
    """The bound that the choice of candidates rests on is never exceeded, and is not absurdly wide."""
    index, topics = larger
    data = index.data
    vecs = np.stack(topics["query_vec"].to_list())
    none = search.SparseQueries(np.zeros(25, np.int64), np.zeros(0, np.int32), np.zeros(0))
    bound = search._float32_error(data, vecs, none, 0.0)
    seen = np.abs((vecs.astype(np.float32) @ data.dense.T).astype(np.float64) - vecs @ data.dense.T.astype(np.float64))
    assert (seen.max(axis=1) <= bound).all()
    assert (bound < 1e-3).all()


def test_too_large_for_float32_is_an_error(tmp_path):
    index = GraspIndex(tmp_path / "i", verbose=False).add_arrays(["a", "b"], np.full((2, 2), 1e30))
    with pytest.raises(ValueError, match="too large"):
        index.dense()(pd.DataFrame({"qid": ["1"], "query_vec": [np.full(2, 1e30)]}))


def test_kernels_compile_without_a_writable_cache(monkeypatch):
    def njit(**options):
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: ("compiled", function)

    monkeypatch.setattr(kernels, "njit", njit)
    assert kernels.jit(len) == ("compiled", len)
