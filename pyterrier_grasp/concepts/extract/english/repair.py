"""Mends what the parser gets wrong in captions."""

from pyterrier_grasp.concepts.extract.english import words
from pyterrier_grasp.concepts.extract.english.lemmas import Lemmas
from pyterrier_grasp.concepts.extract.english.parse import Word

_MODIFIERS = ("det", "amod", "nummod", "compound", "nmod", "poss", "predet")


def repair(parse: list[Word], lemmas: Lemmas) -> None:
    """Change tags, heads and dependencies of a parse in place."""
    for rule in (_first_word, _swapped, _noun_root, _gerund, _verb_as_noun, _lone_adjective, _joint_modifier):
        for word in parse:
            rule(word, parse, lemmas)
    for rule in (_participle, _conjunct, _listed, _with, _clause_of_thing):
        for word in parse:
            rule(word, parse, lemmas)


def _is_animate(word: Word, lemmas: Lemmas) -> bool:
    return lemmas.noun(word.text) in words.ANIMATE


def _replace(old: Word, new: Word) -> None:
    """Put a word below another one in its place."""
    head, dep = old.head, old.dep
    if head is old:
        new.attach(new, "ROOT")
    else:
        new.attach(head, dep)


# nouns that are verbs, and verbs that are nouns


def _first_word(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """ "Coffee with a bagel": no verb."""
    if word.i or word.tag not in ("VB", "VBP") or word.of("nsubj", "dobj", "xcomp", "prt"):
        return
    if lemmas.is_a(word.text, "noun") and lemmas.verb(word.text) not in words.ACTIONS:
        word.tag = "NN"


def _swapped(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """ "Fire hydrant", where the hydrant is taken for an adjective; "a skateboarder high in the air"."""
    if word.dep == "amod" and word.head.i == word.i - 1 and word.tag == "JJ" and not word.kids:
        noun = word.head
        if noun.is_noun and lemmas.is_a(word.text, "noun") and not lemmas.is_a(word.text, "adj"):
            _replace(noun, word)
            for kid in list(noun.kids):
                kid.attach(word, kid.dep)
            noun.attach(word, "compound")
            word.tag = "NN"
    elif word.is_noun and word.dep == "amod" and word.head.i == word.i + 1 and word.head.tag == "JJ":
        adjective = word.head
        if adjective.dep in ("ROOT", "nsubj", "nsubjpass", "pobj", "dobj", "attr") and adjective.of("det"):
            _replace(adjective, word)
            for kid in [k for k in adjective.kids if k.i < word.i or k.dep in ("acl", "relcl", "conj", "cc")]:
                kid.attach(word, kid.dep)
            adjective.attach(word, "amod")


def _noun_root(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """ "A bed frame in a bedroom", "a woman holding a ball and a dog": a noun has no subject."""
    if not word.is_noun or word.text.endswith("ing") or word.of("cop", "aux"):
        return
    subject = next(iter(word.of("nsubj")), None)
    if subject is None or not subject.is_noun or subject.i > word.i:
        return
    if subject.i == word.i - 1:
        if lemmas.verb(word.text) in words.ACTIONS or not lemmas.is_a(lemmas.noun(word.text), "noun"):
            word.tag = "VBZ"
            return
        subject.dep = "compound"
        _take_back(subject, word)
        return
    _replace(word, subject)
    start = min(kid.i for kid in (word, *word.kids) if kid is not subject)
    near = parse[start - 2] if start > 1 and parse[start - 1].tag == "CC" else None
    if near is not None and near.is_noun:
        word.attach(near, "conj")
    else:
        word.attach(subject, "appos")


def _take_back(part: Word, word: Word) -> None:
    for kid in [k for k in part.kids if k.dep in ("det", "amod", "nummod", "poss")]:
        kid.attach(word, kid.dep)


def _gerund(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """ "A cat drinking water": no "drinking water"; "a horse standing and": no "horse standing"."""
    if not word.text.endswith("ing") or len(word.text) < 5 or not lemmas.may_be_verb(word.text) or not word.i:
        return
    if word.of("nsubj", "aux") or word.dep in ("acl", "advcl", "relcl"):
        word.tag = "VBG"
        return
    before = parse[word.i - 1]
    if word.dep == "pobj" and before.text in words.COLOURS and before in word.kids and word.head.head.is_noun:
        above = word.head.head  # "a boy in red jumping"
        before.attach(word.head, "pobj")
        word.attach(above, "acl")
        word.tag = "VBG"
        return
    if not before.is_noun:
        return
    action = lemmas.verb(word.text) in words.ACTIONS
    if word.is_noun and before in word.of("compound", "nmod", "amod") and word.head is not before:
        if _is_animate(before, lemmas) or (action and word.of("prep")):
            for kid in [k for k in word.kids if k.i < before.i and k.dep in _MODIFIERS]:
                kid.attach(before, kid.dep)
            _replace(word, before)
            word.attach(before, "acl")
            word.tag = "VBG"
    elif word.dep in ("amod", "compound") and word.head.is_noun and word.head.i > word.i:
        if word.text in words.PURPOSES and not _is_animate(before, lemmas):
            return
        thing = word.head
        if not (_is_animate(before, lemmas) or action):
            return
        if before in thing.kids:
            _replace(thing, before)
            for kid in [k for k in thing.kids if k.i < before.i and k.dep in _MODIFIERS]:
                kid.attach(before, kid.dep)
        word.attach(before, "acl")
        word.tag = "VBG"
        thing.attach(word, "dobj")


def _verb_as_noun(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """ "A dog leaps over a log": no name "dog leaps", but a dog that leaps."""
    if not (word.is_noun or word.tag == "VBZ") or not lemmas.may_be_verb(word.text) or word.of("nsubj", "poss"):
        return
    doer = parse[word.i - 1] if word.i else word
    named = doer.is_noun or doer.text in words.COLOURS or doer.text in words.ANIMATE
    if doer not in word.of("compound", "nmod", "amod") or not named:
        return
    singular = any(det.text in ("a", "an", "another", "each", "one") for det in word.of("det", "nummod"))
    plural = doer.tag in ("NNS", "NNPS") or doer.text == "people"
    action = lemmas.verb(word.text) in words.ACTIONS
    form_s = word.text.endswith("s")
    if word.dep == "pobj":
        above = word.head.head
        fits = form_s or (above.tag == "NNS" and not any(w.is_verb for w in parse))
        if above.is_noun and _is_animate(above, lemmas) and fits and (action or word.tag == "VBZ"):
            _take_modifiers(word, doer)
            doer.attach(word.head, "pobj")
            doer.tag = "NN" if not doer.is_noun else doer.tag
            word.tag = "VBZ" if form_s else "VBP"
            _replace(above, word)
            above.attach(word, "nsubj")
        return
    if not (doer.is_noun or doer.text in words.ANIMATE):
        return
    if form_s and not plural and (singular or (_is_animate(doer, lemmas) and action) or word.tag == "VBZ"):
        word.tag = "VBZ"
    elif not form_s and plural and _is_animate(doer, lemmas) and word.tag == "NN":
        word.tag = "VBP"
    else:
        return
    if not doer.is_noun:
        doer.tag = "NN"
    _take_modifiers(word, doer)
    _make_clause(word, doer)


def _take_modifiers(word: Word, doer: Word) -> None:
    for kid in [k for k in word.kids if k.i < doer.i and k.dep in _MODIFIERS]:
        kid.attach(doer, kid.dep)


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


# words at the wrong place


def _lone_adjective(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """ "A black and a brown dog": black is said of a dog; "black and white soccer ball": soccer is not."""
    if word.is_noun and word.dep == "conj" and word.head.tag == "JJ" and word.head.dep == "amod":
        noun = word.head.head
        if word.i + 1 == noun.i and word.text not in words.COLOURS:
            word.attach(noun, "compound")
        return
    if word.tag != "JJ" or word.dep not in ("nsubj", "nsubjpass", "pobj", "dobj", "attr", "ROOT"):
        return
    noun_ = next((kid for kid in word.of("conj") if kid.is_noun), None)
    if noun_ is None or word.text not in words.COLOURS:
        return
    _replace(word, noun_)
    for kid in [k for k in word.kids if k.dep not in ("det", "cc", "punct")]:
        kid.attach(noun_, kid.dep)
    word.attach(noun_, "amod")


def _joint_modifier(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """ "With wood flooring and tan walls": flooring is no part of the walls."""
    if word.dep not in ("nmod", "compound") or not word.is_noun or not word.of("cc") or not word.head.is_noun:
        return
    thing = word.head
    if thing.i < word.i:
        return
    _replace(thing, word)
    for kid in [k for k in thing.kids if k.i < word.i and k.dep in _MODIFIERS]:
        kid.attach(word, kid.dep)
    for kid in word.of("conj"):
        kid.attach(thing, "amod" if kid.text in words.COLOURS or not kid.is_noun else "compound")
    thing.attach(word, "conj")


def _listed(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """ "A room with a bed, a clock and a lamp": the room has a clock, too."""
    if word.dep not in ("conj", "appos") or not word.is_noun or not word.head.is_noun:
        return
    noun = word.head
    if _is_animate(noun, lemmas):
        return
    inside = [p for prep in noun.of("prep") if prep.text == "with" for p in prep.of("pobj") if p.i < word.i]
    if inside and any(parse[i].text == "," for i in range(inside[-1].i, word.i)):
        word.attach(inside[-1], "conj")


def _participle(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """ "People with backpacks walking": the people walk. "A train on the tracks going": the train goes."""
    if word.dep != "acl" or word.tag != "VBG":
        return
    noun, verb = word.head, lemmas.verb(word.text)
    name = lemmas.noun(noun.text)
    if name in words.ANIMATE:
        return
    does = bool(word.of("dobj")) and verb not in words.STATIVE
    if verb in words.ACTIONS or does or (verb in words.POSTURES and name in words.GARMENTS):
        doers = words.ANIMATE
    elif verb in words.MOVES and name not in words.VEHICLES:
        doers = words.VEHICLES
    else:
        return
    for above in noun.ancestors():
        if above.is_noun and lemmas.noun(above.text) in doers:
            word.attach(above, "acl")
            return
        if above.is_verb and any(lemmas.noun(s.text) in doers for s in above.of("nsubj", "nsubjpass")):
            word.attach(above, "advcl")
            return


def _conjunct(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """ "A girl wearing a hat and purple shirt": the shirt goes with the hat; "in a dress and a man": with the girl."""
    if word.dep != "conj" or not word.is_noun or not word.head.is_noun:
        return
    noun = word.head
    if word.tag == "NNS" and lemmas.verb(word.text) in words.ACTIONS and parse[word.i - 1].tag == "CC":
        verb = next((above for above in noun.ancestors() if above.tag == "VBZ"), None)
        if verb is not None:  # "looks at the camera and smiles"
            word.attach(verb, "conj")
            word.tag = "VBZ"
            return
    start = min([word.i, *(kid.i for kid in word.kids if kid.i < word.i)])
    joint = start - 1
    while joint > 0 and (parse[joint].tag == "CC" or parse[joint].text == ","):
        joint -= 1
    near = parse[joint]
    animate = _is_animate(word, lemmas)
    if near is not noun and near.is_noun and near.dep != "compound":
        if _is_animate(noun, lemmas) != animate and _is_animate(near, lemmas) == animate and noun in near.ancestors():
            word.attach(near, "conj")
        return
    if near is noun and animate and not _is_animate(noun, lemmas):
        for above in noun.ancestors():
            if above.is_noun and _is_animate(above, lemmas) and above.dep in ("ROOT", "nsubj", "nsubjpass", "attr"):
                word.attach(above, "conj")
                return


def _with(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """ "Wears a shirt with stripes": of the shirt; "hits a ball with a bat": of the hitting."""
    if word.text != "with" or word.dep != "prep":
        return
    head = word.head
    if head.is_verb:
        things = [o for o in head.of("dobj") if o.i < word.i]
        if not things or head.of("prep")[0] is not word:
            return
        verb, thing = lemmas.verb(head.text), [*things[-1:], *things[-1].of("conj")][-1]
        if verb in words.HAVING or (_is_animate(thing, lemmas) and verb not in words.USING and verb in words.ACTIONS):
            word.attach(thing, "prep")
    elif head.is_noun and head.dep == "dobj" and lemmas.verb(head.head.text) in words.USING:
        word.attach(head.head, "prep")


def _clause_of_thing(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """ "A hand showing a vegetable that has been chewed": the vegetable has."""
    if word.dep != "relcl":
        return
    pronoun = next((kid for kid in word.kids if kid.text in ("that", "which") and kid.i < word.i), None)
    if pronoun is None or not pronoun.i:
        return
    near = parse[pronoun.i - 1]
    if near.is_noun and near is not word.head and word.head in near.ancestors() and near.dep in ("pobj", "dobj"):
        if not (lemmas.verb(word.text) in words.ACTIONS and _is_animate(word.head, lemmas)):
            word.attach(near, "relcl")
