"""Refines clusters by rules, for those without a language model's key."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pyterrier_grasp.concepts.extract.english import words
from pyterrier_grasp.concepts.extract.english.lemmas import Lemmas
from pyterrier_grasp.concepts.extract.english.models import DEFAULT_MODEL, load_model
from pyterrier_grasp.concepts.mining.refine import Cluster, Group, Refinement
from pyterrier_grasp.concepts.mining.spelling import Spelling

RULES_VERSION = 2  # raise it when the rules give other refinements

_DETERMINERS = frozenset("a an the his her its their my our your some any this that these those".split())
_BE = frozenset("be is are was were been being am".split())
_HAVE = frozenset("have has had having".split())
_PAST = frozenset("fell felt found lay saw".split())  # base forms of other verbs, too
_STOP_RELATIONS = frozenset(
    "a an the and or but which that who while when as if so not than it one does did can will would".split()
)
_STOP_ENTITIES = (
    words.EMPTY_NOUNS | words.EMPTY_ADJECTIVES | words.PRONOUNS | _DETERMINERS | frozenset("and or is".split())
) - frozenset("couple few many several top upside-down side-by-side back-to-back face-down".split())
_TOGETHER = (("in to", "into"), ("on to", "onto"), ("infront of", "in front of"), ("ontop of", "on top of"))


class RuleRefiner:
    """Merges the inflections and spellings of a phrase, and drops phrases that stand for nothing.

    The nouns of entities and the verbs of relations take their base form ("dogs", "running through"); words that mean
    something else in the singular do not ("glasses"). British and American spellings, hyphens and spaces ("t-shirt",
    "skate board"), articles within relations and clear misspellings are evened out. Dropped are stop phrases, phrases
    without letters, and words that are in no dictionary, in hardly any other phrase, and close to no word that is.
    Phrases with letters outside ASCII stay as they are. A phrase becomes the same concept in whatever cluster it is.

    Needs the extra ``spacy``.

    Args:
        model: The spaCy model with the table of base forms: the name of its package, or a folder.
        counts: Number of captions (or images) of each phrase, where it is known: words of many are never dropped.
    """

    def __init__(self, model: str | Path = DEFAULT_MODEL, *, counts: Mapping[str, int] | None = None) -> None:
        self.model = model
        self.counts = counts
        self._nlp: Any = None
        self._counts: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"RuleRefiner({str(self.model)!r})"

    def settings(self) -> dict[str, Any]:
        """What decides about the refinements: versions of the model, of the dictionary and of the rules."""
        meta = self._pipeline().meta
        try:
            dictionary = version("pyspellchecker")
        except PackageNotFoundError:
            dictionary = None
        name = f"{meta['lang']}_{meta['name']}"
        return {"model": name, "version": meta["version"], "dictionary": dictionary, "rules": RULES_VERSION}

    def outcome(self) -> dict[str, Any]:
        """Of the last refinement: clusters, phrases, concepts, and phrases dropped by reason."""
        dropped = {name[5:]: n for name, n in sorted(self._counts.items()) if name.startswith("drop:")}
        return {name: self._counts[name] for name in ("clusters", "phrases", "groups")} | {"dropped": dropped}

    def refine(self, clusters: Sequence[Cluster]) -> Iterator[Refinement]:
        """Yield the refinement of each cluster, in their order.

        Raises:
            FileNotFoundError: If there is no such model.
            ImportError: If spaCy or pyspellchecker is not installed.
            ValueError: If the model is not of English, or has no rule lemmatizer.
        """
        self._counts = Counter()
        phrases = {kind: [p for c in clusters if c.kind == kind for p in c.phrases] for kind in ("entity", "relation")}
        canon = _Canon(Lemmas.of(self._pipeline()), phrases, self.counts or {})
        for cluster in clusters:
            groups: dict[str, list[str]] = {}
            dropped: list[str] = []
            for phrase in cluster.phrases:
                name, reason = canon.name(cluster.kind, phrase)
                if reason:
                    dropped.append(phrase)
                    self._counts[f"drop:{reason}"] += 1
                else:
                    groups.setdefault(name, []).append(phrase)
            self._counts += Counter(clusters=1, phrases=len(cluster.phrases), groups=len(groups))
            yield Refinement(tuple(Group(name, tuple(members)) for name, members in groups.items()), tuple(dropped))

    def _pipeline(self) -> Any:
        if self._nlp is None:
            self._nlp = load_model(self.model)
        return self._nlp


class _Canon:
    """Canonical names of the phrases of a vocabulary.

    Args:
        lemmas: Base forms.
        phrases: The phrases of each kind.
        counts: Number of captions of phrases.
    """

    def __init__(self, lemmas: Lemmas, phrases: dict[str, list[str]], counts: Mapping[str, int]) -> None:
        self._lemmas = lemmas
        self._spelling = Spelling(lemmas, [phrase for of_kind in phrases.values() for phrase in of_kind], counts)
        self._chosen: dict[str, str] = {}  # of the spellings with and without spaces and hyphens
        for form in sorted({self._form("entity", phrase) for phrase in phrases["entity"]}):
            key = self._squeezed(form)
            self._chosen[key] = min(self._chosen.get(key, form), form, key=self._oddity)

    def name(self, kind: str, phrase: str) -> tuple[str, str]:
        """The canonical name of a phrase and, if it stands for nothing, why."""
        if not any(c.isalpha() for c in phrase):
            return phrase, "no letters"
        if not phrase.isascii():
            return phrase, ""
        if phrase in (_STOP_ENTITIES if kind == "entity" else _STOP_RELATIONS):
            return phrase, "stop phrase"
        form = self._form(kind, phrase)
        if not form or form in (_STOP_ENTITIES if kind == "entity" else _STOP_RELATIONS):
            return phrase, "stop phrase"
        if kind == "entity":
            form = self._chosen.get(self._squeezed(form), form)
        return (form, "") if self._is_sound(form.split()[-1 if kind == "entity" else 0]) else (phrase, "no word")

    def _form(self, kind: str, phrase: str) -> str:
        if not phrase.isascii():
            return phrase
        return self._entity(phrase) if kind == "entity" else self._relation(phrase)

    def _entity(self, phrase: str) -> str:
        parts = phrase.replace(" 's", "").split()
        while len(parts) > 1 and parts[0] in _DETERMINERS:
            parts.pop(0)
        *before, last = parts
        before = [word for word in (self._word(part) for part in before) if self._is_sound(word)]
        return " ".join([*before, self._spelling.standard(self._lemmas.noun(self._word(last, ("noun", "adj"))))])

    def _relation(self, phrase: str) -> str:
        first, *after = phrase.split()
        after = [self._spelling.standard(word) for word in after if word not in _DETERMINERS]
        if first in _BE and after:
            first, *after = after
        first = "is" if first in _BE else "have" if first in _HAVE else self._verb(self._word(first, ("verb",)))
        form = " ".join([first, *after])
        for apart, together in _TOGETHER:
            form = re.sub(rf"\b{apart}$", together, form)
        return form

    def _verb(self, word: str) -> str:
        """The base form of a verb; base forms ("bound") and other words ("during", "left of") stay."""
        if word in ("left", "following") or (self._lemmas.is_a(word, "verb") and word not in _PAST):
            return word
        lemma = self._lemmas.verb(word)
        return lemma if self._lemmas.is_a(lemma, "verb") else word

    def _word(self, word: str, kinds: tuple[str, ...] = ("noun", "verb", "adj")) -> str:
        """The right spelling of a word, of one of these parts of speech."""
        word = self._spelling.standard(word)
        if self._spelling.is_word(word):
            return word
        right = self._spelling.correct(word, lambda w: any(self._is_of(w, kind) for kind in kinds))
        return self._spelling.standard(right or word)

    def _is_of(self, word: str, kind: str) -> bool:
        lemma = self._lemmas.noun(word) if kind == "noun" else self._lemmas.verb(word) if kind == "verb" else word
        return self._lemmas.is_a(lemma, kind)

    def _is_sound(self, word: str) -> bool:
        return self._spelling.is_word(word) or self._spelling.is_common(word)

    def _squeezed(self, form: str) -> str:
        """The same for all spellings with and without spaces and hyphens; a colour stays a word of its own."""
        first, _, rest = form.partition(" ")
        if rest and (
            first in words.COLOURS or (self._lemmas.is_a(first, "adj") and not self._lemmas.is_a(first, "noun"))
        ):
            return form
        return re.sub("[ -]", "", form)

    def _oddity(self, form: str) -> tuple[Any, ...]:
        """Smallest for the best of the spellings of a name: as few words as the dictionary has, no hyphens."""
        parts = form.split()
        unknown = sum(not self._spelling.in_dictionary(part) for part in parts)
        return (unknown, min(map(len, parts)) < 2, len(re.split("[ -]", form)), form.count("-"), form)
