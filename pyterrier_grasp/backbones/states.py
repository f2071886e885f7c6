"""What an encoder returns: the last hidden state of every token."""

from typing import NamedTuple

import torch
from torch import Tensor


class TokenStates(NamedTuple):
    """Last hidden states of a batch of captions or images.

    Attributes:
        states: float32 ``[B, L, D]``, zero where ``mask`` is False.
        mask: bool ``[B, L]``, True for real tokens, special ones included.
        special: bool ``[B, L]``, True for CLS, SEP, BOS, EOS and register tokens; False for words, patches and padding.
    """

    states: Tensor
    mask: Tensor
    special: Tensor

    def to(self, device: torch.device | str) -> "TokenStates":
        """Returns the same states on another device."""
        return TokenStates(self.states.to(device), self.mask.to(device), self.special.to(device))

    def pooled(self, pool: str) -> Tensor:
        """Returns one vector ``[B, D]`` an input: the first token ("cls"), the last real one ("last") or their mean.

        Raises:
            ValueError: for any other ``pool``.
        """
        if pool == "cls":
            return self.states[:, 0]
        if pool == "last":
            rows = torch.arange(len(self.mask), device=self.mask.device)
            return self.states[rows, self.mask.sum(1) - 1]
        if pool == "mean":
            weights = self.mask.to(self.states.dtype).unsqueeze(-1)
            return (self.states * weights).sum(1) / weights.sum(1)
        raise ValueError(f"pool must be 'cls', 'last' or 'mean', not {pool!r}")

    @classmethod
    def empty(cls, dim: int, device: torch.device | str = "cpu") -> "TokenStates":
        """Returns the states of no input at all, ``[0, 0, dim]``."""
        flags = torch.zeros(0, 0, dtype=torch.bool, device=device)
        return cls(torch.zeros(0, 0, dim, device=device), flags, flags.clone())
