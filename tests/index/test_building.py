"""Writing, resuming, reading back, and what cannot be indexed."""

import json
import pickle
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from scipy import sparse

from pyterrier_grasp.index import GraspIndex

CHILD = """
import os, signal, sys
import numpy as np
import pyterrier as pt
from pyterrier_grasp.index import GraspIndex, kernels, storage, writer

folder, log, where = sys.argv[1:]

def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

class Encoder(pt.Transformer):
    def transform(self, inp):
        with open(log, "a") as out:
            out.writelines(f"{d}\\n" for d in inp["docno"])
        if where.isdigit() and f"d{where}" in set(inp["docno"]):
            die()
        rng = [np.random.default_rng(int(d[1:])) for d in inp["docno"]]
        return inp.assign(doc_vec=[r.normal(size=4) for r in rng], toks=[{f"c{r.integers(9)}": 1.0} for r in rng])

if where == "postings":
    kernels.fill_postings = die
if where == "meta":  # everything is written but the name of the last file
    replace = os.replace
    os.replace = lambda a, b: die() if str(b).endswith("pt_meta.json") else replace(a, b)
index = GraspIndex(folder, verbose=False)
corpus = ({"docno": f"d{i}"} for i in range(1000))
(Encoder() >> index.indexer(shard_size=150)).index(index.missing(corpus))
"""


@pytest.mark.parametrize("where", ["0", "555", "postings", "meta"])
def test_killed_and_resumed(tmp_path, where):
    """SIGKILL in the middle: not built, nothing stored is lost or encoded again, the result is as if undisturbed."""
    script, folder, log = tmp_path / "child.py", tmp_path / "index", tmp_path / "encoded.txt"
    script.write_text(textwrap.dedent(CHILD))
    log.touch()
    run = [sys.executable, str(script), str(folder), str(log)]
    assert subprocess.run([*run, where], capture_output=True).returncode == -signal.SIGKILL
    index = GraspIndex(folder, verbose=False)
    assert not index.built()
    corpus = [{"docno": f"d{i}"} for i in range(1000)]
    missing = {doc["docno"] for doc in index.missing(corpus)}
    first = log.read_text().split()
    assert len(missing) == {"0": 1000, "555": 550, "postings": 0, "meta": 0}[where]
    if 0 < len(missing) < 1000:
        with pytest.raises(FileNotFoundError, match="450 documents.*missing"):
            len(index)
        with pytest.raises(ValueError, match="duplicate docno 'd0'.*overwrite"):
            index.index([{"docno": "d0", "doc_vec": np.ones(4), "toks": {}}])
    subprocess.run([*run, "nowhere"], check=True, capture_output=True)
    second = log.read_text().split()[len(first) :]
    assert set(second) == missing and len(second) == len(missing)
    assert index.built() and not (folder / "shards").exists() and not list(folder.glob("*.tmp"))
    assert sorted(index.docnos()) == sorted(doc["docno"] for doc in corpus)
    whole = GraspIndex(tmp_path / "whole", verbose=False)
    rngs = [np.random.default_rng(i) for i in range(1000)]
    whole.index(
        {"docno": f"d{i}", "doc_vec": r.normal(size=4), "toks": {f"c{r.integers(9)}": 1.0}} for i, r in enumerate(rngs)
    )
    for name in ("docnos.txt", "dense.f4", "toks_indices.i4", "postings_docs.i4", "postings_data.f4", "pt_meta.json"):
        assert (folder / name).read_bytes() == (whole.path / name).read_bytes(), name


def test_stored_content(index, docs):
    assert index.built() and len(index) == 60 and bool(index)
    assert index.docnos() == [doc["docno"] for doc in docs]
    assert index.dim == 12 and index.doc_model == "model-a"
    assert index.concepts == sorted({name for doc in docs for name in doc["toks"]})
    loaded = (index.vec_loader() >> index.toks_loader())(pd.DataFrame({"docno": ["d7", "d3", "d7"]}))
    for _, row in loaded.iterrows():
        doc = docs[int(row["docno"][1:])]
        assert np.array_equal(row["doc_vec"], doc["doc_vec"]) and row["doc_vec"].dtype == np.float32
        assert row["toks"] == doc["toks"]
    df = [json.loads(line) for line in (index.path / "concepts.jsonl").read_text().splitlines()]
    assert all(entry["df"] == sum(entry["name"] in doc["toks"] for doc in docs) for entry in df)


def test_load_by_class_entry_point_and_pickle(index, queries):
    expected = index.fused(num_results=5)(queries)
    for copy in (
        GraspIndex.load(str(index.path)),
        pt.Artifact.load(str(index.path)),
        pickle.loads(pickle.dumps(index)),
    ):
        assert isinstance(copy, GraspIndex) and copy == index and hash(copy) == hash(index)
        pd.testing.assert_frame_equal(copy.fused(num_results=5)(queries), expected)
    meta = json.loads((index.path / "pt_meta.json").read_text())
    assert (meta["type"], meta["format"], meta["package_hint"]) == ("multimodal_index", "grasp", "pyterrier_grasp")


def test_arrays_give_the_same_index_as_documents(index, docs, tmp_path):
    names = list(reversed(index.concepts))
    toks = sparse.csr_array([[doc["toks"].get(name, 0.0) for name in names] for doc in docs])
    other = GraspIndex(tmp_path / "arrays", verbose=False)
    dense = np.stack([doc["doc_vec"] for doc in docs])
    other.add_arrays([doc["docno"] for doc in docs], dense, toks, names=names, doc_model="model-a")
    for path in index.path.iterdir():
        assert path.read_bytes() == (other.path / path.name).read_bytes(), path.name


@pytest.mark.parametrize("docnos", [["0"], ["a", "ab"], ["001", "1", "01"], ["é 图", "😀", "a b.jpg"]])
def test_any_docno_comes_back(tmp_path, docnos):
    index = GraspIndex(tmp_path / "i", verbose=False).index({"docno": d, "doc_vec": np.ones(1)} for d in docnos)
    assert GraspIndex(tmp_path / "i").docnos() == docnos
    result = index.dense()(pd.DataFrame({"qid": ["1"], "query_vec": [[1.0]]}))
    assert list(result["docno"]) == sorted(docnos, reverse=True)


def test_only_one_branch(tmp_path, docs, queries):
    dense = GraspIndex(tmp_path / "d", verbose=False).index({k: d[k] for k in ("docno", "doc_vec")} for d in docs)
    toks = GraspIndex(tmp_path / "s", verbose=False).index({k: d[k] for k in ("docno", "toks")} for d in docs)
    assert dense.concepts is None and toks.dim is None and dense.doc_model is None
    assert len(dense.dense(5)(queries)) == 35 and len(toks.sparse(5)(queries)) > 0
    for pipeline in (
        dense.sparse(),
        dense.fused(),
        dense.dense() >> dense.fuser(),
        dense.dense() >> dense.toks_loader(),
    ):
        with pytest.raises(ValueError, match="no concepts"):
            pipeline(queries)
    for pipeline in (toks.dense(), toks.fused(), toks.sparse() >> toks.vec_loader()):
        with pytest.raises(ValueError, match="no dense vectors"):
            pipeline(queries)


def test_no_concept_is_active_anywhere(tmp_path, queries):
    index = GraspIndex(tmp_path / "i", verbose=False).index([{"docno": "a", "doc_vec": np.ones(12), "toks": {}}])
    assert index.concepts == [] and len(index.sparse()(queries)) == 0
    assert list(index.fused()(queries)["docno"]) == ["a"] * 7
    assert index.toks_loader()(pd.DataFrame({"docno": ["a"]}))["toks"].iloc[0] == {}


def test_created_once_and_overwritten_on_request(tmp_path, make_docs):
    index = GraspIndex(tmp_path / "i", verbose=False)
    (tmp_path / "i").mkdir()
    (tmp_path / "i" / "notes.txt").write_text("mine")
    index.index(make_docs(5))
    assert index.index(index.missing(make_docs(5))) is index  # nothing to do
    for action in (lambda: index.index(make_docs(5)), lambda: index.add_arrays(["a"], np.ones((1, 2)))):
        with pytest.raises(FileExistsError, match="finished index"):
            action()
    assert index.indexer(mode="overwrite").index(make_docs(3, model="other")) is index
    assert len(index) == 3 and index.doc_model == "other"
    index.indexer(mode="overwrite").index([{"docno": "x", "toks": {"c": 1}}])
    assert not (tmp_path / "i" / "dense.f4").exists()
    assert (tmp_path / "i" / "notes.txt").read_text() == "mine"


def test_error_keeps_what_was_encoded(tmp_path, make_docs):
    def corpus():
        yield from make_docs(20)
        raise RuntimeError("the encoder ran out of memory")

    index = GraspIndex(tmp_path / "i", verbose=False)
    with pytest.raises(RuntimeError, match="out of memory"):
        index.index(corpus())
    assert not index.built()
    assert [d["docno"] for d in index.missing(make_docs(22))] == ["d20", "d21"]


GOOD = {"docno": "good", "doc_vec": np.ones(3), "toks": {"a": 1.0}}
BAD = [
    ({"docno": 7, "doc_vec": np.ones(3), "toks": {}}, "docno must be a str, got 7"),
    ({"docno": "", "doc_vec": np.ones(3), "toks": {}}, "docno must be non-empty"),
    ({"docno": "a\nb", "doc_vec": np.ones(3), "toks": {}}, "line breaks"),
    ({"doc_vec": np.ones(3), "toks": {}}, "no 'docno'"),
    (GOOD, "duplicate docno 'good'"),
    ({**GOOD, "docno": "x", "doc_vec": np.array([1, np.nan, 1])}, "'x' holds NaN"),
    ({**GOOD, "docno": "x", "doc_vec": np.array([1, 1e300, 1])}, "'x' holds NaN or infinite"),
    ({**GOOD, "docno": "x", "doc_vec": np.ones(4)}, "'x' has 4 dimensions.*have 3"),
    ({**GOOD, "docno": "x", "doc_vec": np.ones((1, 3))}, "'x' must be one-dimensional"),
    ({**GOOD, "docno": "x", "doc_vec": "abc"}, "'x' is not an array"),
    ({**GOOD, "docno": "x", "toks": {"a": -0.5}}, "'x': weight of 'a' is -0.5"),
    ({**GOOD, "docno": "x", "toks": {"a": 1.0, "b": float("nan")}}, "'x': weight of 'b' is nan"),
    ({**GOOD, "docno": "x", "toks": {3: 1.0}}, "'x': concept names must be non-empty strings, got 3"),
    ({**GOOD, "docno": "x", "toks": {"a": "high"}}, "'x' holds weights that are not numbers"),
    ({**GOOD, "docno": "x", "toks": ["a"]}, "'x' must be a dict"),
    ({"docno": "x", "toks": {}}, "'x' has no doc_vec"),
    ({"docno": "x", "doc_vec": np.ones(3)}, "'x' has no toks"),
    ({"docno": "x", "path": "x.jpg"}, "'x' has neither"),
    ({**GOOD, "docno": "x", "doc_model": "B"}, "'x' comes from model 'B'.*'A'"),
]


@pytest.mark.parametrize(("doc", "message"), BAD)
def test_bad_document(tmp_path, doc, message):
    index = GraspIndex(tmp_path / "i", verbose=False)
    with pytest.raises(ValueError, match=message):
        index.index([{**GOOD, "doc_model": "A"}, doc])
    assert not index.built()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"docnos": ["a", "a"], "dense": np.ones((2, 2))}, "duplicate docno 'a'"),
        ({"docnos": ["a"], "dense": np.ones((2, 2))}, "shape"),
        ({"docnos": ["a"]}, "give dense"),
        ({"docnos": [], "dense": np.ones((0, 2))}, "no documents"),
        ({"docnos": ["a", "b"], "dense": np.array([[1, 2], [np.inf, 1]])}, "document 'b'"),
        ({"docnos": ["a"], "sparse": sparse.csr_array([[1.0]])}, "names"),
        ({"docnos": ["a"], "sparse": sparse.csr_array([[1.0, 1.0]]), "names": ["x", "x"]}, "twice"),
        ({"docnos": ["a"], "sparse": sparse.csr_array([[-1.0]]), "names": ["x"]}, ">= 0"),
        ({"docnos": [1], "dense": np.ones((1, 2))}, "must be a str"),
    ],
)
def test_bad_arrays(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        GraspIndex(tmp_path / "i", verbose=False).add_arrays(**arguments)


def test_no_documents(tmp_path):
    with pytest.raises(ValueError, match="no documents"):
        GraspIndex(tmp_path / "i", verbose=False).index([])


def test_not_built_damaged_or_foreign(tmp_path, make_docs, queries):
    with pytest.raises(FileNotFoundError, match="there is no index"):
        GraspIndex(tmp_path / "i").dense()(queries)
    index = GraspIndex(tmp_path / "i", verbose=False).index(make_docs(9))
    with open(tmp_path / "i" / "dense.f4", "r+b") as file:
        file.truncate(100)
    index.close()
    with pytest.raises(ValueError, match="dense.f4 has 100 bytes, expected 432"):
        index.dense()(queries)
    (tmp_path / "i" / "dense.f4").unlink()
    with pytest.raises(FileNotFoundError, match="dense.f4 is missing"):
        index.dense()(queries)
    meta = tmp_path / "i" / "pt_meta.json"
    meta.write_text(json.dumps({**json.loads(meta.read_text()), "version": 99}))
    with pytest.raises(ValueError, match="newer pyterrier-grasp"):
        len(index)
    meta.write_text(json.dumps({"type": "dense_index", "format": "flex"}))
    with pytest.raises(ValueError, match="dense_index.flex"):
        len(index)


def test_import_brings_no_torch():
    code = "import sys, pyterrier_grasp.index; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
