import pytest

from pyterrier_grasp.backbones.captions import blip_caption


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A Man runs.", "a man runs"),
        ('He said: "Hi!"  (loud) *#;~ End.', "he said hi loud end"),
        ("dog's, well-known? yes/no", "dog's, well-known? yes/no"),
        ("tail\n", "tail"),
        ("", ""),
        ("...", ""),
        ("a\t\tb", "a b"),
        ("smile \U0001f600", "smile \U0001f600"),
    ],
)
def test_rules_of_lavis(text, expected):
    assert blip_caption(text) == expected


def test_words_are_cut():
    assert blip_caption("w " * 80).split() == ["w"] * 50
    assert blip_caption("w " * 80, max_words=30).split() == ["w"] * 30
