"""The steps of a build: what is done again, what is kept, what is refused."""

import json
import multiprocessing
import shutil

import numpy as np
import pytest

from pyterrier_grasp.concepts import ConceptSpace, DescribedDataset, Group, Refinement, captions

STEPS = ["extract", "phrases", "embed", "cluster", "refine", "concepts"]


class CountingExtractor:
    """Yields the triplets of a fake dataset, knows its settings, and counts how often it was asked."""

    def __init__(self, version=1):
        self.version, self.calls = version, 0

    def settings(self):
        return {"version": self.version}

    def extract(self, dataset):
        self.calls += 1
        for docno, texts in dataset.images.items():
            for qid, triplets in texts.items():
                yield {"qid": qid, "docno": docno, "triplets": triplets}

    def outcome(self):
        return {"cost": 1.5}


class LetterRefiner:
    """Merges phrases with the same first letter; drops those of a given letter."""

    def __init__(self, dropped="x"):
        self.dropped, self.calls = dropped, 0

    def settings(self):
        return {"dropped": self.dropped}

    def refine(self, clusters):
        self.calls += 1
        for cluster in clusters:
            groups = {}
            for phrase in cluster.phrases:
                if phrase[0] != self.dropped:
                    groups.setdefault(phrase[0], []).append(phrase)
            dropped = tuple(p for p in cluster.phrases if p[0] == self.dropped)
            yield Refinement(tuple(Group(letter, tuple(members)) for letter, members in groups.items()), dropped)


class Embedder:
    """Spells phrases out as vectors, and counts its calls."""

    def __init__(self):
        self.calls = 0

    def __call__(self, phrases):
        self.calls += 1
        return np.array([[1.0 + len(p), *(p.count(letter) for letter in "abdeo")] for p in phrases])


@pytest.fixture
def parts():
    return {"extractor": CountingExtractor(), "refiner": LetterRefiner(), "embedder": Embedder()}


def build(dataset, path, parts, **options):
    return ConceptSpace.build(dataset, path=path, **{"cluster_size": 2, "verbose": False, **parts, **options})


def calls(parts):
    return tuple(parts[name].calls for name in ("extractor", "embedder", "refiner"))


def record(space):
    return json.loads((space.path / "build.json").read_text())["steps"]


def test_every_step_leaves_its_file_and_its_record(dataset, parts, tmp_path):
    space = build(dataset, tmp_path / "space", parts)
    assert sorted(p.name for p in space.path.iterdir()) == sorted(
        ["triplets.jsonl", "phrases.jsonl", "phrases.npy", "clusters.jsonl", "refined.jsonl"]
        + ["concepts.jsonl", "aliases.jsonl", "build.json", "pt_meta.json"]
    )
    assert [p.name for p in tmp_path.iterdir()] == ["space"]
    steps = record(space)
    assert list(steps) == STEPS
    assert steps["extract"]["settings"]["version"] == 1 and steps["extract"]["result"]["cost"] == 1.5
    assert steps["extract"]["result"]["rows"] == 6 and steps["extract"]["result"]["without_triplets"] == 1
    assert steps["phrases"]["result"] == {"entity": 8, "relation": 6}
    first = json.loads((space.path / "triplets.jsonl").read_text().splitlines()[0])
    assert first["text"] == "caption 0"


def test_merged_phrases_are_one_concept_and_dropped_ones_have_no_label(dataset, parts, tmp_path):
    parts["refiner"] = LetterRefiner(dropped="s")
    space = build(dataset, tmp_path / "space", parts)
    entities = {c.name: c for c in space.concepts if c.kind == "entity"}
    # "b" of ball, boy, brown, whichever clusters they were in; "snow" and "street" are dropped
    assert set(entities) == {"b", "d", "k", "p", "r"} - {"r"}
    assert set(entities["b"].members) == {"b", "ball", "boy", "brown"} and entities["b"].df == 2
    assert space.labels([[("snow", "", "street")], [("BALL", "", "")]]).sum(axis=1).tolist() == [0, 1]
    assert {c.name for c in space.concepts if c.kind == "relation"} == {"b", "i", "k", "o", "r"}


def test_the_same_build_does_nothing(dataset, parts, tmp_path):
    space = build(dataset, tmp_path / "space", parts)
    before = {p.name: p.stat().st_mtime_ns for p in space.path.iterdir()}
    again = build(dataset, tmp_path / "space", parts)
    assert again == space and calls(parts) == (1, 2 - 1, 1)
    assert {p.name: p.stat().st_mtime_ns for p in space.path.iterdir()} == before


@pytest.mark.parametrize(
    ("change", "done_again"),
    [
        ({"min_df": 2}, ["concepts"]),
        ({"max_df": 0.5}, ["concepts"]),
        ({"refiner": LetterRefiner("d")}, ["refine", "concepts"]),
        ({"seed": 3}, ["cluster"]),
        ({"cluster_size": 3}, ["cluster", "refine", "concepts"]),
        ({"embedder": lambda phrases: np.eye(len(phrases))}, ["embed", "cluster", "refine", "concepts"]),
        ({"kinds": "entity"}, ["phrases", "embed", "cluster", "refine", "concepts"]),
        ({"extractor": CountingExtractor(2)}, ["extract"]),  # the same triplets: the steps behind see no change
        ({"refiner": None}, ["concepts"]),
    ],
)
def test_a_changed_setting_redoes_what_depends_on_it(dataset, parts, tmp_path, change, done_again):
    space = build(dataset, tmp_path / "space", parts)
    before = record(space)
    with pytest.raises(FileExistsError, match=r"not what this build makes: .*overwrite=True"):
        build(dataset, tmp_path / "space", {**parts, **change})
    assert ConceptSpace.load(tmp_path / "space") == space and record(space) == before
    after = record(build(dataset, tmp_path / "space", {**parts, **change}, overwrite=True))
    redone = [name for name in after if before[name] != after[name]]
    assert set(done_again) <= set(redone) <= {*done_again, *(["refine", "concepts"] if "seed" in change else [])}
    if change.get("refiner", 1) is None:
        assert sorted(after) == ["concepts", "extract", "phrases"]
        assert not (tmp_path / "space" / "refined.jsonl").exists()


def test_what_differs_is_said(dataset, parts, tmp_path):
    build(dataset, tmp_path / "space", parts)
    for change, words in (
        ({"min_df": 2}, "in its step 'concepts' min_df was 1 and is 2"),
        ({"refiner": None}, "it was refined, and the refiner is None"),
        ({"extractor": CountingExtractor(2)}, "in its step 'extract' version was 1 and is 2"),
    ):
        with pytest.raises(FileExistsError, match=words):
            build(dataset, tmp_path / "space", {**parts, **change})
    build(dataset, tmp_path / "plain", {**parts, "refiner": None})
    with pytest.raises(FileExistsError, match="it was not refined"):
        build(dataset, tmp_path / "plain", parts)


def test_a_broken_space_is_refused_or_replaced(dataset, parts, tmp_path):
    space = build(dataset, tmp_path / "space", parts)
    (space.path / "pt_meta.json").unlink()
    with pytest.raises(FileExistsError, match="pt_meta.json, which is written last, is missing"):
        build(dataset, tmp_path / "space", parts)
    assert build(dataset, tmp_path / "space", parts, overwrite=True) == space
    assert calls(parts) == (1, 1, 1)


def test_changed_captions_are_extracted_again(dataset, parts, tmp_path):
    build(dataset, tmp_path / "space", parts)
    topics = dataset.get_topics()
    topics.loc[0, "query"] = "another caption"
    dataset.get_topics = lambda: topics
    with pytest.raises(FileExistsError, match="in its step 'extract' captions was"):
        build(dataset, tmp_path / "space", parts)


def test_a_build_goes_on_where_it_stopped(dataset, parts, tmp_path):
    class Broken(LetterRefiner):
        def refine(self, clusters):
            raise KeyboardInterrupt
            yield

    with pytest.raises(KeyboardInterrupt):
        build(dataset, tmp_path / "space", {**parts, "refiner": Broken()})
    assert not (tmp_path / "space").exists() and calls(parts)[:2] == (1, 1)
    with pytest.raises(FileNotFoundError, match="no concept space"):
        ConceptSpace.load(tmp_path / "space")
    with pytest.raises(FileNotFoundError, match="no complete concept space"):
        ConceptSpace.load(tmp_path / "space.building")
    space = build(dataset, tmp_path / "space", parts)
    assert calls(parts) == (1, 1, 1) and len(space)
    assert not (tmp_path / "space.building").exists()


def test_an_interrupted_extraction_is_no_whole_one(dataset, parts, tmp_path):
    class Broken(CountingExtractor):
        def extract(self, dataset):
            yield from list(super().extract(dataset))[:2]
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="disk is full"):
        build(dataset, tmp_path / "space", {**parts, "extractor": Broken()})
    assert not (tmp_path / "space.building" / "triplets.jsonl").exists()
    assert build(dataset, tmp_path / "space", parts).n_texts == 6


def test_a_failed_replacement_leaves_the_old_space(dataset, parts, tmp_path):
    space = build(dataset, tmp_path / "space", parts)
    with pytest.raises(ValueError, match="no concept occurs"):
        build(dataset, tmp_path / "space", parts, min_df=99, overwrite=True)
    assert ConceptSpace.load(tmp_path / "space") == space
    build(dataset, tmp_path / "space", parts, min_df=2, overwrite=True)
    assert calls(parts) == (1, 1, 1)


def test_hand_edits_are_not_lost(dataset, parts, tmp_path):
    space = build(dataset, tmp_path / "space", parts)
    for name in ("concepts.jsonl", "clusters.jsonl", "triplets.jsonl"):
        before = (space.path / name).read_text()
        (space.path / name).write_text("\n".join(before.splitlines()[:-1]) + "\n")
        with pytest.raises(FileExistsError, match="were edited"):
            build(dataset, tmp_path / "space", parts)
        (space.path / name).write_text(before)
    assert build(dataset, tmp_path / "space", parts) == space


def test_a_refiner_that_does_not_fit_its_clusters(dataset, parts, tmp_path):
    class Inventive(LetterRefiner):
        def refine(self, clusters):
            for _ in clusters:
                yield Refinement((Group("unicorn", ("unicorn",)),))

    space = build(dataset, tmp_path / "space", {**parts, "refiner": Inventive()})
    assert "unicorn" not in space.names and len(space) == 14
    assert record(space)["refine"]["result"]["kept_as_they_were"] == len(
        (space.path / "clusters.jsonl").read_text().splitlines()
    )


def test_a_canonical_name_that_belongs_to_another_group(fakes, parts, tmp_path):
    class Pets(LetterRefiner):
        def refine(self, clusters):
            for cluster in clusters:
                names = {"dog": "animal", "puppy": "animal", "animal": "beast"}
                groups = {}
                for phrase in cluster.phrases:
                    groups.setdefault(names.get(phrase, phrase), []).append(phrase)
                yield Refinement(tuple(Group(name, tuple(members)) for name, members in groups.items()))

    dataset = fakes[0]({"a": {"0": [("dog", "", "puppy")], "1": [("animal", "", "dog")]}})
    space = build(dataset, tmp_path / "space", {**parts, "refiner": Pets()})
    assert {c.name: set(c.members) for c in space.concepts} == {"dog": {"dog", "puppy"}, "beast": {"beast", "animal"}}


def _hold(path, ready, end):
    from filelock import FileLock

    path.mkdir()
    with FileLock(path / "lock"):
        ready.set()
        end.wait(30)


def test_two_processes_in_one_folder(dataset, parts, tmp_path):
    context = multiprocessing.get_context("spawn")
    ready, end = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(tmp_path / "space.building", ready, end))
    other.start()
    try:
        assert ready.wait(60)
        with pytest.raises(ValueError, match="another process is building .*space"):
            build(dataset, tmp_path / "space", parts)
        assert calls(parts) == (0, 0, 0)
    finally:
        end.set()
        other.join()
    assert len(build(dataset, tmp_path / "space", parts))


def test_damaged_records_and_wrong_arguments(dataset, parts, tmp_path):
    space = build(dataset, tmp_path / "space", parts)
    (space.path / "build.json").write_text('{"steps": ')
    with pytest.warns(UserWarning, match="build.json is damaged"), pytest.raises(FileExistsError, match="'extract'"):
        build(dataset, tmp_path / "space", parts)
    with pytest.warns(UserWarning, match="build.json is damaged"):
        assert build(dataset, tmp_path / "space", parts, overwrite=True) == space
    assert list(record(space)) == STEPS
    for options, words in (
        ({"refiner": "rules"}, "refiner must be a refiner, None or 'auto'"),
        ({"refiner": 3}, "method refine"),
        ({"cluster_size": 0}, "cluster_size must"),
        ({"max_cluster_size": 1}, "max_cluster_size must be an integer of at least 2"),
        ({"seed": -1}, "seed must"),
    ):
        with pytest.raises(ValueError, match=words):
            build(dataset, tmp_path / "other", parts, **options)
    assert not list(tmp_path.glob("other*"))


def test_an_empty_dataset(fakes, parts, tmp_path):
    with pytest.raises(ValueError, match="no captions"):
        build(fakes[0]({}), tmp_path / "space", parts)
    with pytest.raises(ValueError, match="no concept occurs"):
        build(fakes[0]({"a": {"0": []}}), tmp_path / "space2", parts)


def test_a_space_without_the_files_of_the_steps_still_works(dataset, parts, tmp_path):
    space = build(dataset, tmp_path / "space", parts)
    for name in ("phrases.jsonl", "phrases.npy", "clusters.jsonl", "refined.jsonl", "build.json"):
        (space.path / name).unlink()
    assert ConceptSpace.load(space.path) == space
    with pytest.raises(FileExistsError, match="'extract' is missing"):
        build(dataset, tmp_path / "space", parts)
    shutil.rmtree(space.path)


def test_report(dataset, parts, tmp_path, capsys):
    parts["refiner"] = LetterRefiner(dropped="s")
    build(dataset, tmp_path / "space", parts).report()
    printed = capsys.readouterr().out
    assert "9 concepts (#entity 4, #relation 5) from 6 captions of 3 images" in printed
    assert "dropped: " in printed and "snow" in printed and "entity:b <- ball, boy, brown\n" in printed
    build(dataset, tmp_path / "plain", {**parts, "refiner": None}).report()
    assert "not refined" in capsys.readouterr().out


def test_descriptions_are_captions_of_their_own(dataset, parts, tmp_path):
    path = tmp_path / "descriptions.jsonl"
    path.write_text('{"docno": "snow", "text": "Two dogs in deep snow"}\n')
    described = DescribedDataset(dataset, path)

    class Words(CountingExtractor):
        def extract(self, dataset):
            for caption in captions(dataset):
                yield {"qid": caption.qid, "docno": caption.docno, "triplets": [(caption.text.split()[-1], "", "")]}

    space = build(described, tmp_path / "space", {**parts, "extractor": Words(), "refiner": None})
    assert space.n_texts == 7 and "snow" in space.names
    assert space.text_labels(["snow#description"]).nnz == 1
    assert space.image_labels(["snow"]).nnz == 3  # of two captions and the description
    assert (space.path / "descriptions.jsonl").read_text() == path.read_text()
    again = DescribedDataset(dataset, space.path / "descriptions.jsonl")
    assert set(again.get_topics()["qid"]) == set(space.qids)
    space.save(tmp_path / "copy")
    assert (tmp_path / "copy" / "descriptions.jsonl").is_file()
