"""Refusals as endpoints word them, and what follows."""

import pytest

from pyterrier_grasp.llm.dialect import Dialect

OPENAI = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
ONLY_DEFAULT = "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) is supported."


@pytest.mark.parametrize(
    ("words", "param", "after"),
    [
        (OPENAI, "max_tokens", Dialect(length_field="max_completion_tokens")),
        (OPENAI, None, Dialect(length_field="max_completion_tokens")),
        (ONLY_DEFAULT, "temperature", Dialect(without=frozenset({"temperature"}))),
        (
            "[{'loc': ['body', 'seed'], 'msg': 'Extra inputs are not permitted'}]",
            None,
            Dialect(without=frozenset({"seed"})),
        ),
        ("Invalid schema for response_format 'Word'", "response_format", Dialect("json_object")),
        ("This response_format type is unavailable now", None, Dialect("json_object")),
        ("structured outputs are not supported by this model", None, Dialect("json_object")),
        ("max_tokens is too large: 4096. This model supports at most 2048 completion tokens", "max_tokens", None),
        ("This model's maximum context length is 8192 tokens", "messages", None),
        ("Unknown parameter: 'foo'", "foo", None),
        ("the prompt was filtered", None, None),
    ],
)
def test_refusals(words, param, after):
    change = Dialect().after(words, param, structured=True)
    assert (change and change[0]) == after


def test_the_ladder_ends_with_text():
    dialect, rungs = Dialect(), []
    while (change := dialect.after("response_format is not supported", "response_format", True)) is not None:
        dialect = change[0]
        rungs.append(dialect.rung)
    assert rungs == ["json_object", "text"]
    assert Dialect().after("response_format is not supported", "response_format", structured=False) is None


def test_a_parameter_is_left_out_once():
    dialect, _ = Dialect().after(OPENAI, "max_tokens", True)
    dialect, words = dialect.after("Unknown parameter: 'max_completion_tokens'", None, True)
    assert dialect.without == {"max_tokens"} and words == "max_tokens is left out"
    assert dialect.after(OPENAI, "max_tokens", True) is None
