"""A backbone composed of any vision encoder and any text encoder of the transformers library."""

import inspect
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel
from typing_extensions import Self

from pyterrier_grasp import pretrained
from pyterrier_grasp.backbones.base import FOLDER_FILE, Backbone
from pyterrier_grasp.backbones.hashing import digest
from pyterrier_grasp.backbones.images import Preprocess
from pyterrier_grasp.backbones.projections import random_projections
from pyterrier_grasp.backbones.tower_backbone import TowerBackbone
from pyterrier_grasp.backbones.towers import ImageTower, TextTower
from pyterrier_grasp.folders import whole_folder
from pyterrier_grasp.sources import resolve

DEFAULT_MAX_LENGTH = 64


class ComposedBackbone(TowerBackbone):
    """A vision encoder and a text encoder that need not know each other.

    Args:
        image: folder or hub id of a transformers vision model (ViT, DINOv2, ConvNeXt, Swin, ...), or of a dual model
            such as CLIP, of which the vision half is taken. Needs a ``preprocessor_config.json``.
        text: folder or hub id of a transformers or sentence-transformers text model, or of a dual model.
        embed_dim: width of the common space that the projections lead to.
        image_pool: "cls" or "mean"; by default "cls" where the encoder has such a token, else "mean".
        text_pool: "cls" or "mean"; by default as a sentence-transformers folder says, else "mean".
        temperature: initial temperature of the contrastive loss.
        seed: of the random initial projections.
        max_text_length: longer captions are cut to this many tokens; by default 64, or less where the encoder takes
            less.
        device: where to compute.

    Raises:
        FileNotFoundError: if a folder or hub id is not there.
        ValueError: if one is no such encoder.
    """

    kind = "composed"

    def __init__(
        self,
        image: str | Path,
        text: str | Path,
        *,
        embed_dim: int = 256,
        image_pool: str | None = None,
        text_pool: str | None = None,
        temperature: float = 0.07,
        seed: int = 0,
        max_text_length: int | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        self._image_source = resolve(image)
        self._text_source = resolve(text)
        self._image = load_image_tower(self._image_source)
        self._text = load_text_tower(self._text_source, max_text_length)
        self._seed = seed
        self._folder: str | None = None
        super().__init__(
            source=f"{self._image_source}+{self._text_source}",
            text_dim=self._text.dim,
            image_dim=self._image.dim,
            embed_dim=embed_dim,
            text_pool=text_pool or default_text_pool(self._text_source),
            image_pool=image_pool or ("cls" if self._image.n_special else "mean"),
            temperature=temperature,
            device=device,
        )
        self._projections = random_projections(self.text_dim, self.image_dim, self.embed_dim, seed)

    @classmethod
    def from_folder(cls, name: str | Path, *, device: torch.device | str | None = None) -> Self:
        """Loads what :meth:`save` wrote.

        Args:
            name: the folder, or "scenes" for the one that comes with the package.
            device: where to compute.

        Raises:
            FileNotFoundError: if a file of the folder is missing.
            ValueError: if one is damaged.
        """
        folder = Path(__file__).parent / "scenes" if str(name) == "scenes" else Path(name).expanduser().absolute()
        if not (folder / FOLDER_FILE).is_file():
            raise FileNotFoundError(f"{folder} is no backbone folder: it has no {FOLDER_FILE}")
        settings = pretrained.read_json(folder / FOLDER_FILE)
        names = ("embed_dim", "image_pool", "text_pool", "temperature", "max_text_length")
        absent = [key for key in names if key not in settings]
        if settings.get("format") != 1 or absent:
            raise ValueError(f"{folder / FOLDER_FILE} is not of format 1 or lacks {absent}")
        found = cls(
            image=folder / "image", text=folder / "text", device=device, **{key: settings[key] for key in names}
        )
        found._folder = found.source = "scenes" if str(name) == "scenes" else str(folder)
        found._projections = _read_projections(folder / "projections.safetensors", found)
        return found

    def save(
        self,
        folder: str | Path,
        *,
        half: bool = False,
        text_projection: nn.Linear | None = None,
        image_projection: nn.Linear | None = None,
    ) -> Path:
        """Writes a folder of its own that :meth:`Backbone.load` reads, wherever it is moved.

        Args:
            folder: must not exist yet, or be empty.
            half: store the weights in float16; they are widened again when loaded, so states and fingerprint change.
            text_projection: trained projection to store instead of the initial one, ``text_dim -> embed_dim``.
            image_projection: the same for images.

        Returns:
            The folder.

        Raises:
            FileExistsError: if the folder has files in it.
            ValueError: if a projection has the wrong shape, or an encoder cannot be saved alone.
        """
        target = Path(folder).expanduser().absolute()
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise FileExistsError(f"{target} is there already and not empty")
        projections = {}
        for name, layer, width in (
            ("text", text_projection or self._projections[0], self.text_dim),
            ("image", image_projection or self._projections[1], self.image_dim),
        ):
            if (layer.in_features, layer.out_features) != (width, self.embed_dim) or layer.bias is None:
                raise ValueError(f"the {name} projection must be Linear({width}, {self.embed_dim}) with bias: {layer}")
            projections[f"{name}.weight"], projections[f"{name}.bias"] = layer.weight.detach(), layer.bias.detach()
        with whole_folder(target) as folder:
            _save_model(self._image.model, folder / "image", half)
            _write_json(folder / "image" / "preprocessor_config.json", self._image.preprocess.to_config())
            _save_model(self._text.model, folder / "text", half)
            self._text.tokenizer.save_pretrained(str(folder / "text"))
            save_file(_narrow(projections, half), folder / "projections.safetensors")
            settings = {
                "format": 1,
                "kind": self.kind,
                "embed_dim": self.embed_dim,
                "image_pool": self.image_pool,
                "text_pool": self.text_pool,
                "temperature": self.temperature,
                "max_text_length": self._text.max_length,
            }
            _write_json(folder / FOLDER_FILE, settings)
        return target

    def spec(self) -> dict[str, Any]:
        if self._folder is not None:
            return {"kind": self.kind, "folder": self._folder}
        return {
            "kind": self.kind,
            "image": self._image_source,
            "text": self._text_source,
            "embed_dim": self.embed_dim,
            "image_pool": self.image_pool,
            "text_pool": self.text_pool,
            "temperature": self.temperature,
            "seed": self._seed,
            "max_text_length": self._text.max_length,
        }

    def _compute_fingerprint(self) -> str:
        return digest(
            {
                "image": self._image.fingerprint(),
                "text": self._text.fingerprint(),
                "embed_dim": self.embed_dim,
                "pools": [self.text_pool, self.image_pool],
            }
        )


def load_image_tower(source: str) -> ImageTower:
    """Loads the vision encoder of a folder or hub id; of a dual model, its vision half."""
    preprocess = Preprocess.from_config(pretrained.preprocessor_dict(source), source)
    model = pretrained.model(source)
    model = getattr(model, "vision_model", model)
    if "pixel_values" not in _parameters(model):
        raise ValueError(f"{source} is a {type(model).__name__}, which takes no images: give it as text=")
    return ImageTower(model, preprocess)


def load_text_tower(source: str, max_length: int | None = None) -> TextTower:
    """Loads the text encoder of a folder or hub id; of a dual model, its text half."""
    source = _transformer_folder(source)
    tokenizer = pretrained.tokenizer(source)
    model = pretrained.model(source)
    config: Any = model.config
    if getattr(config, "is_encoder_decoder", False):
        model = model.get_encoder()  # type: ignore[operator]
    model = getattr(model, "text_model", model)
    if "input_ids" not in _parameters(model):
        raise ValueError(f"{source} is a {type(model).__name__}, which takes no text: give it as image=")
    limits = [tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", None) or DEFAULT_MAX_LENGTH]
    if max_length is None:
        max_length = min(DEFAULT_MAX_LENGTH, *limits)
    elif max_length > min(limits):
        raise ValueError(f"max_text_length is {max_length}, but {source} takes at most {min(limits)} tokens")
    return TextTower(model, tokenizer, max_length)


def default_text_pool(source: str) -> str:
    """Returns "cls" if a sentence-transformers folder asks for it, else "mean"."""
    file = Path(source) / "1_Pooling" / "config.json"
    if file.is_file():
        settings = pretrained.read_json(file)
        if settings.get("pooling_mode_cls_token") or settings.get("pooling_mode") == "cls":
            return "cls"
    return "mean"


def _transformer_folder(source: str) -> str:
    """Returns the folder of the transformer inside a sentence-transformers folder that keeps it apart."""
    folder = Path(source)
    if (folder / "modules.json").is_file() and not (folder / "config.json").is_file():
        first = json.loads((folder / "modules.json").read_text(encoding="utf-8"))[0]
        return str(folder / first["path"])
    return source


def _parameters(model: nn.Module) -> set[str]:
    return set(inspect.signature(model.forward).parameters)


def _narrow(tensors: dict[str, torch.Tensor], half: bool) -> dict[str, torch.Tensor]:
    """Copies tensors to the CPU, floating ones in float16 if asked."""
    return {
        name: value.detach().cpu().to(torch.float16 if half and value.is_floating_point() else value.dtype).contiguous()
        for name, value in tensors.items()
    }


def _save_model(model: nn.Module, folder: Path, half: bool) -> None:
    if not isinstance(model, PreTrainedModel):
        raise ValueError(f"half of a dual model ({type(model).__name__}) cannot be saved alone")
    read = {
        name: value for name, value in model.state_dict().items() if not any(part in name for part in pretrained.UNUSED)
    }
    model.save_pretrained(folder, state_dict=_narrow(read, half))


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _read_projections(path: Path, backbone: Backbone) -> tuple[nn.Linear, nn.Linear]:
    if not path.is_file():
        raise FileNotFoundError(f"no {path}: the backbone folder is incomplete")
    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    pair = []
    for name, width in (("text", backbone.text_dim), ("image", backbone.image_dim)):
        layer = nn.utils.skip_init(nn.Linear, width, backbone.embed_dim)
        state = {key: tensors[f"{name}.{key}"].float() for key in ("weight", "bias") if f"{name}.{key}" in tensors}
        try:
            layer.load_state_dict(state)
        except RuntimeError as error:
            raise ValueError(f"the {name} projection in {path} does not fit the encoders: {error}") from error
        pair.append(layer)
    return pair[0], pair[1]
