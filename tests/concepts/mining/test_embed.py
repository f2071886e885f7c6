import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel, BertTokenizer

from pyterrier_grasp.concepts.mining.embed import embed, embedder, name_of

PHRASES = ["dog", "brown dog", "a dog runs on the street", "street"]


def letters(phrases):
    """Counts of letters."""
    return np.array([[phrase.count(letter) for letter in "adeghinorstuw"] for phrase in phrases])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small random BERT without a word of sentence-transformers."""
    folder = tmp_path_factory.mktemp("bert")
    words = sorted({word for phrase in PHRASES for word in phrase.split()})
    torch.manual_seed(0)
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=5 + len(words), **small)).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]) + "\n")
    BertTokenizer.from_pretrained(folder, model_max_length=32).save_pretrained(folder)
    return folder


def test_vectors_of_a_function():
    vectors = embed(PHRASES, embedder(letters))
    expected = letters(PHRASES) / np.linalg.norm(letters(PHRASES), axis=1, keepdims=True)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected, rtol=1e-6)


@pytest.mark.parametrize("kind", [list, tuple, torch.tensor, np.float16])
def test_whatever_holds_numbers_is_a_vector(kind):
    output = [[3, 4], [0, 2]]
    found = embed(["a", "b"], lambda phrases: kind(output))
    np.testing.assert_allclose(found, [[0.6, 0.8], [0, 1]], rtol=1e-6)


def test_large_inputs_come_in_batches_in_order(capsys):
    sizes = []

    def count(phrases):
        sizes.append(len(phrases))
        return [[1, int(phrase)] for phrase in phrases]

    vectors = embed([str(i) for i in range(2500)], count)
    assert sum(sizes) == 2500 and max(sizes) <= 1024
    np.testing.assert_allclose(vectors[:, 1] / vectors[:, 0], np.arange(2500), rtol=1e-5)
    assert not capsys.readouterr().err
    embed(["1"], count, verbose=True)
    assert "embedding" in capsys.readouterr().err


def test_no_phrases_need_no_embedder():
    assert embed([], lambda phrases: 1 / 0).shape == (0, 0)


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ([[1.0, 2.0]], r"for 2 phrases it gave the shape \(1, 2\)"),
        ([1.0, 2.0], r"the shape \(2,\)"),
        ([[], []], r"the shape \(2, 0\)"),
        ([[1.0], [1.0, 2.0]], "no array of numbers"),
        ("words", "no array of numbers"),
        (None, "the embedder"),
        ([[1.0, 1.0], [1.0, np.nan]], "NaN or infinity for 'cat'"),
        ([[np.inf, 1.0], [1.0, 1.0]], "NaN or infinity for 'dog'"),
        ([[1.0, 0.0], [0.0, 0.0]], "zero vector for 'cat'"),
    ],
)
def test_useless_vectors_are_an_error_that_names_the_phrase(output, words):
    with pytest.raises(ValueError, match=words):
        embed(["dog", "cat"], lambda phrases: output)


def test_the_width_must_not_change():
    with pytest.raises(ValueError, match="of width 2, then of width 3 for '1024'"):
        embed([str(i) for i in range(1100)], lambda phrases: np.ones((len(phrases), 2 if "0" in phrases else 3)))


def test_a_phrase_is_a_string():
    with pytest.raises(ValueError, match="must be a string, got 3"):
        embed(["dog", 3], letters)


def test_a_folder_is_mean_pooled(folder):
    vectors = embed(PHRASES, embedder(folder))
    model, tokenizer = BertModel.from_pretrained(folder), BertTokenizer.from_pretrained(folder)
    with torch.no_grad():
        states = [model(**tokenizer(phrase, return_tensors="pt")).last_hidden_state[0].mean(0) for phrase in PHRASES]
    np.testing.assert_allclose(vectors, torch.nn.functional.normalize(torch.stack(states)), atol=1e-5)


def test_a_vector_does_not_depend_on_its_neighbours(folder):
    function = embedder(str(folder))
    together = embed(PHRASES, function)
    alone = np.concatenate([embed([phrase], function) for phrase in PHRASES])
    np.testing.assert_allclose(together, alone, atol=1e-6)


@pytest.mark.parametrize("spec", ["nobody/nothing-here", "nothing-here"])
def test_a_model_that_cannot_be_had(spec):
    with pytest.raises(FileNotFoundError, match=f"cannot load the embedder '{spec}'.*give a folder"):
        embedder(spec)


def test_folders_that_hold_no_model(tmp_path):
    with pytest.raises(FileNotFoundError, match="no folder"):
        embedder(tmp_path / "nothing")
    with pytest.raises(ValueError, match="cannot load an embedder from the folder"):
        embedder(tmp_path)


def test_half_a_surrogate_pair(folder):
    assert embed(["dog \ud83d"], embedder(folder)).shape == (1, 16)


def test_what_is_no_embedder():
    with pytest.raises(ValueError, match="got 3$"):
        embedder(3)

    class Model:
        def __call__(self):
            """As modules have."""

        def encode(self, phrases):
            return letters(phrases)

    with pytest.raises(ValueError, match="pass its method encode"):
        embedder(Model())
    assert embed(PHRASES, embedder(Model().encode)).shape == (4, 13)


def test_names(folder, tmp_path):
    assert name_of() == name_of("sentence-transformers/all-MiniLM-L6-v2") == "sentence-transformers/all-MiniLM-L6-v2"
    assert name_of(letters).endswith("test_embed.letters")
    assert name_of(np.vectorize(len)).endswith("vectorize")
    with pytest.raises(FileNotFoundError):
        name_of(tmp_path / "nothing")


def test_the_name_of_a_folder_follows_what_decides_about_vectors(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / folder.name)
    assert name_of(copy) == name_of(folder) and name_of(folder).startswith(f"{folder.name}@")
    (copy / "README.md").write_text("Words.")
    assert name_of(copy) == name_of(folder)
    (copy / "1_Pooling").mkdir()
    (copy / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    assert name_of(copy) != name_of(folder)


def test_importing_loads_no_model_library():
    code = "import sys, pyterrier_grasp.concepts.mining.embed; print('sentence_transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.strip() == "False"
