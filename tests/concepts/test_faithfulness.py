import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizer

from pyterrier_grasp import pretrained
from pyterrier_grasp.concepts.faithfulness import check, sentence

WORDS = "dog cat snow street black white run in is there on a . true maybe false".split()
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
MNLI = {0: "CONTRADICTION", 1: "NEUTRAL", 2: "ENTAILMENT"}
SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


def save(folder, id2label=None, **settings):
    """A small random BERT over 16 words."""
    torch.manual_seed(1)
    config = BertConfig(vocab_size=len(VOCABULARY), **(SMALL | settings))
    config.id2label = id2label or MNLI
    config.label2id = {name: number for number, name in config.id2label.items()}
    BertForSequenceClassification(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    BertTokenizer.from_pretrained(folder, model_max_length=512).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save(tmp_path_factory.mktemp("nli"))


class Stub(torch.nn.Module):
    """Contradicts sentences with the word "false", is neutral about "maybe", and entails the others."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.shapes = []

    def forward(self, input_ids, attention_mask, token_type_ids):
        self.shapes.append(tuple(input_ids.shape))
        names = [name.lower() for name in self.config.id2label.values()]
        logits = torch.zeros(len(input_ids), 3)
        for row, (ids, segment) in enumerate(zip(input_ids.tolist(), token_type_ids.tolist(), strict=True)):
            words = [VOCABULARY[i] for i, second in zip(ids, segment, strict=True) if second]
            kind = "contra" if "false" in words else "neutral" if "maybe" in words else "entail"
            position = next(i for i, name in enumerate(names) if name.startswith(kind))
            logits[row, position] = 3 + 0.5 * words.count("false")
        return type("Output", (), {"logits": logits})


@pytest.fixture
def stub(folder, monkeypatch):
    made = Stub(BertConfig.from_pretrained(folder))
    monkeypatch.setattr(pretrained, "model", lambda *args: made)
    return made


def triplets_of(kind, n):
    return [("dog", "in", kind)] * n


def judge(texts, triplets, model, **arguments):
    return check(texts, triplets, model, **({"verbose": False, "device": "cpu"} | arguments))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
@pytest.mark.parametrize("case", [str.lower, str.upper, str.title])
def test_shares(folder, stub, order, case):
    names = ["entailment", "neutral", "contradiction"]
    stub.config.id2label = {i: case(names[number]) for i, number in enumerate(order)}
    triplets = [triplets_of("true", 5) + triplets_of("false", 2), [], triplets_of("maybe", 3)]
    found = judge(["dog false"] * 3, triplets, folder, batch_size=4)  # what the text says is not the sentence
    assert found[:4] == (0.5, 0.3, 0.2, 10)
    assert str(found) == "of 10 triplets 50.00% are entailed by their text, 30.00% neutral, 20.00% contradicted"
    assert [shape[0] for shape in stub.shapes] == [4, 4, 2]


def test_examples_are_the_surest_contradictions(folder, stub):
    triplets = [triplets_of("true", 20), [("dog", "in", "false " * (i + 1)) for i in range(12)]]
    examples = judge(["dog", "cat in snow"], triplets, folder).examples
    assert [example.triplet[2].count("false") for example in examples] == list(range(12, 2, -1))
    assert examples[-1].text == "cat in snow" and examples[-1].sentence == "Dog is in false false false."
    assert 0.9 < examples[-1].probability < examples[0].probability < 1


def test_the_order_of_outputs_can_be_given(folder, stub):
    stub.config.id2label = {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"}
    with pytest.raises(ValueError, match=r"called \['LABEL_0', 'LABEL_1', 'LABEL_2'\]. Give their order"):
        judge(["dog"], [triplets_of("true", 1)], folder)


def test_a_given_order_is_followed(folder):
    pairs = ["dog in snow", "cat"], [triplets_of("snow", 3), [("cat", "is", "black")]]
    named = judge(*pairs, folder)
    order = ["contradiction", "neutral", "entailment"]
    assert judge(*pairs, folder, labels=order) == named
    turned = judge(*pairs, folder, labels=order[::-1])
    assert (turned.entailed, turned.contradicted) == (named.contradicted, named.entailed) != (0, 0)


@pytest.mark.parametrize(
    "names", [["entailment", "not_entailment"], ["entailment", "entailment", "neutral"], ["a", "b", "c", "d"]]
)
def test_outputs_that_cannot_be_told(tmp_path, names):
    save(tmp_path, dict(enumerate(names)))
    with pytest.raises(ValueError, match="cannot tell which of the .* outputs of"):
        judge(["dog"], [triplets_of("snow", 1)], tmp_path)
    with pytest.raises(ValueError, match="cannot tell which"):
        judge(["dog"], [triplets_of("snow", 1)], tmp_path, labels=["neutral", "entailment"])


def test_a_sample(folder, stub):
    texts = [str(i) for i in range(40)]
    triplets = [triplets_of("false", 2) for _ in texts]
    examples = {seed: judge(texts, triplets, folder, sample=10, seed=seed).examples for seed in (0, 0, 1)}
    assert len(examples[0]) == 10 and examples[0] != examples[1]
    assert examples[0] == judge(texts, triplets, folder, sample=10).examples
    assert judge(texts, triplets, folder, sample=10).n == 10
    assert judge(texts, triplets, folder, sample=81).n == 80


def test_long_texts_and_long_triplets_are_cut(folder, stub):
    found = judge(["dog " * 3000, "dog"], [triplets_of("false", 1), [("dog " * 3000, "in", "snow")]], folder)
    assert found[:4] == (0.5, 0.0, 0.5, 2)
    assert max(shape[1] for shape in stub.shapes) == 510


def test_cut_to_what_the_model_takes(tmp_path):
    save(tmp_path, max_position_embeddings=20)
    assert judge(["dog " * 50], [triplets_of("snow " * 50, 1)], tmp_path).n == 1


def test_batches_do_not_matter(folder):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, rng.integers(1, 12))) for _ in range(30)]
    triplets = [[tuple(rng.choice(WORDS, 3).tolist())] for _ in texts]
    alone, together = (judge(texts, triplets, folder, batch_size=size) for size in (1, 64))
    assert alone[:4] == together[:4]
    for one, other in zip(alone.examples, together.examples, strict=True):
        assert one[:3] == other[:3] and one.probability == pytest.approx(other.probability, abs=1e-5)


def test_progress(folder, stub, capsys):
    judge(["dog"], [triplets_of("snow", 1)], folder)
    assert not capsys.readouterr().err
    judge(["dog"], [triplets_of("snow", 1)], folder, verbose=True)
    assert "faithfulness" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("texts", "triplets", "arguments", "words"),
    [
        ([], [], {}, "none of the 0 texts has a triplet to check"),
        (["dog"], [[]], {}, "none of the 1 texts"),
        (["dog"], [[("", " ", "")]], {}, "none of the 1 texts"),
        (["dog", "cat"], [[]], {}, "2 texts, but triplets of 1"),
        ([None], [[("a", "b", "c")]], {}, "text number 0 is None"),
        (["dog"], [[("a", "b")]], {}, "text number 0: a triplet is three strings"),
        (["dog"], [[("a", "b", "c")]], {"sample": 0}, "sample must be"),
        (["dog"], [[("a", "b", "c")]], {"batch_size": 1.5}, "batch_size must be"),
        (["dog"], [[("a", "b", "c")]], {"seed": "x"}, "seed must be"),
    ],
)
def test_bad_input(folder, texts, triplets, arguments, words):
    with pytest.raises(ValueError, match=words):
        judge(texts, triplets, folder, **arguments)


def test_models_that_will_not_do(tmp_path, folder):
    pairs = ["dog"], [triplets_of("snow", 1)]
    with pytest.raises(FileNotFoundError, match="nobody/nothing"):
        judge(*pairs, "nobody/nothing")
    BertModel(BertConfig(vocab_size=len(VOCABULARY), **SMALL)).save_pretrained(tmp_path)
    BertTokenizer.from_pretrained(folder).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="these would stay random"):
        judge(*pairs, tmp_path)


@pytest.mark.parametrize(
    ("triplet", "words"),
    [
        (("dog", "run after", "cat"), "Dog run after cat."),
        (("dog", "in", "snow"), "Dog is in snow."),
        (("dog", "Next to", "cat"), "Dog is Next to cat."),
        (("two dogs", "running", ""), "Two dogs is running."),
        (("man", "bring", "dog"), "Man bring dog."),
        (("dog", "is", "black"), "Dog is black."),
        (("dog", "", "black"), "Dog is black."),
        (("dog", "", ""), "There is dog."),
        (("", "", " snow "), "There is snow."),
        (("", "on", "street"), "On street."),
        (("", "\t", ""), ""),
        (("hund", "läuft  über", "straße"), "Hund läuft über straße."),
    ],
)
def test_sentences(triplet, words):
    assert sentence(triplet) == words


@given(st.tuples(*[st.text(max_size=12)] * 3))
def test_any_triplet_is_a_sentence_of_its_words(triplet):
    made = sentence(triplet)
    assert all(part.split()[1:] == [] or " ".join(part.split()[1:]) in made for part in triplet)
    assert bool(made) == any(part.strip() for part in triplet)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.text(), st.lists(st.tuples(*[st.text(max_size=20)] * 3), max_size=3)), max_size=4))
def test_any_text_can_be_judged(folder, rows):
    texts, triplets = [text for text, _ in rows], [own for _, own in rows]
    n = sum(bool(sentence(triplet)) for own in triplets for triplet in own)
    if n:
        found = judge(texts, triplets, folder)
        assert found.n == n and sum(found[:3]) == pytest.approx(1)
