"""Mends the parser's confusions of nouns, verbs and adjectives in captions."""

from pyterrier_grasp.concepts.extract.english import words
from pyterrier_grasp.concepts.extract.english.lemmas import Lemmas
from pyterrier_grasp.concepts.extract.english.parse import Word

MODIFIERS = ("det", "amod", "nummod", "compound", "nmod", "poss", "predet")
_NOMINAL = ("pobj", "dobj", "nsubj", "nsubjpass", "attr", "ROOT")


def is_animate(word: Word, lemmas: Lemmas) -> bool:
    """Whether a noun names people or animals."""
    return lemmas.is_animate(word.text)


def replace(old: Word, new: Word) -> None:
    """Put a word below another one in its place."""
    if old.head is old:
        new.attach(new, "ROOT")
    else:
        new.attach(old.head, old.dep)


def take_modifiers(source: Word, target: Word) -> None:
    """Move what stands before a noun to another noun."""
    for kid in [k for k in source.kids if k.i < target.i and k.dep in MODIFIERS and k is not target]:
        kid.attach(target, kid.dep)


def no_verb(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """As in "A microwave oven with a tray", "a toilet and sink": things that the parser takes for what is done."""
    if not word.is_verb or word.text.endswith(("ing", "ed")):
        return
    noun = lemmas.noun(word.text)
    joined = word.i > 1 and parse[word.i - 1].tag == "CC" and lemmas.noun(parse[word.i - 2].text) in words.GARMENTS
    known = lemmas.is_a(noun, "noun") and not lemmas.may_be_verb(word.text) and not word.of("dobj")
    if noun not in words.NO_VERBS and not known and not (joined and noun in words.GARMENTS):
        return
    word.tag = "NN" if noun == word.text else "NNS"
    before = parse[word.i - 1] if word.i else None
    for kid in word.of("nsubj", "nsubjpass"):
        if kid is before and kid.is_noun:
            kid.dep = "compound"
            take_modifiers(kid, word)
        else:
            replace(word, kid)
            word.attach(kid, "appos")
    for kid in word.of("xcomp", "advcl", "ccomp", "dobj"):
        if kid.text.endswith("ing"):
            kid.dep, kid.tag = "acl", "VBG"
    if before is not None and word.head is before and before.is_noun:
        replace(before, word)
        for kid in list(before.kids):
            kid.attach(word, kid.dep)
        before.attach(word, "compound")
    elif word.dep == "conj":
        start = min((kid.i for kid in word.kids), default=word.i)
        joint = min(start, word.i) - 1
        while joint > 0 and (parse[joint].tag == "CC" or parse[joint].text == ","):
            joint -= 1
        if parse[joint].is_noun:
            word.attach(parse[joint], "conj")


def tables(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """Tags that the tables of base forms rule out: "hula/JJ hoop", "unmade/NN bed", "boy/UH in a vest"."""
    noun, adjective = lemmas.is_a(lemmas.noun(word.text), "noun"), lemmas.is_a(word.text, "adj")
    if word.tag in ("UH", "FW", "LS") and is_animate(word, lemmas):
        word.tag = "NN"
        if word.dep == "intj" and word.head.is_verb and not word.head.of("nsubj"):
            word.dep = "nsubj"
    elif word.tag == "RB" and word.dep == "amod" and noun and not adjective:
        word.tag = "NN"
    elif word.tag == "JJ" and not adjective and word.text not in words.COLOURS and "-" not in word.text:
        if word.of("nsubj") and word.dep == "ROOT" and lemmas.verb(word.text) != word.text:
            word.tag = "VBD"  # "a man bent over"
        elif noun or (word.dep in _NOMINAL and word.of("det")):
            word.tag = "NN"
            word.dep = "compound" if word.dep == "amod" else word.dep
    elif word.is_noun and word.dep in ("compound", "amod", "nmod") and adjective and not noun:
        word.tag, word.dep = "JJ", "amod"
    elif word.tag in ("VB", "VBP") and word.dep == "conj" and word.head.is_noun and noun:
        if lemmas.verb(word.text) not in words.ACTIONS and not word.of("nsubj", "dobj", "aux", "prep"):
            word.tag = "NN"


def first_word(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """As in "Coffee with a bagel": no verb."""
    if word.i or word.tag not in ("VB", "VBP") or word.of("nsubj", "dobj", "xcomp", "prt"):
        return
    if lemmas.is_a(word.text, "noun") and lemmas.verb(word.text) not in words.ACTIONS:
        word.tag = "NN"


def swapped(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """As in "Fire hydrant", where the hydrant is taken for an adjective; "a skateboarder high in the air"."""
    if word.dep in ("amod", "compound") and word.head.i == word.i - 1 and word.is_noun and word.head.is_noun:
        noun = word.head
        replace(noun, word)
        for kid in list(noun.kids):
            kid.attach(word, kid.dep)
        noun.attach(word, "compound")
    elif word.tag == "VBG" and word.dep == "acl" and word.i and not word.of("dobj", "prep", "prt"):
        adjective = parse[word.i - 1]  # "over a white railing"
        is_noun = lemmas.is_a(lemmas.noun(word.text), "noun") and lemmas.verb(word.text) not in words.ACTIONS
        is_noun |= word.text in words.NOUNS_IN_ING
        if is_noun and adjective.dep in ("pobj", "dobj") and (adjective.text in words.COLOURS or not adjective.is_noun):
            replace(adjective, word)
            for kid in list(adjective.kids):
                kid.attach(word, kid.dep)
            adjective.attach(word, "amod")
            word.tag = "NN"
    elif word.is_noun and word.dep == "amod" and word.head.i == word.i + 1 and word.head.tag == "JJ":
        adjective = word.head
        if adjective.dep in ("ROOT", "nsubj", "nsubjpass", "pobj", "dobj", "attr") and adjective.of("det"):
            replace(adjective, word)
            for kid in [k for k in adjective.kids if k.i < word.i or k.dep in ("acl", "relcl", "conj", "cc")]:
                kid.attach(word, kid.dep)
            adjective.attach(word, "amod")


def odd_verb(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """As in "A teen does tricks", where tricks is taken for the verb; "next to track"."""
    if word.tag not in ("VB", "VBP") or not lemmas.is_a(word.text, "noun"):
        return
    before = parse[word.i - 1] if word.i else word
    if before.text in ("does", "do", "did") and before.dep == "aux" and not word.of("neg", "dobj"):
        replace(word, before)
        before.tag, word.tag = "VBZ", "NN"
        for kid in [k for k in word.kids if k is not before]:
            kid.attach(before, kid.dep)
        word.attach(before, "dobj")
    elif before.text == "to" and before.dep == "aux" and word.i > 1 and parse[word.i - 2].text in ("next", "close"):
        adverb = parse[word.i - 2]
        if adverb not in word.ancestors() and word not in adverb.ancestors():
            before.attach(adverb, "prep")
            word.attach(before, "pobj")
            word.tag = "NN"


def infinitive(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """As in "Leans down to pet a dog", where pet is taken for a noun."""
    if word.dep != "pobj" or word.head.text != "to" or word.kids or word.i + 1 >= len(parse) or word.tag != "NN":
        return
    if lemmas.verb(word.text) not in words.ACTIONS or parse[word.i + 1].tag not in ("DT", "PRP$"):
        return
    verb = next((above for above in word.ancestors() if above.is_verb), None)
    if verb is None:
        return
    thing = parse[word.i + 1].head
    word.head.attach(word.head.head, "aux")
    word.attach(verb, "xcomp")
    word.tag = "VB"
    if thing in verb.of("dobj"):
        thing.attach(word, "dobj")


def adverb(word: Word, parse: list[Word], lemmas: Lemmas) -> None:
    """As in "A man at the drumset onstage": the man is at the drumset."""
    if word.text not in words.PLACE_ADVERBS or word.dep in ("prep", "advmod") or word.of("pobj"):
        return
    before = parse[word.i - 1] if word.i else None
    if before is not None and before in word.kids and before.dep in ("compound", "nmod", "amod"):
        replace(word, before)
        take_modifiers(word, before)
        before.tag = "NN"
        word.attach(before, "advmod")
    elif word.is_noun and word.head is not word:
        word.dep = "advmod"
    if word.dep == "advmod":
        word.tag = "RB"
