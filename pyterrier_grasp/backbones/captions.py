"""How BLIP cleans a caption before it is tokenised."""

import re

_PUNCTUATION = re.compile(r"([.!\"()*#:;~])")
_SPACES = re.compile(r"\s{2,}")


def blip_caption(text: str, max_words: int = 50) -> str:
    """Returns a caption in lower case, without most punctuation, cut to its first words.

    The rules of LAVIS' ``blip_caption``: ``. ! " ( ) * # : ; ~`` become spaces; commas, apostrophes, question marks,
    hyphens and slashes stay. The BLIP repository itself keeps 30 words, LAVIS 50.

    Args:
        text: any caption, also an empty one.
        max_words: how many words to keep.
    """
    text = _PUNCTUATION.sub(" ", text.lower())
    text = _SPACES.sub(" ", text).rstrip("\n").strip(" ")
    return " ".join(text.split(" ")[:max_words])
