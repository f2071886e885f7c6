"""Dual encoders of the transformers library: CLIP, SigLIP and SigLIP 2."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pyterrier_grasp import pretrained
from pyterrier_grasp.backbones.hashing import digest
from pyterrier_grasp.backbones.images import Preprocess
from pyterrier_grasp.backbones.naflex import NaflexImageTower
from pyterrier_grasp.backbones.states import TokenStates
from pyterrier_grasp.backbones.tower_backbone import TowerBackbone
from pyterrier_grasp.backbones.towers import ImageTower, TextTower
from pyterrier_grasp.sources import resolve

TYPES = ("clip", "siglip", "siglip2")


class DualBackbone(TowerBackbone):
    """Both towers of a CLIP or SigLIP model, its projections and its temperature.

    Dense vectors are those of ``get_text_features`` and ``get_image_features``. Their pooled states take these places
    among the token states:

    - CLIP captions: EOS, the last token, after the last layer norm ("last"). Captions are cut to 77 tokens.
    - CLIP images: CLS ("cls"). The layer norm that the library applies to CLS alone is applied to every state, for the
      projection was trained on its output.
    - SigLIP captions, in lower case, are padded to 64 tokens, attend to the padding, and are read at position 64. The
      states are those of the caption's own tokens and then that of position 64, as a special token ("last").
    - SigLIP images: the output of the attention-pooling head comes before the patches as a special token ("cls").
      SigLIP has no image projection, so it starts as the identity.

    Args:
        source: hub id or folder, such as "openai/clip-vit-base-patch32" or "google/siglip-base-patch16-256".
        device: where to compute.

    Raises:
        FileNotFoundError: if the folder or hub id is not there.
        ValueError: if it is no CLIP or SigLIP model with both towers.
    """

    kind = "dual"

    def __init__(self, source: str | Path, *, device: torch.device | str | None = None) -> None:
        name = resolve(source)
        model_type = pretrained.config_dict(name).get("model_type")
        if model_type not in TYPES:
            raise ValueError(f"{name} is of type {model_type!r}, not one of {', '.join(TYPES)}")
        model: Any = pretrained.model(name)
        tokenizer = pretrained.tokenizer(name)
        length = model.text_model.config.max_position_embeddings
        if model_type == "clip":
            self._text = TextTower(model.text_model, tokenizer, length)
            self._image: Any = _ClipImageTower(model.vision_model, _preprocess(name, model))
            self._projections = (model.text_projection, model.visual_projection)
        else:
            if not model.vision_model.use_head:
                raise ValueError(f"{name} has no attention-pooling head over its patches, so it has no image vector")
            self._text = _SiglipTextTower(model.text_model, tokenizer, length, str.lower)
            if model_type == "siglip2":
                self._image = NaflexImageTower(model.vision_model, pretrained.preprocessor_dict(name))
            else:
                self._image = _SiglipImageTower(model.vision_model, _preprocess(name, model))
            self._projections = (model.text_model.head, _identity(self._image.dim))
        text, image = (projection.out_features for projection in self._projections)
        if text != image:
            raise ValueError(f"{name} has text vectors of width {text} and image vectors of width {image}")
        super().__init__(
            source=name,
            text_dim=self._text.dim,
            image_dim=self._image.dim,
            embed_dim=text,
            text_pool="last",
            image_pool="cls",
            temperature=math.exp(-float(model.logit_scale)),
            device=device,
        )

    def spec(self) -> dict[str, Any]:
        return {"kind": self.kind, "source": self.source}

    def _compute_fingerprint(self) -> str:
        return digest(
            {
                "kind": self.kind,
                "image": self._image.fingerprint(),
                "text": self._text.fingerprint(),
                "embed_dim": self.embed_dim,
                "pools": [self.text_pool, self.image_pool],
            }
        )


class _ClipImageTower(ImageTower):
    """CLIP's vision encoder, with the last layer norm on every state."""

    @torch.no_grad()
    def _forward(self, pixels: Tensor) -> Tensor:
        return self.model.post_layernorm(super()._forward(pixels))  # type: ignore[operator]


class _SiglipImageTower(ImageTower):
    """SigLIP's vision encoder, with the output of its pooling head before the patches."""

    @torch.no_grad()
    def _forward(self, pixels: Tensor) -> Tensor:
        output = self.model(pixel_values=pixels)
        return torch.cat([output.pooler_output.unsqueeze(1), output.last_hidden_state], dim=1)


class _SiglipTextTower(TextTower):
    """SigLIP's text encoder, which was trained on captions padded to its full length, without a mask."""

    @torch.no_grad()
    def encode(self, texts: Sequence[str]) -> TokenStates:
        if not len(texts):
            return TokenStates.empty(self.dim, self.device)
        encoded = self.tokenizer(
            [self._prepare(text, position) for position, text in enumerate(texts)],
            padding="max_length",
            truncation=True,
            max_length=self.max_length,
            return_attention_mask=True,
            return_special_tokens_mask=True,
            return_tensors="pt",
        ).to(self.device)
        states = self.model(input_ids=encoded["input_ids"]).last_hidden_state.float()
        mask = encoded["attention_mask"].bool()
        special = encoded["special_tokens_mask"].bool() & mask
        # the last state takes the place after the caption's own; a caption of full length has it already
        own = mask.sum(1)
        rows = (own < self.max_length).nonzero().flatten()
        states = states.clone()
        states[rows, own[rows]] = states[rows, -1]
        mask[rows, own[rows]] = True
        special[rows, own[rows]] = True
        length = int(mask.sum(1).max())
        mask, special = mask[:, :length], special[:, :length]
        return TokenStates(states[:, :length].masked_fill(~mask.unsqueeze(-1), 0.0), mask, special)


def _preprocess(name: str, model: Any) -> Preprocess:
    """Reads the preprocessing, and checks that it gives images of the size that the encoder takes."""
    preprocess = Preprocess.from_config(pretrained.preprocessor_dict(name), name)
    size = model.vision_model.config.image_size
    needed = (size, size) if isinstance(size, int) else tuple(size)
    if preprocess.size != needed:
        raise ValueError(
            f"the encoder of {name} takes images of {needed} pixels, and its preprocessor_config.json gives "
            f"{preprocess.size}"
        )
    return preprocess


def _identity(dim: int) -> nn.Linear:
    layer = nn.utils.skip_init(nn.Linear, dim, dim)
    nn.init.eye_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
