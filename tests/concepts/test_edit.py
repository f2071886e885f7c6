"""Spaces edited, published and fetched."""

import shutil

import huggingface_hub
import pyterrier as pt
import pytest

from pyterrier_grasp.concepts import ConceptSpace, Vocabulary
from pyterrier_grasp.concepts.edit import edited


@pytest.fixture
def space(dataset, extractor, tmp_path):
    return ConceptSpace.build(dataset, extractor, tmp_path / "space", verbose=False)


def labels(space, *phrases, part=0):
    triplets = [[tuple(p if i == part else "" for i in range(3))] for p in phrases]
    return [[space.names[j] for j in row.indices] for row in map(space.labels, ([t] for t in triplets))]


def test_drop_merge_and_rename(space):
    new = space.edit(drop=["street"], merge={"dog": ["puppy"]}, rename={"ball": "football"})
    assert len(new) == len(space) - 2 and new.fingerprint != space.fingerprint
    assert labels(new, "street", "puppy", "dog", "ball", "football") == [
        [],
        ["dog"],
        ["dog"],
        ["football"],
        ["football"],
    ]
    dog = new.concepts[0]
    assert (dog.name, dog.df, dog.text_df, set(dog.members)) == ("dog", 2, 3, {"dog", "puppy"})
    assert new.text_labels(["1"])[:, [0]].toarray() == 1
    assert (new.image_labels(new.docnos).sum(axis=0) == new.df).all()
    assert labels(space, "puppy") == [["puppy"]]  # the old one is as it was
    assert ConceptSpace.load(space.path) == space


def test_merge_into_a_new_name_and_an_edited_space_is_kept(space, tmp_path):
    new = space.edit(merge={"child": ["boy", "entity:kick"], "go": ["run", "run in"]})
    assert {"child", "go"} <= set(new.names) and not {"boy", "entity:kick", "run", "run in"} & set(new.names)
    assert "kick" in new.names  # the relation is alone now
    assert labels(new, "run in", part=1) == [["go"]]
    new.save(tmp_path / "kept")
    folder = new.path
    kept = ConceptSpace.load(tmp_path / "kept")
    assert kept == new and kept.concepts == new.concepts
    assert not (kept.edit(drop=["go"]) == kept)
    del new
    assert not folder.exists()


def test_wrong_edits(space):
    for edit, error, words in (
        ({"drop": ["pupy"]}, KeyError, r"no concept 'pupy'; the nearest are \['puppy'"),
        ({"drop": ["kick"]}, KeyError, "entity:kick"),
        ({"drop": "dog"}, ValueError, "lists of names"),
        ({"merge": {"dog": "puppy"}}, ValueError, "lists of names"),
        ({"merge": {"pet": []}}, ValueError, "concepts of one kind"),
        ({"merge": {"dog": ["on"]}}, ValueError, "concepts of one kind"),
        ({"drop": ["dog"], "rename": {"dog": "hound"}}, ValueError, "named by drop and by rename to 'hound'"),
        ({"rename": {"dog": "boy"}}, ValueError, "'boy' occurs twice"),
        ({"rename": {"dog": " "}}, ValueError, "empty name"),
        ({"drop": space.names}, ValueError, "at least one concept"),
    ):
        with pytest.raises(error, match=words):
            space.edit(**edit)


def test_phrases_of_both_sides_survive_a_rename_chain():
    vocabulary = Vocabulary([("entity", "sofa", ("couch",)), ("entity", "settee", ()), ("relation", "sofa", ())])
    once = edited(vocabulary, drop=[], merge={"seat": ["entity:sofa", "settee"]}, rename={})
    twice = edited(once, drop=[], merge={}, rename={"seat": "bench"})
    assert set(twice.members()[0]) == {"bench", "sofa", "couch", "settee", "seat"}
    assert twice.names == ["bench", "sofa"]


def test_faithfulness_needs_the_captions(space, monkeypatch):
    asked = {}
    monkeypatch.setattr("pyterrier_grasp.concepts.space.check", lambda *a, **k: asked.update(texts=a[0], triplets=a[1]))
    space.check_faithfulness("some/model", sample=3)
    assert asked["texts"][0] == "caption 0" and asked["triplets"][0][0] == ("Dog", "run  in", "snow")
    rows = (space.path / "triplets.jsonl").read_text().replace('"text"', '"other"')
    (space.path / "triplets.jsonl").write_text(rows)
    with pytest.raises(ValueError, match="no caption texts"):
        ConceptSpace.load(space.path).check_faithfulness("some/model")


def test_published_and_fetched(space, tmp_path, monkeypatch):
    hub = tmp_path / "hub"

    def upload(*, repo_id, folder_path, **_):
        shutil.copytree(folder_path, hub / repo_id)

    monkeypatch.setattr(huggingface_hub, "create_repo", lambda *a, **k: None)
    monkeypatch.setattr(huggingface_hub, "create_branch", lambda *a, **k: None)
    monkeypatch.setattr(huggingface_hub, "upload_folder", upload)
    space.to_hf("someone/scenes.concepts")
    download = pt.io.open_or_download_stream

    def fetch(url, **options):
        assert url.startswith("https://huggingface.co/datasets/someone/scenes.concepts/resolve/main/")
        return download(str(hub / "someone" / "scenes.concepts" / url.split("/")[-1]), verbose=False)

    monkeypatch.setattr(pt.io, "open_or_download_stream", fetch)
    monkeypatch.setattr(pt.io, "pyterrier_home", lambda: str(tmp_path / "home"))
    fetched = ConceptSpace.from_hf("someone/scenes.concepts")
    assert fetched == space and fetched.concepts == space.concepts
