"""STAIR: images and texts in a token space, grounded in three stages (Chen et al., 2023)."""

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
class Stair(Method):
    """STAIR's heads and stages over a frozen backbone; there is no official code.

    ``z = log(1 + relu(max_m E T(h_m) + b))`` with a masked-language-model head for each modality on the hidden states.
    Objective: InfoNCE of the dot products in both directions and FLOPs regularisation. Stages, by shares of the steps:

    1. a caption's vector is masked to its own tokens, so that the image learns what they mean;
    2. the image is frozen and the mask gone, so that the text learns to expand;
    3. both learn.

    Readings that are ours: the stages take a third each; the vectors' free scale stands for the learnable temperature;
    special tokens take no part in the maximum; the dense branch, which STAIR has not, is tuned beside with its own
    InfoNCE.

    Attributes:
        flops_text: Weight of the FLOPs regulariser of texts.
        flops_image: The same of images.
        flops_warmup: Share of the steps in which these weights rise quadratically.
        grounding_until: Share of the training at which stage 1 ends.
        frozen_until: Share of the training at which stage 2 ends.
    """

    name: ClassVar[str] = "stair"
    space_kind: ClassVar[str | None] = "tokens"
    needs_labels: ClassVar[bool] = True
    head_learning_rate: ClassVar[float] = 1e-3
    select_by: ClassVar[str] = "S"
    uses_all_parameters: ClassVar[bool] = False

    flops_text: float = 1e-3
    flops_image: float = 1e-3
    flops_warmup: float = 0.2
    grounding_until: float = 1 / 3
    frozen_until: float = 2 / 3

    def __post_init__(self) -> None:
        check_not_negative("stair", flops_text=self.flops_text, flops_image=self.flops_image)
        check_share("stair", flops_warmup=self.flops_warmup)
        check_share("stair", grounding_until=self.grounding_until, frozen_until=self.frozen_until)
        if self.frozen_until < self.grounding_until:
            raise ValueError(
                f"stair: frozen_until is {self.frozen_until}, before grounding_until, {self.grounding_until}; stage 2 "
                "follows stage 1"
            )

    def build(self, backbone: Backbone, space: Space | None, seed: int) -> DualEncoder:
        """Projections of the backbone and a head a modality on the hidden states."""
        heads = two_mlm_heads(backbone, self.name, space, seed)
        return DualEncoder(backbone, heads, token_source="hidden", exclude_special=True)

    def stage(self, progress: float) -> int:
        """1, 2 or 3, when ``progress`` of the training is done."""
        return 1 if progress < self.grounding_until else 2 if progress < self.frozen_until else 3

    def loss(self, text: Encoded, image: Encoded, batch: Batch, tau: Tensor) -> dict[str, Tensor]:
        """The stage's objective."""
        stage = self.stage(batch.progress)
        z_t, z_i = activate(required(text.raw)), activate(required(image.raw))
        if stage == 1:
            z_t = z_t * required(batch.text_labels, "own tokens of the texts")
        elif stage == 2:
            z_i = z_i.detach()
        rise = losses.quadratic_warmup(batch.progress, self.flops_warmup)
        return {
            "contrastive_dense": losses.contrastive(text.dense @ image.dense.T / tau),
            "contrastive_sparse": losses.contrastive(z_t @ z_i.T),
            "flops_text": rise * self.flops_text * losses.flops(z_t),
            "flops_image": rise * self.flops_image * losses.flops(z_i),
        }

    def sparse_vectors(self, raw: Tensor | None, modality: str, own: Tensor | None = None) -> Tensor:
        """``log(1 + relu(raw))``, the text expanded."""
        return activate(required(raw))
