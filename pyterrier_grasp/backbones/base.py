"""The protocol of a frozen backbone, and how one is found from its name."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from PIL import Image
from torch import Tensor, nn
from typing_extensions import Self

from pyterrier_grasp import pretrained
from pyterrier_grasp.backbones import checkpoints
from pyterrier_grasp.backbones.states import TokenStates

if TYPE_CHECKING:
    from pyterrier_grasp.backbones.store import StateStore

ImageSource = str | Path | Image.Image

# kind -> where its class lives; imported on demand because each of them imports this module
KINDS = {
    "composed": "pyterrier_grasp.backbones.composed:ComposedBackbone",
    "blip": "pyterrier_grasp.backbones.blip:BlipBackbone",
    "albef": "pyterrier_grasp.backbones.albef:AlbefBackbone",
    "dual": "pyterrier_grasp.backbones.dual:DualBackbone",
    "states": "pyterrier_grasp.backbones.precomputed:StatesBackbone",
}
# model_type of a transformers configuration -> kind
_MODEL_TYPES = {"blip": "blip", "clip": "dual", "siglip": "dual", "siglip2": "dual"}
POOLS = ("cls", "last", "mean")
FOLDER_FILE = "grasp_backbone.json"


class Backbone(ABC):
    """A frozen pair of encoders, one for captions and one for images.

    Both give the last hidden state of every token. A backbone is always in evaluation mode and computes no gradients.

    Args:
        source: hub id or folder the weights came from.
        text_dim: width D of a text token state.
        image_dim: width D of an image token state.
        embed_dim: width d of the space the initial projections lead to.
        text_pool: "cls", "last" or "mean", how caption tokens become one vector.
        image_pool: the same for image tokens.
        temperature: initial temperature of the contrastive loss.
        device: where to compute; a GPU if there is one, by default.

    Raises:
        ValueError: for an unknown pool or a size or temperature that is not positive.
    """

    kind: ClassVar[str]

    def __init__(
        self,
        *,
        source: str,
        text_dim: int,
        image_dim: int,
        embed_dim: int,
        text_pool: str,
        image_pool: str,
        temperature: float,
        device: torch.device | str | None,
    ) -> None:
        for name, pool in (("text_pool", text_pool), ("image_pool", image_pool)):
            if pool not in POOLS:
                raise ValueError(f"{name} must be one of {POOLS}, not {pool!r}")
        if int(embed_dim) != embed_dim or embed_dim < 1:
            raise ValueError(f"embed_dim must be a positive whole number, not {embed_dim!r}")
        if not temperature > 0:
            raise ValueError(f"temperature must be positive, not {temperature!r}")
        self.source = source
        self.text_dim = text_dim
        self.image_dim = image_dim
        self.embed_dim = int(embed_dim)
        self.text_pool = text_pool
        self.image_pool = image_pool
        self.temperature = float(temperature)
        self.to(default_device() if device is None else device)

    @staticmethod
    def load(source: str | Path, *, device: torch.device | str | None = None, **options: Any) -> "Backbone":
        """Loads a backbone from a name, a folder or a hub id.

        Args:
            source: "scenes" (the small backbone that comes with the package), a folder written by
                :meth:`ComposedBackbone.save`, a folder of precomputed image states (needs ``text=``), a checkpoint
                file (``.pth``, ``.pt``) of ALBEF or BLIP, or the folder or hub id of a
                ``BlipForImageTextRetrieval``, CLIP, SigLIP or SigLIP 2.
            device: where to compute.
            **options: passed to the class that ``source`` leads to.

        Raises:
            FileNotFoundError: if nothing of that name is there.
            ValueError: if it is there and is no backbone; says how to make one of it.
        """
        name = str(source)
        folder = Path(__file__).parent / "scenes" if name == "scenes" else Path(name).expanduser()
        if (folder / FOLDER_FILE).is_file():
            return _class_of("composed").from_folder(name, device=device, **options)
        if name == "scenes":
            raise FileNotFoundError(f"the backbone 'scenes' should be in {folder} and is not: reinstall the package")
        if any((folder / file).is_file() for file in ("states.npy", "progress.txt", "ids.txt")):
            if "text" not in options:
                raise ValueError(
                    f"{name} holds precomputed image states and no text encoder: "
                    f"name one, Backbone.load({name!r}, text=<folder or hub id>)"
                )
            return _class_of("states")(states=name, device=device, **options)
        if folder.is_file() or folder.suffix in checkpoints.SUFFIXES:
            return _class_of(checkpoints.family(folder))(name, device=device, **options)
        model_type = pretrained.config_dict(name).get("model_type", "unknown")
        if model_type in _MODEL_TYPES:
            return _class_of(_MODEL_TYPES[model_type])(name, device=device, **options)
        raise ValueError(
            f"{name} is a single model of type {model_type!r}, not a backbone of two encoders. Compose one: "
            f"ComposedBackbone(image=<vision model>, text=<text model>), where {name!r} can be either of the two"
        )

    @staticmethod
    def from_spec(spec: Mapping[str, Any], *, device: torch.device | str | None = None) -> "Backbone":
        """Loads the backbone that :meth:`spec` described.

        Raises:
            ValueError: if ``spec`` has no known "kind".
            FileNotFoundError: if its folders are gone.
        """
        options = dict(spec)
        kind = options.pop("kind", None)
        if kind not in KINDS:
            raise ValueError(f"a backbone spec needs a 'kind' out of {sorted(KINDS)}, this one has {kind!r}")
        if "folder" in options:
            return Backbone.load(options.pop("folder"), device=device, **options)
        return _class_of(kind)(**options, device=device)

    @abstractmethod
    def spec(self) -> dict[str, Any]:
        """Returns what :meth:`from_spec` needs to load this backbone again, JSON-able."""

    @abstractmethod
    def encode_text(self, texts: Sequence[str]) -> TokenStates:
        """Encodes captions in one batch, padded to the longest of them.

        Raises:
            ValueError: if one is not a string.
        """

    @abstractmethod
    def encode_images(self, images: Sequence[ImageSource]) -> TokenStates:
        """Encodes images, given as paths or PIL images, in one batch.

        Raises:
            FileNotFoundError: if a file is missing.
            ValueError: if a file cannot be read as an image; names it.
        """

    @abstractmethod
    def text_projection(self) -> nn.Linear:
        """Returns a fresh copy of the initial projection of captions, ``text_dim -> embed_dim``."""

    @abstractmethod
    def image_projection(self) -> nn.Linear:
        """Returns a fresh copy of the initial projection of images, ``image_dim -> embed_dim``."""

    # -- the text tower's vocabulary, which token-space methods are built on ------------------------------------

    def token_names(self) -> list[str]:
        """Returns every token of the text tower's tokenizer, by id.

        Raises:
            ValueError: if this backbone has no tokenizer.
        """
        raise self._no_tokenizer()

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the token ids of each caption as the text tower sees it, special tokens included, without padding."""
        raise self._no_tokenizer()

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids of CLS, SEP, PAD and their like."""
        raise self._no_tokenizer()

    def word_embeddings(self) -> Tensor:
        """Returns a copy of the text tower's input embeddings, float32 ``[V, D_word]`` on the CPU."""
        raise self._no_tokenizer()

    def _no_tokenizer(self) -> ValueError:
        return ValueError(f"{self.source} has no text tokenizer, which token-space methods need; use method='grasp'")

    @abstractmethod
    def to(self, device: torch.device | str) -> Self:
        """Moves the encoders to ``device`` and returns self."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """The device that encodes, and that new states are on."""

    @abstractmethod
    def _compute_fingerprint(self) -> str: ...

    @cached_property
    def fingerprint(self) -> str:
        """A stable id of weights, preprocessing, tokenisation, pooling and ``embed_dim``: 16 hex digits.

        It does not depend on where the files are. The projections are left out, for they are only where training
        starts, and every model keeps its own.
        """
        return self._compute_fingerprint()

    def image_key(self, path: str | Path) -> str:
        """Returns the key of an image file in the cache: its absolute path, size and time of change.

        Raises:
            FileNotFoundError: if the file is missing.
        """
        absolute = Path(path).expanduser().absolute()
        try:
            stat = absolute.stat()
        except FileNotFoundError:
            raise FileNotFoundError(f"no image file {absolute}") from None
        return f"{absolute}|{stat.st_size}|{stat.st_mtime_ns}"

    @property
    def image_store(self) -> "StateStore | None":
        """The ready image states, where this backbone has them instead of an image encoder."""
        return None

    def __repr__(self) -> str:
        arguments = ", ".join(f"{key}={value!r}" for key, value in self.spec().items() if key != "kind")
        return f"{type(self).__name__}({arguments})"


def default_device() -> torch.device:
    """Returns the GPU if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _class_of(kind: str) -> Any:
    module, name = KINDS[kind].split(":")
    return getattr(import_module(module), name)
