import json
import shutil

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

import pyterrier_grasp as ptg
from pyterrier_grasp.concepts import ConceptSpace, TripletFile

FILES = ["aliases.jsonl", "concepts.jsonl", "pt_meta.json", "triplets.jsonl"]
HISTORY = ["build.json", "phrases.jsonl"]


@pytest.fixture
def space(dataset, extractor, tmp_path):
    return ConceptSpace.build(dataset, extractor, tmp_path / "space")


def lines(space, name):
    return [json.loads(line) for line in (space.path / name).read_text().splitlines()]


def write_lines(space, name, records):
    (space.path / name).write_text("".join(json.dumps(r) + "\n" for r in records))


def named(space, labels):
    """The names of each row's labels."""
    return [{space.names[j] for j in labels[[i]].indices} for i in range(labels.shape[0])]


def test_concepts_order_and_frequencies(space):
    assert [(c.kind, c.name, c.df, c.text_df) for c in space.concepts] == [
        ("entity", "dog", 2, 2),
        ("entity", "ball", 1, 1),
        ("entity", "boy", 1, 2),
        ("entity", "brown", 1, 1),
        ("entity", "kick", 1, 1),
        ("entity", "puppy", 1, 1),
        ("entity", "snow", 1, 2),
        ("entity", "street", 1, 1),
        ("relation", "by", 1, 1),
        ("relation", "is", 1, 1),
        ("relation", "kick", 1, 1),
        ("relation", "on", 1, 1),
        ("relation", "run", 1, 1),
        ("relation", "run in", 1, 2),
    ]
    assert (space.n_images, space.n_texts, len(space)) == (3, 6, 14)
    assert space.df.dtype == space.text_df.dtype == np.int64
    assert space.kinds.tolist() == ["entity"] * 8 + ["relation"] * 6


def test_names_carry_the_kind_only_where_both_have_it(space):
    assert space.names[4] == "entity:kick" and space.names[10] == "relation:kick"
    assert [n for n in space.names if ":" in n] == ["entity:kick", "relation:kick"]


def test_text_and_image_labels(space):
    texts = space.text_labels(["5", "1", "3"])
    assert texts.dtype == np.float32 and set(texts.data) == {1.0}
    assert named(space, texts) == [set(), {"puppy", "run in", "snow"}, {"entity:kick", "by", "boy"}]
    images = space.image_labels(["park", "snow"])
    assert named(space, images) == [
        {"boy", "relation:kick", "ball", "run", "entity:kick", "by"},
        {"dog", "run in", "snow", "is", "brown", "puppy"},
    ]
    assert (space.image_labels(space.docnos).sum(axis=0) == space.df).all()
    assert (space.text_labels(space.qids).sum(axis=0) == space.text_df).all()


def test_unknown_ids(space):
    with pytest.raises(KeyError, match=r"1 of 2 ids are no training caption .*\['99'\]"):
        space.text_labels(["0", "99"])
    with pytest.raises(KeyError, match=r"no training image .*\['7'\].*labels_for"):
        space.image_labels(["7"])
    assert space.text_labels([]).shape == (0, 14)


def test_labels_of_other_triplets(space):
    got = space.labels([[(" DOG ", "run\tin", "moon")], [], [("", "", "")], [("kick", "kick", "kick")]])
    assert named(space, got) == [{"dog", "run in"}, set(), set(), {"entity:kick", "relation:kick"}]
    assert space.labels([]).shape == (0, 14)
    for bad in ([[("a", "b")]], ["dog"], [[("a", "b", None)]]):
        with pytest.raises(ValueError, match="text number 0"):
            space.labels(bad)


def test_labels_for_another_split(space, fakes):
    dataset, extractor = fakes
    val = dataset({"x": {"8": [("dog", "fly", "")], "9": [("boy", "on", "street")]}, "y": {"10": []}})
    qids, texts, docnos, images = space.labels_for(val, extractor())
    assert (qids, docnos) == (["8", "9", "10"], ["x", "y"])
    assert named(space, texts) == [{"dog"}, {"boy", "on", "street"}, set()]
    assert named(space, images) == [{"dog", "boy", "on", "street"}, set()]


def test_min_df_and_kinds(dataset, extractor, tmp_path):
    space = ConceptSpace.build(dataset, extractor, tmp_path / "a", min_df=2)
    assert space.names == ["dog"] and space.n_images == 3
    space = ConceptSpace.build(dataset, extractor, tmp_path / "b", kinds=("relation",))
    assert set(space.kinds) == {"relation"} and "kick" in space.names
    with pytest.raises(ValueError, match="at least 4 and at most 3 of the 3 images .*most frequent one is in 2"):
        ConceptSpace.build(dataset, extractor, tmp_path / "c", min_df=4)
    for options in (
        {"min_df": 0},
        {"min_df": 1.5},
        {"max_df": 0},
        {"max_df": 1.1},
        {"kinds": ()},
        {"kinds": ("verb",)},
    ):
        with pytest.raises(ValueError, match="min_df must|max_df must|kinds must"):
            ConceptSpace.build(dataset, extractor, tmp_path / "c", **options)
    assert not (tmp_path / "c").exists()


def test_the_order_of_captions_does_not_matter(dataset, extractor, fakes, tmp_path):
    other = fakes[0]({docno: dict(reversed(texts.items())) for docno, texts in reversed(dataset.images.items())})
    a = ConceptSpace.build(dataset, extractor, tmp_path / "a")
    b = ConceptSpace.build(other, extractor, tmp_path / "b")
    assert a.concepts == b.concepts and a.fingerprint == b.fingerprint and a == b and hash(a) == hash(b)


def test_an_image_with_a_shared_caption(fakes, tmp_path):
    dataset = fakes[0]({"a": {"0": [("dog", "run", "")]}, "b": {"0": [("dog", "run", "")]}})
    dataset.get_topics = lambda: pd.DataFrame({"qid": ["0"], "query": ["a dog runs"]})
    space = ConceptSpace.build(dataset, fakes[1](), tmp_path / "s")
    assert (space.df.tolist(), space.text_df.tolist()) == ([2, 2], [1, 1])
    assert (space.n_images, space.n_texts) == (2, 1)
    assert ConceptSpace.load(space.path).image_labels(["b"]).toarray().tolist() == [[1, 1]]


def test_bad_extractors(dataset, tmp_path):
    class Nothing:
        def extract(self, dataset):
            return iter(())

    with pytest.raises(ValueError, match="at least one"):
        ConceptSpace.build(dataset, Nothing(), tmp_path / "s")
    with pytest.raises(ValueError, match="method extract"):
        ConceptSpace.build(dataset, "triplets.jsonl", tmp_path / "s")


def test_save_and_load_are_identical(space, tmp_path):
    assert sorted(p.name for p in space.path.iterdir()) == sorted(FILES + HISTORY)
    loaded = pt.Artifact.load(str(space.path))  # through the entry point
    assert type(loaded) is ConceptSpace is ptg.ConceptSpace
    assert loaded.concepts == space.concepts and loaded.names == space.names and loaded == space
    loaded.save(tmp_path / "deep" / "copy")
    for name in FILES + HISTORY:
        assert (tmp_path / "deep" / "copy" / name).read_bytes() == (space.path / name).read_bytes()
    copy = ConceptSpace.load(tmp_path / "deep" / "copy")
    assert (copy.text_labels(space.qids) != space.text_labels(space.qids)).nnz == 0
    assert copy.df.tolist() == space.df.tolist() and copy.fingerprint == space.fingerprint
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["copy"]


def test_overwrite(space, dataset, extractor, tmp_path):
    with pytest.raises(FileExistsError, match="overwrite=True"):
        ConceptSpace.build(dataset, extractor, space.path)
    assert len(ConceptSpace.build(dataset, extractor, space.path, min_df=2, overwrite=True)) == 1
    (space.path / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match="thesis.tex"):
        ConceptSpace.build(dataset, extractor, space.path, overwrite=True)
    assert (space.path / "thesis.tex").exists()


def test_an_interrupted_build_leaves_no_space(dataset, extractor, tmp_path, monkeypatch):
    from pyterrier_grasp.concepts import storage

    def interrupted(path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(storage, "digest", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ConceptSpace.build(dataset, extractor, tmp_path / "space")
    assert [p.name for p in tmp_path.iterdir()] == ["space.building"]
    with pytest.raises(FileNotFoundError, match="no concept space at .*space"):
        ConceptSpace.load(tmp_path / "space")


@pytest.mark.parametrize("name", FILES)
def test_missing_files(space, name):
    (space.path / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"no complete concept space: {name}"):
        ConceptSpace.load(space.path)


def test_other_artifacts_and_damaged_metadata(space):
    meta = json.loads((space.path / "pt_meta.json").read_text())
    for content, words in (
        (json.dumps({**meta, "type": "dense_index"}), "holds the artifact dense_index.grasp"),
        (json.dumps([]), "not the metadata"),
        ('{"type": "conc', "not the metadata"),
    ):
        (space.path / "pt_meta.json").write_text(content)
        with pytest.raises(ValueError, match=words):
            ConceptSpace.load(space.path)


def test_removing_a_concept_by_hand(space):
    write_lines(space, "concepts.jsonl", [c for c in lines(space, "concepts.jsonl") if c["name"] != "snow"])
    edited = ConceptSpace.load(space.path)
    assert len(edited) == 13 and "snow" not in edited.names and edited.fingerprint != space.fingerprint
    assert named(edited, edited.text_labels(["1"])) == [{"puppy", "run in"}]
    assert [c for c in space.concepts if c.name != "snow"] == list(edited.concepts)


def test_renaming_a_concept_by_hand(space):
    concepts = lines(space, "concepts.jsonl")
    concepts[0]["name"] = "Canine"
    write_lines(space, "concepts.jsonl", concepts)
    edited = ConceptSpace.load(space.path)
    assert edited.concepts[0] == ("canine", "entity", 2, 2, ("canine", "dog"))
    assert named(edited, edited.labels([[("dog", "", "")], [("canine", "", "")]])) == [{"canine"}, {"canine"}]


def test_joining_concepts_by_hand(space, tmp_path):
    write_lines(space, "concepts.jsonl", [c for c in lines(space, "concepts.jsonl") if c["name"] != "puppy"])
    write_lines(space, "aliases.jsonl", [{"phrase": "puppy", "kind": "entity", "concept": "dog"}])
    edited = ConceptSpace.load(space.path)
    dog = edited.concepts[0]
    assert (dog.df, dog.text_df, dog.members) == (2, 3, ("dog", "puppy"))
    assert "dog" in named(edited, edited.text_labels(["1"]))[0]
    edited.save(tmp_path / "copy")  # what is in memory, with the new frequencies
    copy = ConceptSpace.load(tmp_path / "copy")
    assert copy.concepts == edited.concepts and copy == edited
    assert lines(copy, "concepts.jsonl")[0]["text_df"] == 3


def test_editing_the_triplets_by_hand(space):
    rows = lines(space, "triplets.jsonl")
    rows[-1]["triplets"] = [["dog", "on", "snow"]]
    write_lines(space, "triplets.jsonl", rows)
    edited = ConceptSpace.load(space.path)
    assert edited.text_df[0] == 3 and edited.fingerprint == space.fingerprint


def test_a_space_rewritten_under_an_open_one(space, dataset, extractor, tmp_path):
    opened = ConceptSpace.load(space.path)
    (space.path / "triplets.jsonl").write_text('{"sentid": "0", "imgid": "snow", "triplets": []}\n')
    for use in (lambda: opened.save(tmp_path / "copy"), lambda: opened.text_labels(["0"])):
        with pytest.raises(ValueError, match="changed after the space was opened"):
            use()
    assert not (tmp_path / "copy").exists()


def test_a_concept_nothing_names_is_warned_of(space):
    write_lines(space, "concepts.jsonl", [*lines(space, "concepts.jsonl"), {"name": "unicorn", "kind": "entity"}])
    with pytest.warns(UserWarning, match="1 concepts .* occur in no training image .*'unicorn'"):
        edited = ConceptSpace.load(space.path)
    assert edited.df[-1] == 0


def test_a_space_used_unedited_does_not_read_the_triplets(space, monkeypatch):
    from pyterrier_grasp.concepts import storage

    monkeypatch.setattr(storage, "read_corpus", lambda folder: pytest.fail("read"))
    assert ConceptSpace.load(space.path).labels([[("dog", "", "")]]).nnz == 1


@pytest.mark.parametrize(
    ("concepts", "aliases", "words"),
    [
        ([], None, "at least one concept"),
        (["{"], None, "concepts.jsonl, line 1: not valid JSON"),
        ([{"name": "dog"}], None, "line 1: the field 'kind' must be a str"),
        ([{"name": "", "kind": "entity"}], None, "empty name"),
        ([{"name": "dog", "kind": "verb"}], None, "has the kind 'verb'"),
        ([{"name": "dog", "kind": "entity"}, {"name": "Dog", "kind": "entity"}], None, "entity 'dog' occurs twice"),
        ([{"name": "dog", "kind": "entity", "members": "dog"}], None, "members of 'dog' must be a list"),
        ([{"name": "dog", "kind": "entity", "members": [" "]}], None, "empty phrase"),
        (
            [
                {"name": "dog", "kind": "entity", "members": ["pet"]},
                {"name": "cat", "kind": "entity", "members": ["pet"]},
            ],
            None,
            "'pet' belongs to two entity concepts, 'dog' and 'cat'",
        ),
        (None, [{"phrase": "snow", "kind": "entity", "concept": "dog"}], "'snow' belongs to two entity concepts"),
        (None, [{"phrase": "pup", "kind": "entity", "concept": "hound"}], "points to the entity 'hound', which is not"),
        (None, [{"phrase": "pup", "kind": "relation", "concept": "dog"}], "points to the relation 'dog'"),
        (None, [{"phrase": "pup", "concept": "dog"}], "aliases.jsonl, line 1: the field 'kind'"),
    ],
)
def test_edits_that_contradict_themselves(space, concepts, aliases, words):
    for name, records in (("concepts.jsonl", concepts), ("aliases.jsonl", aliases)):
        if records is not None:
            text = "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records)
            (space.path / name).write_text(text)
    with pytest.raises(ValueError, match=words):
        ConceptSpace.load(space.path)


def test_repr_and_summary(space):
    assert repr(space).startswith("ConceptSpace('") and "concepts=14" in repr(space)
    summary = space.summary()
    assert (summary["concepts"], summary["entity"], summary["relation"]) == (14, 8, 6)
    assert summary["labels_text_mean"] == (5 + 3 + 4 + 3 + 3 + 0) / 6
    assert summary["labels_image_max"] == 6


def test_a_moved_folder(space, tmp_path):
    shutil.move(space.path, tmp_path / "moved")
    assert ConceptSpace.load(tmp_path / "moved").text_labels(["0"]).nnz == 5


def test_real_triplets(shared, tmp_path):
    data = shared / "data" / "flickr8k"
    ptg.datasets.local("flickr8k-concepts", annotations=data / "dataset_flickr8k.json", images=data / "images")
    extractor = TripletFile(data / "triplets.jsonl.gz")
    train, val = (pt.get_dataset(f"irds:flickr8k-concepts/{s}") for s in ("train", "val"))
    space = ConceptSpace.build(train, extractor, tmp_path / "space", min_df=8)
    assert (space.n_images, space.n_texts, len(space)) == (6000, 30000, 1459)
    assert space.df.min() == 8 and (np.diff(space.df[space.kinds == "entity"]) <= 0).all()
    _, texts, _, images = space.labels_for(val, extractor)
    assert (texts.shape[0], images.shape[0]) == (2500, 500)
    assert 5 < texts.nnz / 2500 < 6 and 16 < images.nnz / 500 < 17


def test_scenes_triplets(tmp_path):
    from pyterrier_grasp.datasets import scenes

    scenes.write_triplets(tmp_path / "triplets.jsonl", ["val"])
    space = ConceptSpace.build(
        pt.get_dataset("grasp:scenes/val"), TripletFile(tmp_path / "triplets.jsonl"), tmp_path / "space"
    )
    assert (space.n_images, space.n_texts) == (500, 2500)
    assert set(space.kinds) == {"entity", "relation"}
