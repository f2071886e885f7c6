"""Who does what to what: the triplets of a parsed caption."""

from collections.abc import Sequence

from pyterrier_grasp.concepts.extract.english import words
from pyterrier_grasp.concepts.extract.english.lemmas import Lemmas
from pyterrier_grasp.concepts.extract.english.parse import Word, adjectives_of
from pyterrier_grasp.concepts.extract.english.things import Things
from pyterrier_grasp.concepts.triplets import Triplet

_NOTHING: list[Word | None] = [None]
_INHERITS = ("conj", "xcomp", "advcl", "ccomp", "acomp", "pcomp", "prep", "dep", "oprd")


def triplets_of(parse: list[Word], lemmas: Lemmas) -> list[Triplet]:
    """The triplets of a caption, each once, in reading order.

    Args:
        parse: Its words (repaired).
        lemmas: Base forms.
    """
    return _Clauses(parse, lemmas).triplets()


class _Clauses:
    def __init__(self, parse: list[Word], lemmas: Lemmas) -> None:
        self.words = parse
        self.lemmas = lemmas
        self.things = Things(parse, lemmas, self._subjects)
        self.nouns = self.things.nouns
        self.found: list[tuple[int, Triplet]] = []
        self.named: set[int] = set()

    def triplets(self) -> list[Triplet]:
        for word in self.words:
            if word.is_verb and word.dep not in ("aux", "auxpass", "amod", "compound", "prep"):
                self._verb(word)
            elif self.things.is_thing(word):
                self._noun(word)
        for word in self.words:  # nouns that stand in no triplet are named all the same
            if self.things.is_thing(word) and word.i not in self.named and not self.things.is_transparent(word):
                name = self.nouns.name(word)
                if name:
                    self.found.append((word.i, (name, "", "")))
        self.found.sort(key=lambda pair: pair[0])
        return list(dict.fromkeys(triplet for _, triplet in self.found))

    def _add(self, place: int, subject: Word | None, relation: str, object_: Word | str | None) -> None:
        s = self.nouns.name(subject) if subject is not None else ""
        o = object_ if isinstance(object_, str) else self.nouns.name(object_) if object_ is not None else ""
        if not relation or not (s or o) or (relation == "is" and not (s and o)):
            return
        self.named |= {word.i for word in (subject, object_) if isinstance(word, Word)}
        self.found.append((place, (s, relation, o)))

    def _add_all(
        self, place: int, subjects: Sequence[Word | None], relation: str, things: Sequence[Word | None]
    ) -> None:
        for subject in subjects or _NOTHING:
            for thing in things or _NOTHING:
                self._add(place, subject, relation, thing)

    # nouns

    def _noun(self, word: Word) -> None:
        things = self.things
        if things.is_frame(word):
            for thing in things.meant_by(word):
                self._prepositions(word, [thing], "", skip_of=True)
            return
        for adjective in self.nouns.attributes(word):
            for thing in things.described_by(word):
                self._add(word.i - 1, thing, "is", adjective)
        for owner in word.of("poss"):
            if owner.tag != "PRP$":
                for thing in things.meant_by(owner):
                    self._add(word.i, word, "of", thing)
        if things.is_transparent(word):
            self._prepositions(word, things.meant_by(word), "", skip_of=True)
        elif things.is_collective(word):
            for thing in things.of_phrase(word):
                for each in things.meant_by(thing):
                    self._add(word.i, word, "of", each)
            self._prepositions(word, things.meant_by(word), "", skip_of=True)
        elif self.nouns.name(word):
            self._prepositions(word, [word], "")
        for after in word.of("amod"):
            if after.i > word.i and after.of("prep"):
                self._adjective(after, things.meant_by(word)[:1])

    # prepositions

    def _prepositions(self, head: Word, subjects: list[Word], verb: str, *, skip_of: bool = False) -> bool:
        """Triplets of the prepositions below a word; whether there were any."""
        any_found = False
        for kid in head.kids:
            if kid.dep not in ("prep", "agent", "dative", "advmod", "prt") or (skip_of and kid.text == "of"):
                continue
            if kid.text == "by" and any(p.text in words.REFLEXIVE for p in kid.of("pobj")):
                continue
            for label, objects in self._reach(kid):
                together = verb and not (label == "with" and any(self._is_scenery(o) for o in objects))
                things = [t for o in objects for t in self.things.meant_by(o)]
                each_other = any(self.things.is_each_other(o) for o in objects)
                any_found = True
                if not (things or verb):
                    continue
                for subject in subjects or _NOTHING:
                    for thing in things or _NOTHING:
                        if subject is None or subject is not thing or each_other:
                            self._add(kid.i, subject, f"{verb} {label}" if together else label, thing)
        return any_found

    def _is_scenery(self, word: Word) -> bool:
        """``with mountains in the background``: nothing that the doer has a part in."""
        places = [p.text for kid in word.of("prep") for p in kid.of("pobj")]
        return any(place in ("background", "distance", "foreground") for place in places)

    def _reach(self, prep: Word, depth: int = 3) -> list[tuple[str, list[Word]]]:
        """What a preposition leads to: ``[("in front of", [dog])]``."""
        result: list[tuple[str, list[Word]]] = []
        for kid in prep.kids:
            if kid.dep == "prep" and depth:
                together = prep.dep not in ("advmod", "prt") or (prep.text, kid.text) in words.PAIRS
                result += [
                    (f"{prep.text} {x}" if together else x, objects) for x, objects in self._reach(kid, depth - 1)
                ]
            elif kid.dep in ("pobj", "pcomp") and kid.is_verb and kid.of("nsubj"):
                result.append((prep.text, kid.of("nsubj")))
            elif kid.dep == "pobj" and kid.text not in words.REFLEXIVE:
                inner = self.things.of_phrase(kid)
                if self.lemmas.noun(kid.text) in words.PLACES and inner and not self.nouns.parts(kid):
                    result.append((f"{prep.text} {kid.text} of", inner))
                else:
                    result.append((prep.text, [kid]))
            elif kid.dep == "conj" and kid.tag in ("IN", "RP", "TO") and depth:
                result += self._reach(kid, depth - 1)
        return result

    # verbs

    def _subjects(self, verb: Word) -> list[Word]:
        """Who does it; in a passive, to whom it is done."""
        word = verb
        while True:
            own = word.of("nsubj", "nsubjpass")
            if not own and word.of("expl"):
                own = word.of("attr")
            if own:
                return [t for w in own for t in self.things.meant_by(w)]
            head = word.head
            if head is word:
                return []
            if word.dep in ("acl", "relcl"):
                return self._joint(head)
            if word.dep not in _INHERITS or (word.dep == "pcomp" and head.text in ("of", "for")):
                return []
            if word.dep == "xcomp" and self.lemmas.verb(head.text) in words.CAUSES and head.of("dobj"):
                return [t for o in head.of("dobj") for t in self.things.meant_by(o)]
            if head.is_noun:
                return self.things.meant_by(head)
            word = head

    def _joint(self, noun: Word) -> list[Word]:
        """``a man and a woman holding hands``: both do."""
        found = self.things.meant_by(noun)
        while noun.dep == "conj" and noun.head.is_noun:
            noun = noun.head
            if any(kid.i > noun.i and kid.dep not in ("cc", "conj", "punct") for kid in noun.kids):
                break
            if self.nouns.name(noun):
                found.insert(0, noun)
        return found

    def _verb_name(self, verb: Word) -> str:
        lemma = self.lemmas.verb(verb.text)
        after = [kid for kid in verb.kids if kid.i > verb.i]
        first = min((kid.i for kid in after if kid.dep == "prep"), default=len(self.words))
        particles = [kid.text for kid in after if kid.dep == "prt" and kid.i < first and not kid.of("pobj", "prep")]
        if first == len(self.words):
            particles += [kid.text for kid in after if kid.dep == "advmod" and self._is_particle(kid, verb)]
        if any(kid.dep == "dobj" and kid.text == "way" for kid in after):
            particles = ["way"]
        parts = [
            kid.text for kid in verb.kids if kid.i == verb.i - 1 and kid.text in words.SPORTS and kid.dep != "nsubj"
        ]
        return " ".join([*parts, lemma, *particles[:1]])

    def _is_particle(self, kid: Word, verb: Word) -> bool:
        return kid.text in words.DIRECTIONS and kid.i == verb.i + 1 and not kid.of("prep", "pobj")

    def _is_passive(self, verb: Word) -> bool:
        if verb.tag not in ("VBN", "VBD"):
            return False
        if verb.of("nsubjpass", "auxpass"):
            return True
        return verb.tag == "VBN" and verb.dep in ("acl", "conj", "advcl") and not verb.of("nsubj", "dobj", "aux")

    def _verb(self, verb: Word) -> None:
        if verb.of("neg"):
            self.named |= {thing.i for o in verb.of("dobj", "attr") for thing in self.things.meant_by(o)}
            return
        lemma = self.lemmas.verb(verb.text)
        subjects = self._subjects(verb)
        if lemma == "be":
            self._be(verb, subjects)
            return
        if lemma in words.LIGHT_VERBS and verb.of("xcomp") and not verb.of("dobj"):
            return
        if lemma in words.FRAME_VERBS and any(self.things.is_frame(s) for s in verb.of("nsubj")):
            return
        name = self._verb_name(verb)
        if self._is_passive(verb):
            self._passive(verb, subjects, name)
            return
        for adjective in [a for kid in verb.of("acomp") for a in adjectives_of(kid)]:
            if not adjective.is_verb:
                self._adjective(adjective, subjects, "" if lemma in words.COPULAS else name)
        objects = [t for o in verb.of("dobj", "attr") for t in self.things.meant_by(o)]
        if lemma in words.PERCEPTION:
            objects += [
                t for c in verb.of("ccomp") if c.i > verb.i for s in c.of("nsubj") for t in self.things.meant_by(s)
            ]
        if objects:
            self._add_all(verb.i, subjects, name, objects)
        reached = self._prepositions(verb, subjects, name)
        for kid in verb.of("dative"):
            if not kid.of("pobj"):
                self._add_all(verb.i, subjects, f"{name} to", self.things.meant_by(kid))
        if not (objects or reached or (verb.of("acomp") and lemma in words.COPULAS)):
            for subject in subjects:
                self._add(verb.i, subject, name, None)

    def _passive(self, verb: Word, subjects: list[Word], name: str) -> None:
        agents = verb.of("agent")
        doers = [t for a in agents for p in a.of("pobj") for t in self.things.meant_by(p)]
        if self.lemmas.verb(verb.text) in words.STATES:
            agents, doers = [], []
        if doers:
            self._add_all(verb.i, doers, name, subjects)
            for agent in agents:
                agent.dep = "done"  # it is no place
        reached = self._prepositions(verb, subjects, name)
        if not doers and not reached:
            particle = name.partition(" ")[2]
            for subject in subjects:
                self._add(verb.i, subject, "is", f"{verb.text} {particle}".strip())

    def _be(self, verb: Word, subjects: list[Word]) -> None:
        there = bool(verb.of("expl")) or any(self.things.is_frame(s) for s in verb.of("nsubj"))
        for kid in verb.of("acomp", "attr", "oprd"):
            if kid.is_noun:
                if kid.dep == "attr" and not there and not self.things.is_frame(kid):
                    self._add_all(verb.i, subjects, "is", self.things.meant_by(kid))
                continue
            for adjective in adjectives_of(kid):
                if not adjective.is_verb and not adjective.is_noun:
                    self._adjective(adjective, subjects)
        self._prepositions(verb, subjects, "")

    def _adjective(self, adjective: Word, subjects: list[Word], verb: str = "") -> None:
        """``bowl, full of, fruit``; ``dog, is, black``."""
        if any(prep.text in ("of", "to") for prep in adjective.of("prep")):
            self._prepositions(adjective, subjects, adjective.text)
            return
        phrase = self.nouns.adjective(adjective)
        for subject in subjects:
            if phrase:
                self._add(adjective.i, subject, "is", phrase)
        self._prepositions(adjective, subjects, verb)
