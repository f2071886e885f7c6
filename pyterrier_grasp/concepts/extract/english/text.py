"""Captions as people type them, made fit for the parser."""

import re
from collections.abc import Callable

LONGEST = 50_000  # characters; more is cut off

_SPACE_BEFORE = re.compile(r"\s+([.,;:!?])")
_ENDS = re.compile(r"[\s.,;:!?\-\"'`*_]+$")
_STARTS = re.compile(r"^[\s.,;:!?\-\"'`*_]+")
_TOGETHER = re.compile(r"\b(side by side|back to back|hand in hand|face to face) ?", re.I)  # confuses the parser
_ONE_WORD = re.compile(r"\b(upside down|face down|up close)\b", re.I)
_OPENERS = frozenset("a an the two three four five several some with".split())
_ITS = re.compile(r"\b(\w+ing|with|in|on|of|from|by|to|and|at|near|behind|under|over|holding|using|has|for|out) it's\b")
_JOINED = re.compile(r"\b(a|an|the) (fenced|bundled|walled|roped) (in|up|off) (?=[a-z])")


def tidy(text: str) -> str:
    """One sentence as in a book: single spaces, a capital at the start, a full stop at the end, no shouting.

    ``"A DOG RUNNING , FAST"`` -> ``"A dog running, fast."``; a text without words gives ``""``.
    """
    text = text[:LONGEST].encode("utf-8", "ignore").decode("utf-8")
    text = " ".join(text.replace("’", "'").replace("`", "'").split())
    text = _ENDS.sub("", _STARTS.sub("", _SPACE_BEFORE.sub(r"\1", text)))
    text = _TOGETHER.sub("", text).strip()
    text = _ONE_WORD.sub(lambda match: match[0].replace(" ", "-"), text)
    text = re.sub(r"(?<=[a-z])'s (?=\w+ing\b|in\b|on\b|at\b|are\b|with\b)", "s ", text)  # "two zebra's standing"
    text = re.sub(r"\b([Cc]lose) up (?=of\b|(?:image|photo|picture|shot|view)\b)", r"\1-up ", text)
    text = _ITS.sub(r"\1 its", text)
    text = re.sub(r"(?<=[a-z])/(?=[a-z])", " and ", text)
    text = _JOINED.sub(r"\1 \2-\3 ", text)
    words = [word for word in text.split() if word[0].isalpha()]
    if len(words) > 2 and 2 * sum(word[0].isupper() for word in words) > len(words):
        text = text.lower()  # titles and shouting
    return text[0].upper() + text[1:] + "." if text else ""


def join_adjectives(text: str, is_adjective: Callable[[str], bool]) -> str:
    """``"a huge, snowy mountain"`` -> ``"a huge snowy mountain"``: the parser takes the comma for that of a list."""
    words = text.split()
    for i in range(1, len(words) - 1):
        word, before = words[i].removesuffix(","), words[i - 1].lower()
        opens = before in _OPENERS or is_adjective(before)
        after = words[i + 2 if words[i + 1] == "and" and i + 2 < len(words) else i + 1].removesuffix(",")
        if word != words[i] and opens and is_adjective(word) and is_adjective(after):
            words[i] = word
    return " ".join(words)
