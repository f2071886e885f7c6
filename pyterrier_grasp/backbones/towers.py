"""One frozen encoder each: pixels to token states, captions to token states."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from pyterrier_grasp.backbones.hashing import hash_model, hash_tokenizer
from pyterrier_grasp.backbones.images import Preprocess
from pyterrier_grasp.backbones.states import TokenStates


class ImageTower:
    """A vision encoder and its preprocessing.

    Reads ``last_hidden_state``: ``[B, L, D]`` as it is, feature maps ``[B, D, H, W]`` as ``[B, H * W, D]``. Never the
    pooled output, which some models pass through their last layer norm a second time.

    Args:
        model: a transformers vision model, frozen.
        preprocess: turns an image into pixels.
    """

    def __init__(self, model: nn.Module, preprocess: Preprocess) -> None:
        self.model = model
        self.preprocess = preprocess
        probe = self._forward(torch.zeros(1, 3, *preprocess.size, device=self.device))
        self.dim = probe.shape[2]
        self.n_special = self._count_special(probe.shape[1])

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.model.parameters()).device

    @torch.no_grad()
    def _forward(self, pixels: Tensor) -> Tensor:
        states = self.model(pixel_values=pixels).last_hidden_state
        return states.flatten(2).transpose(1, 2) if states.ndim == 4 else states

    def _count_special(self, length: int) -> int:
        """Counts the leading tokens that are no patches: CLS, distillation and register tokens."""
        patch = getattr(getattr(self.model, "config", None), "patch_size", None)
        if not isinstance(patch, int | list | tuple):
            return 0
        rows, columns = (patch, patch) if isinstance(patch, int) else (patch[0], patch[-1])
        patches = (self.preprocess.size[0] // rows) * (self.preprocess.size[1] // columns)
        # hierarchical encoders merge patches and return fewer tokens than they started with
        return max(0, length - patches)

    def encode(self, images: Sequence[str | Path | Image.Image]) -> TokenStates:
        """Returns the states of a batch of images. Raises as :func:`~.images.open_image` does."""
        if not images:
            return TokenStates.empty(self.dim, self.device)
        with ThreadPoolExecutor(min(8, len(images), os.cpu_count() or 1)) as pool:
            pixels = np.stack(list(pool.map(self.preprocess, images)))
        states = self._forward(torch.from_numpy(pixels).to(self.device)).float()
        mask = torch.ones(states.shape[:2], dtype=torch.bool, device=states.device)
        special = torch.zeros_like(mask)
        special[:, : self.n_special] = True
        return TokenStates(states, mask, special)

    def fingerprint(self) -> dict[str, Any]:
        """Returns the parts of a fingerprint that this encoder decides."""
        return {"model": hash_model(self.model), "preprocess": self.preprocess.settings()}


class TextTower:
    """A text encoder and its tokenizer.

    Args:
        model: a transformers text model, frozen.
        tokenizer: its tokenizer, padding on the right.
        max_length: longer captions are cut to this many tokens, special ones included.
        clean: applied to every caption first.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: PreTrainedTokenizerBase,
        max_length: int,
        clean: Callable[[str], str] | None = None,
    ) -> None:
        if max_length < 3:
            raise ValueError(f"captions need at least 3 tokens, not max_length={max_length}")
        limit = getattr(getattr(model, "config", None), "max_position_embeddings", None) or 0
        if 0 < limit < max_length:
            raise ValueError(f"the text encoder takes at most {limit} tokens, not max_length={max_length}")
        self.model = model
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.clean = clean
        self.dim = self.encode(["a"]).states.shape[2]

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.model.parameters()).device

    @torch.no_grad()
    def encode(self, texts: Sequence[str]) -> TokenStates:
        """Returns the states of a batch of captions, padded to the longest.

        Raises:
            ValueError: if a caption is no string, or has no token at all; says which.
        """
        if not len(texts):
            return TokenStates.empty(self.dim, self.device)
        encoded = self.tokenizer(
            [self._prepare(text, position) for position, text in enumerate(texts)],
            padding="longest",
            truncation=True,
            max_length=self.max_length,
            return_special_tokens_mask=True,
            return_tensors="pt",
        ).to(self.device)
        mask = encoded["attention_mask"].bool()
        bare = (~mask.any(dim=1)).nonzero().flatten().tolist() if mask.shape[1] else [0]
        if bare:
            raise ValueError(f"caption {bare[0]} ({texts[bare[0]]!r}) has no token, so it has no state")
        states = self.model(
            input_ids=encoded["input_ids"], attention_mask=encoded["attention_mask"]
        ).last_hidden_state.float()
        return TokenStates(
            states.masked_fill(~mask.unsqueeze(-1), 0.0), mask, encoded["special_tokens_mask"].bool() & mask
        )

    def token_names(self) -> list[str]:
        """Every token of the tokenizer, by id."""
        return list(self.tokenizer.convert_ids_to_tokens(list(range(len(self.tokenizer)))))

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of the tokens of each caption as :meth:`encode` sees it: cleaned, cut, with special tokens, unpadded."""
        if not len(texts):
            return []
        cleaned = [self._prepare(text, position) for position, text in enumerate(texts)]
        return self.tokenizer(cleaned, truncation=True, max_length=self.max_length)["input_ids"]

    def word_embeddings(self) -> Tensor:
        """A copy of the encoder's input embeddings, float32 ``[V, D_word]`` on the CPU."""
        return self.model.get_input_embeddings().weight.detach().float().cpu().clone()  # type: ignore[operator]

    def _prepare(self, text: str, position: int) -> str:
        if not isinstance(text, str):
            raise ValueError(f"caption {position} is {text!r}: captions must be strings")
        # half a surrogate pair is no valid Unicode and stops tokenizers written in Rust
        text = text.encode("utf-8", "replace").decode("utf-8")
        return self.clean(text) if self.clean else text

    def fingerprint(self) -> dict[str, Any]:
        """Returns the parts of a fingerprint that this encoder decides."""
        return {
            "model": hash_model(self.model),
            "tokenizer": hash_tokenizer(self.tokenizer),
            "max_length": self.max_length,
        }
