import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_grasp.concepts.extract.english import Lemmas
from pyterrier_grasp.concepts.extract.english.models import load_model
from pyterrier_grasp.concepts.mining import Cluster, Refiner
from pyterrier_grasp.concepts.mining.refine import check_refinement
from pyterrier_grasp.concepts.mining.rule_refiner import RuleRefiner
from pyterrier_grasp.concepts.mining.spelling import Spelling, _dictionary, _distance, _one_away

COMMON = (
    *("field", "field hockey", "field of corn", "corn field", "shirt", "shirt sleeve", "red shirt"),
    *(
        "broccoli",
        "broccoli soup",
        "broccoli dish",
        "dog",
        "dog house",
        "dog toy",
        "bikini",
        "bikini top",
        "red bikini",
    ),
)


@pytest.fixture(scope="module")
def refiner():
    pytest.importorskip("spacy")
    pytest.importorskip("spellchecker")
    return RuleRefiner()


@pytest.fixture(scope="module")
def lemmas():
    pytest.importorskip("spacy")
    return Lemmas.of(load_model())


def refine(refiner, kind, *phrases, background=()):
    """``{phrase: its canonical name, or None}``; the background is a cluster of its own."""
    clusters = [Cluster(kind, tuple(phrases)), Cluster("entity", tuple(background))]
    refinements = list(refiner.refine(clusters))
    for cluster, refinement in zip(clusters, refinements, strict=True):
        check_refinement(cluster, refinement)
        assert refinement.problem is None
    names = {member: group.canonical for group in refinements[0].groups for member in group.members}
    return {phrase: names.get(phrase) for phrase in phrases}


def test_it_is_a_refiner_with_settings(refiner):
    assert isinstance(refiner, Refiner)
    assert set(refiner.settings()) == {"model", "version", "dictionary", "rules"}
    assert refiner.settings() == RuleRefiner().settings()


@pytest.mark.parametrize(
    "variants",
    [
        ("dog", "dogs", "a dog", "the dogs"),
        ("tennis racket", "tennis rackets", "tennis racquet", "the tennis racquets"),
        ("man", "men"),
        ("gray", "grey"),
        ("colored shirt", "coloured shirt", "coloured shirts"),
        ("gray-haired", "grey-haired"),
        ("t-shirt", "tshirt", "t shirt", "t-shirts", "tee-shirt"),
        ("skateboard", "skate board", "skate-board", "skateboards"),
        ("baseball player", "base ball player", "base-ball players"),
        ("jet ski", "jet-ski"),
        ("donut", "doughnut", "donuts"),
    ],
)
def test_spellings_and_inflections_of_entities(refiner, variants):
    assert set(refine(refiner, "entity", *variants).values()) == {variants[0]}
    assert set(refine(refiner, "entity", *reversed(variants)).values()) == {variants[0]}


@pytest.mark.parametrize(
    "variants",
    [
        ("run through", "running through", "runs through", "ran through"),
        ("ride", "riding", "rides", "is riding"),
        ("have", "has", "having"),
        ("is", "are", "was", "be"),
        ("in", "is in", "are in"),
        ("toward", "towards"),
        ("on side of", "on the side of"),
        ("sit on top of", "sitting on the top of", "sits on top of"),
        ("jump onto", "jumping on to"),
        ("lie on", "lying on"),
    ],
)
def test_spellings_and_inflections_of_relations(refiner, variants):
    assert set(refine(refiner, "relation", *variants).values()) == {variants[0]}


@pytest.mark.parametrize(
    ("kind", "phrases"),
    [
        ("entity", ("glass", "glasses", "sunglasses")),
        ("entity", ("short", "shorts")),
        ("entity", ("people", "person")),
        ("entity", ("wood", "woods", "wooden")),
        ("entity", ("blackbird", "black bird", "greenhouse", "green house")),
        ("entity", ("parked", "park", "parking")),
        ("entity", ("smiling", "standing")),
        ("relation", ("on", "off", "in", "with", "during", "left of", "following")),
        ("relation", ("bound across", "bind across", "ground on")),
        ("relation", ("sit on", "sit in", "sit", "sit up")),
    ],
)
def test_what_stays_apart(refiner, kind, phrases):
    assert refine(refiner, kind, *phrases) == {phrase: phrase for phrase in phrases}


@pytest.mark.parametrize(
    ("kind", "phrases"),
    [
        (
            "entity",
            ("it", "one", "thing", "something", "the", "which", "who", "other", "stuff", "they", "12", "...", "-"),
        ),
        ("relation", ("the", "which", "and", "as", "1", "?")),
        ("entity", ("xqzvk", "zchtv wtpl")),
    ],
)
def test_what_is_dropped(refiner, kind, phrases):
    assert refine(refiner, kind, *phrases) == dict.fromkeys(phrases)


def test_misspellings_of_common_words(refiner):
    wrong = {"feild": "field", "shrit": "shirt", "brocolli": "broccoli", "red shrit": "red shirt", "bikinni": "bikini"}
    wrong["brocolli soup"] = "broccoli soup"
    assert refine(refiner, "entity", *wrong, background=COMMON) == wrong
    assert refine(refiner, "entity", "feild") == {"feild": None}, "there is no field to correct it to"


def test_a_correction_has_the_part_of_speech(refiner):
    background = ("sit on", "sit in", "sit at", "sitting room")
    assert refine(refiner, "relation", "sittin on", background=background) == {"sittin on": "sit on"}


def test_words_of_several_phrases_or_many_captions_are_words(refiner):
    brand = ("zwiggo", "zwiggo bag", "red zwiggo")
    assert refine(refiner, "entity", *brand) == {phrase: phrase for phrase in brand}
    assert refine(refiner, "entity", brand[0]) == {brand[0]: None}
    assert refine(RuleRefiner(counts={"zwiggo": 30}), "entity", brand[0]) == {brand[0]: brand[0]}
    assert refine(RuleRefiner(counts={"zwiggo": 1, "other": 30}), "entity", brand[0]) == {brand[0]: None}


def test_an_unknown_word_before_a_known_one_goes(refiner):
    assert refine(refiner, "entity", "zchtv wall", "wall") == {"zchtv wall": "wall", "wall": "wall"}


@pytest.mark.parametrize("phrase", ["café", "naïve painting", "狗", "собака", "straße", "🐶", "crème brûlée"])
def test_other_letters_stay(refiner, phrase):
    kept = None if phrase == "🐶" else phrase
    assert refine(refiner, "entity", phrase) == {phrase: kept}


def test_a_phrase_has_one_name_in_whatever_cluster(refiner):
    clusters = [
        Cluster("entity", ("dogs", "skate board", "t shirt")),
        Cluster("entity", ("skateboard", "dog", "base ball")),
        Cluster("relation", ("runs in",)),
        Cluster("entity", ("t-shirt", "baseball")),
        Cluster("relation", ("running in", "dogs")),
    ]
    refinements = list(refiner.refine(clusters))
    assert [[group.canonical for group in refinement.groups] for refinement in refinements] == [
        ["dog", "skateboard", "t-shirt"],
        ["skateboard", "dog", "baseball"],
        ["run in"],
        ["t-shirt", "baseball"],
        ["run in", "dog"],
    ]
    assert list(refiner.refine(clusters[::-1])) == refinements[::-1]


def test_outcome(refiner):
    assert refine(refiner, "entity", "dogs", "dog", "it", "xqzvk", "3") == {
        **{"dogs": "dog", "dog": "dog"},
        **dict.fromkeys(("it", "xqzvk", "3")),
    }
    assert refiner.outcome() == {
        "clusters": 2,
        "phrases": 5,
        "groups": 1,
        "dropped": {"no letters": 1, "no word": 1, "stop phrase": 1},
    }


def test_no_clusters(refiner):
    assert list(refiner.refine([])) == []
    assert refiner.outcome() == {"clusters": 0, "phrases": 0, "groups": 0, "dropped": {}}


PIECES = "dog dogs grey gray skate board skateboard t - shirt 's it the is on running in to feild 3 é xqz of a".split()
PHRASES = st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map(" ".join) | st.text(min_size=1, max_size=8).map(
    lambda text: " ".join(text.lower().split()) or "x"
)


@given(
    st.lists(st.tuples(st.sampled_from(("entity", "relation")), st.lists(PHRASES, unique=True, max_size=6)), max_size=4)
)
@settings(max_examples=100, deadline=None)
def test_every_phrase_is_placed_and_names_are_stable(refiner, content):
    clusters = [Cluster(kind, tuple(phrases)) for kind, phrases in content]
    names = {}
    for cluster, refinement in zip(clusters, refiner.refine(clusters), strict=True):
        check_refinement(cluster, refinement)
        for group in refinement.groups:
            for member in group.members:
                assert names.setdefault((cluster.kind, member), group.canonical) == group.canonical


def test_distances():
    words = ("field", "feild", "filed", "fields", "fiel", "wall")
    for word in words:
        near = set(_one_away(word))
        for other in words:
            assert (other in near or other == word) == (_distance(word, other, 2) <= 1), (word, other)
    assert _distance("broccoli", "brocolli", 2) == 2
    assert _distance("broccoli", "cat", 2) > 2


def test_words_of_the_dictionary(lemmas):
    pytest.importorskip("spellchecker")
    spelling = Spelling(lemmas, [], {})
    for word in ("dog", "dogs", "snowboarder", "wakeboarder", "innertube", "t-shirt", "café", "10", "waterskier"):
        assert spelling.is_word(word), word
    for word in ("feild", "yougn", "peolple", "xqzvk"):
        assert not spelling.is_word(word), word


def test_an_absent_model():
    pytest.importorskip("spacy")
    with pytest.raises(FileNotFoundError, match="no spaCy model 'en_no_such'"):
        list(RuleRefiner("en_no_such").refine([Cluster("entity", ("dog",))]))


def test_without_spellchecker(refiner, monkeypatch):
    _dictionary.cache_clear()
    monkeypatch.setitem(sys.modules, "spellchecker", None)
    with pytest.raises(ImportError, match=r"pip install 'pyterrier-grasp\[spacy\]'"):
        list(refiner.refine([Cluster("entity", ("dog",))]))


def test_a_couple_can_be_seen(refiner):
    assert refine(refiner, "entity", "couple", "thing") == {"couple": "couple", "thing": None}
