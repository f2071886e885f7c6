import json
from dataclasses import replace

import pandas as pd
import pytest

from pyterrier_grasp.llm import Answer, Usage
from pyterrier_grasp.llm.prices import Estimate


class FakeDataset:
    """The two frames that concepts need, from ``{docno: {qid: triplets}}``."""

    def __init__(self, images):
        self.images = images

    def get_topics(self):
        qids = [qid for texts in self.images.values() for qid in texts]
        return pd.DataFrame({"qid": qids, "query": [f"caption {qid}" for qid in qids]}, dtype=str)

    def get_qrels(self):
        pairs = [(qid, docno, 1) for docno, texts in self.images.items() for qid in texts]
        return pd.DataFrame(pairs, columns=["qid", "docno", "label"])


class FakeExtractor:
    """Yields the triplets that a fake dataset was made with."""

    def extract(self, dataset):
        for docno, texts in dataset.images.items():
            for qid, triplets in texts.items():
                yield {"qid": qid, "docno": docno, "triplets": triplets}


IMAGES = {
    "snow": {"0": [("Dog", "run  in", "snow"), ("dog", "is", "brown")], "1": [("puppy", "run in", "snow")]},
    "park": {"2": [("boy", "kick", "ball"), ("boy", "run", "")], "3": [("kick", "by", "boy")]},
    "street": {"4": [("dog", "on", "street")], "5": []},
}


@pytest.fixture
def dataset():
    return FakeDataset(IMAGES)


@pytest.fixture
def extractor():
    return FakeExtractor()


@pytest.fixture
def fakes():
    return FakeDataset, FakeExtractor


@pytest.fixture
def write_rows(tmp_path):
    def write(rows, name="triplets.jsonl"):
        path = tmp_path / name
        path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows), encoding="utf-8")
        return path

    return write


class FakeClient:
    """A chat client as ``ChatClient`` documents itself, over a function instead of a network.

    ``answer(request, problem)`` gives the model's answer as a dict or JSON text, or raises an ``OSError`` for a request
    that gets none; ``problem`` is None, or what was wrong with the first answer. ``asked`` keeps the requests that
    reached the model.
    """

    model = "fake-model"

    def __init__(self, answer):
        self.answer = answer
        self.asked = []
        self.usage = Usage()
        self._kept = {}

    def ask(self, requests, *, desc="requests"):
        return [self._one(request, replace(request, id="")) for request in requests]

    def estimate(self, requests):
        distinct = {replace(request, id="") for request in requests}
        return Estimate(len(distinct), len(distinct & set(self._kept)), sum(len(r.user) for r in distinct), 0, None)

    def settings(self):
        return {"model": self.model, "temperature": 0.0}

    def _one(self, request, key):
        if key in self._kept:
            value, usage = self._kept[key]
            return Answer(request, value, cached=True, usage=usage)
        problem, usage = None, Usage()
        for _ in range(2):
            self.asked.append(request)
            try:
                raw = self.answer(request, problem)
            except OSError as error:
                return Answer(request, failure=str(error), usage=usage)
            usage += Usage(1, 100, 10, 0.5)
            try:
                raw = raw if isinstance(raw, str) else json.dumps(raw)
                value = request.schema.model_validate_json(raw)
                request.check(value)
            except ValueError as error:
                problem = str(error)
                continue
            self.usage += usage
            self._kept[key] = value, usage
            return Answer(request, value, usage=usage)
        return Answer(request, failure=problem, usage=usage)


@pytest.fixture(scope="session")
def fake_client():
    return FakeClient


class CaptionDataset:
    """A dataset from ``{docno: {qid: text}}``; a qid may stand under several images. ``paths`` are its image files."""

    def __init__(self, images, paths=None):
        self.images, self.paths = images, paths or {docno: f"/photos/{docno}.jpg" for docno in images}

    def __repr__(self):
        return "CaptionDataset()"

    def get_topics(self):
        texts = {qid: text for captions in self.images.values() for qid, text in captions.items()}
        return pd.DataFrame({"qid": list(texts), "query": list(texts.values())}, dtype=object)

    def get_qrels(self):
        pairs = [(qid, docno, 1) for docno, captions in self.images.items() for qid in captions]
        return pd.DataFrame(pairs, columns=["qid", "docno", "label"])

    def get_corpus_iter(self, verbose=True):
        return iter([{"docno": docno, "path": path} for docno, path in self.paths.items()])


@pytest.fixture(scope="session")
def caption_dataset():
    return CaptionDataset


@pytest.fixture
def chat(chat_server, tmp_path):
    """Options of a client for the loopback server, which has forgotten everything; the cache is the test's own."""
    chat_server.control(reset=True)
    return {"base_url": chat_server.url, "cache": tmp_path / "answers.sqlite", "verbose": False}
