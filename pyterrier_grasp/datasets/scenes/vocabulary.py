"""The words and colours of the embedded corpus: canonical names and the surface words captions use for them."""

from typing import NamedTuple

SHAPES: dict[str, tuple[str, ...]] = {
    "circle": ("circle", "disc", "disk"),
    "square": ("square", "box", "block"),
    "triangle": ("triangle", "wedge"),
    "star": ("star", "starburst"),
    "cross": ("cross", "plus"),
    "heart": ("heart",),
    "hexagon": ("hexagon", "hex"),
    "diamond": ("diamond", "rhombus"),
    "crescent": ("crescent", "moon"),
    "ring": ("ring", "hoop", "donut"),
    "arrow": ("arrow", "pointer"),
    "rectangle": ("rectangle", "bar", "plank"),
    "hourglass": ("hourglass", "bowtie"),
}

COLOURS: dict[str, tuple[str, ...]] = {
    "red": ("red", "crimson", "scarlet"),
    "orange": ("orange", "tangerine"),
    "yellow": ("yellow", "golden", "lemon"),
    "green": ("green", "emerald"),
    "teal": ("teal", "turquoise"),
    "blue": ("blue", "navy", "azure"),
    "purple": ("purple", "violet"),
    "pink": ("pink", "rosy"),
    "brown": ("brown", "chocolate"),
    "black": ("black", "dark"),
    "white": ("white", "ivory"),
    "grey": ("grey", "silver"),
}

NEVER_NOUNS = ("dark", "rosy", "golden")
"""Colour words that cannot follow "in"."""

RGB: dict[str, tuple[int, int, int]] = {
    "red": (208, 28, 36),
    "orange": (244, 132, 20),
    "yellow": (246, 214, 30),
    "green": (34, 146, 52),
    "teal": (18, 168, 168),
    "blue": (30, 68, 204),
    "purple": (126, 44, 170),
    "pink": (246, 120, 176),
    "brown": (122, 72, 30),
    "black": (24, 24, 26),
    "white": (250, 250, 248),
    "grey": (134, 136, 140),
}

TEXTURES: dict[str, tuple[str, ...]] = {
    "solid": ("plain", "solid"),
    "striped": ("striped", "banded"),
    "dotted": ("dotted", "spotted", "speckled"),
    "checked": ("checked", "chequered"),
    "hatched": ("hatched", "netted"),
}

SIZES: dict[str, tuple[str, ...]] = {
    "small": ("small", "little", "tiny"),
    "medium": ("medium",),
    "large": ("large", "big", "huge"),
}

OUTLINED = ("outlined", "bordered", "edged")
GROUND_COLOURS = ("orange", "yellow", "green", "teal", "blue", "purple", "pink", "brown", "white", "grey")
GROUND_NOUNS = ("background", "backdrop", "ground")
OBJECT_NOUNS = ("shape", "figure", "object")
NUMBERS = {2: "two", 3: "three", 4: "four", 5: "five"}

CONTAINERS = ("circle", "square", "hexagon", "diamond")
FLAT_TOPS = ("square", "hexagon", "rectangle", "cross")


class RelationPhrase(NamedTuple):
    """One way to say a relation.

    Attributes:
        words: as written in a caption, between the two objects.
        name: the lightly normalised form in a triplet.
        inverse: whether subject and object change places.
        preposition: whether the phrase may open a sentence ("above a star is ...").
    """

    words: str
    name: str
    inverse: bool
    preposition: bool


def _phrases(forward: dict[str, str], backward: dict[str, str], verbs: tuple[str, ...]) -> tuple[RelationPhrase, ...]:
    return tuple(
        RelationPhrase(words, name, inverse, words not in verbs)
        for inverse, table in ((False, forward), (True, backward))
        for words, name in table.items()
    )


RELATIONS: dict[str, tuple[RelationPhrase, ...]] = {
    "left of": _phrases(
        {"left of": "left of", "to the left of": "left of"},
        {"right of": "right of", "to the right of": "right of"},
        (),
    ),
    "above": _phrases(
        {"above": "above", "over": "over", "higher than": "higher than"},
        {"below": "below", "under": "under", "beneath": "beneath", "lower than": "lower than"},
        ("higher than", "lower than"),
    ),
    "inside": _phrases(
        {"inside": "inside", "within": "within", "enclosed by": "enclosed by"},
        {"around": "around", "surrounding": "surround", "containing": "contain"},
        ("enclosed by", "surrounding", "containing"),
    ),
    "on": _phrases(
        {"on": "on", "on top of": "on top of", "resting on": "rest on", "standing on": "stand on"},
        {"supporting": "support", "carrying": "carry"},
        ("resting on", "standing on", "supporting", "carrying"),
    ),
    "behind": _phrases(
        {"behind": "behind", "partly hidden by": "hidden by"},
        {"in front of": "in front of", "covering": "cover", "overlapping": "overlap"},
        ("partly hidden by", "covering", "overlapping"),
    ),
}
