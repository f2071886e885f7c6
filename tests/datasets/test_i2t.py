"""Image -> text: every dataset the other way round."""

import ir_datasets
import pyterrier as pt
import pytest
from PIL import Image

import pyterrier_grasp as ptg


@pytest.fixture
def both(karpathy, content, fresh_id):
    """A dataset of three photos with two captions each, its other direction, and the folder of the photos."""
    annotations, images = karpathy(content(["train", "test", "test", "val", "test"]))
    ptg.datasets.local(fresh_id, annotations=annotations, images=images)
    return *(pt.get_dataset(f"irds:{fresh_id}/test{end}") for end in ("", "/i2t")), images


def test_frames(both):
    captions, images, folder = both
    topics = images.get_topics()
    assert topics.values.tolist() == [[f"photo{n}", str(folder / f"photo{n}.jpg"), f"photo{n}.jpg"] for n in (1, 2, 4)]
    # No text encoder takes these topics by mistake: PyTerrier's column for query texts is not there.
    assert list(topics.columns) == ["qid", "path", "filename"]
    docs = list(images.get_corpus_iter(verbose=False))
    assert docs[2:4] == [
        {"docno": "20", "text": "Caption 0 of image 2."},
        {"docno": "21", "text": "Caption 1 of image 2."},
    ]
    assert topics["path"].tolist() == [doc["path"] for doc in captions.get_corpus_iter(verbose=False)]
    asked = captions.get_topics()
    assert [(d["docno"], d["text"]) for d in docs] == list(asked.itertuples(index=False, name=None))


def test_qrels_are_the_same_pairs(both):
    captions, images, _ = both
    there, back = captions.get_qrels(), images.get_qrels()
    pairs = there[["docno", "qid", "label", "iteration"]].values.tolist()
    assert back[["qid", "docno", "label", "iteration"]].values.tolist() == pairs
    assert len(pairs) == 6 and set(back["qid"]) == set(images.get_topics()["qid"])


def test_as_an_ir_dataset(both, fresh_id):
    captions, images = both[0].irds_ref(), both[1].irds_ref()
    assert (images.docs_count(), images.queries_count(), images.docs_lang()) == (6, 3, "en")
    assert images.docs_namespace() == captions.queries_namespace()
    assert images.docs_iter()[-1].doc_id == "41"
    store = images.docs_store()
    assert store.get("20").text == "Caption 0 of image 2." and set(store.get_many(["10", "x"])) == {"10"}
    assert images.qrels_defs() == captions.qrels_defs()
    loaded = both[1].text_loader()(both[1].get_qrels().head(1))
    assert loaded["text"].tolist() == ["Caption 0 of image 1."]


def test_only_the_topics_need_the_images(karpathy, content, fresh_id):
    annotations, images = karpathy(content(["test", "test"]), images=False)
    ptg.datasets.local(fresh_id, annotations=annotations, images=images)
    dataset = pt.get_dataset(f"grasp:{fresh_id}/test/i2t")
    assert len(list(dataset.get_corpus_iter(verbose=False))) == len(dataset.get_qrels()) == 4
    with pytest.raises(FileNotFoundError, match="expected 2 images in"):
        dataset.get_topics()
    images.mkdir()
    for n in range(2):
        Image.new("RGB", (4, 4)).save(images / f"photo{n}.jpg")
    assert len(dataset.get_topics()) == 2


def test_restval_and_a_dataset_of_another_name(karpathy, content, fresh_id):
    annotations, images = karpathy(content(["train", "restval", "val"], coco=True))
    ptg.datasets.local(f"{fresh_id}/i2t", annotations=annotations, images=images)
    sizes = {
        name: ir_datasets.load(f"{fresh_id}/i2t/{name}").queries_count()
        for name in ("train", "train/i2t", "train-norestval/i2t", "val/i2t")
    }
    assert sizes == {"train": 4, "train/i2t": 2, "train-norestval/i2t": 1, "val/i2t": 1}
    with pytest.raises(KeyError, match=r"no split 'i2t'; .* has train, .*each also with /i2t"):
        ir_datasets.load(f"{fresh_id}/i2t/i2t")


def test_scenes_both_ways():
    captions, images = (pt.get_dataset(f"irds:scenes/val{end}") for end in ("", "/i2t"))
    there, back = captions.get_qrels(), images.get_qrels()
    assert there[["docno", "qid"]].values.tolist() == back[["qid", "docno"]].values.tolist()
    assert (back.groupby("qid").size() == 5).all() and back["qid"].nunique() == 500
    texts = {doc["docno"]: doc["text"] for doc in images.get_corpus_iter(verbose=False)}
    assert texts == captions.get_topics().set_index("qid")["query"].to_dict()
