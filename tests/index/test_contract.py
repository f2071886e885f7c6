"""What PyTerrier expects of every transformer: inspection, columns, compilation, identity, no mutation."""

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from ir_measures import RR, R

from pyterrier_grasp.index import GraspIndex

MAKERS = {
    "dense": lambda index, model: index.dense(5),
    "sparse": lambda index, model: index.sparse(5, drop_query_vec=True),
    "fused": lambda index, model: index.fused(0.2, 5),
    "fuser": lambda index, model: index.fuser(w=0.2),
    "fuser with model": lambda index, model: index.fuser(model, w=0.2, normalise="minmax"),
    "scorer dense": lambda index, model: index.scorer("dense"),
    "scorer sparse": lambda index, model: index.scorer("sparse"),
    "scorer fused": lambda index, model: index.scorer("fused", w=0.2),
    "vec_loader": lambda index, model: index.vec_loader(),
    "toks_loader": lambda index, model: index.toks_loader(),
}
RETRIEVERS = ["dense", "sparse", "fused"]


@pytest.fixture(params=MAKERS)
def transformer(request, index, model):
    return MAKERS[request.param](index, model)


@pytest.fixture
def results(index, queries):
    """A result frame that suits every transformer which takes one."""
    return index.dense(6)(queries)


def run_pt_testing(transformer, monkeypatch):
    monkeypatch.setattr(pt.documentation, "url_for_class", lambda *args: None)
    monkeypatch.setenv("PT_TEST_TRANSFORMER_REPORTS", "0")
    case = pt.testing.transformer_test_class(lambda: transformer)
    case.setUpClass()
    for test in ("test_inspect_io", "test_schematic"):
        result = case(test).run()
        assert result.wasSuccessful(), result.failures + result.errors


def test_pyterrier_contract(transformer, monkeypatch):
    run_pt_testing(transformer, monkeypatch)


def test_indexers_pass_the_contract_too(index, monkeypatch):
    monkeypatch.setattr(pt.documentation, "url_for_class", lambda *args: None)
    for indexer in (index, index.indexer()):
        assert pt.inspect.indexer_inputs(indexer)[0] == ["docno", "doc_vec", "toks"]
        pt.schematic.draw(indexer)


def test_unbuilt_index_can_be_inspected(tmp_path, model, monkeypatch):
    index = GraspIndex(tmp_path / "later")
    for make in MAKERS.values():
        run_pt_testing(make(index, model), monkeypatch)
    assert not (tmp_path / "later").exists()


def test_required_columns(index, model):
    assert pt.inspect.transformer_inputs(index.dense()) == [["qid", "query_vec"]]
    assert pt.inspect.transformer_inputs(index.fused()) == [["qid", "query_vec", "query_toks"]]
    assert pt.inspect.transformer_inputs(index.fuser()) == [["qid", "docno", "score", "query_toks"]]
    assert pt.inspect.transformer_inputs(index.fuser(model)) == [
        ["qid", "docno", "score", "query_toks"],
        ["qid", "docno", "score", "query"],
    ]
    with pytest.raises(pt.validate.InputValidationError, match="dense"):
        index.dense()(pd.DataFrame({"qid": ["1"], "query": ["a"]}))


def frame_for(transformer, queries, results):
    return queries if type(transformer).__name__.endswith("Retriever") else results


def test_empty_frame_has_the_columns_and_types_of_a_full_one(transformer, queries, results):
    inp = frame_for(transformer, queries, results)
    full, empty = transformer(inp), transformer(inp.iloc[:0])
    assert len(full) and not len(empty)
    assert list(full.columns) == list(empty.columns)
    assert full.dtypes.to_dict() == empty.dtypes.to_dict()
    assert list(pt.inspect.transformer_outputs(transformer, list(inp.columns))) == list(full.columns)


def test_input_is_not_changed(transformer, queries, results):
    inp = frame_for(transformer, queries, results)
    before = inp.copy(deep=True)
    toks = [dict(t) for t in inp["query_toks"]]
    transformer(inp)
    pd.testing.assert_frame_equal(inp, before)
    assert list(inp["query_toks"]) == toks


def test_row_labels_of_the_input_do_not_matter(transformer, queries, results):
    inp = frame_for(transformer, queries, results)
    expected = transformer(inp).reset_index(drop=True)
    relabelled = inp.set_axis([3] * len(inp), axis=0)
    pd.testing.assert_frame_equal(transformer(relabelled).reset_index(drop=True), expected)


def test_identity(index, model, tmp_path):
    for make in MAKERS.values():
        a, b = make(index, model), make(index, model)
        assert a is not b and a == b and hash(a) == hash(b) and repr(a) == repr(b)
        assert a != make(GraspIndex(tmp_path / "other"), model)
        assert str(index.path) in repr(a) and "0x" not in repr(a)
    assert index.dense(5) != index.dense(6) and index.fused(0.1) != index.fused(0.2)
    assert index.fuser(w=0.1) != index.fuser(w=0.2) and index.fuser() != index.fuser(model)
    assert index.dense(5) == index.dense(5, batch_size=1, verbose=True)


def test_attributes_survive_a_copy(transformer):
    attributes = [a for a in pt.inspect.transformer_attributes(transformer) if a.name != "index"]
    copy = pt.inspect.transformer_apply_attributes(transformer)
    assert copy is not transformer and copy == transformer
    assert all(getattr(copy, a.name) == a.value for a in attributes)


class Encoder(pt.Transformer):
    """Adds the prepared query side to a topics frame."""

    def __init__(self, queries):
        self.queries = queries

    def transform(self, inp):
        pt.validate.query_frame(inp, extra_columns=["query"], context=self)
        return inp.merge(self.queries.drop(columns="query"), on="qid", how="left")


def test_rank_cutoff_is_pushed_into_the_retriever(index, queries, model):
    topics = queries[["qid", "query"]]
    for retriever in (index.dense(100), index.sparse(100), index.fused(0.3, 100)):
        for k in (1, 5):
            pipeline = Encoder(queries) >> retriever % k
            compiled = pipeline.compile()
            assert repr(compiled).count("RankCutoff") == 0 and f"num_results={k}" in repr(compiled)
            pd.testing.assert_frame_equal(compiled(topics), pipeline(topics))
        assert retriever.fuse_rank_cutoff(100) is None and retriever.fuse_rank_cutoff(1000) is None
        assert retriever.num_results == 100
    fuser = index.fuser(model, w=0.3)
    pipeline = Encoder(queries) >> index.dense(20) >> fuser % 5
    assert "num_results=5" in repr(pipeline.compile()) and "dense(num_results=20)" in repr(pipeline.compile())
    pd.testing.assert_frame_equal(pipeline.compile()(topics), pipeline(topics))
    loading = Encoder(queries) >> index.dense(20) >> index.vec_loader() >> index.toks_loader() % 2
    pd.testing.assert_frame_equal(loading.compile()(topics), loading(topics))


def test_settings_out_of_range(index, queries):
    assert len(index.dense(num_results=np.int64(2))(queries.head(1))) == 2
    for num_results in (0, -1, 2.0, True, "2", None):
        with pytest.raises(ValueError, match="num_results must be a whole number"):
            index.dense(num_results=num_results)
    for w in (None, "0.1", float("nan"), float("inf")):
        with pytest.raises(ValueError, match="w must be a finite number"):
            index.fused(w=w)(queries)


@pytest.mark.parametrize("kind", RETRIEVERS)
def test_one_result_is_a_scalar_and_k_may_exceed_the_corpus(index, queries, kind, model):
    one = pt.inspect.transformer_apply_attributes(MAKERS[kind](index, model), num_results=1)(queries)
    assert list(one["qid"]) == list(queries["qid"])
    assert all(isinstance(d, str) for d in one["docno"]) and (one["rank"] == 0).all()
    everything = pt.inspect.transformer_apply_attributes(MAKERS[kind](index, model), num_results=10**6)(queries)
    counts = everything.groupby("qid").size()
    assert (counts == 60).all() if kind != "sparse" else ((counts > 0) & (counts < 60)).all()


def test_query_columns_are_kept(index, queries):
    result = index.fused(0.1, 3)(queries.assign(score=1.0, rank=9, extra="x"))
    assert list(result.columns) == [*queries.columns, "extra", "docno", "score", "rank"]
    assert (result["extra"] == "x").all() and result["rank"].tolist() == [0, 1, 2] * 7
    assert "query_vec" not in index.fused(0.1, 3, drop_query_vec=True)(queries)


def test_query_without_active_concept(index, queries):
    toks = [{}, {"no such concept": 1.0}, *queries["query_toks"][2:]]
    topics = queries.assign(query_toks=toks)
    assert set(index.sparse()(topics)["qid"]) == set(queries["qid"][2:])
    assert len(index.sparse()(topics.iloc[:2])) == 0
    columns = ["qid", "docno", "score", "rank"]
    pd.testing.assert_frame_equal(
        index.fused(0.5, 10)(topics.iloc[:2])[columns], index.dense(10)(topics.iloc[:2])[columns], check_exact=True
    )


def test_bad_queries(index, queries):
    cases = [
        (queries.assign(qid=["q0"] * 7), "qid 'q0' occurs twice"),
        (queries.assign(query_vec=[[1.0]] * 7), "query_vec of query 'q0' has shape"),
        (queries.assign(query_vec=[[float("nan")] * 12] * 7), "query 'q0' holds NaN"),
        (queries.assign(query_vec=[None] * 7), "query_vec of query 'q0'"),
        (queries.assign(query_toks=[None] * 7), "query_toks of query 'q0' must be a dict"),
        (queries.assign(query_toks=[{"a": float("inf")}] * 7), "query_toks of query 'q0' holds NaN"),
        (queries.assign(query_toks=[{"a": "b"}] * 7), "not numbers"),
    ]
    for topics, message in cases:
        with pytest.raises(ValueError, match=message):
            index.fused()(topics)
    for bad in (0, -1, 2.5, None, True):
        with pytest.raises(ValueError, match="num_results"):
            index.dense(bad)
    with pytest.raises(ValueError, match="finite"):
        index.fused(float("nan"))(queries)


def test_other_model_is_an_error_that_names_both(index, queries, results, fake_model, model):
    other = queries.assign(query_model="model-b")
    pipelines = [index.dense(), index.sparse(), index.fused()]
    for pipeline in pipelines:
        with pytest.raises(ValueError, match="'model-b'.*'model-a'"):
            pipeline(other)
        pipeline(queries.drop(columns="query_model"))
    for pipeline in (index.fuser(), index.scorer()):
        with pytest.raises(ValueError, match="'model-b'.*'model-a'"):
            pipeline(results.assign(query_model="model-b"))
    with pytest.raises(ValueError, match="'model-b'.*'model-a'"):
        index.fuser(fake_model(queries, "model-b"))(results.drop(columns=["query_toks"]))
    # the column then speaks of the dense vectors' model, and the concepts come from the right one
    index.fuser(model)(results.drop(columns=["query_toks"]).assign(query_model="some dense model"))


def test_experiment(index, queries, model):
    """End to end; the query's nearest document is made the relevant one, so dense must be perfect."""
    topics = queries[["qid", "query"]]
    dense = Encoder(queries) >> index.dense(20)
    qrels = dense(topics).query("rank == 0")[["qid", "docno"]].assign(label=1)
    fuse = index.fuser(model, w=0.0)
    systems = [
        dense,
        Encoder(queries) >> index.sparse(20),
        dense % 10 >> fuse,
        Encoder(queries) >> index.fused(0.1, 20),
    ]
    table = pt.Experiment(
        systems,
        topics,
        qrels,
        [R @ 1, R @ 5, RR @ 10],
        names=["D", "S", "D>>fuse", "D+S"],
        baseline=0,
        correction="holm",
        validate="error",
    )
    assert table["R@1"][0] == 1.0 and table["R@1"][2] == 1.0 and table["R@1"][1] < 1.0
    tree = pt.Experiment(systems, topics, qrels, [R @ 1, R @ 5, RR @ 10], names=["D", "S", "F", "D+S"], plan="tree")
    assert tree["RR@10"].tolist() == table["RR@10"].tolist()


def test_grid_search_tunes_w(index, queries):
    topics = queries[["qid", "query"]]
    target = (Encoder(queries) >> index.sparse(1))(topics)
    qrels = target[["qid", "docno"]].assign(label=1)
    for stage in (index.fused(0.0, 60), index.dense(60) >> index.fuser(w=0.0)):
        pipeline = Encoder(queries) >> stage
        tuned = pt.GridSearch(
            pipeline,
            {pipeline[-1]: {"w": [0.0, 100.0]}},
            topics,
            qrels,
            "map",
            verbose=False,
            return_type="opt_pipeline",
        )
        assert tuned[-1].w == 100.0
