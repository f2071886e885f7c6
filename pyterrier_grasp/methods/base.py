"""What a method is, and the registry of methods by name."""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, fields
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn

from pyterrier_grasp.backbones import Backbone, TokenSpace
from pyterrier_grasp.concepts import ConceptSpace
from pyterrier_grasp.methods.dual_encoder import DualEncoder, Encoded

Space = ConceptSpace | TokenSpace

_METHODS = {
    "d2s": "D2S",
    "dense": "Dense",
    "grasp": "Grasp",
    "lexlip": "LexLip",
    "sdlbt": "Sdlbt",
    "stair": "Stair",
    "visualsparta": "VisualSparta",
}


class Batch(NamedTuple):
    """What a loss sees beside the encodings, all for the whole (global) batch of pairs.

    Attributes:
        text_labels: ``c_t``, float ``[B, |C|]``; in a token space, which tokens the caption has itself. None where the
            method needs none.
        image_labels: ``c_i``, float ``[B, |C|]``; None in a token space and where the method needs none.
        same_image: Bool ``[B, B]``, True off the diagonal where two pairs share an image.
        step: Steps done before this one.
        progress: Share of the training's steps done before this one, in [0, 1).
    """

    text_labels: Tensor | None
    image_labels: Tensor | None
    same_image: Tensor
    step: int = 0
    progress: float = 0.0


@dataclass(frozen=True)
class Method(ABC):
    """A row of the paper's Table 1: a head, a loss and their defaults. Subclasses are frozen dataclasses of options.

    Attributes:
        space_kind: What the sparse dimensions are: ``concepts``, ``tokens``, ``any`` (tokens by default, or concepts)
            or None (no sparse branch).
        needs_labels: Whether the loss reads the labels of :class:`Batch`.
        needs_own_tokens: Whether :meth:`sparse_vectors` of a text needs the text's own tokens.
        learning_rate: The trainer's default for projections and temperature.
        head_learning_rate: The trainer's default for the head.
        select_by: Score on validation that picks the epoch: ``D``, ``S`` or ``D+S``.
        uses_all_parameters: Whether every step reaches every trainable parameter.
        encoding_options: The options that change what a trained module encodes; the others only shape its training.
    """

    name: ClassVar[str]
    space_kind: ClassVar[str | None]
    needs_labels: ClassVar[bool] = False
    needs_own_tokens: ClassVar[bool] = False
    learning_rate: ClassVar[float] = 1e-4
    head_learning_rate: ClassVar[float] = 1e-2
    select_by: ClassVar[str] = "D+S"
    uses_all_parameters: ClassVar[bool] = True
    encoding_options: ClassVar[tuple[str, ...]] = ()

    def official_w(self, tau: float) -> float:
        """Weight of the sparse score beside a plain cosine in the published fusion; 1 where none is published.

        Args:
            tau: The learnt temperature, for a fusion that divides the cosine by it.
        """
        return 1.0

    def space_for(self, backbone: Backbone, space: Space | None) -> Space | None:
        """The sparse space to train in.

        Args:
            backbone: Gives the whole token vocabulary where a token method is given no space.
            space: What the user gave.

        Raises:
            ValueError: If the method needs another kind of space.
        """
        if self.space_kind is None:
            return None
        if space is None and self.space_kind != "concepts":
            return TokenSpace.of(backbone)
        if space is None:
            raise ValueError(f"method {self.name!r} needs a concept space; give GraspTrainer(backbone, space)")
        allowed = {"concepts": ConceptSpace, "tokens": TokenSpace}.get(self.space_kind, (ConceptSpace, TokenSpace))
        if not isinstance(space, allowed):
            raise ValueError(f"method {self.name!r} needs a space of {self.space_kind}, got {space!r}")
        return space

    @abstractmethod
    def build(self, backbone: Backbone, space: Space | None, seed: int) -> DualEncoder:
        """The trainable module, initialised from the backbone and the seed; ``space`` as :meth:`space_for` gives it."""

    @abstractmethod
    def loss(self, text: Encoded, image: Encoded, batch: Batch, tau: Tensor) -> dict[str, Tensor]:
        """Named scalar terms, already weighted; their sum is minimised."""

    @abstractmethod
    def sparse_vectors(self, raw: Tensor | None, modality: str, own: Tensor | None = None) -> Tensor:
        """Non-negative vectors ``[B, |C|]`` whose dot product, text by image, is the sparse score.

        Args:
            raw: Head scores before the activation, float ``[B, |C|]``; None for a modality without a head.
            modality: ``text`` or ``image``.
            own: Which tokens each text has itself, ``{0, 1}`` ``[B, |C|]``, with ``needs_own_tokens``.
        """

    def needs_own(self, modality: str) -> bool:
        """Whether :meth:`sparse_vectors` needs ``own`` for a modality."""
        return self.needs_own_tokens and modality == "text"

    def head_parameters(self, encoder: DualEncoder) -> list[nn.Parameter]:
        """Parameters trained at the head's own learning rate."""
        return list(encoder.heads.parameters())

    def options(self) -> dict[str, Any]:
        """The options as plain values, for JSON."""
        return asdict(self)


def load_method(name: str, options: dict[str, Any] | None = None) -> Method:
    """The method called ``name`` with ``options`` over its defaults.

    Raises:
        ValueError: For an unknown method or option; the message lists the known ones.
    """
    if name not in _METHODS:
        raise ValueError(f"unknown method {name!r}; choose one of {', '.join(sorted(_METHODS))}")
    cls = getattr(import_module(f"pyterrier_grasp.methods.{name}"), _METHODS[name])
    known = {field.name for field in fields(cls)}
    options = dict(options or {})
    for option in options:
        if option not in known:
            raise ValueError(f"method {name!r} has no option {option!r}; it has {', '.join(sorted(known)) or 'none'}")
    return cls(**{key: tuple(value) if isinstance(value, list) else value for key, value in options.items()})


def check_choice(owner: str, option: str, value: object, choices: tuple[object, ...]) -> None:
    """Raise a ValueError that lists ``choices`` unless ``value`` is one of them."""
    if value not in choices:
        raise ValueError(f"{owner}: {option} is {value!r}; choose one of {', '.join(map(repr, choices))}")


def check_not_negative(owner: str, **options: float) -> None:
    """Raise a ValueError that names the first option below 0."""
    for option, value in options.items():
        if value < 0:
            raise ValueError(f"{owner}: {option} is {value}; it must be at least 0")


def check_share(owner: str, **options: float) -> None:
    """Raise a ValueError that names the first option outside [0, 1]."""
    for option, value in options.items():
        if not 0 <= value <= 1:
            raise ValueError(f"{owner}: {option} is {value}; it is a share of the training, between 0 and 1")


def required(tensor: Tensor | None, what: str = "raw scores of a head") -> Tensor:
    """``tensor``, which a loss needs.

    Raises:
        ValueError: If it is None.
    """
    if tensor is None:
        raise ValueError(f"the batch has no {what}")
    return tensor
