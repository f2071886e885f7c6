"""mAP@R against its definition, against trec_eval's neighbours, and against the package of ECCV Caption."""

import warnings

import ir_measures
import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_measures import Qrel, Rprec, ScoredDoc, Success

from pyterrier_grasp.datasets.eccv import positives
from pyterrier_grasp.evaluation import mAP_R

QRELS = {"q1": {"a": 1, "b": 1, "c": 2, "x": 0}, "q2": {"a": 1}, "q3": {"b": 1, "c": 1}, "q4": {"a": 0}}
RUN = {"q1": {"a": 9.0, "x": 8.0, "c": 7.0, "b": 6.0}, "q2": {"b": 3.0, "a": 2.0}, "q9": {"a": 1.0}}
#: q1: R = 3, relevant at 1 and 3 -> (1 + 2/3) / 3; q2: R = 1, missed; q3: not in the run; q4: nothing relevant.
VALUES = {"q1": (1 + 2 / 3) / 3, "q2": 0.0, "q3": 0.0, "q4": 0.0}


def by_definition(relevant, ranking):
    """(1/R) sum over r = 1..R of P(r) rel(r)."""
    total = 0.0
    for r in range(1, len(relevant) + 1):
        if ranking[r - 1 : r] and ranking[r - 1] in relevant:
            total += sum(doc in relevant for doc in ranking[:r]) / r
    return total / len(relevant)


def test_by_hand():
    assert {m.query_id: m.value for m in mAP_R.iter_calc(QRELS, RUN)} == pytest.approx(VALUES)
    assert mAP_R.calc_aggregate(QRELS, RUN) == pytest.approx(sum(VALUES.values()) / 4)
    assert mAP_R(rel=2).calc_aggregate(QRELS, RUN) == 0.0  # q1: R = 1, and "c" is third
    assert mAP_R.calc_aggregate({"q1": QRELS["q1"]}, {"q1": {"c": 3.0, "b": 2.0, "a": 1.0}}) == 1.0


def test_all_forms_of_qrels_and_runs():
    expected = sum(VALUES.values()) / 4
    qrels = [Qrel(query, doc, label) for query, docs in QRELS.items() for doc, label in docs.items()]
    run = [ScoredDoc(query, doc, score) for query, docs in RUN.items() for doc, score in docs.items()][::-1]
    for q, r in ((QRELS, RUN), (qrels, run), (pd.DataFrame(qrels), pd.DataFrame(run))):
        both = ir_measures.calc_aggregate([mAP_R, Rprec], q, r)
        assert both[mAP_R] == pytest.approx(expected) and both[Rprec] == pytest.approx((2 / 3) / 4)


def test_as_a_measure_of_ir_measures():
    assert str(mAP_R) == "mAP@R" and str(mAP_R(rel=2)) == "mAP@R(rel=2)"
    assert mAP_R(rel=1) == mAP_R and hash(mAP_R(rel=1)) == hash(mAP_R) and mAP_R(rel=2) != mAP_R
    assert set(ir_measures.run_inputs([mAP_R])) == {"query_id", "doc_id", "score"}


def test_in_an_experiment():
    topics = pd.DataFrame({"qid": list(QRELS), "query": "text"})
    qrels = pd.DataFrame(
        [(q, d, v) for q, docs in QRELS.items() for d, v in docs.items()], columns=["qid", "docno", "label"]
    )
    run = pd.DataFrame(
        [(q, d, v) for q, docs in RUN.items() for d, v in docs.items()], columns=["qid", "docno", "score"]
    )
    system = pt.Transformer.from_df(run[run["qid"] != "q9"])
    measures = [mAP_R, mAP_R(rel=2), Rprec, Success @ 1]
    table = pt.Experiment(
        [system, run], topics, qrels, measures, names=["a", "b"], baseline=0, round={"mAP@R": 3}, verbose=False
    )
    assert table["mAP@R"].tolist() == [0.139, 0.139] and (table["mAP@R(rel=2)"] == 0).all()
    assert {"mAP@R p-value", "Rprec", "Success@1"} <= set(table.columns)
    perquery = pt.Experiment([system], topics, qrels, [mAP_R], perquery=True, verbose=False).set_index("qid")["value"]
    assert perquery[["q1", "q2"]].to_dict() == pytest.approx({q: VALUES[q] for q in ("q1", "q2")})


ids = st.sampled_from(["a", "b", "B", "c10", "c9", "é", "d"])


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.sampled_from("pqr"), st.dictionaries(ids, st.integers(0, 2), min_size=1), min_size=1),
    st.dictionaries(
        st.sampled_from("pqrs"),
        st.dictionaries(ids, st.sampled_from([0.0, -1.5, 0.25, 0.25 + 1e-9, 7.0]), min_size=1),
        min_size=1,
    ),
)
def test_by_definition_with_trec_evals_order(qrels, run):
    """Ties, scores that differ beyond float32, short rankings, and queries on one side only."""
    for rel in (1, 2):
        got = {m.query_id: m.value for m in mAP_R(rel=rel).iter_calc(qrels, run)}
        assert set(got) == set(qrels)
        for query, judged in qrels.items():
            relevant = {doc for doc, label in judged.items() if label >= rel}
            scores = {doc: float(np.float32(score)) for doc, score in run.get(query, {}).items()}
            ranking = sorted(sorted(scores, reverse=True), key=lambda doc: -scores[doc])
            assert got[query] == pytest.approx(by_definition(relevant, ranking) if relevant else 0.0)
            if relevant and query in run:  # R-Precision bounds it, and with R = 1 both are the same
                rprec = Rprec(rel=rel).calc_aggregate({query: judged}, {query: run[query]})
                assert got[query] <= rprec + 1e-9 and (len(relevant) > 1 or got[query] == rprec)


def ranked(rng, keys, gallery, relevant):
    """A random ranking of the gallery for each key, the best 60 documents, with the relevant ones drawn forward."""
    place = {doc: i for i, doc in enumerate(gallery.tolist())}
    rankings = {}
    for key in keys:
        scores = rng.random(len(gallery), dtype=np.float32)
        own = [place[doc] for doc in relevant.get(key, []) if doc in place]
        scores[own] = 1 - 0.02 * rng.random(len(own)) ** 2  # some of them among the first 60, between others
        best = np.argpartition(-scores, 60)[:60]
        rankings[key] = gallery[best[np.argsort(-scores[best])]].tolist()
    return rankings


def as_run(rankings):
    return pd.DataFrame(
        [(str(q), str(d), -float(r)) for q, docs in rankings.items() for r, d in enumerate(docs)],
        columns=["query_id", "doc_id", "score"],
    )


def as_qrels(name, i2t):
    return [Qrel(q, d, 1) for q, docs in positives(name, i2t).items() for d in docs]


@pytest.fixture(scope="module")
def package():
    """The package's own measures."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it would like to have ujson
        return pytest.importorskip("eccv_caption").Metrics()


@pytest.mark.parametrize("seed", [1, 2])
def test_eccv_caption_against_its_package(package, seed):
    """Rankings over all 5,000 images and 25,000 captions; all three figures of both directions."""
    rng = np.random.default_rng(seed)
    images, captions = np.array(sorted(package.coco_gts["i2t"])), package.coco_ids
    assert (len(images), len(captions)) == (5000, 25000)
    t2i = ranked(rng, package.eccv_gts["t2i"], images, package.eccv_gts["t2i"])
    i2t = ranked(rng, package.eccv_gts["i2t"], captions, package.eccv_gts["i2t"])
    expected = package.compute_all_metrics(i2t, t2i, ["eccv_r1", "eccv_map_at_r", "eccv_rprecision"])
    for direction, rankings in (("t2i", t2i), ("i2t", i2t)):
        got = ir_measures.calc_aggregate(
            [mAP_R, Rprec, Success @ 1], as_qrels("eccv", direction == "i2t"), as_run(rankings)
        )
        assert 0.02 < got[mAP_R] < 0.98 * got[Rprec] < 0.9
        for measure, name in ((mAP_R, "eccv_map_at_r"), (Rprec, "eccv_rprecision"), (Success @ 1, "eccv_r1")):
            assert got[measure] == pytest.approx(expected[name][direction], abs=1e-12), (direction, name)


def test_cxc_against_the_package(package, monkeypatch):
    """Recall at 1, 5 and 10 is Success; a tenth of the queries, for the sake of time."""
    rng = np.random.default_rng(3)
    images, captions = np.array(sorted(package.coco_gts["i2t"])), package.coco_ids
    for direction, gallery in (("t2i", images), ("i2t", captions)):
        truth = dict(list(package.cxc_gts[direction].items())[::10])
        rankings = ranked(rng, truth, gallery, truth)
        kept = {str(key) for key in truth}
        qrels = [qrel for qrel in as_qrels("cxc", direction == "i2t") if qrel.query_id in kept]
        got = ir_measures.calc_aggregate([Success @ k for k in (1, 5, 10)], qrels, as_run(rankings))
        monkeypatch.setitem(package.cxc_gts, direction, truth)
        for k in (1, 5, 10):
            expected = package.cxc_recalls({direction: rankings}, direction, K=k)[direction]
            assert 0.02 < expected < 0.999
            assert got[Success @ k] == pytest.approx(expected, abs=1e-12), (direction, k)
