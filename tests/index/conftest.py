"""A small random corpus and index, and a stand-in for a model."""

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_grasp.index import GraspIndex

DIM = 12
CONCEPTS = [f"entity:c {i}" for i in range(30)]


def make_docs(n, seed=0, model="model-a"):
    rng = np.random.default_rng(seed)
    docs = []
    for i in range(n):
        vec = rng.normal(size=DIM).astype(np.float32)
        chosen = rng.choice(len(CONCEPTS), size=rng.integers(0, 8), replace=False)
        toks = {CONCEPTS[c]: float(np.float32(rng.random() + 0.01)) for c in chosen}
        docs.append({"docno": f"d{i}", "doc_vec": vec / np.linalg.norm(vec), "toks": toks, "doc_model": model})
    return docs


def make_queries(n, seed=1, model="model-a"):
    docs = make_docs(n, seed)
    return pd.DataFrame(
        {
            "qid": [f"q{i}" for i in range(n)],
            "query": [f"text {i}" for i in range(n)],
            "query_vec": [doc["doc_vec"] for doc in docs],
            "query_toks": [doc["toks"] for doc in docs],
            "query_model": [model] * n,
        }
    )


class FakeConceptEncoder(pt.Transformer):
    """Encodes ``text i`` to the toks of query i, and counts the texts it sees."""

    def __init__(self, table):
        self.table = table
        self.seen = []

    def transform(self, inp):
        pt.validate.query_frame(inp, extra_columns=["query"], context=self)
        self.seen += list(inp["query"])
        return inp.assign(query_toks=[self.table[q] for q in inp["query"]])


class FakeModel:
    """The part of a model that the fuser needs."""

    def __init__(self, queries, fingerprint="model-a"):
        self.fingerprint = fingerprint
        self.encoder = FakeConceptEncoder(dict(zip(queries["query"], queries["query_toks"], strict=True)))

    def concept_encoder(self):
        return self.encoder


@pytest.fixture(scope="session", name="make_docs")
def make_docs_fixture():
    """``make_docs(n, seed=0, model="model-a")``: documents from an encoder that does not exist."""
    return make_docs


@pytest.fixture(scope="session", name="make_queries")
def make_queries_fixture():
    """``make_queries(n, seed=1, model="model-a")``: an encoded query frame."""
    return make_queries


@pytest.fixture(scope="session", name="fake_model")
def fake_model_fixture():
    """``fake_model(queries, fingerprint="model-a")``: something with ``concept_encoder()`` and ``fingerprint``."""
    return FakeModel


@pytest.fixture(scope="session")
def docs():
    return make_docs(60)


@pytest.fixture(scope="session")
def queries():
    return make_queries(7)


@pytest.fixture(scope="session")
def index(docs, tmp_path_factory):
    return GraspIndex(tmp_path_factory.mktemp("index") / "small", verbose=False).index(docs)


@pytest.fixture
def model(queries):
    return FakeModel(queries)
