"""Dense: projections and temperature tuned with the contrastive loss; the baseline row of Table 1."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from pyterrier_grasp.backbones import Backbone
from pyterrier_grasp.methods import losses
from pyterrier_grasp.methods.base import Batch, Method, Space
from pyterrier_grasp.methods.dual_encoder import DualEncoder, Encoded


@dataclass(frozen=True)
class Dense(Method):
    """Dense retrieval, ``s_dense(t, i) = cos(h_t, h_i)`` (section 2.2).

    Attributes:
        mask_same_image: Do not count another caption of the same image as a negative.
    """

    name: ClassVar[str] = "dense"
    space_kind: ClassVar[str | None] = None
    select_by: ClassVar[str] = "D"

    mask_same_image: bool = False

    def build(self, backbone: Backbone, space: Space | None, seed: int) -> DualEncoder:
        """Projections and temperature of the backbone; ``space`` and ``seed`` are not used."""
        return DualEncoder(backbone)

    def loss(self, text: Encoded, image: Encoded, batch: Batch, tau: Tensor) -> dict[str, Tensor]:
        """``L_CL`` on the dense score (Eq. 2)."""
        excluded = batch.same_image if self.mask_same_image else None
        return {"contrastive_dense": losses.contrastive(text.dense @ image.dense.T / tau, excluded)}

    def sparse_vectors(self, raw: Tensor | None, modality: str, own: Tensor | None = None) -> Tensor:
        """Always an error: there is no sparse branch."""
        raise ValueError("method 'dense' has no sparse branch; train with method='grasp' for concepts")
