"""SigLIP 2 with images of their own shape (NaFlex): as many patches as the aspect ratio asks for, up to a limit."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from pyterrier_grasp.backbones.hashing import hash_model
from pyterrier_grasp.backbones.images import open_image
from pyterrier_grasp.backbones.states import TokenStates


class NaflexImageTower:
    """A SigLIP 2 vision encoder whose images keep their aspect ratio.

    States are the output of the attention-pooling head, as a special token, and those of the real patches.

    Args:
        model: a ``Siglip2VisionModel``, frozen.
        settings: the content of ``preprocessor_config.json``.
    """

    def __init__(self, model: nn.Module, settings: dict[str, Any]) -> None:
        self.model = model
        self.patch = int(settings.get("patch_size", 16))
        self.max_patches = int(settings.get("max_num_patches", 256))
        self.resample = int(settings.get("resample", 2))
        self.scale = float(settings.get("rescale_factor", 1 / 255))
        self.mean = np.asarray(settings.get("image_mean", [0.5] * 3), np.float32)
        self.std = np.asarray(settings.get("image_std", [0.5] * 3), np.float32)
        self.dim = int(model.config.hidden_size)  # type: ignore[union-attr, arg-type]

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.model.parameters()).device

    @torch.no_grad()
    def encode(self, images: Sequence[str | Path | Image.Image]) -> TokenStates:
        """Returns the states of a batch of images. Raises as :func:`~.images.open_image` does."""
        if not images:
            return TokenStates.empty(self.dim, self.device)
        found = [self._patches(image) for image in images]
        pixels = torch.zeros(len(found), self.max_patches, 3 * self.patch**2)
        mask = torch.zeros(len(found), self.max_patches, dtype=torch.long)
        for row, (patches, _) in enumerate(found):
            pixels[row, : len(patches)] = torch.from_numpy(patches)
            mask[row, : len(patches)] = 1
        output = self.model(
            pixel_values=pixels.to(self.device),
            pixel_attention_mask=mask.to(self.device),
            spatial_shapes=torch.tensor([shape for _, shape in found], device=self.device),
        )
        states = torch.cat([output.pooler_output.unsqueeze(1), output.last_hidden_state], dim=1).float()
        length = 1 + int(mask.sum(1).max())
        real = torch.cat([torch.ones(len(found), 1), mask], dim=1)[:, :length].bool().to(self.device)
        special = torch.zeros_like(real)
        special[:, 0] = True
        return TokenStates(states[:, :length].masked_fill(~real.unsqueeze(-1), 0.0), real, special)

    def _patches(self, source: str | Path | Image.Image) -> tuple[np.ndarray, tuple[int, int]]:
        """Returns float32 ``[rows * columns, 3 * patch * patch]`` (channels last in a patch), and rows and columns."""
        image = open_image(source)
        rows, columns = patch_grid(image.height, image.width, self.patch, self.max_patches)
        image = image.resize((columns * self.patch, rows * self.patch), Image.Resampling(self.resample))
        pixels = (np.asarray(image, np.float32) * np.float32(self.scale) - self.mean) / self.std
        pixels = pixels.reshape(rows, self.patch, columns, self.patch, 3).transpose(0, 2, 1, 3, 4)
        return np.ascontiguousarray(pixels.reshape(rows * columns, -1)), (rows, columns)

    def fingerprint(self) -> dict[str, Any]:
        """Returns the parts of a fingerprint that this encoder decides."""
        preprocess = [self.patch, self.max_patches, self.resample, self.scale, self.mean.tolist(), self.std.tolist()]
        return {"model": hash_model(self.model), "preprocess": ["naflex", *preprocess]}


def patch_grid(height: int, width: int, patch: int, limit: int) -> tuple[int, int]:
    """Returns how many rows and columns of patches an image is resized to: the largest scale of at most ``limit``.

    Each side is scaled and rounded up to whole patches.
    Source: the image processor of SigLIP 2 in transformers, whose bisection stops at 1e-5.

    Args:
        height: of the image, in pixels.
        width: of the image, in pixels.
        patch: side of a patch, in pixels.
        limit: most patches.
    """

    def grid(scale: float) -> tuple[int, int]:
        return max(1, math.ceil(height * scale / patch)), max(1, math.ceil(width * scale / patch))

    low, high = 1e-6, 100.0
    while high - low >= 1e-5:
        middle = (low + high) / 2
        rows, columns = grid(middle)
        low, high = (middle, high) if rows * columns <= limit else (low, middle)
    return grid(low)
