import json

import pytest

from pyterrier_grasp.datasets.karpathy import KarpathyFile


def test_ids_are_stems_and_sentids(karpathy, content):
    annotations, _ = karpathy(content(["train", "test"]), images=False)
    file = KarpathyFile(annotations)
    assert [i.docno for i in file.images] == ["photo0", "photo1"]
    assert [c.qid for i in file.images for c in i.captions] == ["0", "1", "10", "11"]
    assert file.images[0].captions[0].text == "Caption 0 of image 0."
    assert file.imgid_to_docno == {"0": "photo0", "1": "photo1"}
    assert file.filename_to_docno == {"photo0.jpg": "photo0", "photo1.jpg": "photo1"}


def test_coco_ids_are_cocoids(karpathy, content):
    annotations, _ = karpathy(content(["train", "restval"], coco=True), images=False)
    file = KarpathyFile(annotations)
    assert [i.docno for i in file.images] == ["1000", "1001"]
    assert file.filename_to_docno["COCO_val2014_000000000001.jpg"] == "1001"
    assert file.imgid_to_docno["1"] == "1001"


def test_restval_belongs_to_train(karpathy, content):
    annotations, _ = karpathy(content(["train"] * 3 + ["restval"] * 2 + ["val", "test"], coco=True), images=False)
    file = KarpathyFile(annotations)
    assert {s: len(file.select(s)) for s in ("train", "train-norestval", "val", "test")} == {
        "train": 5,
        "train-norestval": 3,
        "val": 1,
        "test": 1,
    }
    assert len(file.select(None)) == 7
    assert file.public_splits() == ["train", "train-norestval", "val", "test"]


def test_missing_split_names_those_there(karpathy, content):
    annotations, _ = karpathy(content(["train", "test"]), images=False)
    with pytest.raises(KeyError, match="no split 'val'.*train.*test"):
        KarpathyFile(annotations).select("val")


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="no caption annotations at .*nothing.json"):
        _ = KarpathyFile(tmp_path / "nothing.json").images


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"images": [{"filename"', "not valid JSON"),
        ("", "not valid JSON"),
        ('[{"image": "a.jpg", "caption": "x"}]', "not in Karpathy's format"),
        ('{"images": []}', "no images"),
        ('{"images": [3]}', "image number 0: expected an object"),
    ],
)
def test_malformed_files(tmp_path, text, words):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        _ = KarpathyFile(path).images


def test_cut_off_copy_of_a_good_file(karpathy, content):
    annotations, _ = karpathy(content(["train"] * 5), images=False)
    annotations.write_bytes(annotations.read_bytes()[:-40])
    with pytest.raises(ValueError, match="incomplete copy"):
        _ = KarpathyFile(annotations).images


@pytest.mark.parametrize("field", ["filename", "imgid", "split", "sentences"])
def test_missing_image_field(tmp_path, content, field):
    data = content(["train", "train"])
    del data["images"][1][field]
    (tmp_path / "d.json").write_text(json.dumps(data))
    with pytest.raises(ValueError, match=f"image number 1: the field '{field}' is missing"):
        _ = KarpathyFile(tmp_path / "d.json").images


@pytest.mark.parametrize("field", ["raw", "sentid"])
def test_missing_sentence_field(tmp_path, content, field):
    data = content(["train"])
    del data["images"][0]["sentences"][1][field]
    (tmp_path / "d.json").write_text(json.dumps(data))
    with pytest.raises(ValueError, match=f"image number 0, sentence number 1: the field '{field}' is missing"):
        _ = KarpathyFile(tmp_path / "d.json").images


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d["images"][1].update(imgid=0), "imgid must be unique"),
        (lambda d: d["images"][1].update(filename="photo0.png"), r"image id \(docno\) must be unique.*photo0"),
        (lambda d: d["images"][1]["sentences"][0].update(sentid=0), "sentid must be unique"),
        (lambda d: d["images"][1].update(cocoid=4), "1 of 2 images have a 'cocoid'"),
        (lambda d: d["images"][1].update(split=None), "'split' has the wrong type: None"),
        (lambda d: d["images"][1].update(imgid=True), "'imgid' has the wrong type: True"),
    ],
)
def test_contradictions(tmp_path, content, change, words):
    data = content(["train", "train"])
    change(data)
    (tmp_path / "d.json").write_text(json.dumps(data))
    with pytest.raises(ValueError, match=words):
        _ = KarpathyFile(tmp_path / "d.json").images


def test_empty_and_unusual_captions_are_kept(tmp_path, content):
    data = content(["train"], captions=3)
    texts = ["", "two 🐶🐶 run", "word " * 500]
    for sentence, text in zip(data["images"][0]["sentences"], texts, strict=True):
        sentence["raw"] = text
    (tmp_path / "d.json").write_text(json.dumps(data))
    captions = KarpathyFile(tmp_path / "d.json").images[0].captions
    assert [c.text for c in captions] == ["", "two 🐶🐶 run", ("word " * 500).strip()]
