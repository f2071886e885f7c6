"""How ALBEF and BLIP clean a caption before it is tokenised."""

import re

_BLIP = re.compile(r"([.!\"()*#:;~])")
_ALBEF = re.compile(r"([,.'!?\"()*#:;~])")
_SPACES = re.compile(r"\s{2,}")


def blip_caption(text: str, max_words: int = 50) -> str:
    """Returns a caption in lower case, without most punctuation, cut to its first words.

    The rules of LAVIS' ``blip_caption``: ``. ! " ( ) * # : ; ~`` become spaces; commas, apostrophes, question marks,
    hyphens and slashes stay. The BLIP repository itself keeps 30 words, LAVIS 50.

    Args:
        text: any caption, also an empty one.
        max_words: how many words to keep.
    """
    return _finish(_BLIP.sub(" ", text.lower()), max_words)


def albef_caption(text: str, max_words: int = 30) -> str:
    """Returns a caption in lower case, without punctuation, cut to its first words.

    The rules of ``pre_caption`` in ALBEF's repository: ``, . ' ! ? " ( ) * # : ; ~`` vanish, hyphens and slashes
    become spaces, ``<person>`` becomes ``person``.

    Args:
        text: any caption, also an empty one.
        max_words: how many words to keep.
    """
    text = _ALBEF.sub("", text.lower()).replace("-", " ").replace("/", " ").replace("<person>", "person")
    return _finish(text, max_words)


def _finish(text: str, max_words: int) -> str:
    text = _SPACES.sub(" ", text).rstrip("\n").strip(" ")
    return " ".join(text.split(" ")[:max_words])
