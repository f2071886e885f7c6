"""The dependency parse of a caption, open to repair."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

NOUN_TAGS = frozenset(("NN", "NNS", "NNP", "NNPS"))
VERB_TAGS = frozenset(("VB", "VBD", "VBG", "VBN", "VBP", "VBZ"))
FINITE_TAGS = frozenset(("VBD", "VBP", "VBZ"))


class Word:
    """A token: its place, lower-case text, Penn tag, ClearNLP dependency and head; a root is its own head."""

    __slots__ = ("dep", "head", "i", "kids", "tag", "text")

    def __init__(self, i: int, text: str, tag: str, dep: str) -> None:
        self.i, self.text, self.tag, self.dep = i, text, tag, dep
        self.head: Word = self
        self.kids: list[Word] = []

    def __repr__(self) -> str:
        return f"{self.text}/{self.tag}/{self.dep}"

    @property
    def is_noun(self) -> bool:
        return self.tag in NOUN_TAGS

    @property
    def is_verb(self) -> bool:
        return self.tag in VERB_TAGS

    def of(self, *deps: str) -> list["Word"]:
        """Its children in one of these dependencies, in reading order."""
        return [kid for kid in self.kids if kid.dep in deps]

    def attach(self, head: "Word", dep: str) -> None:
        """Move below another head (or itself, to become a root); what is below it already can be no head of it."""
        if head is not self and self in head.ancestors():
            return
        if self.head is not self:
            self.head.kids.remove(self)
        self.head, self.dep = head, dep
        if head is not self:
            head.kids.append(self)
            head.kids.sort(key=lambda word: word.i)

    def ancestors(self) -> Iterator["Word"]:
        """Its head, the head of that, and so on up to the root."""
        word = self
        while word.head is not word:
            word = word.head
            yield word


def words_of(tokens: Iterable[Any]) -> list[Word]:
    """The words of a parsed spaCy ``Doc``."""
    tokens = list(tokens)
    words = [Word(i, token.lower_, token.tag_, token.dep_) for i, token in enumerate(tokens)]
    link(words, [token.head.i for token in tokens])
    return words


def link(words: Sequence[Word], heads: Sequence[int]) -> None:
    """Set the heads of words by their places."""
    for word, head in zip(words, heads, strict=True):
        word.head = words[head]
        if head != word.i:
            words[head].kids.append(word)


def coordinated(word: Word) -> list[Word]:
    """A noun and what is joined to it ("cats, dogs and birds"), verbs apart, in reading order."""
    return _below(word, lambda kid: kid.dep == "conj" and not kid.is_verb)


def adjectives_of(word: Word) -> list[Word]:
    """An adjective and those joined to it ("black and white"), in reading order."""
    return _below(word, lambda kid: kid.dep in ("conj", "amod"))


def chained(word: Word) -> list[Word]:
    """A noun and those that follow it in a list, with commas or "and"."""
    return _below(word, lambda kid: kid.dep in ("conj", "appos") and kid.is_noun)


def _below(word: Word, follow: Callable[[Word], bool]) -> list[Word]:
    found, queue = [], [word]
    while queue:
        each = queue.pop()
        found.append(each)
        queue += [kid for kid in each.kids if follow(kid)]
    return sorted(found, key=lambda each: each.i)
