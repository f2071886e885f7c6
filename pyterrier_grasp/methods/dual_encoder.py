"""The trainable part of every method: projections, temperature and, where there is one, a sparse head."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pyterrier_grasp.backbones import Backbone, TokenStates

MODALITIES = ("text", "image")


class Encoded(NamedTuple):
    """One modality of a batch.

    Attributes:
        dense: L2-normalised pooled vectors, float ``[B, d]``.
        raw: Max-pooled scores of the head before the activation, float ``[B, |C|]``; None without a head.
        grounding_raw: The same values for the grounding loss, cut off from the projections where
            ``detach_grounding`` is set; None without a head.
    """

    dense: Tensor
    raw: Tensor | None = None
    grounding_raw: Tensor | None = None


class DualEncoder(nn.Module):
    """Projections ``D -> d`` of frozen token states, pooled (dense) and max-pooled through a head (sparse).

    Args:
        backbone: Gives the initial projections, pooling and temperature.
        heads: ``{"shared": head}``, ``{"text": head, "image": head}``, one of the two, or None. A head maps states
            ``[B, L, .]`` and a mask ``[B, L]`` to raw scores ``[B, |C|]``; a modality without one has none.
        token_source: What the head reads: ``projected`` (d) or ``hidden`` (D) states of every position, or ``pooled``,
            the dense vector (d) itself.
        normalise_tokens: L2-normalise each position before the head.
        exclude_special: Leave CLS, SEP and their like out of the maximum, where other positions remain.
        detach_grounding: Compute ``grounding_raw`` from detached states.
    """

    def __init__(
        self,
        backbone: Backbone,
        heads: Mapping[str, nn.Module] | None = None,
        *,
        token_source: str = "projected",
        normalise_tokens: bool = False,
        exclude_special: bool = False,
        detach_grounding: bool = False,
    ) -> None:
        super().__init__()
        self.projections = nn.ModuleDict({"text": backbone.text_projection(), "image": backbone.image_projection()})
        self.heads = nn.ModuleDict(dict(heads or {}))
        self.temperature = nn.Parameter(torch.tensor(float(backbone.temperature)))
        self.pooling = {"text": backbone.text_pool, "image": backbone.image_pool}
        self.token_source = token_source
        self.normalise_tokens = normalise_tokens
        self.exclude_special = exclude_special
        self.detach_grounding = detach_grounding

    def tau(self) -> Tensor:
        """The temperature clamped to [0.001, 0.5] as ALBEF, BLIP (LAVIS) and SDLBT do, scalar tensor."""
        return self.temperature.clamp(0.001, 0.5)

    def encode(self, tokens: TokenStates, modality: str, *, sparse: bool = True) -> Encoded:
        """Encode one modality.

        Args:
            tokens: Token states ``[B, L, D]`` with masks, on the module's device.
            modality: ``text`` or ``image``.
            sparse: False skips the head.
        """
        projection = self.projections[modality]
        head = self._head(modality) if sparse else None
        if head is not None and self.token_source == "projected":
            states = projection(tokens.states)
            dense = tokens._replace(states=states).pooled(self.pooling[modality])
        else:
            # The projection is affine and pooling an average, so pooling first gives the same vector for less work.
            dense = projection(tokens.pooled(self.pooling[modality]))
            states = tokens.states
        dense = F.normalize(dense, dim=1)
        if head is None:
            return Encoded(dense)
        if self.token_source == "pooled":
            return Encoded(dense, head(dense.unsqueeze(1), tokens.mask[:, :1]))
        positions = self._positions(tokens)
        if self.normalise_tokens:
            states = F.normalize(states, dim=2)
        raw = head(states, positions)
        cut = self.detach_grounding and self.training and states.requires_grad
        return Encoded(dense, raw, head(states.detach(), positions) if cut else raw)

    def _head(self, modality: str) -> nn.Module | None:
        for name in ("shared", modality):
            if name in self.heads:
                return self.heads[name]
        return None

    def _positions(self, tokens: TokenStates) -> Tensor:
        if not self.exclude_special:
            return tokens.mask
        content = tokens.mask & ~tokens.special
        return torch.where(content.any(1, keepdim=True), content, tokens.mask)
