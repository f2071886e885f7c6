"""What a scene is: plain immutable records, with the relations that follow from the geometry."""

from dataclasses import dataclass
from typing import NamedTuple

Triplet = tuple[str, str, str]

CANVAS = 96
"""Side of a rendered image in pixels."""


@dataclass(frozen=True)
class SceneObject:
    """A coloured shape. ``x`` and ``y`` are the centre, ``r`` half the side of its bounding square, in pixels."""

    shape: str
    colour: str
    size: str
    texture: str
    outlined: bool
    x: int = 0
    y: int = 0
    r: int = 0


class Caption(NamedTuple):
    """A caption and the triplets a careful reader takes from it.

    Attributes:
        qid: query id, the scene's docno and the caption's number.
        text: the caption.
        triplets: (subject, relation, object) in the words of the caption; attributes are (noun, "is", adjective).
    """

    qid: str
    text: str
    triplets: list[Triplet]


@dataclass(frozen=True)
class Scene:
    """Description of one image.

    Attributes:
        docno: image id, such as "train-000123".
        objects: 2 to 5 objects, drawn in this order (the first is at the back).
        ground_colour: colour name of the ground.
        ground_texture: texture name of the ground.
        placed: relations made on purpose, (subject index, "inside" | "on" | "behind", object index).
        captions: five captions.
    """

    docno: str
    objects: tuple[SceneObject, ...]
    ground_colour: str
    ground_texture: str
    placed: tuple[tuple[int, str, int], ...]
    captions: tuple[Caption, ...] = ()

    def relations(self) -> list[tuple[int, str, int]]:
        """Every relation that holds: those made on purpose, and left of / above between separate objects.

        An object is left of another when their bounding squares are apart in x and the offset is mainly horizontal;
        above is the same in y. At most one of the two holds for a pair.
        """
        found = list(self.placed)
        together = {frozenset((i, j)) for i, _, j in self.placed}
        for i, a in enumerate(self.objects):
            for j, b in enumerate(self.objects):
                if i == j or frozenset((i, j)) in together:
                    continue
                dx, dy, apart = b.x - a.x, b.y - a.y, a.r + b.r
                if dx >= apart and 2 * abs(dy) <= dx:
                    found.append((i, "left of", j))
                elif dy >= apart and 2 * abs(dx) <= dy:
                    found.append((i, "above", j))
        return found
