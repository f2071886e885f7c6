"""LexLIP, its fine-tuning stage: lexicon weights of both modalities, contrasted (Luo et al., 2023)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from pyterrier_grasp.backbones import Backbone
from pyterrier_grasp.methods import losses
from pyterrier_grasp.methods.base import Batch, Method, Space, check_not_negative, check_share, required
from pyterrier_grasp.methods.concept_head import activate
from pyterrier_grasp.methods.dual_encoder import DualEncoder, Encoded
from pyterrier_grasp.methods.token_head import two_mlm_heads


@dataclass(frozen=True)
class LexLip(Method):
    """Contrastive fine-tuning of lexicon weights, without the pretraining that gave LexLIP its name.

    ``z = log(1 + relu(max_m E T(h_m) + b))`` with a masked-language-model head for each modality; in-batch InfoNCE of
    the dot products in both directions and FLOPs regularisation. The pretraining (masked language models behind a
    lexicon bottleneck, momentum contrast) took days on eight GPUs and is not here: the heads start from the word
    embeddings.

    Readings that are ours: the FLOPs weights and their quadratic rise are SPLADE's; special tokens take no part in the
    maximum; the dense branch, which LexLIP has not, is tuned beside with its own InfoNCE.

    Attributes:
        flops_text: Weight of the FLOPs regulariser of texts.
        flops_image: The same of images.
        flops_warmup: Share of the steps in which these weights rise quadratically.
    """

    name: ClassVar[str] = "lexlip"
    space_kind: ClassVar[str | None] = "tokens"
    head_learning_rate: ClassVar[float] = 1e-3
    select_by: ClassVar[str] = "S"

    flops_text: float = 1e-3
    flops_image: float = 1e-3
    flops_warmup: float = 0.2

    def __post_init__(self) -> None:
        check_not_negative("lexlip", flops_text=self.flops_text, flops_image=self.flops_image)
        check_share("lexlip", flops_warmup=self.flops_warmup)

    def build(self, backbone: Backbone, space: Space | None, seed: int) -> DualEncoder:
        """Projections of the backbone and a head a modality on the hidden states."""
        heads = two_mlm_heads(backbone, self.name, space, seed)
        return DualEncoder(backbone, heads, token_source="hidden", exclude_special=True)

    def loss(self, text: Encoded, image: Encoded, batch: Batch, tau: Tensor) -> dict[str, Tensor]:
        """Both contrastive losses and the regularisers."""
        z_t, z_i = activate(required(text.raw)), activate(required(image.raw))
        rise = losses.quadratic_warmup(batch.progress, self.flops_warmup)
        return {
            "contrastive_dense": losses.contrastive(text.dense @ image.dense.T / tau),
            "contrastive_sparse": losses.contrastive(z_t @ z_i.T),
            "flops_text": rise * self.flops_text * losses.flops(z_t),
            "flops_image": rise * self.flops_image * losses.flops(z_i),
        }

    def sparse_vectors(self, raw: Tensor | None, modality: str, own: Tensor | None = None) -> Tensor:
        """``log(1 + relu(raw))``."""
        return activate(required(raw))
