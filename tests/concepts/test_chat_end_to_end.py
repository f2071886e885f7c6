"""Extraction, refinement and description through a real client and a server on loopback."""

import json

import numpy as np
import pytest

from pyterrier_grasp.concepts import ConceptSpace
from pyterrier_grasp.concepts.extract.describe import DescribedDataset, describe, estimate_descriptions
from pyterrier_grasp.concepts.extract.llm import OpenAIExtractor
from pyterrier_grasp.concepts.mining import Cluster
from pyterrier_grasp.concepts.mining.llm_refiner import OpenAIRefiner

MODEL = "gpt-4o-mini"
IMAGES = {
    "snow": {"0": "Two dogs", "1": "A dog runs in snow"},
    "twin": {"2": "A dog runs in snow", "3": "Two dogs", "4": " "},
    "park": {"5": "собака бежит", "6": 'half \ud83d of "a" pair\n2: "x"', "7": "犬"},
}
TRIPLETS = {
    "0": [("two", "with", "dogs")],
    "1": [("a", "with", "snow")],
    "2": [("a", "with", "snow")],
    "3": [("two", "with", "dogs")],
    "4": [],
    "5": [("собака", "with", "бежит")],
    "6": [("half", "with", "x")],
    "7": [("犬", "", "犬")],
}
MANY = {f"image {n}": {f"{n}a": f"Dog {n} runs", f"{n}b": f"Snow {n}"} for n in range(200)}
CONTENT_FAULTS = ("truncated", "prose", "invented", "empty", "refusal", "length", "wrong_schema")


def by_letters(phrases):
    """An embedder that needs no model."""
    return np.array([[phrase.count(letter) for letter in "abcdefghijklmnop"] + [1] for phrase in phrases], np.float32)


def extracted(images, caption_dataset, chat, **options):
    extractor = OpenAIExtractor(MODEL, **chat, **options)
    return {row["qid"]: row["triplets"] for row in extractor.extract(caption_dataset(images))}, extractor


@pytest.mark.parametrize("rungs", [["json_schema"], ["json_object", "text"], ["text"]])
@pytest.mark.filterwarnings("ignore:.*from now on answers are asked for as")
def test_triplets_at_endpoints_of_every_kind(chat, chat_server, caption_dataset, rungs):
    chat_server.control(rungs=rungs)
    triplets, extractor = extracted(IMAGES, caption_dataset, chat)
    assert triplets == TRIPLETS
    stats = chat_server.stats()
    assert stats["requests"] == len(stats["questions"]) == 2  # the twins are asked about once
    outcome = extractor.outcome()
    assert (outcome["requests"], outcome["failures"], outcome["model"]) == (2, [], MODEL)
    assert outcome["cost"] == pytest.approx(extractor.client.usage.cost) and outcome["cost"] > 0


def test_the_answer_is_asked_for_as_a_strict_schema(chat, chat_server, caption_dataset):
    extracted(IMAGES, caption_dataset, chat)
    wanted = chat_server.stats()["last"]["response_format"]["json_schema"]
    assert wanted["strict"] is True and wanted["schema"]["additionalProperties"] is False


def test_a_second_run_asks_nothing_and_gives_the_same(chat, chat_server, caption_dataset):
    first, one = extracted(IMAGES, caption_dataset, chat)
    chat_server.control(status=500)
    second, other = extracted(IMAGES, caption_dataset, chat)
    assert first == second
    assert other.outcome() == one.outcome() | {"cached": 3} and other.client.usage.requests == 0


@pytest.mark.filterwarnings("ignore:.*requests failed")
def test_with_faults_every_image_is_extracted_or_named(chat, chat_server, caption_dataset):
    faults = dict.fromkeys(CONTENT_FAULTS, 0.05)
    chat_server.control(faults=faults)
    with pytest.warns(UserWarning, match="of 200 images failed .*no triplets"):
        triplets, extractor = extracted(MANY, caption_dataset, chat, max_failed=0.5)
    failed = {failure["docno"]: failure for failure in extractor.outcome()["failures"]}
    assert 0 < len(failed) < 40 and all(failure["reason"] for failure in failed.values())
    for docno, captions in MANY.items():
        assert all(bool(triplets[qid]) != (docno in failed) for qid in captions)
    before = chat_server.stats()["questions"]
    chat_server.control(faults={})
    mended, _ = extracted(MANY, caption_dataset, chat)
    assert all(mended.values()) and all(mended[qid] == found for qid, found in triplets.items() if found)
    again = {question for question, times in chat_server.stats()["questions"].items() if times > before[question]}
    assert len(again) == len(failed)


def test_a_long_caption_arrives_whole(chat, chat_server, caption_dataset):
    long = "schnee " * 1428 + "ende"
    assert len(long) == 10_000
    triplets, _ = extracted({"a": {"0": long}}, caption_dataset, chat)
    assert triplets == {"0": [("schnee", "with", "ende")]}
    assert long in chat_server.stats()["last"]["messages"][1]["content"]


def test_estimates_reach_no_server(chat, chat_server, caption_dataset, toy):
    extractor = OpenAIExtractor(MODEL, **chat)
    estimate = extractor.estimate(caption_dataset(IMAGES))
    assert (estimate.requests, estimate.cached) == (2, 0) and estimate.cost > 0
    assert extractor.refiner().estimate([Cluster("entity", ("dog", "dogs"))]).requests == 1
    pictures = estimate_descriptions(toy.train, model=MODEL, **chat)
    assert pictures.requests == 24 and pictures.input_tokens > 24 * 2833
    assert chat_server.stats()["requests"] == 0


def test_without_a_key(caption_dataset, tmp_path, monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    extractor = OpenAIExtractor(cache=tmp_path / "answers.sqlite", verbose=False)
    assert extractor.client.model == "gpt-4o-mini"
    assert extractor.estimate(caption_dataset(IMAGES)).requests == 2
    with pytest.raises(ValueError, match="there is no key for a chat model: set .* OPENAI_API_KEY"):
        list(extractor.extract(caption_dataset(IMAGES)))


def test_wrong_options(chat):
    with pytest.raises(ValueError, match="OpenAIExtractor: .*'concurency'"):
        OpenAIExtractor(MODEL, **chat, concurency=3)
    with pytest.raises(ValueError, match="concurrency must be"):
        OpenAIRefiner(MODEL, **chat, concurrency=0)


@pytest.mark.filterwarnings("ignore:.*requests failed")
def test_refinement(chat, chat_server):
    clusters = [
        Cluster("entity", ("hund", "犬", 'say "no"')),
        Cluster("relation", ("sit on",)),
        Cluster("entity", ("x",)),
    ]
    chat_server.control(script=["invented", "", "invented"])
    refiner = OpenAIRefiner(MODEL, **chat, concurrency=1)
    refinements = list(refiner.refine(clusters))
    assert [refinement.problem for refinement in refinements] == [None] * 3
    assert [tuple(group.canonical for group in r.groups) for r in refinements] == [c.phrases for c in clusters]
    assert refiner.outcome()["requests"] == 5
    chat_server.control(script=["invented", "invented"])
    lone = Cluster("entity", ("new", "newer"))
    (kept,) = refiner.refine([lone])
    assert "not in the list: ['gryphon']" in kept.problem and len(kept.groups) == 2
    (mended,) = refiner.refine([lone])
    assert mended.problem is None


@pytest.mark.filterwarnings("ignore:.*requests failed")
def test_described_pictures_end_in_a_space(chat, chat_server, toy, tmp_path, caption_dataset):
    paths = {doc["docno"]: doc["path"] for doc in toy.train.docs[:4]}
    damaged = tmp_path / "damaged.png"
    damaged.write_bytes(b"no picture")
    dataset = caption_dataset({docno: {f"{docno}-0": "A star"} for docno in paths}, paths | {"scene-9": str(damaged)})
    assert len(describe(dataset, tmp_path / "texts.jsonl", model=MODEL, **chat).descriptions) == 4
    content = chat_server.stats()["last"]["messages"][1]["content"]
    assert [part["type"] for part in content] == ["image_url", "text"]

    broken = caption_dataset(dataset.images | {"scene-9": {"9": "A square"}}, dataset.paths)
    with pytest.raises(ValueError, match="1 of 5 images failed .image 'scene-9': .*damaged.png"):
        describe(broken, tmp_path / "more.jsonl", model=MODEL, **chat)
    assert not (tmp_path / "more.jsonl").exists()
    with pytest.warns(UserWarning, match="they get no description"):
        described = describe(broken, tmp_path / "more.jsonl", model=MODEL, max_failed=0.2, **chat)
    assert described.descriptions == DescribedDataset(dataset, tmp_path / "texts.jsonl").descriptions
    assert chat_server.stats()["requests"] == 4

    space = ConceptSpace.build(
        described, OpenAIExtractor(MODEL, **chat), tmp_path / "space", embedder=by_letters, verbose=False
    )
    assert space.n_images == 5 and space.n_texts == 9 and "star" in space.names
    record = json.loads((tmp_path / "space" / "build.json").read_text())["steps"]
    assert record["extract"]["result"]["asked"] == 5
    assert record["refine"]["settings"]["model"] == MODEL


@pytest.mark.filterwarnings("ignore:.*requests failed")
def test_images_are_sent_with_their_captions(chat, chat_server, toy, tmp_path, caption_dataset):
    paths = {doc["docno"]: doc["path"] for doc in toy.train.docs[:2]}
    dataset = caption_dataset({docno: {docno: "A star"} for docno in paths}, paths)
    list(OpenAIExtractor(MODEL, with_image=True, **chat).extract(dataset))
    assert chat_server.stats()["requests"] == 2  # equal captions of different pictures
    (tmp_path / "gone.png").write_bytes(b"")
    dataset.paths["gone"] = str(tmp_path / "gone.png")
    dataset.images["gone"] = {"gone": "A star"}
    with pytest.raises(ValueError, match="1 of 3 images failed .image 'gone': .*the file is empty"):
        list(OpenAIExtractor(MODEL, with_image=True, **chat).extract(dataset))
