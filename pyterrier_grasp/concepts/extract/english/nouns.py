"""Noun phrases: what they name, what is said of them, and what they stand for."""

from pyterrier_grasp.concepts.extract.english import words
from pyterrier_grasp.concepts.extract.english.lemmas import Lemmas
from pyterrier_grasp.concepts.extract.english.parse import Word, adjectives_of

LONGEST_NAME = 3  # words


def is_word(text: str) -> bool:
    """Whether a token has letters and is more than one of them (a single CJK sign is a word)."""
    return any(c.isalpha() for c in text) and (len(text) > 1 or not text.isascii())


class Nouns:
    """Names and attributes of the noun phrases of one caption."""

    def __init__(self, parse: list[Word], lemmas: Lemmas) -> None:
        self._words = parse
        self._lemmas = lemmas
        self._names: dict[int, str] = {}

    def name(self, word: Word) -> str:
        """``"tennis racket"`` for its last word; "" for what names no thing."""
        name = self._names.get(word.i)
        if name is None:
            name = self._names[word.i] = self._name(word)
        return name

    def _name(self, word: Word) -> str:
        if word.tag in ("PRP", "PRP$", "WP", "WDT", "DT", "EX", "CD", "PDT") or not is_word(word.text):
            return ""
        if any(det.text == "no" for det in word.of("det")):
            return ""
        lemma = self._lemmas.noun(word.text)
        parts = self.parts(word)
        worn = lemma == "top" and any(kid.text in ("a", "an") or kid.text in words.COLOURS for kid in word.kids)
        if not parts and not worn and (lemma in words.EMPTY_NOUNS or word.text in words.EMPTY_NOUNS):
            return ""
        if lemma == "glass" or (word.text == "glasses" and self._is_drinking_glass(word)):
            lemma = "glass"
        return " ".join([*(self._lemmas.noun(part.text) if part.tag == "NNS" else part.text for part in parts), lemma])

    def _is_drinking_glass(self, word: Word) -> bool:
        kinds = {"wine", "water", "champagne", "drinking", "martini", "shot", "beer", "cocktail"}
        return (
            any(k.text in kinds for k in word.kids)
            or bool(word.of("nummod"))
            or any(k.dep == "prep" and k.text == "of" for k in word.kids)
        )

    def parts(self, word: Word, depth: int = LONGEST_NAME) -> list[Word]:
        """The words before a noun that make one name with it."""
        parts: list[Word] = []
        expected = word.i - 1
        for kid in reversed([k for k in word.kids if k.i < word.i]):
            if kid.i != expected or not self._is_part(kid, word):
                break
            if kid.text in words.EMPTY_PARTS:
                expected = kid.i - 1
                continue
            inner = self.parts(kid, depth - 1) if kid.is_noun and depth else []
            parts[:0] = [*inner, kid]
            expected = (inner[0].i if inner else kid.i) - 1
        return parts[-(LONGEST_NAME - 1) :]

    def _is_part(self, kid: Word, word: Word) -> bool:
        if kid.dep not in ("compound", "amod", "nmod", "npadvmod") or not is_word(kid.text):
            return False
        if kid.i == word.i - 1 and f"{kid.text} {self._lemmas.noun(word.text)}" in words.FIXED_NAMES:
            return True
        if kid.text.endswith("ing") and kid.text in words.PURPOSES:
            return not self._lemmas.is_animate(word.text)
        return kid.is_noun and not self.is_adjective(kid, word)

    def is_adjective(self, kid: Word, word: Word) -> bool:
        """Whether a word before a noun is said of it ("black dog", "leather jacket"), not part of its name."""
        if kid.text in words.COLOURS:
            return self._lemmas.noun(word.text) not in words.NOT_COLOURED.get(kid.text, ())
        if kid.text in words.LIKE_ADJECTIVES or kid.text in words.NUMBER_WORDS or kid.text in words.SHADES:
            return True
        return not kid.is_noun

    def attributes(self, word: Word) -> list[str]:
        """Adjectives of a noun, numbers and colours among them, in reading order."""
        parts = {part.i for part in self.parts(word)}
        found: list[Word] = []
        for kid in word.kids:
            if kid.i in parts:
                found += [k for k in kid.of("amod", "nummod", "compound") if k.i not in parts and self._says(k, kid)]
            elif (kid.i < word.i or (kid.dep == "amod" and not kid.of("prep"))) and self._says(kid, word):
                found += adjectives_of(kid)
        found.sort(key=lambda w: w.i)
        return self._phrases(found)

    def _says(self, kid: Word, word: Word) -> bool:
        if kid.dep == "nummod":
            return True
        return kid.dep in ("amod", "compound", "nmod", "advmod") and self.is_adjective(kid, word) and kid.tag != "RB"

    def _phrases(self, adjectives: list[Word]) -> list[str]:
        phrases: list[str] = []
        for place, adjective in enumerate(adjectives):
            after = adjectives[place + 1] if place + 1 < len(adjectives) else None
            if after is not None and after.i == adjective.i + 1 and self.adjective(after).count(" "):
                continue
            phrase = self.adjective(adjective)
            if phrase:
                phrases.append(phrase)
        return phrases

    def adjective(self, word: Word) -> str:
        """``"dark blue"``, ``"two"``, ``"parked"``; "" for what says nothing."""
        if word.tag == "CD" or word.text in words.NUMBERS:
            number = words.NUMBERS.get(word.text, word.text)
            return number if number in words.NUMBER_WORDS else ""
        if (
            not is_word(word.text)
            or word.text in words.EMPTY_ADJECTIVES
            or word.tag in ("DT", "PRP", "PRP$", "WDT", "IN")
        ):
            return ""
        if word.text in words.EMPTY_HEADS and word.i and self._words[word.i - 1].text in words.EMPTY_ADJECTIVES:
            return ""
        before = self._words[word.i - 1] if word.i else None
        if before is not None and before.head in (word, word.head):
            if word.text in words.COLOURS and before.text in words.SHADES:
                return f"{before.text} {word.text}"
            fits = before.is_noun or before.tag == "RB" or word.text not in words.AFTER_NOUNS
            if word.text in words.ADJECTIVE_HEADS and fits and before.tag not in ("DT", "CC", "PRP$", "CD"):
                return f"{before.text} {word.text}"
        return word.text
