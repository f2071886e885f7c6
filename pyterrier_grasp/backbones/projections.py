"""The initial projections into the common space, where a backbone has none of its own."""

import torch
from torch import nn


def random_projections(text_dim: int, image_dim: int, embed_dim: int, seed: int) -> tuple[nn.Linear, nn.Linear]:
    """Returns a text and an image projection with Xavier-uniform weights and zero biases.

    Args:
        text_dim: width of a text token state.
        image_dim: width of an image token state.
        embed_dim: width of the common space.
        seed: of a generator of its own, so that the global random state is neither read nor changed.
    """
    generator = torch.Generator().manual_seed(seed)
    pair = []
    for width in (text_dim, image_dim):
        layer = nn.utils.skip_init(nn.Linear, width, embed_dim)
        nn.init.xavier_uniform_(layer.weight, generator=generator)
        nn.init.zeros_(layer.bias)
        pair.append(layer)
    return pair[0], pair[1]


def copy_linear(layer: nn.Linear) -> nn.Linear:
    """Returns a trainable float32 copy of a linear layer, on the CPU."""
    copy = nn.utils.skip_init(nn.Linear, layer.in_features, layer.out_features, bias=layer.bias is not None)
    with torch.no_grad():
        copy.weight.copy_(layer.weight)
        if layer.bias is not None:
            copy.bias.copy_(layer.bias)
    return copy
