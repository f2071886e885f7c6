"""Words and non-words of a vocabulary of phrases, and how they should be spelled."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from pyterrier_grasp.concepts.extract.english.lemmas import Lemmas

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SHORTEST = 5  # letters of a word that may be corrected
_LONG = 8  # letters of a word that may be corrected in two places
_COMMON = 3  # phrases that a correct spelling is part of, at least
_FREQUENT = 6  # captions

#: British and other spellings of one word.
_ONE_SPELLING = dict(
    pair.split(":")
    for pair in (
        "grey:gray coloured:colored colour:color colourful:colorful multicoloured:multicolored favourite:favorite "
        "neighbour:neighbor neighbourhood:neighborhood harbour:harbor armour:armor odour:odor flavour:flavor "
        "flavoured:flavored parlour:parlor tyre:tire kerb:curb moustache:mustache pyjamas:pajamas doughnut:donut "
        "theatre:theater centre:center metre:meter fibre:fiber litre:liter jewellery:jewelry aeroplane:airplane "
        "plough:plow catalogue:catalog cheque:check licence:license mould:mold yoghurt:yogurt aluminium:aluminum "
        "racquet:racket blonde:blond barbeque:barbecue bbq:barbecue ax:axe omelette:omelet whisky:whiskey "
        "tee-shirt:t-shirt teeshirt:t-shirt tshirt:t-shirt waggon:wagon pavillion:pavilion towards:toward "
        "amongst:among amidst:amid whilst:while upon:on afterwards:afterward backwards:backward forwards:forward "
        "travelling:traveling jewelled:jeweled labelled:labeled panelled:paneled catsup:ketchup storeys:stories "
        "organise:organize practise:practice cosy:cozy sceptical:skeptical grille:grill cigaret:cigarette "
        "programme:program hoody:hoodie veggie:vegetable tv:television telly:television"
    ).split()
)


class Spelling:
    """What is known of the words of a vocabulary.

    Args:
        lemmas: Base forms.
        phrases: All phrases of the vocabulary.
        counts: Number of captions of phrases, as far as it is known.

    Raises:
        ImportError: If pyspellchecker is not installed.
    """

    def __init__(self, lemmas: Lemmas, phrases: Iterable[str], counts: Mapping[str, int]) -> None:
        self._lemmas = lemmas
        phrases = set(phrases)
        self._dictionary = _dictionary()
        self._spread = Counter(word for phrase in phrases for word in set(phrase.split()))
        self._captions: Counter[str] = Counter()
        for phrase in phrases & counts.keys():
            self._captions.update({word: counts[phrase] for word in set(phrase.split())})
        self._same_start: dict[str, list[str]] = {}
        for word, phrases_with_it in sorted(self._spread.items()):
            if phrases_with_it >= _COMMON and word.isalpha() and self.is_word(word):
                self._same_start.setdefault(word[:1], []).append(word)

    def is_word(self, word: str) -> bool:
        """Whether a word is in a dictionary, is made of two words that are, or is a name such as "10" or "wi-fi"."""
        return not word.isascii() or not word.isalpha() or self._in_dictionary(word) or self._is_compound(word)

    def is_common(self, word: str) -> bool:
        """Whether a word stands in several phrases, or in many captions where their number is known."""
        return self._spread[word] >= _COMMON or self._captions[word] >= _FREQUENT

    def standard(self, word: str) -> str:
        """The American spelling: ``"grey"`` -> ``"gray"``, ``"grey-haired"`` -> ``"gray-haired"``."""
        whole = _ONE_SPELLING.get(word)
        return whole or "-".join(_ONE_SPELLING.get(part, part) for part in word.split("-"))

    def correct(self, word: str, fits: Callable[[str], bool]) -> str | None:
        """What a misspelled word should be: ``"feild"`` -> ``"field"``; None if nothing comes close.

        A correction starts with the same letter, is in a dictionary, and stands in several phrases of the vocabulary;
        it is one letter away, or two for a long word.

        Args:
            word: The word.
            fits: Whether a correction will do.
        """
        if len(word) < _SHORTEST or not word.isascii() or not word.isalpha():
            return None
        near = {w for w in _one_away(word) if w[0] == word[0] and self._is_common(w) and fits(w)}
        if not near and len(word) >= _LONG:
            near = {w for w in self._same_start.get(word[0], ()) if _distance(word, w, 2) <= 2 and fits(w)}
        return max(near, key=lambda w: (self._spread[w], self._commonness(w), w)) if near else None

    def _commonness(self, word: str) -> int:
        return max(self._spread[form] for form in (word, self._lemmas.noun(word), self._lemmas.verb(word)))

    def _is_common(self, word: str) -> bool:
        in_tables = any(self._lemmas.is_a(word, kind) for kind in ("noun", "verb", "adj"))
        return self._commonness(word) >= _COMMON and (word in self._dictionary or in_tables)

    def in_dictionary(self, word: str) -> bool:
        """Whether a word, or the parts of one with hyphens, are in a dictionary."""
        return all(not part.isalpha() or self._in_dictionary(part) for part in word.split("-"))

    def _in_dictionary(self, word: str) -> bool:
        if word in self._dictionary:
            return True
        noun, verb = self._lemmas.noun(word), self._lemmas.verb(word)
        if self._lemmas.is_a(noun, "noun") or self._lemmas.is_a(verb, "verb") or self._lemmas.is_a(word, "adj"):
            return True
        doer = re.sub(r"e?rs?$", "", word) if word.endswith(("er", "ers")) else ""
        return bool(doer) and (self._lemmas.is_a(doer, "verb") or self._lemmas.is_a(f"{doer}e", "verb"))

    def _is_compound(self, word: str) -> bool:
        return len(word) > 6 and any(
            all(len(part) > 2 and self._dictionary.get(part, 0) > 50 for part in (word[:cut], word[cut:]))
            for cut in range(3, len(word) - 2)
        )


@cache
def _dictionary() -> dict[str, Any]:
    try:
        from spellchecker import SpellChecker
    except ImportError as error:
        raise ImportError("pyspellchecker is missing: pip install 'pyterrier-grasp[spacy]'") from error
    return SpellChecker(language="en", distance=1).word_frequency.dictionary


def _one_away(word: str) -> Iterator[str]:
    """Words at one omission, exchange of neighbours, replacement or insertion."""
    for i in range(len(word) + 1):
        head, tail = word[:i], word[i:]
        if tail:
            yield head + tail[1:]
        if len(tail) > 1:
            yield head + tail[1] + tail[0] + tail[2:]
        for letter in _LETTERS:
            yield head + letter + tail
            if tail:
                yield head + letter + tail[1:]


def _distance(a: str, b: str, most: int) -> int:
    """Edits (with exchanges of neighbours) from a to b; above ``most``, any number above it."""
    if abs(len(a) - len(b)) > most:
        return most + 1
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        before_last, before, row = before, row, [i]
        for j, y in enumerate(b, start=1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, before_last[j - 2] + 1)
            row.append(cost)
        if min(row) > most:
            return most + 1
    return row[-1]
