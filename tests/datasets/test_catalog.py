import hashlib
import json
import subprocess
import sys
import threading
import zipfile
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import ir_datasets
import pyterrier as pt
import pytest
from PIL import Image

import pyterrier_grasp as ptg
from pyterrier_grasp.datasets import catalog, files


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty $IR_DATASETS_HOME, and no annotations remembered from other tests."""
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("IR_DATASETS_DL_TRIES", "1")
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(catalog, "_READERS", {})
    return tmp_path / "home"


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A local server in place of every public address of downloads.json."""
    folder = tmp_path / "server"
    folder.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=http.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{http.server_port}"
    content = json.loads(json.dumps(files.downloads()))
    for entries in content.values():
        for entry in entries.values():
            if "url" in entry:
                entry["url"] = f"{address}/{entry['url'].rsplit('/')[-1]}"
    monkeypatch.setattr(files, "downloads", lambda: content)
    yield folder, content
    http.shutdown()
    http.server_close()


def use_counts(monkeypatch, top, counts):
    monkeypatch.setitem(catalog.CATALOG, top, replace(catalog.CATALOG[top], counts=counts))


COCO = ["train"] * 3 + ["restval"] * 2 + ["val", "test"]
COCO_COUNTS = {"train": 3, "restval": 2, "val": 1, "test": 1}


def put_annotations(home, top, content):
    (home / top).mkdir(parents=True, exist_ok=True)
    (home / top / f"dataset_{top}.json").write_text(json.dumps(content))


def test_names():
    captions = {
        *("coco/train", "coco/train-norestval", "coco/val", "coco/test", "coco/test/eccv", "coco/test/cxc"),
        *(f"{top}/{split}" for top in ("flickr30k", "flickr8k", "scenes") for split in ("train", "val", "test")),
    }
    names = catalog.names()
    assert len(names) == len(set(names))
    assert set(names) == {"coco", "flickr30k", "flickr8k", "scenes", *captions, *(f"{name}/i2t" for name in captions)}


def test_published_sizes():
    assert catalog.CATALOG["coco"].counts["train"] + catalog.CATALOG["coco"].counts["restval"] == 113_287


def test_building_reads_nothing(home):
    for name in catalog.names():
        top, _, split = name.partition("/")
        assert catalog.build(top, split or None).has_docs()
    assert not home.exists()


@pytest.mark.parametrize(
    "name",
    ["coco/vol", "flickr8k/train-norestval", "scenes/dev", "coco/i2t", "coco/val/eccv", "scenes/test/i2t/i2t"],
)
def test_unknown_split(name):
    with pytest.raises(KeyError, match="has no split .*; it has train"):
        ir_datasets.load(name)


def test_coco_train_has_restval(home, monkeypatch, content):
    put_annotations(home, "coco", content(COCO, coco=True))
    use_counts(monkeypatch, "coco", COCO_COUNTS)
    counts = {s: catalog.build("coco", s).docs_count() for s in catalog.CATALOG["coco"].splits}
    assert counts == {"train": 5, "train-norestval": 3, "val": 1, "test": 1}
    assert [q.doc_id for q in catalog.build("coco", "val").qrels_iter()] == ["1005", "1005"]


def test_another_file_under_a_known_name(home, content):
    put_annotations(home, "flickr30k", content(["train", "test"]))
    with pytest.raises(ValueError, match="not the usual file of flickr30k.*29000"):
        list(catalog.build("flickr30k", "test").queries_iter())


def test_images_on_request_come_with_instructions(home, monkeypatch, content):
    put_annotations(home, "flickr30k", content(["train", "test", "test"]))
    use_counts(monkeypatch, "flickr30k", {"train": 1, "test": 2})
    dataset = catalog.build("flickr30k", "test")
    assert len(list(dataset.queries_iter())) == 4
    with pytest.raises(FileNotFoundError, match="expected 2 images in .*flickr30k/images, found 0.*on request.*link"):
        dataset.docs_iter()
    (home / "flickr30k" / "images").mkdir()
    for n in range(3):
        Image.new("RGB", (2, 2)).save(home / "flickr30k" / "images" / f"photo{n}.jpg")
    assert [d.doc_id for d in dataset.docs_iter()] == ["photo1", "photo2"]


@pytest.mark.parametrize("place", ["flickr8k", "karpathy"])
def test_captions_from_a_local_archive(home, monkeypatch, content, place):
    use_counts(monkeypatch, "flickr8k", {"train": 1, "test": 1})
    (home / place).mkdir(parents=True)
    with zipfile.ZipFile(home / place / "caption_datasets.zip", "w") as archive:
        archive.writestr("caption_datasets/dataset_flickr8k.json", json.dumps(content(["train", "test"])))
    assert len(list(catalog.build("flickr8k", "test").queries_iter())) == 2
    assert (home / "flickr8k" / "dataset_flickr8k.json").is_file()


def test_damaged_archive(home):
    (home / "flickr8k").mkdir(parents=True)
    (home / "flickr8k" / "caption_datasets.zip").write_bytes(b"no archive")
    with pytest.raises(ValueError, match="caption_datasets.zip is damaged"):
        list(catalog.build("flickr8k", "test").queries_iter())
    with zipfile.ZipFile(home / "flickr8k" / "caption_datasets.zip", "w") as archive:
        archive.writestr("other.json", "{}")
    with pytest.raises(ValueError, match="does not hold dataset_flickr8k.json"):
        list(catalog.build("flickr8k", "test").queries_iter())


def test_captions_are_downloaded(home, monkeypatch, content, server):
    use_counts(monkeypatch, "flickr8k", {"train": 1, "test": 1})
    with zipfile.ZipFile(server[0] / "caption_datasets.zip", "w") as archive:
        archive.writestr("dataset_flickr8k.json", json.dumps(content(["train", "test"])))
    assert len(list(catalog.build("flickr8k", "test").queries_iter())) == 2
    assert (home / "karpathy" / "caption_datasets.zip").is_file()


def test_download_fails_with_what_to_do(home, server):
    with pytest.raises(FileNotFoundError, match="could not be downloaded.*Put dataset_coco.json.*into .*coco"):
        list(catalog.build("coco", "test").queries_iter())
    assert not (home / "karpathy" / "caption_datasets.zip").exists()


def zip_images(path, content, folder):
    with zipfile.ZipFile(path, "w") as archive:
        for image in content["images"]:
            if image["filepath"] == folder:
                archive.writestr(f"{folder}/{image['filename']}", b"pixels")
    return hashlib.md5(path.read_bytes()).hexdigest()


def test_coco_images_are_downloaded_where_missing(home, monkeypatch, content, server):
    data = content(COCO, coco=True)
    put_annotations(home, "coco", data)
    use_counts(monkeypatch, "coco", COCO_COUNTS)
    folder, downloads = server
    for name in ("train2014", "val2014"):
        downloads["coco"][name]["size_hint"] = 1000
        downloads["coco"][name]["expected_md5"] = zip_images(folder / f"{name}.zip", data, name)
    assert len(list(catalog.build("coco", "test").docs_iter())) == 1
    assert not (home / "coco" / "images" / "train2014").exists()  # not needed for the test split
    assert len(list(catalog.build("coco", "train").docs_iter())) == 5
    assert sorted(p.name for p in (home / "coco" / "images").iterdir()) == ["train2014", "val2014"]


def test_a_users_incomplete_folder_is_reported_not_filled(home, monkeypatch, content, server):
    put_annotations(home, "coco", content(COCO, coco=True))
    use_counts(monkeypatch, "coco", COCO_COUNTS)
    (home / "coco" / "images" / "val2014").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="expected 1 images in .*coco/images, found 0.*train2014 and val2014"):
        catalog.build("coco", "test").docs_iter()


def test_wrong_checksum_leaves_nothing(home, monkeypatch, content, server):
    data = content(COCO, coco=True)
    put_annotations(home, "coco", data)
    use_counts(monkeypatch, "coco", COCO_COUNTS)
    server[1]["coco"]["val2014"]["size_hint"] = 1000
    zip_images(server[0] / "val2014.zip", data, "val2014")
    with pytest.raises(Exception, match=r"(?i)md5|hash"):
        catalog.build("coco", "test").docs_iter()
    assert not (home / "coco" / "images" / "val2014").exists()


def test_scenes_captions_need_no_images(home):
    dataset = pt.get_dataset("irds:scenes/val")
    topics, qrels = dataset.get_topics(), dataset.get_qrels()
    assert len(topics) == len(qrels) == 2500
    assert topics["qid"].is_unique and (qrels["label"] == 1).all()
    assert qrels["docno"].nunique() == 500
    assert not home.exists()


def test_scenes_documents(tmp_path, monkeypatch):
    from pyterrier_grasp.datasets import scenes

    def materialise(split, verbose=False):
        assert split == "val"
        return tmp_path

    monkeypatch.setattr(scenes, "materialise", materialise)
    docs = list(catalog.build("scenes", "val").docs_iter())
    assert len(docs) == 500
    assert docs[7] == ("val-000007", str(tmp_path / "val-000007.png"))


def run_python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_provider_works_without_an_import():
    result = run_python(
        "import pyterrier as pt\n"
        "d = pt.get_dataset('grasp:scenes/test')\n"
        "print(len(d.get_topics()), d.get_topics_lang())"
    )
    assert result.stdout.split() == ["2500", "en"], result.stderr


def test_provider_names_what_there_is():
    with pytest.raises(KeyError, match="grasp:nothing") as error:
        pt.get_dataset("grasp:nothing")
    assert "flickr30k/test" in str(error.value.__cause__)
    assert "grasp:coco/val" in set("grasp:" + name for name in catalog.names())


def test_import_is_light():
    result = run_python(
        "import sys, pyterrier_grasp\n"
        "print([m for m in ('torch', 'transformers', 'pandas', 'scipy', 'pyterrier', 'PIL') if m in sys.modules])"
    )
    assert result.stdout.strip() == "[]", result.stderr


def test_register_twice():
    before = len(ir_datasets.registry._patterns)
    ptg.datasets.register()
    assert len(ir_datasets.registry._patterns) == before
