"""ALBEF retrieval checkpoints: the released ``.pth`` files and those of LAVIS."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from pyterrier_grasp.backbones import checkpoints
from pyterrier_grasp.backbones.captions import albef_caption, blip_caption
from pyterrier_grasp.backbones.hashing import digest
from pyterrier_grasp.backbones.images import CLIP_MEAN, CLIP_STD, Preprocess
from pyterrier_grasp.backbones.tower_backbone import TowerBackbone
from pyterrier_grasp.backbones.towers import ImageTower, TextTower
from pyterrier_grasp.sources import resolve


class Captions(NamedTuple):
    """How a code base prepares captions: the cleaning, and the most words and tokens that it keeps."""

    clean: Callable[..., str]
    max_words: int
    max_length: int


LAYOUTS = {"original": Captions(albef_caption, 30, 30), "lavis": Captions(blip_caption, 50, 35)}


class AlbefBackbone(TowerBackbone):
    """The two unimodal towers of an ALBEF checkpoint (Li et al., 2021) and its projections.

    The text tower is the layers below the first with cross-attention (six of twelve). Momentum twins, queues, fusion
    layers and the matching head are left out; any other key that is not read, and any that is missing, is an error.

    Args:
        source: the file, such as ``flickr30k.pth`` or ``albef_coco_retrieval_lavis.pt``.
        tokenizer: hub id or folder of the tokenizer of bert-base-uncased.
        layout: whose caption rules to follow: "original" (``pre_caption``, 30 words, 30 tokens) or "lavis"
            (``blip_caption``, 50 words, 35 tokens). None looks for token type embeddings, which only the original has.
        image_size: resize the position embeddings to images of this size; None for the file's own, 384 in retrieval
            checkpoints and 256 in those of the pretraining.
        max_length: tokens of a caption, special ones included; None for the layout's.
        max_words: words of a cleaned caption; None for the layout's.
        device: where to compute.

    Raises:
        FileNotFoundError: if the file or the tokenizer is not there.
        ValueError: if it is no ALBEF checkpoint; names every key that is missing or unknown.
    """

    kind = "albef"

    def __init__(
        self,
        source: str | Path,
        *,
        tokenizer: str | Path = checkpoints.TOKENIZER,
        layout: str | None = None,
        image_size: int | None = None,
        max_length: int | None = None,
        max_words: int | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        if layout is not None and layout not in LAYOUTS:
            raise ValueError(f"layout must be one of {sorted(LAYOUTS)} or None, not {layout!r}")
        if max_words is not None and max_words < 1:
            raise ValueError(f"max_words must be at least 1, not {max_words}")
        path = Path(source).expanduser().absolute()
        towers = checkpoints.load(path, self.kind, image_size=image_size)
        self.layout = layout or ("original" if towers.token_types else "lavis")
        rules = LAYOUTS[self.layout]
        self._max_words = rules.max_words if max_words is None else max_words
        square = (towers.image_size, towers.image_size)
        self._image = ImageTower(towers.vision, Preprocess(square, mean=CLIP_MEAN, std=CLIP_STD))
        self._text = TextTower(
            towers.text,
            checkpoints.load_tokenizer(tokenizer, towers),
            rules.max_length if max_length is None else max_length,
            partial(rules.clean, max_words=self._max_words),
        )
        self._projections = (towers.text_projection, towers.vision_projection)
        self._options: dict[str, Any] = {
            "tokenizer": resolve(tokenizer),
            "layout": self.layout,
            "image_size": towers.image_size,
            "max_length": self._text.max_length,
            "max_words": self._max_words,
        }
        super().__init__(
            source=str(path),
            text_dim=self._text.dim,
            image_dim=self._image.dim,
            embed_dim=towers.text_projection.out_features,
            text_pool="cls",
            image_pool="cls",
            temperature=towers.temperature,
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
                "layout": self.layout,
                "max_words": self._max_words,
                "embed_dim": self.embed_dim,
                "pools": [self.text_pool, self.image_pool],
            }
        )
