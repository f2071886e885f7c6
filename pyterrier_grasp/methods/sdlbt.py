"""SDLBT: dense and sparse scores learn from their weighted sum (Song et al., 2025)."""

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
class Sdlbt(Method):
    """Joint sparse-dense optimisation on the pooled vectors, as the official code does it.

    ``z = log(1 + relu(E LayerNorm(P d)))`` of the normalised dense vector ``d``, one head for both modalities, ``E``
    initialised with the text tower's word embeddings (in a concept space with the mean over a concept's tokens: Table 2
    of the GRASP paper without grounding). The scores are ``s_d = cos / tau``, ``s_s = z_t . z_i`` and
    ``s_inter = w1 s_d + w2 s_s``; with InfoNCE ``CE`` and distillation ``KD`` from ``s_inter``, over both directions:
    ``(CE(s_inter) + lambda_dense (CE(s_d) + KD(s_d)) + lambda_sparse (CE(s_s) + KD(s_s))) / 4`` and half of the
    weighted L1 norms.

    Defaults are the official configuration for ALBEF on Flickr30k. The code differs from its paper in the teacher and
    in the fusion; options choose. Unlike there, the temperature has no weight decay here.

    Attributes:
        w1: Weight of the dense score in the sum.
        w2: Weight of the sparse score in the sum.
        lambda_dense: Weight of the dense score's terms.
        lambda_sparse: Weight of the sparse score's terms.
        l1_text: Weight of the L1 norm of text vectors.
        l1_image: Weight of the L1 norm of image vectors.
        l1_warmup: Share of the steps in which the L1 weights rise quadratically.
        teacher: ``official``: rows of the text -> image scores learn from the distributions of the image -> text
            direction; ``paper``: each direction from its own.
        detach_teacher: Stop the gradient at the teacher, as the paper's formula suggests; the code does not (False).
        fusion_scale: The weight of published fusion: ``official`` adds ``w1`` times the plain cosine, which leaves
            D+S = S; ``temperature`` divides the cosine by the learnt temperature, as the training does.
    """

    name: ClassVar[str] = "sdlbt"
    space_kind: ClassVar[str | None] = "any"
    learning_rate: ClassVar[float] = 1e-5
    head_learning_rate: ClassVar[float] = 1e-5
    select_by: ClassVar[str] = "S"

    w1: float = 0.1
    w2: float = 0.2
    lambda_dense: float = 0.3
    lambda_sparse: float = 0.3
    l1_text: float = 1e-4
    l1_image: float = 2e-5
    l1_warmup: float = 0.2
    teacher: str = "official"
    detach_teacher: bool = False
    fusion_scale: str = "official"

    def __post_init__(self) -> None:
        check_choice("sdlbt", "teacher", self.teacher, ("official", "paper"))
        check_choice("sdlbt", "fusion_scale", self.fusion_scale, ("official", "temperature"))
        check_not_negative("sdlbt", lambda_dense=self.lambda_dense, lambda_sparse=self.lambda_sparse)
        check_not_negative("sdlbt", l1_text=self.l1_text, l1_image=self.l1_image)
        check_share("sdlbt", l1_warmup=self.l1_warmup)
        for option in ("w1", "w2"):
            if getattr(self, option) <= 0:
                raise ValueError(f"sdlbt: {option} is {getattr(self, option)}; it must be above 0")

    def official_w(self, tau: float) -> float:
        """``w2 / w1``, or ``w2 tau / w1`` with ``fusion_scale="temperature"``: the same ranking with a plain cosine."""
        return self.w2 / self.w1 * (tau if self.fusion_scale == "temperature" else 1.0)

    def build(self, backbone: Backbone, space: Space | None, seed: int) -> DualEncoder:
        """Projections of the backbone and one head on the pooled vectors."""
        if space is None:
            raise ValueError("method 'sdlbt' needs a token or concept space")
        embeddings = initial_embeddings(backbone, space)
        generator = torch.Generator().manual_seed(seed)
        width = embeddings.shape[1]
        transform = nn.Sequential(linear(backbone.embed_dim, width, generator), nn.LayerNorm(width, eps=1e-5))
        return DualEncoder(backbone, {"shared": TokenHead(transform, embeddings)}, token_source="pooled")

    def loss(self, text: Encoded, image: Encoded, batch: Batch, tau: Tensor) -> dict[str, Tensor]:
        """The objective above, term by term."""
        z_t, z_i = activate(required(text.raw)), activate(required(image.raw))
        scores = {"dense": text.dense @ image.dense.T / tau, "sparse": z_t @ z_i.T}
        comb = self.w1 * scores["dense"] + self.w2 * scores["sparse"]
        weights = {"dense": self.lambda_dense, "sparse": self.lambda_sparse}

        terms = {"contrastive_comb": losses.contrastive(comb) / 4}
        for name, s in scores.items():
            terms[f"contrastive_{name}"] = weights[name] * losses.contrastive(s) / 4
            terms[f"distill_{name}"] = weights[name] * self._distillation(s, comb) / 4
        rise = losses.quadratic_warmup(batch.progress, self.l1_warmup)
        terms["l1_text"] = rise * self.l1_text * losses.l1(z_t) / 2
        terms["l1_image"] = rise * self.l1_image * losses.l1(z_i) / 2
        return terms

    def sparse_vectors(self, raw: Tensor | None, modality: str, own: Tensor | None = None) -> Tensor:
        """``log(1 + relu(raw))``."""
        return activate(required(raw))

    def _distillation(self, student: Tensor, comb: Tensor) -> Tensor:
        teacher = comb.detach() if self.detach_teacher else comb
        if self.teacher == "paper":
            return losses.distillation(student, teacher)
        images = teacher.T.softmax(1)  # a row an image, over texts; taken for both directions
        return (losses.soft_cross_entropy(student, images) + losses.soft_cross_entropy(student.T, images)) / 2
