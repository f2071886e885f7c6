"""A toy corpus of rendered scenes and an untrained toy backbone, both written once a session; no network."""

import json
import os
import tempfile
from pathlib import Path

# Read when the libraries are imported, so they come before any of them.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("IR_DATASETS_HOME", tempfile.mkdtemp(prefix="grasp-tests-"))
os.environ["PYTERRIER_HOME"] = tempfile.mkdtemp(prefix="grasp-tests-")

from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from transformers import BertConfig, BertModel, BertTokenizer, ViTConfig, ViTModel

from experiments.chat_server import RunningServer
from pyterrier_grasp.backbones import ComposedBackbone
from pyterrier_grasp.concepts import ConceptSpace, TripletFile
from pyterrier_grasp.datasets import scenes
from pyterrier_grasp.training import GraspTrainer


class FrameDataset:
    """The part of a PyTerrier dataset that building and training use, over frames."""

    def __init__(self, topics, qrels, docs):
        self.topics, self.qrels, self.docs = topics, qrels, docs

    def get_topics(self):
        return self.topics

    def get_qrels(self):
        return self.qrels

    def get_corpus_iter(self, verbose=False):
        return iter(self.docs)


def toy_split(folder, scenes_, name):
    topics, qrels, docs = [], [], []
    for scene in scenes_:
        docno = f"{name}-{scene.docno}"
        path = folder / f"{docno}.png"
        scenes.render(scene).resize((32, 32)).save(path)
        docs.append({"docno": docno, "path": str(path)})
        for caption in scene.captions:
            topics.append({"qid": f"{name}-{caption.qid}", "query": caption.text})
            qrels.append({"qid": f"{name}-{caption.qid}", "docno": docno, "label": 1})
    return FrameDataset(pd.DataFrame(topics), pd.DataFrame(qrels), docs)


@pytest.fixture(scope="session")
def toy(tmp_path_factory):
    """``.train`` (24 scenes), ``.val`` (8), ``.test`` (8), ``.triplets`` (a file) and ``.space``."""
    folder = tmp_path_factory.mktemp("toy")
    made = list(scenes.generate("pretrain", 40))
    parts = {"train": made[:24], "val": made[24:32], "test": made[32:]}
    triplets = folder / "triplets.jsonl"
    with triplets.open("w", encoding="utf-8") as out:
        for name, part in parts.items():
            for scene in part:
                for caption in scene.captions:
                    row = {
                        "sentid": f"{name}-{caption.qid}",
                        "imgid": f"{name}-{scene.docno}",
                        "triplets": [list(triplet) for triplet in caption.triplets],
                    }
                    out.write(json.dumps(row) + "\n")
    splits = {name: toy_split(folder, part, name) for name, part in parts.items()}
    space = ConceptSpace.build(splits["train"], TripletFile(triplets), folder / "toy.concepts")
    return SimpleNamespace(**splits, triplets=triplets, space=space, folder=folder)


@pytest.fixture(scope="session")
def toy_backbone(tmp_path_factory, toy):
    """A random ViT (32 px, 17 states) and a random BERT over the words of the toy captions."""
    folder = tmp_path_factory.mktemp("toy-backbone")
    words = sorted({word for split in (toy.train, toy.val) for text in split.topics["query"] for word in text.split()})
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    torch.manual_seed(0)
    ViTModel(ViTConfig(image_size=32, patch_size=8, **small)).save_pretrained(folder / "image")
    settings = {"size": {"height": 32, "width": 32}, "image_mean": [0.5] * 3, "image_std": [0.25] * 3, "resample": 3}
    (folder / "image" / "preprocessor_config.json").write_text(json.dumps(settings))
    BertModel(BertConfig(vocab_size=len(vocabulary), **small)).save_pretrained(folder / "text")
    (folder / "text" / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    BertTokenizer.from_pretrained(folder / "text", model_max_length=32).save_pretrained(folder / "text")
    return ComposedBackbone(
        image=str(folder / "image"),
        text=str(folder / "text"),
        embed_dim=16,
        image_pool="mean",
        text_pool="mean",
        device="cpu",
    )


@pytest.fixture(scope="session")
def toy_cache(tmp_path_factory):
    """Folder of token states shared by all trainings of the session."""
    return tmp_path_factory.mktemp("token_states")


@pytest.fixture(scope="session")
def fit(toy, toy_backbone, toy_cache):
    """``fit(**arguments)`` trains on the toy corpus in about a second; returns the trainer."""

    def run(validate=True, **arguments):
        settings = {
            "method": "grasp",
            "epochs": 2,
            "batch_size": 20,
            "seed": 3,
            "verbose": False,
            "device": "cpu",
            "learning_rate": 1e-3,
            "cache_dir": toy_cache,
        } | arguments
        space = settings.pop("space", toy.space if settings["method"] == "grasp" else None)
        valid = (toy.val.topics, toy.val.qrels) if validate else (None, None)
        trainer = GraspTrainer(toy_backbone, space, **settings)
        return trainer.fit(toy.train.topics, toy.train.qrels, *valid, corpus=[toy.train, toy.val])

    return run


@pytest.fixture(scope="session")
def toy_model(fit):
    """A GRASP model trained for two epochs."""
    return fit().model


@pytest.fixture(scope="session")
def toy_dense_model(fit):
    """A dense model trained for two epochs."""
    return fit(method="dense").model


@pytest.fixture
def shared():
    """Folder of the real photos; a test that asks for it is skipped where there is none."""
    root = Path(os.environ.get("GRASP_SHARED", Path(__file__).parents[2] / "shared"))
    if not root.is_dir():
        pytest.skip("no shared data (set GRASP_SHARED)")
    return root


@pytest.fixture(autouse=True)
def no_network_in_schematics(monkeypatch):
    """PyTerrier looks the help page of a transformer up on the network when it draws one."""
    monkeypatch.setattr("pyterrier.documentation.url_for_class", lambda *args, **kwargs: None)


@pytest.fixture(scope="session")
def chat_server():
    """The loopback chat server, in a process of its own."""
    with RunningServer() as running:
        yield running
