"""Mends captions whose words the parser hangs at the wrong place."""

from pyterrier_grasp.concepts.extract.english import words
from pyterrier_grasp.concepts.extract.english.lemmas import Lemmas
from pyterrier_grasp.concepts.extract.english.parse import Word, chained
from pyterrier_grasp.concepts.extract.english.retag import MODIFIERS, is_animate, replace


def lone_adjective(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """As in "A black and a brown dog": black is said of a dog; "black and white soccer ball": soccer is not."""
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
    replace(word, noun_)
    for kid in [k for k in word.kids if k.dep not in ("det", "cc", "punct")]:
        kid.attach(noun_, kid.dep)
    word.attach(noun_, "amod")


def joint_modifier(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """As in "With wood flooring and tan walls": flooring is no part of the walls."""
    if word.dep not in ("nmod", "compound") or not word.is_noun or not word.of("cc") or not word.head.is_noun:
        return
    thing = word.head
    if thing.i < word.i:
        return
    if not thing.of("det") and lemmas.verb(thing.text) in words.ACTIONS and not thing.text.endswith("s"):
        thing.tag = "VBP"
        word.attach(thing, "nsubj")
        return
    replace(thing, word)
    for kid in [k for k in thing.kids if k.i < word.i and k.dep in MODIFIERS]:
        kid.attach(word, kid.dep)
    for kid in word.of("conj"):
        kid.attach(thing, "amod" if kid.text in words.COLOURS or not kid.is_noun else "compound")
    thing.attach(word, "conj")


def listed(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """As in "A room with a bed, a clock and a lamp": the room has a clock, too."""
    if word.dep not in ("conj", "appos") or not word.is_noun or not word.head.is_noun:
        return
    noun = word.head
    if word.dep == "appos" and any(each.of("cc") for each in chained(word)):
        word.dep = "conj"
    if is_animate(noun, lemmas) and is_animate(word, lemmas):
        return
    inside = [p for prep in noun.of("prep") if prep.text == "with" for p in prep.of("pobj") if p.i < word.i]
    if inside and any(parse[i].text == "," for i in range(inside[-1].i, word.i)):
        word.attach(inside[-1], "conj")


def with_subject(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """As in "Before the mountain holding sticks", "with the sun reflecting": a thing, and what is said of it."""
    if word.tag != "VBG":
        return
    before = parse[word.i - 1] if word.i else None
    if word.dep == "pcomp" and word.head.dep == "advmod" and word.head.head.is_noun:
        word.attach(word.head.head, "acl")  # "people outside sitting on chairs"
    elif word.dep in ("pobj", "pcomp") and word.of("nsubj"):
        prep, thing = word.head, word.of("nsubj")[0]
        thing.attach(prep, "pobj")
        word.attach(thing, "acl")
    elif word.dep in ("advcl", "xcomp") and before is not None and before.dep == "pobj" and before.head.text == "with":
        if before.is_noun and not word.of("mark", "nsubj", "aux"):
            word.attach(before, "acl")


def subordinate(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """As in "On a rail as a man crouches": the man is no object of "as"."""
    if word.text not in ("as", "while") or word.dep != "prep":
        return
    doer = next(iter(word.of("pobj")), None)
    if doer is not None and doer.tag == "NNS" and any(det.text == "another" for det in doer.of("det")):
        if lemmas.verb(doer.text) in words.ACTIONS:  # "as another runs"
            doer.tag = "VBZ"
            doer.attach(word.head, "advcl")
            word.attach(doer, "mark")
            doer.of("det")[0].dep = "nsubj"
            return
    after = parse[doer.i + 1] if doer is not None and doer.i + 1 < len(parse) else None
    if doer is None or after is None or after.tag != "VBZ" or after.of("nsubj"):
        return
    if after not in word.ancestors():
        after.attach(word.head, "advcl")
    doer.attach(after, "nsubj")
    word.attach(after, "mark")


def is_garment(word: Word, lemmas: Lemmas) -> bool:
    """Whether people wear it: "hat", "tanktop", "sunhat"."""
    name = lemmas.noun(word.text)
    return name in words.GARMENTS or any(name.endswith(garment) for garment in ("top", "shirt", "hat", "suit"))


def colour_before(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """As in "a boy with a purple Mohawk is playing": the Mohawk does not play."""
    before = parse[word.i - 1] if word.i else None
    if before is None or word.dep != "nsubj" or not word.is_noun or word.of("det", "amod", "nummod", "poss"):
        return
    if before.dep == "pobj" and before.text in words.COLOURS and before.of("det") and not is_animate(word, lemmas):
        replace(before, word)
        for kid in list(before.kids):
            kid.attach(word, kid.dep)
        before.attach(word, "amod")


def worn(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """As in "sits next to a boy in a blue shirt": the boy wears it. "With goggles on in a pool": nothing is on."""
    before = parse[word.i - 1] if word.i else None
    if before is None or not before.is_noun:
        return
    if word.text == "on" and not word.of("pobj") and is_garment(before, lemmas):
        for kid in word.of("prep"):
            kid.attach(word.head, "prep")
    elif word.text == "in" and word.dep == "prep" and word.head.is_verb and is_animate(before, lemmas):
        if before.dep in ("pobj", "dobj") and any(is_garment(p, lemmas) for p in word.of("pobj")):
            word.attach(before, "prep")


def place(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """As in "With a boat in the background": the boat is there. "A bench with graffiti on it": the graffiti is."""
    if word.dep != "prep":
        return
    where = {p.text for p in word.of("pobj")}
    if word.head.is_verb and where & {"background", "distance", "foreground"}:
        siblings = [kid for kid in word.head.of("prep") if kid.i < word.i]
        if siblings and siblings[-1].text == "with" and siblings[-1].of("pobj"):
            word.attach(siblings[-1].of("pobj")[0], "prep")
    elif word.head.is_noun and where == {"it"}:
        near = parse[word.i - 1]
        if near is not word.head and near.is_noun and word.head in near.ancestors():
            word.attach(near, "prep")


def participle(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """As in "People with backpacks walking": the people walk. "A train on the tracks going": the train goes."""
    verb = lemmas.verb(word.text)
    if word.dep not in ("acl", "relcl") or not (word.tag == "VBG" or (word.tag == "VBN" and verb == "dress")):
        return
    noun = word.head
    if is_animate(noun, lemmas):
        return
    does = bool(word.of("dobj")) and verb not in words.STATIVE
    worn = is_garment(noun, lemmas) and verb not in words.SHOWS
    rests = verb in words.POSTURES and noun.dep == "pobj" and noun.head.text in ("in", "on", "at", "inside")
    if verb in words.ACTIONS or does or worn or rests or verb == "dress":
        does_it = is_animate
    elif verb in words.MOVES and not _is_vehicle(noun, lemmas):
        does_it = _is_vehicle
    else:
        return
    for above in noun.ancestors():
        if above.is_noun and does_it(above, lemmas):
            word.attach(above, word.dep)
            return
        subjects = above.of("nsubj", "nsubjpass") if above.is_verb and word.dep == "acl" else []
        if any(does_it(subject, lemmas) for subject in subjects):
            word.attach(above, "advcl")
            return


def _is_vehicle(word: Word, lemmas: Lemmas) -> bool:
    return lemmas.noun(word.text) in words.VEHICLES


def conjunct(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """As in "A girl wearing a hat and purple shirt": the shirt goes with the hat. (But a man goes with the girl.)"""
    if word.dep != "conj" or not word.head.is_noun:
        return
    if word.text in words.COLOURS and word.i > 1 and parse[word.i - 1].tag == "CC":
        colour = parse[word.i - 2]
        if colour.text in words.COLOURS and colour.dep == "pobj":
            word.attach(colour, "conj")
            return
    if not word.is_noun:
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
    animate = is_animate(word, lemmas)
    if near is not noun and near.is_noun and near.dep != "compound":
        if is_animate(noun, lemmas) != animate and is_animate(near, lemmas) == animate and noun in near.ancestors():
            word.attach(near, "conj")
        return
    if near is noun and animate and not is_animate(noun, lemmas):
        for above in noun.ancestors():
            if above.is_noun and is_animate(above, lemmas) and above.dep in ("ROOT", "nsubj", "nsubjpass", "attr"):
                word.attach(above, "conj")
                return


def with_phrase(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """As in "Wears a shirt with stripes": of the shirt; "hits a ball with a bat": of the hitting."""
    if word.text != "with" or word.dep != "prep":
        return
    head = word.head
    if head.is_verb:
        things = [o for o in head.of("dobj") if o.i < word.i]
        if not things or head.of("prep")[0] is not word:
            return
        verb, thing = lemmas.verb(head.text), [*things[-1:], *things[-1].of("conj")][-1]
        if verb in words.HAVING or (is_animate(thing, lemmas) and verb not in words.USING and verb in words.ACTIONS):
            word.attach(thing, "prep")
    elif head.is_noun and head.dep == "dobj" and lemmas.verb(head.head.text) in words.USING:
        word.attach(head.head, "prep")


def clause_of_thing(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """As in "A hand showing a vegetable that has been chewed": the vegetable has."""
    if word.dep != "relcl":
        return
    if not is_animate(word.head, lemmas) and any(kid.text == "who" for kid in word.kids):
        for above in word.head.ancestors():
            if above.is_noun and is_animate(above, lemmas):
                word.attach(above, "relcl")
                return
    pronoun = next((kid for kid in word.kids if kid.text in ("that", "which") and kid.i < word.i), None)
    if pronoun is None or not pronoun.i:
        return
    near = parse[pronoun.i - 1]
    if near.is_noun and near is not word.head and word.head in near.ancestors() and near.dep in ("pobj", "dobj"):
        if not (lemmas.verb(word.text) in words.ACTIONS and is_animate(word.head, lemmas)):
            word.attach(near, "relcl")


def two_words(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """As in "next to", "away from": one relation."""
    after = parse[word.i + 1] if word.i + 1 < len(parse) else None
    if (
        after is None
        or word.dep not in ("advmod", "prt", "acomp")
        or after.dep != "prep"
        or after.head is not word.head
    ):
        return
    if (word.text, after.text) in words.PAIRS:
        after.attach(word, "prep")
