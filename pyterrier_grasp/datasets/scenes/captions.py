"""Captions with synonyms from varied templates, and the triplets they state."""

from random import Random
from typing import NamedTuple

from pyterrier_grasp.datasets.scenes.layout import pick
from pyterrier_grasp.datasets.scenes.scene import Caption, Scene, SceneObject, Triplet
from pyterrier_grasp.datasets.scenes.vocabulary import (
    COLOURS,
    GROUND_NOUNS,
    NEVER_NOUNS,
    NUMBERS,
    OBJECT_NOUNS,
    OUTLINED,
    RELATIONS,
    SHAPES,
    SIZES,
    TEXTURES,
)

CAPTIONS = 5
"""Captions a scene."""

_OPENERS = ("", "", "", "there is ", "we see ", "look at ", "the picture shows ", "a drawing of ", "you can find ")
_RELATION_TEMPLATES = (
    "{a} {rel} {b}",
    "{a} is {rel} {b}",
    "{a} can be seen {rel} {b}",
    "{open}{a} {rel} {b}",
    "{open}{a} that is {rel} {b}",
    "somewhere {a} is {rel} {b}",
)
_PREPOSITION_TEMPLATES = ("{rel} {b} is {a}", "{rel} {b} there is {a}", "{b} with {a} {rel} it", "{b} has {a} {rel} it")
_BOTH_TEMPLATES = ("{open}{a} and {b}", "{open}{a} as well as {b}", "{a} appears together with {b}", "{open}{a}, {b}")
_GROUND_TEMPLATES = ("{open}{a} against {g}", "against {g} there is {a}", "{open}{a}, with {g}")
_COUNT_TEMPLATES = ("{n} {k}s, one of them {a}", "{n} {k}s including {a}", "among {n} {k}s is {a}")


class Phrase(NamedTuple):
    """A noun phrase: its text, its noun, and the triplets of its attributes."""

    text: str
    noun: str
    triplets: list[Triplet]


def _article(words: str) -> str:
    return f"an {words}" if words[0] in "aeiou" else f"a {words}"


def describe(rng: Random, item: SceneObject, fullness: float) -> Phrase:
    """A noun phrase that names some of an object's attributes, at least one."""
    noun = pick(rng, SHAPES[item.shape])
    adjectives: list[str] = []
    if item.size != "medium" and rng.random() < 0.55 * fullness:
        adjectives.append(pick(rng, SIZES[item.size]))
    if item.outlined and rng.random() < 0.5 * fullness:
        adjectives.append(pick(rng, OUTLINED))
    if rng.random() < (0.1 if item.texture == "solid" else 0.6) * fullness:
        adjectives.append(pick(rng, TEXTURES[item.texture]))
    if not adjectives or rng.random() < fullness:
        adjectives.append(pick(rng, COLOURS[item.colour]))
    triplets: list[Triplet] = [(noun, "is", adjective) for adjective in adjectives]
    text = _article(" ".join([*adjectives, noun]))
    names_colour = adjectives[-1] in COLOURS[item.colour] and adjectives[-1] not in NEVER_NOUNS
    if len(adjectives) > 1 and names_colour and rng.random() < 0.25:
        text = f"{_article(' '.join([*adjectives[:-1], noun]))} in {adjectives[-1]}"
    return Phrase(text, noun, triplets)


def _relation(rng: Random, scene: Scene) -> tuple[str, list[Triplet]] | None:
    relations = scene.relations()
    if not relations:
        return None
    # Relations made on purpose are rarer than left of and above: without this they would hardly be named.
    wanted = pick(rng, sorted({name for _, name, _ in relations}))
    first, name, second = pick(rng, [r for r in relations if r[1] == wanted])
    form = pick(rng, RELATIONS[name])
    if form.inverse:
        first, second = second, first
    a, b = (describe(rng, scene.objects[i], 0.85) for i in (first, second))
    templates = _RELATION_TEMPLATES + _PREPOSITION_TEMPLATES * form.preposition
    text = pick(rng, templates).format(a=a.text, b=b.text, rel=form.words, open=pick(rng, _OPENERS))
    return text, [*a.triplets, *b.triplets, (a.noun, form.name, b.noun)]


def _both(rng: Random, scene: Scene) -> tuple[str, list[Triplet]]:
    first = pick(rng, range(len(scene.objects)))
    second = pick(rng, [i for i in range(len(scene.objects)) if i != first])
    a, b = (describe(rng, scene.objects[i], 0.9) for i in (first, second))
    text = pick(rng, _BOTH_TEMPLATES).format(a=a.text, b=b.text, open=pick(rng, _OPENERS))
    return text, [*a.triplets, *b.triplets]


def _ground(rng: Random, scene: Scene) -> tuple[str, list[Triplet]]:
    a = describe(rng, pick(rng, scene.objects), 1.0)
    noun = pick(rng, GROUND_NOUNS)
    adjectives = [pick(rng, COLOURS[scene.ground_colour])]
    if rng.random() < 0.6:
        adjectives.insert(0, pick(rng, TEXTURES[scene.ground_texture]))
    ground = _article(" ".join([*adjectives, noun]))
    text = pick(rng, _GROUND_TEMPLATES).format(a=a.text, g=ground, open=pick(rng, _OPENERS))
    return text, [*a.triplets, (a.noun, "against", noun), *((noun, "is", word) for word in adjectives)]


def _count(rng: Random, scene: Scene) -> tuple[str, list[Triplet]]:
    a = describe(rng, pick(rng, scene.objects), 1.0)
    noun, number = pick(rng, OBJECT_NOUNS), NUMBERS[len(scene.objects)]
    text = pick(rng, _COUNT_TEMPLATES).format(a=a.text, n=number, k=noun)
    return text, [*a.triplets, (noun, "is", number)]


def _one(rng: Random, scene: Scene) -> tuple[str, list[Triplet]]:
    draw = rng.random()
    if draw < 0.66:
        return _relation(rng, scene) or _both(rng, scene)
    if draw < 0.86:
        return _both(rng, scene)
    return _ground(rng, scene) if draw < 0.94 else _count(rng, scene)


def write_captions(seed: str, scene: Scene) -> tuple[Caption, ...]:
    """Five different captions of a scene.

    Args:
        seed: name of the corpus version.
        scene: a scene; its own captions are not looked at.

    Returns:
        Captions with qids ``<docno>-0`` to ``<docno>-4``; each names one or two objects.
    """
    rng = Random(f"{seed}/{scene.docno}/captions")
    captions: dict[str, list[Triplet]] = {}
    while len(captions) < CAPTIONS:
        text, triplets = _one(rng, scene)
        captions.setdefault(text, list(dict.fromkeys(triplets)))
    return tuple(Caption(f"{scene.docno}-{k}", text, rows) for k, (text, rows) in enumerate(captions.items()))
