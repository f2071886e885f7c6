"""What a method is, and the registry of methods by name."""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, fields
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn

from pyterrier_grasp.backbones import Backbone
from pyterrier_grasp.concepts import ConceptSpace
from pyterrier_grasp.methods.dual_encoder import DualEncoder, Encoded

_METHODS = {"dense": "Dense", "grasp": "Grasp"}


class Batch(NamedTuple):
    """What a loss sees beside the encodings, all for the whole (global) batch of pairs.

    Attributes:
        text_labels: ``c_t``, float ``[B, |C|]``; None where the method needs none.
        image_labels: ``c_i``, float ``[B, |C|]``; None where the method needs none.
        same_image: Bool ``[B, B]``, True off the diagonal where two pairs share an image.
    """

    text_labels: Tensor | None
    image_labels: Tensor | None
    same_image: Tensor


@dataclass(frozen=True)
class Method(ABC):
    """A row of the paper's Table 1: a head, a loss and their defaults. Subclasses are frozen dataclasses of options."""

    name: ClassVar[str]
    needs_space: ClassVar[bool]
    encoding_options: ClassVar[tuple[str, ...]] = ()
    """The options that change what a trained module encodes; the others only shape its training."""

    @abstractmethod
    def build(self, backbone: Backbone, space: ConceptSpace | None, seed: int) -> DualEncoder:
        """The trainable module, initialised from the backbone and the seed."""

    @abstractmethod
    def loss(self, text: Encoded, image: Encoded, batch: Batch, tau: Tensor) -> dict[str, Tensor]:
        """Named scalar terms, already weighted; their sum is minimised."""

    @abstractmethod
    def sparse_vectors(self, raw: Tensor) -> Tensor:
        """Non-negative vectors ``[B, |C|]`` whose dot product is the sparse score."""

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
