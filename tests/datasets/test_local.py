import shutil

import ir_datasets
import pandas as pd
import pyterrier as pt
import pytest

import pyterrier_grasp as ptg


def test_frames(karpathy, content, fresh_id):
    annotations, images = karpathy(content(["train", "test", "train"]))
    ptg.datasets.local(fresh_id, annotations=annotations, images=images)
    train = pt.get_dataset(f"irds:{fresh_id}/train")
    topics = train.get_topics()
    assert list(topics.columns) == ["qid", "query"]
    assert topics["qid"].tolist() == ["0", "1", "20", "21"]
    assert topics["query"].tolist()[2] == "Caption 0 of image 2."
    qrels = train.get_qrels()
    assert qrels[["qid", "docno", "label"]].values.tolist() == [
        ["0", "photo0", 1],
        ["1", "photo0", 1],
        ["20", "photo2", 1],
        ["21", "photo2", 1],
    ]
    docs = list(train.get_corpus_iter(verbose=False))
    assert docs == [{"docno": f"photo{n}", "path": str(images / f"photo{n}.jpg")} for n in (0, 2)]
    assert [d["docno"] for d in pt.get_dataset(f"grasp:{fresh_id}").get_corpus_iter(verbose=False)] == [
        "photo0",
        "photo1",
        "photo2",
    ]


def test_counts_and_languages(karpathy, content, fresh_id):
    annotations, images = karpathy(content(["train", "test", "train"]), images=False)
    ptg.datasets.local(fresh_id, annotations=annotations, images=images)
    dataset = ir_datasets.load(f"{fresh_id}/train")
    assert (dataset.docs_count(), dataset.queries_count(), dataset.qrels_count()) == (2, 4, 4)
    assert dataset.docs_lang() == dataset.queries_lang() == "en"
    assert dataset.karpathy.imgid_to_docno == {"0": "photo0", "1": "photo1", "2": "photo2"}
    assert ir_datasets.docs_parent_id(f"{fresh_id}/train") == f"{fresh_id}/train"  # galleries differ


def test_documents_slice_and_look_up(karpathy, content, fresh_id):
    annotations, images = karpathy(content(["train"] * 6))
    ptg.datasets.local(fresh_id, annotations=annotations, images=images)
    dataset = ir_datasets.load(f"{fresh_id}/train")
    names = [d.doc_id for d in dataset.docs_iter()]
    assert [d.doc_id for d in dataset.docs_iter()[1:3]] == names[1:3]
    assert [d.doc_id for d in dataset.docs_iter()[4:]] == names[4:]
    assert dataset.docs_iter()[-1].doc_id == names[-1]
    partly_read = dataset.docs_iter()
    next(partly_read)
    assert [d.doc_id for d in partly_read[:2]] == names[:2]  # a slice counts from the start, as in ir_datasets
    assert [d.doc_id for d in partly_read] == names[1:]
    store = dataset.docs_store()
    assert store.get("photo3").path == str(images / "photo3.jpg")
    assert set(store.get_many(["photo1", "nothing"])) == {"photo1"}
    with pytest.raises(KeyError, match="nothing"):
        store.get("nothing")
    with pytest.raises(ValueError, match="path"):
        dataset.docs_store(field="path")
    pt_dataset = pt.get_dataset(f"irds:{fresh_id}/train")
    assert [d["docno"] for d in pt_dataset.get_corpus_iter(verbose=False, start=2, count=2)] == names[2:4]
    frame = pt_dataset.text_loader()(pd.DataFrame({"docno": ["photo5", "photo0"]}))
    assert frame["path"].tolist() == [str(images / "photo5.jpg"), str(images / "photo0.jpg")]


@pytest.mark.parametrize("nested", [True, False])
def test_images_in_subfolders_or_flat(karpathy, content, fresh_id, nested):
    annotations, images = karpathy(content(["train", "restval"], coco=True), nested=nested)
    ptg.datasets.local(fresh_id, annotations=annotations, images=images)
    docs = list(ir_datasets.load(f"{fresh_id}/train").docs_iter())
    folder = images / "val2014" if nested else images
    assert docs[1] == ("1001", str(folder / "COCO_val2014_000000000001.jpg"))


def test_captions_work_without_images(karpathy, content, fresh_id, tmp_path):
    annotations, _ = karpathy(content(["train"] * 4), images=False)
    ptg.datasets.local(fresh_id, annotations=annotations, images=tmp_path / "nowhere")
    dataset = pt.get_dataset(f"irds:{fresh_id}/train")
    assert len(dataset.get_topics()) == len(dataset.get_qrels()) == 8
    with pytest.raises(FileNotFoundError, match="expected 4 images in .*nowhere, found 0; the folder does not exist"):
        dataset.get_corpus_iter(verbose=False)
    with pytest.raises(FileNotFoundError, match="expected 4 images"):
        ir_datasets.load(f"{fresh_id}/train").docs_store()


def test_wrong_folder_is_counted_and_can_be_put_right(karpathy, content, fresh_id):
    annotations, images = karpathy(content(["train"] * 4))
    shutil.move(images / "photo2.jpg", images / "other.jpg")
    ptg.datasets.local(fresh_id, annotations=annotations, images=images)
    dataset = ir_datasets.load(f"{fresh_id}/train")
    with pytest.raises(FileNotFoundError, match=r"/train: expected 4 images in .*photos, found 3; .*photo2\.jpg"):
        dataset.docs_iter()
    shutil.move(images / "other.jpg", images / "photo2.jpg")
    assert len(list(dataset.docs_iter())) == 4


def test_a_file_instead_of_the_folder(karpathy, content, fresh_id):
    annotations, _ = karpathy(content(["train"]), images=False)
    ptg.datasets.local(fresh_id, annotations=annotations, images=annotations)
    with pytest.raises(FileNotFoundError, match="it is not a folder"):
        ir_datasets.load(fresh_id).docs_iter()


def test_missing_split(karpathy, content, fresh_id):
    annotations, images = karpathy(content(["train", "test"]), images=False)
    ptg.datasets.local(fresh_id, annotations=annotations, images=images)
    for split in ("val", "train-norestval", "nonsense"):
        with pytest.raises(KeyError, match=f"{fresh_id} has no split '{split}'; .* has train, test"):
            ir_datasets.load(f"{fresh_id}/{split}")


def test_registration(karpathy, content, fresh_id, tmp_path):
    annotations, images = karpathy(content(["train"]))
    ptg.datasets.local(fresh_id, annotations=annotations, images=images)
    ptg.datasets.local(fresh_id, annotations=str(annotations), images=str(images))  # the same again is fine
    with pytest.raises(ValueError, match="already registered, with the files"):
        ptg.datasets.local(fresh_id, annotations=annotations, images=tmp_path)
    with pytest.raises(FileNotFoundError, match="no caption annotations"):
        ptg.datasets.local(fresh_id + "b", annotations=tmp_path / "none.json", images=images)
    for taken in ("coco", "scenes/mine", "vaswani"):
        with pytest.raises(ValueError, match="taken"):
            ptg.datasets.local(taken, annotations=annotations, images=images)
    for malformed in ("", "a b", "a//b", "/a", "a/", "irds:x"):
        with pytest.raises(ValueError, match="no dataset id"):
            ptg.datasets.local(malformed, annotations=annotations, images=images)


def test_an_id_is_no_pattern(karpathy, content, fresh_id):
    annotations, images = karpathy(content(["train"]))
    ptg.datasets.local(f"{fresh_id}.x", annotations=annotations, images=images)
    with pytest.raises(KeyError):
        ir_datasets.load(f"{fresh_id}-x/train")


def test_flickr8k_photos(shared):
    data = shared / "data" / "flickr8k"
    ptg.datasets.local("flickr8k-shared", annotations=data / "dataset_flickr8k.json", images=data / "images")
    for split, images in (("train", 6000), ("val", 500), ("test", 500)):
        dataset = ir_datasets.load(f"flickr8k-shared/{split}")
        assert dataset.docs_count() == len(list(dataset.docs_iter())) == images
        assert dataset.queries_count() == dataset.qrels_count() == 5 * images


def test_coco_mini_photos(shared):
    data = shared / "data" / "coco_mini"
    ptg.datasets.local("coco-mini-shared", annotations=data / "dataset_coco_mini.json", images=data / "images")
    docs = list(ir_datasets.load("coco-mini-shared/test").docs_iter())
    assert len(docs) == 79
    assert docs[0] == ("397133", str((data / "images" / "000000397133.jpg").absolute()))
    with pytest.raises(KeyError, match="no split 'val'"):
        ir_datasets.load("coco-mini-shared/val")
