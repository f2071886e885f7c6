"""D2S: frozen dense vectors turned into sparse ones (Nguyen, Hendriksen et al., 2024)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from pyterrier_grasp.backbones import Backbone
from pyterrier_grasp.methods import losses
from pyterrier_grasp.methods.base import Batch, Method, Space, check_choice, check_not_negative, check_share, required
from pyterrier_grasp.methods.concept_head import activate
from pyterrier_grasp.methods.dual_encoder import DualEncoder, Encoded
from pyterrier_grasp.methods.token_head import TokenHead, initial_embeddings, linear


@dataclass(frozen=True)
class D2S(Method):
    """Dense to sparse with probabilistic expansion control, as the official code does it.

    ``z = log(1 + relu(E LayerNorm(P d) + b))`` of the normalised dense vector ``d``, whose projections stay frozen. The
    sparse dot products, without temperature, learn from the softmax of ``cos / temperature``, in both directions.
    Early batches leave a caption only its own tokens: the chance of that falls linearly from 1 to 0, one draw a batch.

    The official head starts from DistilBERT's masked-language-model head; here ``E`` starts from the text tower's own
    word embeddings, the layer norm fresh and ``b`` at 0. The chance falls by the step here, by the epoch there.

    Attributes:
        temperature: Of the teacher; it is not learnt.
        l1_text: Weight of the L1 norm of text vectors.
        l1_image: Weight of the L1 norm of image vectors.
        l1_warmup: Share of the steps in which the L1 weights rise quadratically.
        mask_until: Share of the steps after which no caption is masked any more.
        unmasked_text_source: What an unmasked batch takes for the text's sparse vectors: ``image``, those of its image,
            as the official code does, so that unmasked text is never trained; or ``text``, its own, as the paper says.
        seed: Of the draws.
    """

    name: ClassVar[str] = "d2s"
    space_kind: ClassVar[str | None] = "any"
    needs_labels: ClassVar[bool] = True
    learning_rate: ClassVar[float] = 5e-5
    head_learning_rate: ClassVar[float] = 1e-3
    select_by: ClassVar[str] = "S"

    temperature: float = 1e-3
    l1_text: float = 1e-3
    l1_image: float = 1e-3
    l1_warmup: float = 0.2
    mask_until: float = 0.95
    unmasked_text_source: str = "image"
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("d2s", "unmasked_text_source", self.unmasked_text_source, ("image", "text"))
        check_not_negative("d2s", l1_text=self.l1_text, l1_image=self.l1_image)
        check_share("d2s", l1_warmup=self.l1_warmup, mask_until=self.mask_until)
        if self.temperature <= 0:
            raise ValueError(f"d2s: temperature is {self.temperature}; it must be above 0")

    def build(self, backbone: Backbone, space: Space | None, seed: int) -> DualEncoder:
        """Frozen projections of the backbone and one head on the pooled vectors."""
        if space is None:
            raise ValueError("method 'd2s' needs a token or concept space")
        embeddings = initial_embeddings(backbone, space)
        generator = torch.Generator().manual_seed(seed)
        width = embeddings.shape[1]
        transform = nn.Sequential(linear(backbone.embed_dim, width, generator), nn.LayerNorm(width, eps=1e-12))
        head = TokenHead(transform, embeddings, torch.zeros(len(embeddings)))
        encoder = DualEncoder(backbone, {"shared": head}, token_source="pooled")
        encoder.projections.requires_grad_(False)
        encoder.temperature.requires_grad_(False)
        return encoder

    def head_parameters(self, encoder: DualEncoder) -> list[nn.Parameter]:
        """The new linear layer ``P``; ``E`` and the layer norm take ``learning_rate``, as in the official code."""
        head = encoder.heads["shared"]
        return list(head.transform[0].parameters())  # type: ignore[index, union-attr]

    def mask_chance(self, progress: float) -> float:
        """Chance that a batch is masked, when ``progress`` of the training is done; in [0, 1]."""
        return max(0.0, 1.0 - progress / self.mask_until) if self.mask_until else 0.0

    def masks(self, step: int, progress: float) -> bool:
        """Whether the captions of a step are masked: the same in every process and after a resume."""
        generator = torch.Generator().manual_seed(1_000_003 * self.seed + step)
        return float(torch.rand((), generator=generator)) < self.mask_chance(progress)

    def loss(self, text: Encoded, image: Encoded, batch: Batch, tau: Tensor) -> dict[str, Tensor]:
        """Distillation and L1 norms."""
        z_i = activate(required(image.raw))
        if self.masks(batch.step, batch.progress):
            z_t = activate(required(text.raw)) * required(batch.text_labels, "own tokens of the texts")
        else:
            z_t = z_i if self.unmasked_text_source == "image" else activate(required(text.raw))
        teacher = (text.dense @ image.dense.T / self.temperature).detach()
        rise = losses.quadratic_warmup(batch.progress, self.l1_warmup)
        return {
            "distill_sparse": losses.distillation(z_t @ z_i.T, teacher),
            "l1_text": rise * self.l1_text * losses.l1(z_t) / 2,
            "l1_image": rise * self.l1_image * losses.l1(z_i) / 2,
        }

    def sparse_vectors(self, raw: Tensor | None, modality: str, own: Tensor | None = None) -> Tensor:
        """``log(1 + relu(raw))``, the text fully expanded."""
        return activate(required(raw))
