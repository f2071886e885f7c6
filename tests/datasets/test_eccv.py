"""ECCV Caption and Crisscrossed Captions as qrels; the counts are those of the papers."""

import json
import sys

import ir_datasets
import pyterrier as pt
import pytest

from pyterrier_grasp.datasets import catalog, eccv
from pyterrier_grasp.datasets.i2t import image_to_text
from pyterrier_grasp.datasets.karpathy import KarpathyFile, dataset

COUNTS = {  # queries, positives, most positives of a query
    ("eccv", False): (1332, 11279, 19),
    ("eccv", True): (1261, 22550, 48),
    ("cxc", False): (24972, 35585, 8),
    ("cxc", True): (5000, 35585, 19),
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A stand-in for the package ``eccv-caption``: ``package(name, i2t, positives)`` gives it judgements."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "eccv_caption", raising=False)
    data = tmp_path / "eccv_caption" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").write_text("raise SystemError('its code is not needed')")

    def judge(name, i2t, positives):
        direction = "image_to_caption" if i2t else "caption_to_image"
        (data / f"{name}_{direction}.json").write_text(json.dumps(positives))

    return judge


@pytest.fixture
def coco(karpathy, content):
    """Made-up annotations in COCO's form: test images 1001 to 1003 with captions 10, 11, 20, 21, 30, 31."""
    annotations, _ = karpathy(content(["train", "test", "test", "test"], coco=True))

    def find(dataset_id, files):
        return [f"/photos/{name}" for _, name in files]

    test = dataset("coco", "test", KarpathyFile(annotations), find)
    return {False: test, True: image_to_text(test)}


@pytest.mark.parametrize(("name", "i2t"), COUNTS)
def test_published_counts(name, i2t):
    pytest.importorskip("eccv_caption")
    queries, positives, most = COUNTS[name, i2t]
    qrels = pt.get_dataset(f"irds:coco/test/{name}{'/i2t' if i2t else ''}").get_qrels()
    assert not qrels.duplicated(["qid", "docno"]).any() and (qrels["label"] == 1).all()
    sizes = qrels.groupby("qid").size()
    assert (len(sizes), len(qrels), sizes.max()) == (queries, positives, most)
    assert ir_datasets.load(f"coco/test/{name}{'/i2t' if i2t else ''}").queries_count() == queries


def test_both_directions_of_cxc_are_the_same_pairs():
    pytest.importorskip("eccv_caption")
    there, back = (eccv.positives("cxc", i2t) for i2t in (False, True))
    assert {(c, i) for c, images in there.items() for i in images} == {(c, i) for i, caps in back.items() for c in caps}


def test_judged_captions_search_the_whole_gallery(package, coco):
    package("eccv", False, {"30": [1003, 1001], "11": [1001]})
    judged = eccv.dataset("eccv", False, coco[False])
    queries = [tuple(query) for query in judged.queries_iter()]
    assert queries == [("11", "Caption 1 of image 1."), ("30", "Caption 0 of image 3.")]
    assert [d.doc_id for d in judged.docs_iter()] == ["1001", "1002", "1003"]
    assert [(q.query_id, q.doc_id, q.relevance) for q in judged.qrels_iter()] == [
        ("30", "1003", 1),
        ("30", "1001", 1),
        ("11", "1001", 1),
    ]
    assert judged.qrels_count() == 3 and judged.queries_count() == 2


def test_judged_images_search_all_captions(package, coco):
    package("cxc", True, {"1002": [20, 21, 31]})
    judged = eccv.dataset("cxc", True, coco[True])
    (query,) = judged.queries_iter()
    assert query == ("1002", "/photos/COCO_val2014_000000000002.jpg", "COCO_val2014_000000000002.jpg")
    assert [d.doc_id for d in judged.docs_iter()] == ["10", "11", "20", "21", "30", "31"]
    assert [(q.query_id, q.doc_id) for q in judged.qrels_iter()] == [("1002", c) for c in ("20", "21", "31")]


def test_annotations_with_other_ids(package, coco):
    package("eccv", False, {"30": [1003], "77": [1001]})
    judged = eccv.dataset("eccv", False, coco[False])
    with pytest.raises(ValueError, match=r"lack 1 of the queries that eccv has judgements for, such as \['77'\]"):
        list(judged.queries_iter())


@pytest.mark.parametrize("name", ["eccv", "cxc", "eccv/i2t"])
def test_without_the_package(monkeypatch, name):
    monkeypatch.setattr(eccv, "find_spec", lambda package: None)
    judged = catalog.build("coco", f"test/{name}")  # building needs nothing
    for ask in (judged.qrels_iter, judged.queries_iter):
        with pytest.raises(ImportError, match=r"needs the extra 'eccv': pip install 'pyterrier-grasp\[eccv\]'"):
            list(ask())
