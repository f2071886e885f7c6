import json

import pandas as pd
import pytest


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
