"""BLIP retrieval models, of the transformers library or as released, with the numbers of the original."""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import BlipConfig, BlipForImageTextRetrieval, PreTrainedTokenizerBase

from pyterrier_grasp import pretrained
from pyterrier_grasp.backbones import checkpoints
from pyterrier_grasp.backbones.captions import blip_caption
from pyterrier_grasp.backbones.hashing import digest
from pyterrier_grasp.backbones.images import CLIP_MEAN, CLIP_STD, Preprocess
from pyterrier_grasp.backbones.tower_backbone import TowerBackbone
from pyterrier_grasp.backbones.towers import ImageTower, TextTower
from pyterrier_grasp.sources import resolve

VISION_EPS = 1e-6


class _Parts(NamedTuple):
    """What both kinds of sources give."""

    vision: nn.Module
    text: nn.Module
    tokenizer: PreTrainedTokenizerBase
    text_projection: nn.Linear
    vision_projection: nn.Linear
    image_size: int
    temperature: float


class BlipBackbone(TowerBackbone):
    """The two towers of a BLIP retrieval model, base or large, and its projections.

    Differs from a plain load in the places where the library departs from the original (Li et al., 2022): the
    vision layer norms use eps 1e-6, captions are cleaned and cut to 35 tokens, images are squashed with Pillow's
    bicubic filter, text goes through self-attention only, and the states are ``last_hidden_state``, for the pooled
    output of the vision model passes its last layer norm twice. The temperature is the file's, or 0.07 for a folder,
    since the library drops it.

    Args:
        source: hub id or folder of a ``BlipForImageTextRetrieval``, such as "Salesforce/blip-itm-base-flickr", or a
            checkpoint file of the BLIP repository or LAVIS, such as ``model_base_retrieval_flickr.pth``.
        tokenizer: hub id or folder of the tokenizer; None for the folder's own, and for bert-base-uncased beside a
            checkpoint file.
        max_length: tokens of a caption, special ones included.
        max_words: words of a cleaned caption.
        text_heads: attention heads of the text encoder, for a folder whose config is wrong or does not say it.
        device: where to compute.

    Raises:
        FileNotFoundError: if the folder, file or hub id is not there.
        ValueError: if it is no BLIP retrieval model, or its number of text heads cannot be right.
    """

    kind = "blip"

    def __init__(
        self,
        source: str | Path,
        *,
        tokenizer: str | Path | None = None,
        max_length: int = 35,
        max_words: int = 50,
        text_heads: int | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        if max_words < 1:
            raise ValueError(f"max_words must be at least 1, not {max_words}")
        file = Path(source).expanduser().absolute()
        if file.is_file() or file.suffix in checkpoints.SUFFIXES:
            name, parts = str(file), _from_file(file, tokenizer, text_heads)
        else:
            name = resolve(source)
            parts = _from_folder(name, tokenizer, text_heads)
        size = (parts.image_size, parts.image_size)
        self._image = ImageTower(parts.vision, Preprocess(size, mean=CLIP_MEAN, std=CLIP_STD))
        clean = partial(blip_caption, max_words=max_words)
        self._text = TextTower(parts.text, parts.tokenizer, max_length, clean)
        self._projections = (parts.text_projection.cpu(), parts.vision_projection.cpu())
        self._options: dict[str, Any] = {"max_length": max_length, "max_words": max_words, "text_heads": text_heads}
        if tokenizer is not None:
            self._options["tokenizer"] = resolve(tokenizer)
        super().__init__(
            source=name,
            text_dim=self._text.dim,
            image_dim=self._image.dim,
            embed_dim=parts.text_projection.out_features,
            text_pool="cls",
            image_pool="cls",
            temperature=parts.temperature,
            device=device,
        )

    def spec(self) -> dict[str, Any]:
        return {"kind": self.kind, "source": self.source, **self._options}

    def _compute_fingerprint(self) -> str:
        return digest(
            {
                "kind": self.kind,
                "image": self._image.fingerprint(),
                "text": self._text.fingerprint(),
                "max_words": self._options["max_words"],
                "embed_dim": self.embed_dim,
                "pools": [self.text_pool, self.image_pool],
            }
        )


def _from_folder(name: str, tokenizer: str | Path | None, text_heads: int | None) -> _Parts:
    raw = pretrained.config_dict(name)
    if raw.get("model_type") != "blip":
        raise ValueError(f"{name} is of type {raw.get('model_type')!r}, not a BLIP retrieval model")
    config: Any = BlipConfig.from_dict(raw)
    config.vision_config.layer_norm_eps = VISION_EPS
    config.text_config.num_attention_heads = _text_heads(name, raw, config, text_heads)
    # without this the cross-attention of the matching head would be loaded, which no dense vector uses
    config.text_config.is_decoder = False
    model: Any = pretrained.model(name, BlipForImageTextRetrieval, config=config)
    return _Parts(
        model.vision_model,
        model.text_encoder,
        pretrained.tokenizer(name if tokenizer is None else tokenizer),
        model.text_proj,
        model.vision_proj,
        config.vision_config.image_size,
        0.07,
    )


def _from_file(path: Path, tokenizer: str | Path | None, text_heads: int | None) -> _Parts:
    towers = checkpoints.load(path, BlipBackbone.kind, text_heads=text_heads)
    return _Parts(
        towers.vision,
        towers.text,
        checkpoints.load_tokenizer(tokenizer or checkpoints.TOKENIZER, towers),
        towers.text_projection,
        towers.vision_projection,
        towers.image_size,
        towers.temperature,
    )


def _text_heads(name: str, raw: dict[str, Any], config: Any, asked: int | None) -> int:
    """Returns the number of text attention heads, after making sure that it is not the library's wrong default.

    Released models have 12 heads at width 768. The library assumes 8 where a config does not say it, which loads
    without a complaint and retrieves badly.
    """
    if asked is not None:
        return asked
    heads, width = config.text_config.num_attention_heads, config.text_config.hidden_size
    if width == 768 and heads != 12:
        raise ValueError(
            f"the config of {name} leads to {heads} text attention heads; BLIP has 12 at width 768, and {heads} give "
            'much worse vectors. Write "num_attention_heads": 12 under text_config in config.json, or load it '
            "with text_heads=12"
        )
    if "num_attention_heads" not in (raw.get("text_config") or {}):
        raise ValueError(
            f"the config of {name} does not say num_attention_heads under text_config, and the library's default "
            f"of {heads} is wrong for released models: load it with text_heads=<number>"
        )
    return heads
