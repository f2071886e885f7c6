"""VisualSparta: a caption is its words, an image the weights of all words (Lu, Zhao and Lee, 2021)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from pyterrier_grasp.backbones import Backbone
from pyterrier_grasp.methods import losses
from pyterrier_grasp.methods.base import Batch, Method, Space, required
from pyterrier_grasp.methods.concept_head import activate
from pyterrier_grasp.methods.dual_encoder import DualEncoder, Encoded
from pyterrier_grasp.methods.token_head import TokenHead, initial_embeddings, linear


@dataclass(frozen=True)
class VisualSparta(Method):
    """Fragment-level matching of static word embeddings and image regions.

    Score of a caption and an image: ``sum_{w in t} log(1 + relu(max_m e_w . P h_m + b))`` over the caption's own
    tokens, with the image's hidden states ``h_m`` (all of them, as its regions), a linear layer ``P``, word embeddings
    ``e`` and one bias ``b``. Texts are not expanded and have no head: their vectors are multi-hot. The loss is the
    softmax over the images of a batch for each caption, as there; the other direction is not trained.

    Readings that are ours: a token that a caption has twice counts once; embeddings carry no positions; there is no
    transformer over the regions, for the backbone's states are contextual; the dense branch, which VisualSparta has
    not, is tuned beside with its own InfoNCE.
    """

    name: ClassVar[str] = "visualsparta"
    space_kind: ClassVar[str | None] = "tokens"
    needs_labels: ClassVar[bool] = True
    needs_own_tokens: ClassVar[bool] = True
    head_learning_rate: ClassVar[float] = 1e-3
    select_by: ClassVar[str] = "S"

    def build(self, backbone: Backbone, space: Space | None, seed: int) -> DualEncoder:
        """Projections of the backbone and a head on the image's hidden states."""
        if space is None:
            raise ValueError("method 'visualsparta' needs a token space")
        embeddings = initial_embeddings(backbone, space)
        transform = linear(backbone.image_dim, embeddings.shape[1], torch.Generator().manual_seed(seed))
        return DualEncoder(backbone, {"image": TokenHead(transform, embeddings, torch.zeros(1))}, token_source="hidden")

    def loss(self, text: Encoded, image: Encoded, batch: Batch, tau: Tensor) -> dict[str, Tensor]:
        """The dense InfoNCE, and the softmax over images of the sparse scores."""
        own = required(batch.text_labels, "own tokens of the texts")
        scores = own @ activate(required(image.raw)).T
        target = torch.arange(len(scores), device=scores.device)
        return {
            "contrastive_dense": losses.contrastive(text.dense @ image.dense.T / tau),
            "softmax_sparse": F.cross_entropy(scores, target),
        }

    def sparse_vectors(self, raw: Tensor | None, modality: str, own: Tensor | None = None) -> Tensor:
        """A text's own tokens; ``log(1 + relu(raw))`` of an image."""
        return required(own, "own tokens of the texts") if modality == "text" else activate(required(raw))
