"""The answer that a chat model must give for the captions of an image. Needs pydantic."""

from collections import Counter

from pydantic import BaseModel, ConfigDict

from pyterrier_grasp.concepts.triplets import Triplet

#: A part of a triplet is a word or a few; more characters than this are a sentence.
LONGEST_PART = 100


# The docstrings of these classes are sent to the model, as descriptions in the schema.


class TripletAnswer(BaseModel):
    """One triplet."""

    model_config = ConfigDict(extra="forbid")
    # Names cost more tokens than a list of three strings would, but a list may have two of them, or four.
    subject: str
    relation: str
    object: str

    def parts(self) -> Triplet:
        """``(subject, relation, object)`` with single spaces."""
        subject, relation, object_ = (" ".join(part.split()) for part in (self.subject, self.relation, self.object))
        return subject, relation, object_


class CaptionAnswer(BaseModel):
    """The triplets of one caption."""

    model_config = ConfigDict(extra="forbid")
    number: int
    triplets: list[TripletAnswer]


class ImageAnswer(BaseModel):
    """The triplets of each caption of an image."""

    model_config = ConfigDict(extra="forbid")
    captions: list[CaptionAnswer]

    def by_number(self) -> dict[int, list[Triplet]]:
        """Distinct triplets of each caption, in the order given."""
        return {c.number: list(dict.fromkeys(triplet.parts() for triplet in c.triplets)) for c in self.captions}


def check_answer(answer: ImageAnswer, n_captions: int) -> None:
    """Check an answer against its question.

    Args:
        answer: The answer.
        n_captions: Number of captions asked about, numbered from 1.

    Raises:
        ValueError: If a caption is missing, stands twice or was never asked about, a subject is empty, or a part is too
            long for a phrase. The message lists every problem, so that the model can mend its answer.
    """
    numbers = Counter(caption.number for caption in answer.captions)
    asked = range(1, n_captions + 1)
    triplets = [(c.number, triplet) for c in answer.captions for triplet in (t.parts() for t in c.triplets)]
    problems = [
        ("caption numbers without an answer", [number for number in asked if number not in numbers]),
        ("caption numbers that were not asked about", sorted(number for number in numbers if number not in asked)),
        ("caption numbers answered more than once", sorted(number for number, n in numbers.items() if n > 1)),
        ("triplets without a subject, by caption", [[n, list(t)] for n, t in triplets if not t[0]]),
        (
            f"parts of more than {LONGEST_PART} characters, by caption",
            [[n, part[:40] + "..."] for n, t in triplets for part in t if len(part) > LONGEST_PART],
        ),
    ]
    words = "; ".join(f"{what}: {which}" for what, which in problems if which)
    if words:
        raise ValueError(words)
