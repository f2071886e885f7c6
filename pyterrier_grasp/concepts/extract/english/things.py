"""What a noun phrase or a pronoun stands for."""

from collections.abc import Callable

from pyterrier_grasp.concepts.extract.english import words
from pyterrier_grasp.concepts.extract.english.lemmas import Lemmas
from pyterrier_grasp.concepts.extract.english.nouns import Nouns
from pyterrier_grasp.concepts.extract.english.parse import Word, coordinated

_NOMINAL = ("pobj", "dobj", "nsubj", "nsubjpass", "attr")
_WITHIN = ("compound", "amod", "nmod", "npadvmod", "advmod", "case", "aux")


class Things:
    """The things of one caption.

    Args:
        parse: Its words.
        lemmas: Base forms.
        subjects: The doers of a verb.
    """

    def __init__(self, parse: list[Word], lemmas: Lemmas, subjects: Callable[[Word], list[Word]]) -> None:
        self._words = parse
        self._lemmas = lemmas
        self._subjects = subjects
        self.nouns = Nouns(parse, lemmas)
        self._asked: set[int] = set()

    def is_thing(self, word: Word) -> bool:
        """Whether a word heads a noun phrase."""
        if word.dep in _WITHIN or (word.dep == "conj" and word.head.dep == "amod"):
            return False
        return word.is_noun or (
            word.dep in _NOMINAL and word.tag in ("JJ", "FW") and self._lemmas.is_a(word.text, "noun")
        )

    def of_phrase(self, word: Word) -> list[Word]:
        return [p for kid in word.kids if kid.dep == "prep" and kid.text == "of" for p in kid.of("pobj")]

    def is_frame(self, word: Word) -> bool:
        """Whether it is a picture that the caption looks through: "a photo of a dog"."""
        if self._lemmas.noun(word.text) not in words.FRAMES:
            return False
        if word.head is word:
            return True
        if word.dep != "dobj" and self.of_phrase(word) and not any(w.is_noun for w in self._words[: word.i]):
            return True
        if word.dep == "attr":
            return not any(self.nouns.name(s) for s in word.head.of("nsubj"))
        return word.dep in ("nsubj", "nsubjpass") and self._lemmas.verb(word.head.text) in words.FRAME_VERBS

    def is_transparent(self, word: Word) -> bool:
        """Whether only the noun after its "of" counts: "a couple of dogs"."""
        if self.is_frame(word):
            return True
        quantity = self._lemmas.noun(word.text) in words.QUANTITIES or word.text in words.QUANTITIES
        return quantity and bool(self.of_phrase(word)) and not self.nouns.parts(word)  # not "parking lot of"

    def described_by(self, word: Word) -> list[Word]:
        """What the adjectives of a noun describe: of "a small pair of scissors" the scissors, of "a lot" nothing."""
        if not self.is_transparent(word):
            return [word]
        return self.of_phrase(word) if self._lemmas.noun(word.text) in ("pair", "couple", "body", "part") else []

    def is_collective(self, word: Word) -> bool:
        """Whether its members act: "a group of people"."""
        return self._lemmas.noun(word.text) in words.COLLECTIVES and bool(self.of_phrase(word))

    def meant_by(self, word: Word) -> list[Word]:
        """The things that a word means: itself, its conjuncts, the antecedent of a pronoun, the people of a group."""
        found: list[Word] = []
        for each in coordinated(word):
            if each.i not in self._asked:  # else a pronoun that stands for itself
                self._asked.add(each.i)
                found += self._alone(each)
                self._asked.discard(each.i)
        return found

    def _alone(self, word: Word) -> list[Word]:
        if word.tag in ("WDT", "WP") or (word.text in words.RELATIVE and word.dep in _NOMINAL):
            clause = next((a for a in word.ancestors() if a.dep == "relcl"), None)
            return self.meant_by(clause.head) if clause is not None else []
        if self.is_each_other(word):
            return self._counterpart(word)
        if word.text in words.PRONOUNS:
            antecedent = self._antecedent(word)
            return [antecedent] if antecedent is not None else []
        if self.is_transparent(word) or self.is_collective(word):
            return [thing for inner in self.of_phrase(word) for thing in self.meant_by(inner)]
        return [word] if (self.is_thing(word) or word.dep in ("conj", "appos")) and self.nouns.name(word) else []

    def is_each_other(self, word: Word) -> bool:
        pair = {word.text, *(kid.text for kid in word.kids)}
        return {"each", "other"} <= pair or {"one", "another"} <= pair

    def _counterpart(self, word: Word) -> list[Word]:
        for above in word.ancestors():
            if above.is_verb:
                return self._subjects(above)
            if above.is_noun and word.dep != "poss":
                return self.meant_by(above)
        return []

    def _antecedent(self, pronoun: Word) -> Word | None:
        """The thing that a pronoun means, where only one before it will do."""
        verb = next((a for a in pronoun.ancestors() if a.is_verb), None)
        others = (
            {w.i for w in verb.of("nsubj", "nsubjpass")} if verb is not None and pronoun.head is not verb else set()
        )
        if pronoun.head.dep == "prep":
            others.add(pronoun.head.head.i)
        candidates = {
            self.nouns.name(w): w
            for w in reversed(self._words[: pronoun.i])
            if w.i not in others and self.is_thing(w) and not self.is_collective(w) and not self.is_transparent(w)
            if self.nouns.name(w) and self._agrees(pronoun, w)
        }
        return next(iter(candidates.values())) if len(candidates) == 1 else None

    def _agrees(self, pronoun: Word, word: Word) -> bool:
        lemma = self._lemmas.noun(word.text)
        plural = word.tag in ("NNS", "NNPS") or lemma == "people" or bool(word.of("conj"))
        if pronoun.text in ("they", "them", "their"):
            return plural
        if plural:
            return False
        if pronoun.text in ("he", "him", "his"):
            return self._lemmas.is_animate(word.text) and lemma not in words.FEMALE - words.MALE
        if pronoun.text in ("she", "her"):
            return self._lemmas.is_animate(word.text) and lemma not in words.MALE - words.FEMALE
        return lemma not in words.PEOPLE or lemma in ("baby", "child", "toddler", "infant")
