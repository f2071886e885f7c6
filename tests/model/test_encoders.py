"""The encoders as PyTerrier transformers."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_grasp import GraspIndex

QUERY_ENCODERS = {
    "dense_encoder": ["query_vec", "query_model"],
    "concept_encoder": ["query_toks", "query_model"],
    "query_encoder": ["query_vec", "query_toks", "query_model"],
}


@pytest.fixture(params=QUERY_ENCODERS)
def encoder(request, toy_model):
    return getattr(toy_model, request.param)(), QUERY_ENCODERS[request.param]


@pytest.mark.parametrize("name", [*QUERY_ENCODERS, "doc_encoder", "image_query_encoder", "text_doc_encoder"])
def test_pyterriers_own_contract(toy_model, name, monkeypatch):
    monkeypatch.setenv("PT_TEST_TRANSFORMER_REPORTS", "0")
    case = pt.testing.transformer_test_class(lambda: getattr(toy_model, name)())
    case.setUpClass()
    for test in ("test_inspect_io", "test_schematic"):
        result = case(test).run()
        assert result.wasSuccessful(), result.failures + result.errors


def test_columns_are_added_and_the_input_is_kept(encoder, toy):
    encode, columns = encoder
    before = toy.test.topics.copy()
    out = encode(toy.test.topics.assign(extra=1))
    assert list(out.columns) == ["qid", "query", "extra", *columns]
    pd.testing.assert_frame_equal(toy.test.topics, before)


def test_empty_frames_get_the_columns(encoder, toy):
    encode, columns = encoder
    out = encode(toy.test.topics.head(0))
    assert len(out) == 0 and list(out.columns) == ["qid", "query", *columns]


def test_each_distinct_query_is_encoded_once(toy_model, toy, monkeypatch):
    seen = []
    encode_texts = type(toy_model).encode_texts
    monkeypatch.setattr(
        type(toy_model), "encode_texts", lambda self, t, **kw: seen.extend(t) or encode_texts(self, t, **kw)
    )
    twice = pd.concat([toy.test.topics.head(3)] * 2, ignore_index=True)
    out = toy_model.query_encoder(batch_size=2)(twice)
    assert sorted(seen) == sorted(toy.test.topics["query"].head(3))
    assert np.array_equal(out["query_vec"][0], out["query_vec"][3])
    assert out["query_toks"][0] == out["query_toks"][3] and out["query_toks"][0] is not out["query_toks"][3]


def test_the_frames_index_does_not_matter(toy_model, toy):
    shuffled = toy.test.topics.sample(frac=1, random_state=0)
    plain = toy_model.dense_encoder()(toy.test.topics).set_index("qid")["query_vec"]
    for qid, vector in toy_model.dense_encoder()(shuffled)[["qid", "query_vec"]].itertuples(index=False):
        np.testing.assert_allclose(vector, plain[qid], atol=1e-6)


def test_doc_encoder_serves_corpus_iterators_and_result_frames(toy_model, toy):
    docs = pd.DataFrame(toy.test.docs)
    out = toy_model.doc_encoder()(docs)
    assert list(out.columns) == ["docno", "path", "doc_vec", "toks", "doc_model"]
    results = docs.assign(qid="1", query="a", score=0.0, rank=0)
    assert "doc_vec" in toy_model.doc_encoder()(results).columns


@pytest.fixture
def i2t(toy):
    """The test split the other way: topics with ``path``, documents with ``text``, qrels."""
    topics = pd.DataFrame(toy.test.docs).rename(columns={"docno": "qid"})
    docs = toy.test.topics.rename(columns={"qid": "docno", "query": "text"})
    qrels = toy.test.qrels.rename(columns={"qid": "docno", "docno": "qid"})
    return SimpleNamespace(topics=topics, docs=docs, qrels=qrels)


def test_an_image_has_one_vector_as_query_and_as_document(toy_model, toy, i2t):
    query, doc = toy_model.image_query_encoder()(i2t.topics), pd.DataFrame(toy_model.doc_encoder()(toy.test.docs))
    assert list(query.columns) == ["qid", "path", "query_vec", "query_toks", "query_model"]
    assert query["query_vec"].map(tuple).tolist() == doc["doc_vec"].map(tuple).tolist()
    assert query["query_toks"].tolist() == doc["toks"].tolist()
    assert query["query_model"].tolist() == doc["doc_model"].tolist()


def test_a_text_has_one_vector_as_query_and_as_document(toy_model, toy, i2t):
    query, doc = toy_model.query_encoder()(toy.test.topics), toy_model.text_doc_encoder()(i2t.docs)
    assert list(doc.columns) == ["docno", "text", "doc_vec", "toks", "doc_model"]
    assert query["query_vec"].map(tuple).tolist() == doc["doc_vec"].map(tuple).tolist()
    assert query["query_toks"].tolist() == doc["toks"].tolist()
    assert query["query_model"].tolist() == doc["doc_model"].tolist()


@pytest.mark.parametrize("name", ["image_query_encoder", "text_doc_encoder"])
def test_image_to_text_encoders_without_rows_and_without_concepts(toy_model, toy_dense_model, i2t, name):
    frame, columns = {
        "image_query_encoder": (i2t.topics, ["query_vec", "query_toks", "query_model"]),
        "text_doc_encoder": (i2t.docs, ["doc_vec", "toks", "doc_model"]),
    }[name]
    empty = getattr(toy_model, name)()(frame.head(0))
    assert len(empty) == 0 and list(empty.columns) == [*frame.columns, *columns]
    dense = getattr(toy_dense_model, name)()(frame.head(2))
    assert list(dense.columns) == [*frame.columns, columns[0], columns[2]]


@pytest.mark.parametrize("value", [None, 3.5, float("nan")])
def test_a_missing_query_is_an_error(toy_model, value):
    frame = pd.DataFrame({"qid": ["1", "2"], "query": pd.Series(["a star", value], dtype=object)})
    with pytest.raises(ValueError, match="which is not a string"):
        toy_model.query_encoder()(frame)


@pytest.mark.parametrize("text", ["", "star " * 500, "🐶 étoile ✨", "\n\t"])
def test_odd_texts_are_encoded(toy_model, text):
    out = toy_model.query_encoder()(pd.DataFrame({"qid": ["1"], "query": [text]}))
    assert np.isfinite(out["query_vec"][0]).all()
    assert all(np.isfinite(weight) for weight in out["query_toks"][0].values())


def test_unreadable_images_are_named(toy_model, tmp_path):
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"\xff\xd8\xff\xe0 not a picture")
    with pytest.raises(ValueError, match=r"broken\.jpg"):
        toy_model.doc_encoder()([{"docno": "1", "path": str(broken)}])
    with pytest.raises(FileNotFoundError, match=r"gone\.jpg"):
        toy_model.doc_encoder()([{"docno": "1", "path": str(tmp_path / "gone.jpg")}])


def test_dense_models_encode_without_concepts(toy_dense_model, toy):
    assert "query_toks" not in toy_dense_model.query_encoder()(toy.test.topics).columns
    assert "toks" not in toy_dense_model.doc_encoder()(toy.test.docs)[0]
    with pytest.raises(ValueError, match="no sparse branch"):
        toy_dense_model.concept_encoder()


def test_equality_follows_the_model(toy_model, toy_dense_model):
    assert toy_model.dense_encoder() == toy_model.dense_encoder(batch_size=8)
    assert hash(toy_model.dense_encoder()) == hash(toy_model.dense_encoder())
    assert toy_model.dense_encoder() != toy_dense_model.dense_encoder()
    assert toy_model.dense_encoder() != toy_model.query_encoder()


def test_a_rank_cutoff_moves_before_the_image_encoder(toy_model, toy):
    compiled = (toy_model.doc_encoder() % 2).compile()
    results = pd.DataFrame(toy.test.docs).assign(qid="1", score=0.0, rank=range(8))
    assert isinstance(compiled[0], pt.RankCutoff) and len(compiled(results)) == 2


def test_the_five_snippets_pipelines(toy_model, toy, tmp_path):
    """Snippets 4 and 5 of the user's contract, as written there."""
    from ir_measures import RR, R

    model, test = toy_model, toy.test
    index = GraspIndex(tmp_path / "test.index", verbose=False)
    (model.doc_encoder() >> index).index(test.get_corpus_iter())

    dense = model.dense_encoder() >> index.dense(num_results=100)
    sparse = model.concept_encoder() >> index.sparse(num_results=100)
    grasp_fuse = index.fuser(model, w=0.1, num_results=None)
    fused = model.query_encoder() >> index.fused(w=0.1)
    table = pt.Experiment(
        [dense, sparse, dense % 100 >> grasp_fuse, fused],
        test.get_topics(),
        test.get_qrels(),
        [R @ 1, R @ 5, RR @ 10],
        names=["D", "S", "D>>fuse", "D+S"],
        baseline=0,
        correction="holm",
        verbose=False,
    )

    assert table["name"].tolist() == ["D", "S", "D>>fuse", "D+S"]
    # With all 8 images among the 100 candidates, fusing the candidates is the same as fusing the corpus.
    fuse, exact = table.iloc[2], table.iloc[3]
    for measure in ("R@1", "R@5", "RR@10"):
        assert fuse[measure] == exact[measure]
    # And the scores are what the vectors say.
    scores = fused(test.get_topics()).set_index(["qid", "docno"])["score"]
    text_dense, text_sparse = model.encode_texts(test.topics["query"].tolist())
    image_dense, image_sparse = model.encode_images([doc["path"] for doc in test.docs])
    expected = text_dense @ image_dense.T + 0.1 * (text_sparse @ image_sparse.T).toarray()
    for i, qid in enumerate(test.topics["qid"]):
        for j, doc in enumerate(test.docs):
            assert scores[qid, doc["docno"]] == pytest.approx(expected[i, j], abs=1e-5)


def test_image_to_text(toy_model, i2t, tmp_path):
    """The same model, index and pipelines with images as queries; figures against arrays."""
    from ir_measures import RR, Rprec, Success

    index = GraspIndex(tmp_path / "captions.index", verbose=False)
    (toy_model.text_doc_encoder() >> index).index(i2t.docs.to_dict("records"))
    encode = toy_model.image_query_encoder()
    dense = encode >> index.dense(num_results=40)
    systems = {
        "D": dense,
        "S": encode >> index.sparse(num_results=40),
        "D>>fuse": dense % 40 >> index.fuser(toy_model, w=0.7),
        "D+S": encode >> index.fused(w=0.7),
    }
    table = pt.Experiment(
        systems, i2t.topics, i2t.qrels, [Success @ 1, Success @ 5, RR, Rprec], validate="error", verbose=False
    ).set_index("name")

    image_dense, image_sparse = toy_model.encode_images(i2t.topics["path"].tolist())
    text_dense, text_sparse = toy_model.encode_texts(i2t.docs["text"].tolist())
    d, s = image_dense @ text_dense.T, (image_sparse @ text_sparse.T).toarray()
    pairs = set(i2t.qrels[["qid", "docno"]].itertuples(index=False, name=None))
    relevant = np.array([[(qid, docno) in pairs for docno in i2t.docs["docno"]] for qid in i2t.topics["qid"]])
    for name, scores in {"D": d, "S": s, "D>>fuse": d + 0.7 * s, "D+S": d + 0.7 * s}.items():
        found = relevant & (scores > 0) if name == "S" else relevant  # S retrieves what shares a concept
        hits = np.take_along_axis(found, np.argsort(-scores, axis=1), axis=1)
        assert table.loc[name, "Success@1"] == hits[:, 0].mean(), name
        assert table.loc[name, "Success@5"] == hits[:, :5].any(axis=1).mean(), name
        assert table.loc[name, "RR"] == pytest.approx((hits.any(axis=1) / (hits.argmax(axis=1) + 1)).mean()), name
        assert table.loc[name, "Rprec"] == pytest.approx(hits[:, :5].mean()), name


def test_a_saved_run_of_image_queries_is_fused(toy_model, i2t, tmp_path):
    """Without ``query_toks`` the images are encoded again, each once; texts are not taken for image queries."""
    index = GraspIndex(tmp_path / "captions.index", verbose=False)
    (toy_model.text_doc_encoder() >> index).index(i2t.docs.to_dict("records"))
    encode = toy_model.image_query_encoder()
    run = (encode >> index.dense(num_results=5))(i2t.topics)
    saved = run[["qid", "docno", "score", "rank"]].merge(i2t.topics, on="qid")
    fused = (encode >> index.fuser(w=0.7))(saved)
    expected = index.fuser(w=0.7)(run)
    assert fused["docno"].tolist() == expected["docno"].tolist()
    np.testing.assert_allclose(fused["score"], expected["score"], atol=1e-6)
    with pytest.raises(pt.validate.InputValidationError, match="query_toks"):
        index.fuser(toy_model)(saved)
    with pytest.raises(pt.validate.InputValidationError, match="query"):
        (toy_model.query_encoder() >> index.dense())(i2t.topics)


def test_weighted_sums_and_rerankers_compose(toy_model, toy, tmp_path):
    index = GraspIndex(tmp_path / "test.index", verbose=False)
    (toy_model.doc_encoder() >> index).index(toy.test.get_corpus_iter())
    fused = toy_model.query_encoder() >> index.fused(w=0.1)
    lexical = pt.apply.doc_score(lambda row: float(len(row["docno"])))
    out = (0.7 * fused + 0.3 * (fused % 4 >> lexical))(toy.test.topics.head(2))
    assert len(out) == 16 and out["score"].notna().all()
