"""Mends captions whose verb the parser takes for a noun."""

from pyterrier_grasp.concepts.extract.english import words
from pyterrier_grasp.concepts.extract.english.lemmas import Lemmas
from pyterrier_grasp.concepts.extract.english.parse import FINITE_TAGS, Word
from pyterrier_grasp.concepts.extract.english.retag import is_animate, replace, take_modifiers

_AUXILIARIES = ("is", "are", "was", "were")


def noun_root(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """As in "A bed frame in a bedroom", "a woman holding a ball and a dog": a noun has no subject."""
    if not word.is_noun or word.text.endswith("ing") or word.of("cop", "aux"):
        return
    subject = next(iter(word.of("nsubj")), None)
    if subject is None or not subject.is_noun or subject.i > word.i:
        return
    plain = word.text.endswith("s") and not word.of("det", "amod", "compound", "poss", "nummod")
    if (plain or word.of("xcomp", "dobj")) and lemmas.verb(word.text) in words.ACTIONS:
        word.tag = "VBZ"  # "a baby in pigtails tries to climb"
        return
    if subject.of("conj") and not word.of("det", "amod", "compound") and lemmas.verb(word.text) in words.ACTIONS:
        word.tag = "VBP"  # "a dog and a horse stand"
        return
    if subject.i == word.i - 1:
        if lemmas.verb(word.text) in words.ACTIONS or not lemmas.is_a(lemmas.noun(word.text), "noun"):
            word.tag = "VBZ"
            return
        subject.dep = "compound"
        for kid in subject.of("det", "amod", "nummod", "poss"):
            kid.attach(word, kid.dep)
        return
    replace(word, subject)
    start = min(kid.i for kid in (word, *word.kids) if kid is not subject)
    near = parse[start - 2] if start > 1 and parse[start - 1].tag == "CC" else None
    if near is not None and near.is_noun:
        word.attach(near, "conj")
    else:
        word.attach(subject, "appos")


def past_participle(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """As in "A snow covered mountain": the mountain is covered."""
    if word.text not in words.ADJECTIVE_HEADS or word.tag not in ("VBD", "VBN") or word.of("prep", "prt"):
        return
    kind, thing = word.of("nsubj", "npadvmod"), word.of("dobj")
    if not kind or not thing or kind[0].i != word.i - 1 or thing[0].of("det", "poss") or is_animate(kind[0], lemmas):
        return
    replace(word, thing[0])
    take_modifiers(kind[0], thing[0])
    kind[0].attach(word, "npadvmod")
    word.attach(thing[0], "amod")
    word.tag = "VBN"


def gerund(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """As in "A cat drinking water": no "drinking water"; "a horse standing and": no "horse standing"."""
    if not word.text.endswith("ing") or len(word.text) < 5 or not lemmas.may_be_verb(word.text) or not word.i:
        return
    if word.of("nsubj", "aux") or word.dep in ("acl", "advcl", "relcl") or (word.dep == "conj" and word.head.is_verb):
        word.tag = "VBG"
        sport = parse[word.i - 1]
        if sport.text in words.SPORTS and sport in word.of("nsubj"):  # "a person bungee jumping"
            for doer in [kid for kid in sport.of("compound") if is_animate(kid, lemmas)]:
                take_modifiers(sport, doer)
                doer.attach(word, "nsubj")
                sport.dep = "compound"
        return
    be = word.head
    if word.dep == "attr" and be.text in _AUXILIARIES and be.of("nsubj") and not word.of("det"):
        replace(be, word)  # "people are ice skating"
        word.tag = "VBG"
        for kid in list(be.kids):
            kid.attach(word, kid.dep)
        be.attach(word, "aux")
        return
    before = parse[word.i - 1]
    above = word.head.head
    above = above.head if above.dep == "acl" else above
    if (
        word.dep == "pobj" and before.text in words.COLOURS and before in word.kids and above.is_noun
    ):  # "in red jumping"
        before.attach(word.head, "pobj")
        word.attach(above, "acl")
        word.tag = "VBG"
        return
    if not before.is_noun and not is_animate(before, lemmas):
        return
    action = lemmas.verb(word.text) in words.ACTIONS
    names = before in word.of("compound", "nmod", "amod")
    apart = is_animate(before, lemmas) or lemmas.noun(before.text) in words.GARMENTS or bool(word.of("prep"))
    if word.is_noun and names and apart and (action or is_animate(before, lemmas)):
        take_modifiers(word, before)
        replace(word, before)
        before.tag = before.tag if before.is_noun else "NN"  # "a young male surfing"
        word.attach(before, "acl")
        word.tag = "VBG"
    elif word.dep in ("amod", "compound") and word.head.is_noun and word.head.i > word.i:
        thing = word.head
        clash = thing.tag == "NNS" and any(det.text in ("a", "an") for det in thing.of("det"))
        if word.text in words.PURPOSES and not (is_animate(before, lemmas) or clash):
            return
        if not (is_animate(before, lemmas) or clash or (action and word.text != "making")):
            return
        if before in thing.kids or before in word.kids:
            replace(thing, before)
            take_modifiers(thing, before)
        word.attach(before, "acl")
        word.tag = "VBG"
        thing.attach(word, "dobj")


def verb_as_noun(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """As in "A dog leaps over a log": no name "dog leaps", but a dog that leaps."""
    if not (word.is_noun or word.tag in FINITE_TAGS) or word.of("nsubj", "poss"):
        return
    if is_animate(word, lemmas) or not lemmas.may_be_verb(word.text):
        return
    if word.tag == "NNS" and word.dep == "conj" and word.head.tag == "VBZ" and parse[word.i - 1].tag == "CC":
        word.tag = "VBZ"  # "sits and waits"
        return
    doer = parse[word.i - 1] if word.i else word
    named = doer.is_noun or doer.text in words.COLOURS or lemmas.is_animate(doer.text)
    if doer not in word.of("compound", "nmod", "amod") or not named:
        return
    singular = any(det.text in ("a", "an", "another", "each", "one") for det in word.of("det", "nummod"))
    plural = doer.tag in ("NNS", "NNPS") or doer.text == "people"
    plural |= word.dep == "conj" and word.head.is_noun and is_animate(word.head, lemmas)  # "a man and child kayak"
    action = lemmas.verb(word.text) in words.ACTIONS
    form_s = word.text.endswith("s") and lemmas.noun(word.text) != word.text
    head = word.head
    if word.dep == "dobj" and not form_s and head.is_verb and lemmas.verb(head.text) in words.PERCEPTION:
        if is_animate(doer, lemmas) and action:  # "watches a cat sleep"
            take_modifiers(word, doer)
            doer.attach(head, "dobj")
            word.attach(head, "xcomp")
            word.tag = "VB"
        return
    if word.dep == "dobj" and form_s and action and head.dep == "acl" and is_animate(head.head, lemmas):
        above = head.head  # "a dog wearing a muzzle runs"
        take_modifiers(word, doer)
        doer.attach(head, "dobj")
        doer.tag, word.tag = doer.tag if doer.is_noun else "NN", "VBZ"
        replace(above, word)
        above.attach(word, "nsubj")
        return
    if word.dep == "pobj":
        above = word.head.head
        if above.dep == "acl":
            above = above.head  # "men dressed in white ride"
        watched = above.head.is_verb and lemmas.verb(above.head.text) in words.PERCEPTION and not doer.is_noun
        fits = (
            form_s
            or watched
            or word.tag in FINITE_TAGS
            or (above.tag == "NNS" and (not any(w.is_verb for w in parse[: word.i]) or not doer.is_noun))
        )
        if above.is_noun and is_animate(above, lemmas) and fits and (action or word.tag in FINITE_TAGS):
            take_modifiers(word, doer)
            doer.attach(word.head, "pobj")
            doer.tag = "NN" if not doer.is_noun else doer.tag
            if watched:  # "helps a man in red climb"
                word.tag = "VB"
                word.attach(above.head, "xcomp")
                return
            word.tag = "VBZ" if form_s else "VBP"
            replace(above, word)
            above.attach(word, "nsubj")
            for kid in [k for k in (*above.kids, *word.head.head.kids, *doer.head.head.kids) if k.i > word.i]:
                kid.attach(word, kid.dep)
        return
    if not (doer.is_noun or lemmas.is_animate(doer.text)):
        return
    if form_s and not plural and (singular or (is_animate(doer, lemmas) and action) or word.tag == "VBZ"):
        word.tag = "VBZ"
    elif not form_s and plural and is_animate(doer, lemmas) and word.tag == "NN":
        word.tag = "VBP"
    else:
        return
    if not doer.is_noun:
        doer.tag = "NN"
    take_modifiers(word, doer)
    for thing in word.of("appos"):
        thing.dep = "dobj"  # "a dog bites a mitten"
    _make_clause(word, doer)


def _make_clause(verb: Word, doer: Word) -> None:
    """Give a verb that stood in a noun's place its subject."""
    head, dep = verb.head, verb.dep
    if dep == "conj" and head.is_noun:  # "three ducks and a dog swim"
        doer.attach(head, "conj")
        if head.head is head:
            verb.attach(verb, "ROOT")
            head.attach(verb, "nsubj")
        return
    doer.attach(verb, "nsubj")
    if head is not verb and dep not in ("conj", "advcl", "ccomp", "relcl"):
        verb.dep = "advcl"
