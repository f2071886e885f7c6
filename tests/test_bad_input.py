"""What a user gets wrong, from end to end: the right answer or a clear error, and nothing lost."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from PIL import Image

import pyterrier_grasp as ptg
from pyterrier_grasp import GraspIndex, GraspTrainer


def build(path, model, docs):
    index = GraspIndex(path, verbose=False)
    (model.doc_encoder() >> index).index(docs)
    return index


@pytest.fixture(scope="module")
def index(toy, toy_model, tmp_path_factory):
    return build(tmp_path_factory.mktemp("bad-input") / "toy.index", toy_model, toy.test.docs)


@pytest.fixture(scope="module")
def pipelines(toy_model, index):
    dense = toy_model.dense_encoder() >> index.dense(num_results=100)
    sparse = toy_model.concept_encoder() >> index.sparse()
    fused = toy_model.query_encoder() >> index.fused(w=0.1)
    fuser = index.fuser(toy_model)
    return {
        "dense": dense,
        "sparse": sparse,
        "fused": fused,
        "dense % 100 >> fuser": dense % 100 >> fuser,
        "fused % 10": fused % 10,
        "compiled": (dense % 100 >> fuser % 5).compile(),
        "sum": 0.7 * fused + 0.3 * sparse,
        "loaders": dense >> index.vec_loader() >> index.toks_loader(),
        "scorer": toy_model.query_encoder() >> index.dense() >> index.scorer("fused"),
    }


def script(tmp_path, code):
    path = tmp_path / "child.py"
    path.write_text(textwrap.dedent(code))
    return [sys.executable, str(path)]


# -- images ------------------------------------------------------------------------------------------------------------


def test_missing_images_folder(toy, toy_model, tmp_path):
    images = [
        {"filename": f"{i}.png", "imgid": i, "split": "test", "sentences": [{"raw": "a red star", "sentid": i}]}
        for i in range(3)
    ]
    (tmp_path / "captions.json").write_text(json.dumps({"images": images}))
    ptg.datasets.local("bad-input", annotations=tmp_path / "captions.json", images=tmp_path / "photos")
    dataset = pt.get_dataset("irds:bad-input/test")
    assert len(dataset.get_topics()) == len(dataset.get_qrels()) == 3
    with pytest.raises(FileNotFoundError, match=r"expected 3 images in .*photos, found 0; the folder does not exist"):
        build(tmp_path / "index", toy_model, dataset.get_corpus_iter())
    (tmp_path / "photos").mkdir()
    for i, doc in enumerate(toy.test.docs[:3]):
        shutil.copy(doc["path"], tmp_path / "photos" / f"{i}.png")
    assert len(build(tmp_path / "index", toy_model, dataset.get_corpus_iter())) == 3


def test_truncated_jpeg_is_named_and_the_others_can_be_indexed(toy, toy_model, tmp_path):
    bad = tmp_path / "bad.jpg"
    noise = np.random.default_rng(0).integers(0, 255, (99, 99, 3), dtype=np.uint8)
    Image.fromarray(noise).save(bad)
    bad.write_bytes(bad.read_bytes()[:3000])
    docs = toy.test.docs
    index = GraspIndex(tmp_path / "index", verbose=False)
    with pytest.raises(ValueError, match="cannot read the image .*bad.jpg.*truncated"):
        (toy_model.doc_encoder() >> index).index([*docs[:4], {"docno": "bad", "path": str(bad)}, *docs[4:]])
    assert not index.built()
    (toy_model.doc_encoder() >> index).index(index.missing(docs))
    assert index.docnos() == [doc["docno"] for doc in docs]


def test_images_of_every_mode(toy, toy_model, tmp_path):
    image = Image.open(toy.test.docs[0]["path"]).convert("RGB")
    image.save(tmp_path / "rgb.png")
    image.convert("CMYK").save(tmp_path / "cmyk.jpg", quality=100)
    image.convert("L").save(tmp_path / "grey.png")
    image.convert("L").convert("RGB").save(tmp_path / "grey_as_rgb.png")
    image.convert("P").save(tmp_path / "palette.png", transparency=bytes([255] * 256))
    image.convert("P").convert("RGB").save(tmp_path / "palette_as_rgb.png")
    frames = {"save_all": True, "append_images": [image.rotate(90)], "duration": 9}
    image.save(tmp_path / "animated.png", **frames)
    docs = [{"docno": path.stem, "path": str(path)} for path in sorted(tmp_path.iterdir())]
    index = build(tmp_path / "index", toy_model, docs)
    vectors = dict(zip(index.docnos(), index.data.dense, strict=True))
    for one, other in (("grey", "grey_as_rgb"), ("palette", "palette_as_rgb"), ("animated", "rgb")):
        np.testing.assert_allclose(vectors[one], vectors[other], atol=1e-6)
    assert np.abs(vectors["cmyk"] - vectors["rgb"]).max() < 0.2  # a JPEG of other colours, not another picture
    assert np.abs(vectors["grey"] - vectors["rgb"]).max() > 1e-4


# -- captions and topics -----------------------------------------------------------------------------------------------

ODD_CAPTIONS = ["", " \n", "star " * 500, "🐶 étoile ✨", "half a pair \ud83d"]


def test_odd_captions_as_queries_and_in_training(toy, toy_backbone, pipelines, tmp_path):
    topics = pd.DataFrame({"qid": list("01234"), "query": ODD_CAPTIONS})
    assert pipelines["fused"](topics)["qid"].nunique() == 5
    train = toy.train.topics.copy()
    train.loc[train.index[:5], "query"] = ODD_CAPTIONS
    trainer = GraspTrainer(
        toy_backbone, toy.space, epochs=1, batch_size=20, cache_dir=tmp_path, verbose=False, device="cpu"
    )
    trainer.fit(train, toy.train.qrels, corpus=toy.train)
    vectors, _ = trainer.model.encode_texts(ODD_CAPTIONS)
    assert np.isfinite(vectors).all()
    with pytest.raises(ValueError, match="captions must be strings"):
        trainer.fit(train.assign(query=None), toy.train.qrels, corpus=toy.train)


PIPELINES = ["dense", "sparse", "fused", "dense % 100 >> fuser", "fused % 10", "compiled", "sum", "loaders", "scorer"]


@pytest.mark.parametrize("name", PIPELINES)
def test_no_topics_one_topic_and_numeric_qids(pipelines, toy, name):
    pipeline, topics = pipelines[name], toy.test.topics.head(2)
    full = pipeline(topics)
    empty = pipeline(topics.head(0))
    assert len(empty) == 0 and list(empty.columns) == list(full.columns)
    assert empty.dtypes.to_dict() == full.dtypes.to_dict()
    numbered = pipeline(topics.assign(qid=[7, 11]))
    assert numbered["docno"].tolist() == full["docno"].tolist() and set(numbered["qid"]) == {7, 11}
    with pytest.raises(ValueError, match="query"):
        pipeline(topics.assign(query=["a star", None]))


def test_experiment_without_topics_is_pyterriers_error(pipelines, toy):
    with pytest.raises(ValueError, match="no overlap"):
        pt.Experiment([pipelines["fused"]], toy.test.topics.head(0), toy.test.qrels, ["recip_rank"])


def test_query_without_an_active_concept(index, toy_model):
    query = toy_model.dense_encoder()(pd.DataFrame({"qid": ["1"], "query": ["a star"]})).assign(query_toks=[{}])
    dense = index.dense()(query)
    assert len(index.sparse()(query)) == 0
    for results in (index.fused()(query), index.fuser()(dense)):
        assert results["docno"].tolist() == dense["docno"].tolist()
        assert results["score"].tolist() == dense["score"].tolist()


# -- index -------------------------------------------------------------------------------------------------------------


def test_docnos_twice_or_unknown(toy, toy_model, pipelines, index, tmp_path):
    docs = toy.test.docs
    with pytest.raises(ValueError, match=f"duplicate docno '{docs[0]['docno']}'"):
        build(tmp_path / "index", toy_model, [*docs, docs[0]])
    results = pipelines["dense"](toy.test.topics.head(1))
    results.loc[2, "docno"] = "nowhere"
    with pytest.raises(KeyError, match="'nowhere' is not in the index"):
        index.fuser(toy_model)(results)
    fused = index.fuser(toy_model, missing="zero")(results).set_index("docno")
    assert fused["score"]["nowhere"] == results["score"][2] and fused["score"].notna().all()


def test_k_larger_than_the_corpus(pipelines, toy):
    assert len(pipelines["fused"](toy.test.topics.head(1))) == len(toy.test.docs) < 1000


def test_another_model_cannot_search_fuse_or_append(toy, toy_model, fit, index, pipelines, tmp_path):
    topics, docs = toy.test.topics.head(2), toy.test.docs
    other_model = fit(seed=4, validate=False).model
    own, other = toy_model.fingerprint, other_model.fingerprint
    for retriever in (index.dense(), index.sparse(), index.fused()):
        with pytest.raises(ValueError, match=f"{other}.*{own}"):
            (other_model.query_encoder() >> retriever)(topics)
    with pytest.raises(ValueError, match=f"{other}.*{own}"):
        index.fuser(other_model)(pipelines["dense"](topics).drop(columns="query_model"))
    half = GraspIndex(tmp_path / "half", verbose=False)
    stored = list(toy_model.doc_encoder().transform_iter(docs[:4]))
    with pytest.raises(ValueError, match="neither"):
        half.index([*stored, {"docno": "no vector"}])
    with pytest.raises(ValueError, match=f"comes from model '{other}'.*'{own}'"):
        (other_model.doc_encoder() >> half).index(half.missing(docs))
    (toy_model.doc_encoder() >> half).index(half.missing(docs))
    assert half.docnos() == [doc["docno"] for doc in docs]


def test_every_missing_or_truncated_file_of_an_index_is_named(index, pipelines, toy, toy_model, tmp_path):
    names = [path.name for path in index.path.iterdir()]
    assert len(names) >= 10
    for name in names:
        for damage in ("missing", "truncated"):
            copy = tmp_path / damage / name
            shutil.copytree(index.path, copy)
            if damage == "missing":
                (copy / name).unlink()
            else:
                os.truncate(copy / name, (copy / name).stat().st_size // 2)
            damaged = GraspIndex(copy, verbose=False)
            words = "no index" if (name, damage) == ("pt_meta.json", "missing") else f"{name}.*damage"
            with pytest.raises((FileNotFoundError, ValueError), match=words):
                (toy_model.query_encoder() >> damaged.fused())(toy.test.topics.head(1))


KILLED = """
import json, os, signal, sys
from pyterrier_grasp import GraspIndex, GraspModel

folder = sys.argv[1]
model, docs, seen = GraspModel.load(f"{folder}/model", device="cpu"), json.load(open(f"{folder}/docs.json")), 0
encode = model.encode_images

def encode_or_die(images, **options):
    global seen
    seen += len(images)
    if seen > 150:
        os.kill(os.getpid(), signal.SIGKILL)
    return encode(images, **options)

model.encode_images = encode_or_die
index = GraspIndex(f"{folder}/index", verbose=False)
(model.doc_encoder(batch_size=10) >> index.indexer(shard_size=50)).index(index.missing(docs))
"""


def test_killed_in_the_middle_and_resumed_with_a_real_model(toy, toy_model, tmp_path, monkeypatch):
    toy_model.save(tmp_path / "model")
    docs = []
    for i in range(250):
        path = tmp_path / f"{i}.png"
        shutil.copy(toy.test.docs[i % 8]["path"], path)
        docs.append({"docno": str(i), "path": str(path)})
    (tmp_path / "docs.json").write_text(json.dumps(docs))
    killed = subprocess.run([*script(tmp_path, KILLED), str(tmp_path)], capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    index = GraspIndex(tmp_path / "index", verbose=False)
    with pytest.raises(FileNotFoundError, match="stored 100 documents"):
        index.docnos()
    encoded, encode = [], toy_model.encode_images
    monkeypatch.setattr(toy_model, "encode_images", lambda images, **k: encoded.extend(images) or encode(images, **k))
    (toy_model.doc_encoder() >> index).index(index.missing(docs))
    assert encoded == [doc["path"] for doc in docs[100:]]
    whole = build(tmp_path / "whole", toy_model, docs)
    assert index.docnos() == whole.docnos()
    np.testing.assert_allclose(index.data.dense, whole.data.dense, atol=1e-6)


def test_two_processes_cannot_write_one_index(tmp_path):
    slow = """
    import sys
    from pyterrier_grasp import GraspIndex

    def docs():
        yield {"docno": "a", "doc_vec": [1.0, 0.0]}
        print("started", flush=True)
        sys.stdin.readline()
        yield {"docno": "b", "doc_vec": [0.0, 1.0]}

    GraspIndex(sys.argv[1], verbose=False).index(docs())
    """
    run = [*script(tmp_path, slow), str(tmp_path / "index")]
    index = GraspIndex(tmp_path / "index", verbose=False)
    with subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout.readline() == "started\n"
        for mode in ("create", "overwrite"):
            with pytest.raises(RuntimeError, match="another process is writing the index"):
                index.indexer(mode).index([{"docno": "c", "doc_vec": [1.0, 1.0]}])
        with pytest.raises(RuntimeError, match="another process"):
            index.add_arrays(["c"], np.ones((1, 2)))
        first.communicate("\n")
    assert first.returncode == 0 and index.docnos() == ["a", "b"]
    assert not [path.name for path in (tmp_path / "index").iterdir() if "lock" in path.name]
