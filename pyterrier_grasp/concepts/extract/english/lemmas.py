"""Base forms of English words, from the tables of a spaCy model."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pyterrier_grasp.concepts.extract.english import words

_SHORT_STEM = re.compile(r"[^aeiou]*[aeiou][bcdfgklmnprstvz]")  # "rid": riding is of "ride", or it were "ridding"


class Lemmas:
    """Base forms by part of speech.

    Args:
        index: Known base forms by part of speech (``"noun"``, ``"verb"``, ``"adj"``).
        exceptions: Irregular forms by part of speech.
        rules: Endings and what takes their place, by part of speech.
    """

    def __init__(
        self,
        index: Mapping[str, Sequence[str]],
        exceptions: Mapping[str, Mapping[str, Sequence[str]]],
        rules: Mapping[str, Sequence[Sequence[str]]],
    ) -> None:
        self._index = {pos: frozenset(index.get(pos, ())) for pos in ("noun", "verb", "adj")}
        self._exceptions = {pos: exceptions.get(pos, {}) for pos in self._index}
        self._rules = {pos: rules.get(pos, ()) for pos in self._index}
        self._known: dict[tuple[str, str], str] = {}

    @classmethod
    def of(cls, nlp: Any) -> "Lemmas":
        """From a spaCy pipeline.

        Raises:
            ValueError: If it has no rule lemmatizer.
        """
        names = ("lemma_index", "lemma_exc", "lemma_rules")
        lemmatizer = nlp.get_pipe("lemmatizer") if "lemmatizer" in nlp.component_names else None
        lookups = getattr(lemmatizer, "lookups", None)
        if lookups is None or not all(lookups.has_table(name) for name in names):
            raise ValueError(
                f"the spaCy model {nlp.meta.get('name')!r} has no rule lemmatizer; take one such as en_core_web_sm"
            )
        return cls(*(lookups.get_table(name) for name in names))

    def is_a(self, word: str, pos: str) -> bool:
        """Whether a base form is in the table of a part of speech."""
        return word in self._index[pos]

    def is_adjective(self, word: str) -> bool:
        """Whether a word is an adjective or a colour, and rather not a noun: "snowy", not "light"."""
        return word in words.COLOURS or (self.is_a(word, "adj") and not self.is_a(word, "noun")) or word in words.PLAIN

    def is_animate(self, word: str) -> bool:
        """Whether a noun names people or animals: in a list, or with an ending such as "-boarder"."""
        noun = self.noun(word)
        return noun in words.ANIMATE or noun.endswith(words.DOERS)

    def may_be_verb(self, word: str) -> bool:
        """Whether a form can be one of a verb."""
        return self.is_a(self.verb(word), "verb")

    def noun(self, word: str) -> str:
        """``"dogs"`` -> ``"dog"``; words that mean something else in the singular stay: ``"glasses"``."""
        return self._lemma(word, "noun")

    def verb(self, word: str) -> str:
        """``"riding"`` -> ``"ride"``."""
        return self._lemma(word, "verb")

    def _lemma(self, word: str, pos: str) -> str:
        lemma = self._known.get((word, pos))
        if lemma is None:
            lemma = self._known[word, pos] = self._find(word, pos)
        return lemma

    def _find(self, word: str, pos: str) -> str:
        if "-" in word:
            stem, _, last = word.rpartition("-")
            return f"{stem}-{self._lemma(last, pos)}" if stem and last else word
        if pos == "noun" and word in words.PLURALS:
            return word
        special = words.LEMMAS.get((word, pos))
        if special is not None:
            return special
        forms = self._exceptions[pos].get(word)
        if forms:
            return forms[0]
        if pos != "noun" and self.is_a(word, pos):
            return word
        candidates = [word[: len(word) - len(old)] + new for old, new in self._rules[pos] if word.endswith(old)]
        known = [form for form in candidates if len(form) > 1 and self.is_a(form, pos)]
        if pos == "noun" and word.endswith(("ss", "us", "is")):
            known = []
        if not known:
            return word if self.is_a(word, pos) else self._guess(word, pos)
        if pos == "verb" and word.endswith(("ing", "ed")):
            known.sort(key=len)
            if _SHORT_STEM.fullmatch(known[0]):
                known = [form for form in known if form == known[0] + "e"] or known
        return known[0]

    def _guess(self, word: str, pos: str) -> str:
        """The base form of a word that is in no table: ``"wakeboarding"`` -> ``"wakeboard"``."""
        if not word.isascii() or len(word) < 5 or pos == "adj":
            return word
        if word.endswith("s") and not word.endswith(("ss", "us", "is")):
            return word[:-1]
        if pos == "verb" and word.endswith(("ing", "ed")):
            stem = word.removesuffix("ing").removesuffix("ed")
            if any(
                self.is_a(f"{stem[i:]}e", "verb") and not self.is_a(stem[i:], "verb") for i in range(2, len(stem) - 2)
            ):
                return f"{stem}e"  # rollerskating
            return stem[:-1] if stem[-1] == stem[-2] and stem[-1] not in "lsz" else stem
        return word
