"""The head of the token-space methods: a transform, a linear layer over tokens, the maximum over positions."""

import torch
from torch import Tensor, nn

from pyterrier_grasp.backbones import Backbone, TokenSpace
from pyterrier_grasp.methods.base import Space
from pyterrier_grasp.methods.concept_head import max_pooled_linear


class TokenHead(nn.Module):
    """``max_m (E T(h_m) + b)_j``, the masked-language-model head with a maximum over positions.

    Args:
        transform: ``T``, state ``[..., D]`` -> ``[..., D_word]``.
        weight: Initial ``E``, float ``[|V|, D_word]``; it is trained (initialised from, not tied to, the embeddings).
        bias: Initial ``b``, float ``[|V|]``, or ``[1]`` for one that all tokens share; None for none.
    """

    def __init__(self, transform: nn.Module, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.transform = transform
        self.weight = nn.Parameter(weight.detach().clone().to(torch.float32))
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone().to(torch.float32))

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Raw scores before the activation.

        Args:
            states: Float ``[B, L, D]``; a pooled vector is ``L = 1``.
            mask: Bool ``[B, L]``, True where a position takes part; every row needs one.

        Returns:
            Float32 ``[B, |V|]`` (float64 for a float64 head).
        """
        with torch.autocast(states.device.type, enabled=False):
            raw = max_pooled_linear(self.transform(states.to(self.weight.dtype)), mask, self.weight)
        return raw if self.bias is None else raw + self.bias


def linear(in_features: int, out_features: int, generator: torch.Generator, *, bias: bool = True) -> nn.Linear:
    """A linear layer initialised as torch does, from a generator instead of the global random state."""
    layer = nn.utils.skip_init(nn.Linear, in_features, out_features, bias=bias)
    bound = in_features**-0.5
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-bound, bound, generator=generator)
    return layer


class MlmTransform(nn.Sequential):
    """``T`` of BERT's masked-language-model head: linear, GELU, layer norm; ``[..., D]`` -> ``[..., D_word]``."""

    def __init__(self, in_features: int, out_features: int, generator: torch.Generator) -> None:
        super().__init__(linear(in_features, out_features, generator), nn.GELU(), nn.LayerNorm(out_features, eps=1e-12))


def initial_embeddings(backbone: Backbone, space: Space) -> Tensor:
    """Word embeddings of a space's dimensions, float32 ``[|V|, D_word]``; of a concept, the mean over its tokens."""
    if isinstance(space, TokenSpace):
        return space.embeddings(backbone)
    embeddings, special = backbone.word_embeddings(), backbone.special_ids
    rows = []
    for ids in backbone.token_ids([concept.name for concept in space.concepts]):
        rows.append(embeddings[[i for i in ids if i not in special] or ids].mean(0))
    return torch.stack(rows)


def two_mlm_heads(backbone: Backbone, method: str, space: Space | None, seed: int) -> dict[str, TokenHead]:
    """A masked-language-model head a modality, for hidden states, with biases of 0.

    Args:
        backbone: Gives sizes and word embeddings.
        method: Its name, for the message.
        space: The dimensions.
        seed: Of the new weights.

    Raises:
        ValueError: Without a space.
    """
    if space is None:
        raise ValueError(f"method {method!r} needs a token space")
    embeddings, generator = initial_embeddings(backbone, space), torch.Generator().manual_seed(seed)
    return {
        modality: TokenHead(MlmTransform(dim, embeddings.shape[1], generator), embeddings, torch.zeros(len(embeddings)))
        for modality, dim in (("text", backbone.text_dim), ("image", backbone.image_dim))
    }
