"""Checkpoint files of ALBEF and BLIP, of the original repositories and of LAVIS; every key is accounted for."""

import pickle
import re
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import BertConfig, BertModel, BlipVisionConfig, BlipVisionModel, PreTrainedTokenizerBase

from pyterrier_grasp import pretrained

SUFFIXES = (".pth", ".pt")
TOKENIZER = "google-bert/bert-base-uncased"
_HEAD_DIM = 64  # of BERT, ViT-B and ViT-L
_TYPES = "text_encoder.embeddings.token_type_embeddings.weight"

# What the encoders do not read: momentum twins, queues, the matching and language-modelling heads, the decoder.
_UNREAD = re.compile(
    r"(visual_encoder|text_encoder|vision_proj|text_proj|text_decoder)_m\.|text_decoder\.|itm_head\.|"
    r"text_encoder\.(cls|pooler)\.|(image|text|idx)_queue$|(queue_ptr|ptr_queue)$|text_encoder\.embeddings\.position_ids$"
)
# BlipVisionModel -> names in the file; the rest is the same
_VISION_NAMES = (
    ("embeddings.patch_embedding.", "patch_embed.proj."),
    ("embeddings.class_embedding", "cls_token"),
    ("embeddings.position_embedding", "pos_embed"),
    ("encoder.layers.", "blocks."),
    ("layer_norm1.", "norm1."),
    ("layer_norm2.", "norm2."),
    ("self_attn.qkv.", "attn.qkv."),
    ("self_attn.projection.", "attn.proj."),
    ("post_layernorm.", "norm."),
)
_SIZES = {
    "position": "visual_encoder.pos_embed",
    "patch": "visual_encoder.patch_embed.proj.weight",
    "vision_mlp": "visual_encoder.blocks.0.mlp.fc1.weight",
    "words": "text_encoder.embeddings.word_embeddings.weight",
    "text_position": "text_encoder.embeddings.position_embeddings.weight",
    "text_mlp": "text_encoder.encoder.layer.0.intermediate.dense.weight",
    "vision_proj": "vision_proj.weight",
    "text_proj": "text_proj.weight",
    "temp": "temp",
}


class Towers(NamedTuple):
    """What is read from a checkpoint, frozen and in float32.

    Attributes:
        vision: the ViT; its ``last_hidden_state`` has passed the last layer norm.
        text: the unimodal part of the text encoder.
        vision_projection: ``Linear(D_image, d)``.
        text_projection: ``Linear(D_text, d)``.
        temperature: of the contrastive loss.
        image_size: height and width of the images in pixels.
        token_types: whether the file has token type embeddings, which the original ALBEF has and LAVIS has not.
    """

    vision: BlipVisionModel
    text: BertModel
    vision_projection: nn.Linear
    text_projection: nn.Linear
    temperature: float
    image_size: int
    token_types: bool


def read(path: Path) -> dict[str, Tensor]:
    """Reads the tensors of a checkpoint, flat or under "model"; no code in the file is run.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is no file of named tensors.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no checkpoint file {path}")
    try:
        # of a zip only the tensors that are used are ever read: half of a released file is momentum twins
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path) or None)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} is no checkpoint of plain tensors, or it is damaged: {error}") from error
    if isinstance(found, dict) and isinstance(found.get("model"), dict):
        found = found["model"]
    others = [key for key, value in found.items() if not isinstance(value, Tensor)] if isinstance(found, dict) else []
    if not isinstance(found, dict) or others or not found:
        what = f"entries that are no tensors: {_listed(map(str, others))}" if others else f"a {type(found).__name__}"
        raise ValueError(
            f"{path} should hold the weights of ALBEF or BLIP by name, flat or under 'model'; it has {what}"
        )
    # pretraining files have one more level in the text encoder
    return {key.replace("text_encoder.bert.", "text_encoder."): value for key, value in found.items()}


def family(path: Path) -> str:
    """Returns "albef" or "blip": ALBEF's cross-attention starts half-way up the text encoder, BLIP's in layer 0.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is a checkpoint of neither.
    """
    return "albef" if _fusion_layer(path, read(path)) else "blip"


def load(path: Path, kind: str, *, image_size: int | None = None, text_heads: int | None = None) -> Towers:
    """Builds the towers; sizes come from the shapes, attention heads are 64 wide.

    Args:
        path: the file.
        kind: "albef" or "blip".
        image_size: resize the position embeddings (bicubic) to images of this size, as the ALBEF and BLIP
            repositories do when they go on from a pretraining checkpoint; None leaves them as they are.
        text_heads: attention heads of the text encoder, where they are not 64 wide.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if keys are missing or unknown (all are named), or shapes contradict each other.
    """
    state = read(path)
    fusion = _fusion_layer(path, state)
    if (kind == "albef") != bool(fusion):
        raise ValueError(f"{path} is a checkpoint of {'albef' if fusion else 'blip'}, not of {kind}: use Backbone.load")
    absent = [key for key in _SIZES.values() if key not in state]
    if absent:
        raise ValueError(f"{path} is not a whole checkpoint of {kind}, it lacks {_listed(absent)}")
    if state["temp"].numel() != 1 or float(state["temp"]) <= 0:
        raise ValueError(f"{path}: 'temp' should be one positive number, it is {state['temp'].tolist()}")
    size = {name: tuple(state[key].shape) for name, key in _SIZES.items()}
    old, patch = _image_size(path, size["position"], size["patch"])
    new = old if image_size is None else image_size
    if new < patch or new % patch:
        raise ValueError(f"image_size is {new}, which is not a multiple of the patch size {patch} of {path}")
    with torch.random.fork_rng(devices=[]):
        vision = BlipVisionModel(
            BlipVisionConfig(
                hidden_size=size["patch"][0],
                intermediate_size=size["vision_mlp"][0],
                num_hidden_layers=_layers(state, "visual_encoder.blocks."),
                num_attention_heads=_heads(path, "image", size["patch"][0]),
                image_size=new,
                patch_size=patch,
                layer_norm_eps=1e-6,
            )
        )
        text = BertModel(
            BertConfig(
                vocab_size=size["words"][0],
                hidden_size=size["words"][1],
                intermediate_size=size["text_mlp"][0],
                num_hidden_layers=fusion or _layers(state, "text_encoder.encoder.layer."),
                num_attention_heads=text_heads or _heads(path, "text", size["words"][1]),
                max_position_embeddings=size["text_position"][0],
                type_vocab_size=state[_TYPES].shape[0] if _TYPES in state else 2,
                layer_norm_eps=1e-12,
            ),
            add_pooling_layer=False,
        )
        projections = {name: nn.Linear(size[name][1], size[name][0]) for name in ("vision_proj", "text_proj")}
    token_types = _TYPES in state
    if not token_types:
        state[_TYPES] = torch.zeros_like(text.embeddings.token_type_embeddings.weight)
    state[_SIZES["position"]] = resize_positions(state[_SIZES["position"]], new // patch)
    parts = [
        (vision, {key: f"visual_encoder.{_vision_name(key)}" for key in vision.state_dict()}),
        (text, {key: f"text_encoder.{key}" for key in text.state_dict()}),
        *((layer, {key: f"{name}.{key}" for key in layer.state_dict()}) for name, layer in projections.items()),
    ]
    _account(path, kind, state, {name for _, names in parts for name in names.values()} | {"temp"}, fusion)
    for module, names in parts:
        try:
            module.load_state_dict({key: state[name].float() for key, name in names.items()})
        except RuntimeError as error:
            raise ValueError(f"the shapes in {path} contradict each other: {error}") from error
    for module, _ in parts:
        pretrained.freeze(module)
    return Towers(
        vision, text, projections["vision_proj"], projections["text_proj"], float(state["temp"]), new, token_types
    )


def load_tokenizer(source: str | Path, towers: Towers) -> PreTrainedTokenizerBase:
    """Loads the tokenizer of bert-base-uncased from a hub id or folder.

    Raises:
        FileNotFoundError: if it is not there.
        ValueError: if it has no CLS token, or tokens that the text encoder has no embedding of.
    """
    found = pretrained.tokenizer(source)
    rows = towers.text.config.vocab_size
    if found.cls_token is None or len(found) > rows:
        raise ValueError(
            f"the tokenizer {source} has {len(found)} tokens and CLS is {found.cls_token}; needed is that of "
            f"bert-base-uncased, with CLS and at most {rows} tokens"
        )
    return found


def resize_positions(positions: Tensor, side: int) -> Tensor:
    """Resizes position embeddings ``[1, 1 + g * g, D]`` to ``[1, 1 + side * side, D]``, CLS kept as it is.

    Source: ``interpolate_pos_embed`` of ALBEF and BLIP (bicubic, ``align_corners=False``).
    """
    old = round((positions.shape[1] - 1) ** 0.5)
    if old == side:
        return positions
    grid = positions[:, 1:].float().reshape(1, old, old, -1).permute(0, 3, 1, 2)
    grid = F.interpolate(grid, size=(side, side), mode="bicubic", align_corners=False)
    return torch.cat([positions[:, :1].float(), grid.permute(0, 2, 3, 1).flatten(1, 2)], dim=1)


def _account(path: Path, kind: str, state: dict[str, Tensor], read_: set[str], fusion: int) -> None:
    """Raises unless every key of the file is read, or of a family that is known not to be read, and none is missing."""
    missing = sorted(read_ - set(state))
    unknown = sorted(key for key in set(state) - read_ if not _is_unread(key, fusion))
    if missing or unknown:
        parts = [f"lacks {_listed(missing)}"] if missing else []
        parts += [f"has the unknown {_listed(unknown)}"] if unknown else []
        raise ValueError(f"{path} is not a whole checkpoint of {kind}: it {' and '.join(parts)}")


def _is_unread(key: str, fusion: int) -> bool:
    layer = _layer_of(key, "text_encoder.encoder.layer.")
    if layer is not None and (".crossattention." in key or (fusion and layer >= fusion)):
        return True
    return _UNREAD.match(key) is not None


def _fusion_layer(path: Path, state: dict[str, Tensor]) -> int:
    """Returns the first layer with cross-attention."""
    layers = [_layer_of(key, "text_encoder.encoder.layer.") for key in state if ".crossattention." in key]
    found = [layer for layer in layers if layer is not None]
    if not found:
        raise ValueError(
            f"{path} has no text_encoder.encoder.layer.N.crossattention, so it is a checkpoint of neither ALBEF nor "
            f"BLIP; its first keys are {_listed(list(state)[:5])}"
        )
    return min(found)


def _image_size(path: Path, positions: tuple[int, ...], patch: tuple[int, ...]) -> tuple[int, int]:
    """Returns image and patch size in pixels."""
    side = round((positions[1] - 1) ** 0.5) if len(positions) == 3 else 0
    if side < 1 or side**2 != positions[1] - 1 or len(patch) != 4 or patch[2] != patch[3]:
        raise ValueError(
            f"{path}: cannot tell the image size from shapes {positions} and {patch} of positions and patches"
        )
    return side * patch[2], patch[2]


def _heads(path: Path, name: str, width: int) -> int:
    if width % _HEAD_DIM:
        raise ValueError(f"the {name} encoder in {path} is {width} wide, which is not a multiple of {_HEAD_DIM}")
    return width // _HEAD_DIM


def _vision_name(key: str) -> str:
    for name, in_file in _VISION_NAMES:
        key = key.replace(name, in_file)
    return key


def _layers(state: dict[str, Tensor], prefix: str) -> int:
    return 1 + max(layer for layer in (_layer_of(key, prefix) for key in state) if layer is not None)


def _layer_of(key: str, prefix: str) -> int | None:
    number = key[len(prefix) :].split(".")[0] if key.startswith(prefix) else ""
    return int(number) if number.isdecimal() else None


def _listed(keys: Iterable[str]) -> str:
    return ", ".join(repr(key) for key in keys)
