"""Generated descriptions: what is asked, the file, and the training split that holds them."""

import copy
import json

import pandas as pd
import pyterrier as pt
import pytest

import pyterrier_grasp as ptg
from pyterrier_grasp.concepts import ConceptSpace, captions
from pyterrier_grasp.concepts.extract.describe import DescribedDataset, describe, estimate_descriptions
from pyterrier_grasp.concepts.extract.description_answer import DescriptionAnswer
from pyterrier_grasp.concepts.extract.llm import OpenAIExtractor

IMAGES = {"snow": {"0": "Two dogs", "1": "A dog"}, "park": {"2": "A boy"}, "sea": {"3": ""}}


def picture(request, problem=None):
    (path,) = request.images
    return {"description": f"A picture of {path.stem}."}


@pytest.fixture
def images(caption_dataset):
    return caption_dataset(IMAGES)


@pytest.fixture
def described(images, fake_client, tmp_path):
    return describe(images, tmp_path / "texts.jsonl", client=fake_client(picture))


def say(text):
    return lambda request, problem: {"description": text}


# -- asking ------------------------------------------------------------------------------------------------------------


def test_each_image_is_sent_once(images, fake_client, tmp_path):
    client = fake_client(picture)
    described = describe(images, tmp_path / "deep" / "texts.jsonl", client=client, max_words=20, language="German")
    assert [(r.id, [str(path) for path in r.images]) for r in client.asked] == [
        ("image snow", ["/photos/snow.jpg"]),
        ("image park", ["/photos/park.jpg"]),
        ("image sea", ["/photos/sea.jpg"]),
    ]
    assert "in German" in client.asked[0].system and "20 words at most" in client.asked[0].system
    lines = [json.loads(line) for line in described.path.read_text(encoding="utf-8").splitlines()]
    assert lines == [{"docno": docno, "text": f"A picture of {docno}."} for docno in IMAGES]
    assert list(described.path.parent.iterdir()) == [described.path]


def test_only_images_of_the_qrels_are_described(caption_dataset, fake_client, tmp_path):
    """A corpus may hold the images of all splits; those of the test split must not be described."""
    client = fake_client(picture)
    paths = {docno: f"/photos/{docno}.jpg" for docno in (*IMAGES, "test-image")}
    assert set(describe(caption_dataset(IMAGES, paths), tmp_path / "t", client=client).descriptions) == set(IMAGES)


def test_long_descriptions_are_cut(images, fake_client, tmp_path):
    text = "word  " * 39 + "\n end"
    described = describe(images, tmp_path / "texts.jsonl", client=fake_client(say(text)), max_words=20)
    assert set(described.descriptions.values()) == {" ".join(["word"] * 20)}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the description is empty"),
        (" \n", "the description is empty"),
        ("word " * 61, "has 61 words, which is more than 30"),
        ("I'm sorry, but I can't help with that.", "no description of what can be seen"),
        ("I cannot identify people.", "no description of what can be seen"),
        (None, "should be a valid string"),
        (["a dog"], "should be a valid string"),
    ],
)
def test_bad_descriptions(images, fake_client, tmp_path, text, words):
    client = fake_client(say(text))
    with pytest.raises(ValueError, match=words):
        describe(images, tmp_path / "texts.jsonl", client=client)
    assert len(client.asked) == 6 and not (tmp_path / "texts.jsonl").exists()
    client.answer = lambda request, problem: picture(request) if problem else {"description": text}
    assert len(describe(images, tmp_path / "texts.jsonl", client=client).descriptions) == 3


def test_failed_images(images, fake_client, tmp_path):
    def answer(request, problem):
        if "park" in request.id:
            raise OSError("the server is on fire")
        return picture(request)

    path, client = tmp_path / "texts.jsonl", fake_client(answer)
    with pytest.raises(ValueError, match="1 of 3 images failed .image 'park': the server is on fire.*max_failed=0.334"):
        describe(images, path, client=client)
    assert not path.exists()
    with pytest.warns(UserWarning, match="1 of 3 images failed .* they get no description"):
        described = describe(images, path, client=client, max_failed=0.334)
    assert list(described.descriptions) == ["snow", "sea"]
    assert described.get_topics()["qid"].tolist()[-2:] == ["snow#description", "sea#description"]
    client.answer, client.asked = picture, []
    describe(images, path, client=client, overwrite=True)
    assert [request.id for request in client.asked] == ["image park"]


def test_an_existing_file_is_safe(described, images, fake_client):
    client = fake_client(say("something else"))
    with pytest.raises(FileExistsError, match="open it with DescribedDataset"):
        describe(images, described.path, client=client)
    assert client.asked == []
    describe(images, described.path, client=client, overwrite=True)
    assert DescribedDataset(images, described.path).descriptions["snow"] == "something else"


def test_estimate_asks_nothing(images, fake_client):
    client = fake_client(picture)
    assert estimate_descriptions(images, client=client).requests == 3 and client.asked == []


def test_more_words_than_a_text_tower_reads(images, fake_client, tmp_path):
    with pytest.warns(UserWarning, match="text towers read only about 30 words"):
        describe(images, tmp_path / "texts.jsonl", client=fake_client(picture), max_words=80)


def test_wrong_arguments(images, caption_dataset, fake_client, tmp_path):
    client = fake_client(picture)
    for words in (0, -1, 2.5, True, "many"):
        with pytest.raises(ValueError, match="max_words must be a number"):
            describe(images, tmp_path / "t", client=client, max_words=words)
    for language in ("", None):
        with pytest.raises(ValueError, match="language must be the name of a language"):
            describe(images, tmp_path / "t", client=client, language=language)
    with pytest.raises(ValueError, match="nothing to describe"):
        describe(caption_dataset({}), tmp_path / "t", client=client)
    with pytest.raises(ValueError, match=r"1 of 3 images .* \['sea'\]"):
        describe(caption_dataset(IMAGES, {"snow": "a", "park": "b"}), tmp_path / "t", client=client)
    with pytest.raises(ValueError, match="max_failed must be a share"):
        describe(images, tmp_path / "t", client=client, max_failed=2)
    assert client.asked == []


def test_the_schema_is_one_that_strict_endpoints_take():
    schema = DescriptionAnswer.model_json_schema()
    assert schema["additionalProperties"] is False and schema["required"] == ["description"]


# -- splits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["scenes/test", "scenes/val", "scenes", "coco", "flickr30k/test"])
def test_other_splits_than_training_are_refused(name, fake_client, tmp_path):
    dataset, client = pt.get_dataset(f"irds:{name}"), fake_client(picture)
    with pytest.raises(ValueError, match=f"{name} is no training split.*any_split=True"):
        describe(dataset, tmp_path / "texts.jsonl", client=client)
    (tmp_path / "texts.jsonl").write_text("")
    with pytest.raises(ValueError, match=f"{name} is no training split"):
        DescribedDataset(dataset, tmp_path / "texts.jsonl")
    assert client.asked == []


def test_of_a_local_dataset_only_the_training_split_is_accepted(tmp_path):
    kept = [("a.jpg", "train"), ("b.jpg", "val")]
    images = [
        {"filename": name, "imgid": n, "split": split, "sentences": [{"raw": "a dog", "sentid": n}]}
        for n, (name, split) in enumerate(kept)
    ]
    (tmp_path / "captions.json").write_text(json.dumps({"images": images}))
    ptg.datasets.local("described-photos", annotations=tmp_path / "captions.json", images=tmp_path)
    path = write(tmp_path, [{"docno": "a", "text": "A dog"}])
    assert DescribedDataset(pt.get_dataset("irds:described-photos/train"), path).descriptions == {"a": "A dog"}
    with pytest.raises(ValueError, match="described-photos is no training split"):
        DescribedDataset(pt.get_dataset("irds:described-photos"), path)


def test_images_that_no_caption_is_relevant_for_are_not_described(images, fake_client, tmp_path, monkeypatch):
    qrels = images.get_qrels()
    qrels.loc[qrels["docno"] == "park", "label"] = 0
    monkeypatch.setattr(images, "get_qrels", lambda: qrels)
    assert set(describe(images, tmp_path / "t", client=fake_client(picture)).descriptions) == {"snow", "sea"}


def test_a_disk_that_fails_leaves_the_old_file(described, images, fake_client, monkeypatch):
    before = described.path.read_bytes()

    def fail(*args):
        raise OSError("no space left")

    monkeypatch.setattr("pyterrier_grasp.concepts.extract.described.os.replace", fail)
    with pytest.raises(OSError, match="no space left"):
        describe(images, described.path, client=fake_client(say("new")), overwrite=True)
    assert described.path.read_bytes() == before and list(described.path.parent.iterdir()) == [described.path]


def test_the_guard_can_be_opened(fake_client, tmp_path):
    dataset = pt.get_dataset("irds:scenes/val")
    assert DescribedDataset(dataset, write(tmp_path, []), any_split=True).descriptions == {}


# -- the training split ------------------------------------------------------------------------------------------------


def write(folder, rows):
    path = folder / "descriptions.jsonl"
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows), encoding="utf-8")
    return path


def test_descriptions_are_further_captions(described, images):
    topics, qrels = described.get_topicsqrels()
    pd.testing.assert_frame_equal(topics.head(4), images.get_topics())
    assert topics.tail(3).values.tolist() == [[f"{d}#description", f"A picture of {d}."] for d in IMAGES]
    assert qrels.tail(3).values.tolist() == [[f"{d}#description", d, 1] for d in IMAGES]
    assert captions(described)[-1] == ("sea#description", "sea", "A picture of sea.")
    assert topics["qid"].is_unique and topics.index.is_unique and qrels.index.is_unique


def test_a_space_has_them_in_the_image_labels(described, fake_client, tmp_path):
    def words(request, problem):
        texts = [json.loads(line.partition(": ")[2]) for line in request.user.split("\n")]
        triplets = [{"subject": text.split()[-1], "relation": "", "object": ""} for text in texts]
        return {"captions": [{"number": n, "triplets": [t]} for n, t in enumerate(triplets, start=1)]}

    extractor = OpenAIExtractor(client=fake_client(words))
    space = ConceptSpace.build(described, extractor, tmp_path / "space", refiner=None, verbose=False)
    assert len(extractor.client.asked) == 3  # one an image still
    labels = space.image_labels(["sea", "snow"]).toarray()
    assert labels[0, space.names.index("sea.")] == 1 and labels[1, space.names.index("snow.")] == 1
    assert space.text_labels(["sea#description"]).sum() == 1


def test_they_are_trained_on(toy, toy_backbone, toy_cache, fake_client, tmp_path):
    train = describe(toy.train, tmp_path / "texts.jsonl", client=fake_client(picture))
    trainer = ptg.GraspTrainer(
        toy_backbone, method="dense", epochs=1, batch_size=20, verbose=False, device="cpu", cache_dir=toy_cache
    )
    trainer.fit(train.get_topics(), train.get_qrels(), corpus=[train, toy.val])
    assert trainer.model is not None
    assert len(train.get_qrels()) == len(toy.train.qrels) + 24


def test_columns_and_types_of_an_ir_dataset_stay(tmp_path):
    dataset = pt.get_dataset("irds:scenes/train")
    docno = dataset.get_qrels()["docno"][0]
    described = DescribedDataset(dataset, write(tmp_path, [{"docno": docno, "text": "A star"}]))
    for ours, theirs in zip(described.get_topicsqrels(), dataset.get_topicsqrels(), strict=True):
        pd.testing.assert_frame_equal(ours.iloc[:-1], theirs)
    assert described.get_qrels().iloc[-1].to_dict() == {
        "qid": f"{docno}#description",
        "docno": docno,
        "label": 1,
        "iteration": "0",
    }
    assert described.get_topics_lang() == "en" and described.irds_ref() is dataset.irds_ref()


def test_numeric_docnos_stay_numbers(tmp_path):
    class Numbers:
        def get_topics(self):
            return pd.DataFrame({"qid": [1], "query": ["a dog"]})

        def get_qrels(self):
            return pd.DataFrame({"qid": [1], "docno": [7], "label": [1]})

    described = DescribedDataset(Numbers(), write(tmp_path, [{"docno": "7", "text": "A dog"}]))
    assert described.get_qrels()["docno"].tolist() == [7, 7]
    assert described.get_topics()["qid"].tolist() == [1, "7#description"]


def test_everything_else_is_passed_through(described, images):
    assert list(described.get_corpus_iter(verbose=False)) == list(images.get_corpus_iter())
    assert described.images is images.images
    assert repr(described) == f"DescribedDataset(CaptionDataset(), {str(described.path)!r})"
    with pytest.raises(AttributeError, match="no_such"):
        described.no_such  # noqa: B018
    assert copy.copy(described).descriptions == described.descriptions


def test_a_qid_that_is_taken(caption_dataset, tmp_path):
    dataset = caption_dataset({"snow": {"0": "a dog", "snow#description": "mine"}})
    with pytest.raises(ValueError, match=r"already has captions under .* \['snow#description'\]"):
        DescribedDataset(dataset, write(tmp_path, [{"docno": "snow", "text": "A dog"}]))


def test_a_file_of_another_dataset(images, tmp_path):
    path = write(tmp_path, [{"docno": "snow", "text": "A dog"}, {"docno": "moon", "text": "A man"}])
    with pytest.raises(
        ValueError, match=r"describes 1 images that are not in the qrels .* \['moon'\]: it was made for"
    ):
        DescribedDataset(images, path)


def test_texts_of_any_script_come_back(images, tmp_path, fake_client):
    text = '犬が\u2028"雪"の中を走る 🐶 \\ '
    described = describe(images, tmp_path / "t.jsonl", client=fake_client(say(text)))
    assert described.descriptions["sea"] == '犬が "雪"の中を走る 🐶 \\'


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("{", "line 2: not valid JSON"),
        ("[1]", "line 2: expected"),
        ({"docno": "sea"}, "line 2: expected"),
        ({"docno": 3, "text": "a"}, "line 2: expected"),
        ({"docno": "sea", "text": " "}, "line 2: expected"),
        ({"docno": "snow", "text": "again"}, "line 2: the image 'snow' is described twice"),
    ],
)
def test_malformed_files(images, tmp_path, row, words):
    with pytest.raises(ValueError, match=words):
        DescribedDataset(images, write(tmp_path, [{"docno": "snow", "text": "A dog"}, row]))


def test_missing_and_damaged_files(images, tmp_path):
    with pytest.raises(FileNotFoundError, match="no file of descriptions at .*none; make one with describe"):
        DescribedDataset(images, tmp_path / "none")
    (tmp_path / "bytes").write_bytes(b'{"docno": "\xff"}')
    with pytest.raises(ValueError, match="bytes is damaged"):
        DescribedDataset(images, tmp_path / "bytes")
