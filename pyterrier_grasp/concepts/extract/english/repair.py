"""Mends what the parser gets wrong in captions."""

from pyterrier_grasp.concepts.extract.english import hidden_verbs, reattach, retag
from pyterrier_grasp.concepts.extract.english.lemmas import Lemmas
from pyterrier_grasp.concepts.extract.english.parse import Word

#: The rules, each over all words before the next one: first the tags, then the verbs, then the places of the words.
_RULES = (
    retag.no_verb,
    retag.tables,
    retag.adverb,
    retag.first_word,
    retag.odd_verb,
    retag.infinitive,
    retag.swapped,
    hidden_verbs.noun_root,
    hidden_verbs.past_participle,
    hidden_verbs.gerund,
    hidden_verbs.verb_as_noun,
    reattach.two_words,
    reattach.lone_adjective,
    reattach.joint_modifier,
    reattach.subordinate,
    reattach.with_subject,
    reattach.colour_before,
    reattach.worn,
    reattach.place,
    reattach.participle,
    reattach.conjunct,
    reattach.listed,
    reattach.with_phrase,
    reattach.clause_of_thing,
)


def repair(parse: list[Word], lemmas: Lemmas) -> None:
    """Change tags, heads and dependencies of a parse in place."""
    for rule in _RULES:
        for word in parse:
            rule(word, parse, lemmas)
