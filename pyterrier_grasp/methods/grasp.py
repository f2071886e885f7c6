"""GRASP: a sparse branch over mined concepts, grounded by concept prediction (the paper's section 3)."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from pyterrier_grasp.backbones import Backbone
from pyterrier_grasp.concepts import ConceptSpace
from pyterrier_grasp.methods import losses
from pyterrier_grasp.methods.base import Batch, Method, Space, check_choice, check_not_negative, required
from pyterrier_grasp.methods.concept_head import ConceptHead, activate, concept_bias
from pyterrier_grasp.methods.dual_encoder import DualEncoder, Encoded


@dataclass(frozen=True)
class Grasp(Method):
    """Equations 1 to 7 with the readings the paper leaves open as options; the README says which are ours.

    Attributes:
        w: Weight of the sparse score in ``s_comb = s_dense + w * s_sparse``; the paper's 0.1.
        grounding_weight: The paper's lambda, 0.5.
        similarity: Sparse similarity: ``cosine`` or ``dot`` of ``z``, or one of two that are ours and not the paper's,
            with ``p = sigmoid(raw)`` the head's probability of a concept. ``evidence``: a text has weight ``p`` where
            it is above ``evidence_threshold``, an image ``max(0, log(p / evidence_eps))``; the head believes more than
            ``z``, which is 0 below p = 0.5, can say. ``blend``: the text's vector is the cosine's, the image's is the
            evidence and ``blend`` times the cosine's. The training losses use the cosine then: these are ways to score.
        evidence_eps: Probability of a concept that an image gets no weight for.
        evidence_threshold: Smallest probability that gives a text a concept.
        blend: Weight of the cosine's image vector beside the evidence.
        contrastive: Scores with a contrastive loss; the paper drops the sparse one.
        distill: Scores taught by the combined score.
        detach_teacher: Stop the gradient at the teacher.
        sparse_temperature: Temperature of the sparse score where it is a student or contrasted.
        bce_input: What enters BCE: ``logit`` (raw score), ``z`` (activation) or ``prob`` (1 - exp(-z)).
        reduction: BCE ``sum`` or ``mean`` over concepts.
        pos_weight: Weight of BCE's positive term.
        bias_init: ``neg_idf``, ``idf``, ``prior_logit`` or ``zeros``.
        df_source: Frequencies behind the bias: ``images``, ``texts`` or ``both``.
        token_source: The head reads ``projected`` states (one shared head) or ``hidden`` ones (a head a modality).
        normalise_tokens: L2-normalise each position before the head.
        exclude_special: Leave CLS, SEP and the like out of the maximum.
        detach_grounding: Keep the grounding loss away from the projections.
        l1_text: Weight of the L1 norm of text activations.
        l1_image: Weight of the L1 norm of image activations.
        mask_same_image: Do not count another caption of the same image as a negative.
        train_projections: False freezes the projections and the temperature, so that only the head learns.
    """

    name: ClassVar[str] = "grasp"
    space_kind: ClassVar[str | None] = "concepts"
    needs_labels: ClassVar[bool] = True
    encoding_options: ClassVar[tuple[str, ...]] = (
        "similarity",
        "evidence_eps",
        "evidence_threshold",
        "blend",
        "token_source",
        "normalise_tokens",
        "exclude_special",
    )

    w: float = 0.1
    grounding_weight: float = 0.5
    similarity: str = "cosine"
    evidence_eps: float = 0.03
    evidence_threshold: float = 0.5
    blend: float = 10.0
    contrastive: tuple[str, ...] = ("dense", "comb")
    distill: tuple[str, ...] = ("dense", "sparse")
    detach_teacher: bool = True
    sparse_temperature: float = 1.0
    bce_input: str = "logit"
    reduction: str = "sum"
    pos_weight: float = 10.0
    bias_init: str = "neg_idf"
    df_source: str = "images"
    token_source: str = "projected"
    normalise_tokens: bool = False
    exclude_special: bool = False
    detach_grounding: bool = False
    l1_text: float = 0.0
    l1_image: float = 0.0
    mask_same_image: bool = False
    train_projections: bool = True

    def __post_init__(self) -> None:
        check_choice("grasp", "similarity", self.similarity, ("cosine", "dot", "evidence", "blend"))
        check_choice("grasp", "bce_input", self.bce_input, ("logit", "z", "prob"))
        check_choice("grasp", "reduction", self.reduction, ("sum", "mean"))
        check_choice("grasp", "bias_init", self.bias_init, ("neg_idf", "idf", "prior_logit", "zeros"))
        check_choice("grasp", "df_source", self.df_source, ("images", "texts", "both"))
        check_choice("grasp", "token_source", self.token_source, ("projected", "hidden"))
        for option, known in (("contrastive", ("dense", "sparse", "comb")), ("distill", ("dense", "sparse"))):
            for score in getattr(self, option):
                check_choice("grasp", option, score, known)
        for option in ("pos_weight", "sparse_temperature"):
            if getattr(self, option) <= 0:
                raise ValueError(f"grasp: {option} is {getattr(self, option)}; it must be above 0")
        for option in ("evidence_eps", "evidence_threshold"):
            if not 0 < getattr(self, option) < 1:
                raise ValueError(f"grasp: {option} is {getattr(self, option)}; it must be between 0 and 1")
        check_not_negative("grasp", blend=self.blend)
        if self.bce_input != "logit" and self.similarity in ("evidence", "blend"):
            raise ValueError(
                f"grasp: similarity={self.similarity!r} reads the head's raw score as a logit, and "
                f"bce_input={self.bce_input!r} trains another one; use bce_input='logit'"
            )
        if self.bce_input != "logit" and self.bias_init in ("neg_idf", "prior_logit"):
            raise ValueError(
                f"grasp: bce_input={self.bce_input!r} with bias_init={self.bias_init!r} starts every concept at zero, "
                "where its gradient is zero, so that nothing is learnt; use bias_init='zeros' or 'idf'"
            )

    def official_w(self, tau: float) -> float:
        """The paper's fixed weight, the option ``w``."""
        return self.w

    def build(self, backbone: Backbone, space: Space | None, seed: int) -> DualEncoder:
        """Projections of the backbone and a new concept head, ``g_C``."""
        if not isinstance(space, ConceptSpace):
            raise ValueError(f"method 'grasp' needs a concept space, got {space!r}")
        counts = {
            "images": (torch.from_numpy(space.df), space.n_images),
            "texts": (torch.from_numpy(space.text_df), space.n_texts),
            "both": (torch.from_numpy(space.df + space.text_df), space.n_images + space.n_texts),
        }
        bias = concept_bias(*counts[self.df_source], self.bias_init)
        generator = torch.Generator().manual_seed(seed)
        if self.token_source == "projected":
            heads = {"shared": ConceptHead(backbone.embed_dim, bias, generator)}
        else:
            heads = {
                "text": ConceptHead(backbone.text_dim, bias, generator),
                "image": ConceptHead(backbone.image_dim, bias, generator),
            }
        encoder = DualEncoder(
            backbone,
            heads,
            token_source=self.token_source,
            normalise_tokens=self.normalise_tokens,
            exclude_special=self.exclude_special,
            detach_grounding=self.detach_grounding,
        )
        encoder.projections.requires_grad_(self.train_projections)
        encoder.temperature.requires_grad_(self.train_projections)
        return encoder

    def loss(self, text: Encoded, image: Encoded, batch: Batch, tau: Tensor) -> dict[str, Tensor]:
        """``L_GRASP = L_base + lambda * L_concept-ground`` (Eq. 7)."""
        z_t, z_i = activate(required(text.raw)), activate(required(image.raw))
        s_dense = text.dense @ image.dense.T
        s_sparse = self._similarity(z_t) @ self._similarity(z_i).T
        s_comb = s_dense + self.w * s_sparse  # Eq. 1, section 3.2
        logits = {"dense": s_dense / tau, "sparse": s_sparse / self.sparse_temperature, "comb": s_comb / tau}
        teacher = logits["comb"].detach() if self.detach_teacher else logits["comb"]
        excluded = batch.same_image if self.mask_same_image else None

        terms = {f"contrastive_{s}": losses.contrastive(logits[s], excluded) for s in self.contrastive}  # Eq. 2
        terms |= {f"distill_{s}": losses.distillation(logits[s], teacher, excluded) for s in self.distill}  # Eq. 2
        terms["grounding"] = self.grounding_weight * self._grounding(text, image, batch)  # Eq. 6
        if self.l1_text:
            terms["l1_text"] = self.l1_text * losses.l1(z_t)
        if self.l1_image:
            terms["l1_image"] = self.l1_image * losses.l1(z_i)
        return terms  # Eq. 7 is their sum

    def sparse_vectors(self, raw: Tensor | None, modality: str, own: Tensor | None = None) -> Tensor:
        """``z`` of Eq. 5, L2-normalised for ``similarity="cosine"``, or the evidence; a zero vector stays zero."""
        raw = required(raw)
        if self.similarity in ("cosine", "dot") or (self.similarity == "blend" and modality == "text"):
            return self._similarity(activate(raw))
        if modality == "text":
            p = raw.sigmoid()
            return torch.where(p > self.evidence_threshold, p, 0.0)
        evidence = (F.logsigmoid(raw) - math.log(self.evidence_eps)).clamp_min(0.0)
        return evidence + self.blend * self._similarity(activate(raw)) if self.similarity == "blend" else evidence

    def _similarity(self, z: Tensor) -> Tensor:
        return z if self.similarity == "dot" else F.normalize(z, dim=1)

    def _grounding(self, text: Encoded, image: Encoded, batch: Batch) -> Tensor:
        if batch.text_labels is None or batch.image_labels is None:
            raise ValueError("grasp: the batch has no concept labels")
        total = batch.text_labels.new_zeros(())
        for encoded, labels in ((text, batch.text_labels), (image, batch.image_labels)):
            raw = required(encoded.raw) if encoded.grounding_raw is None else encoded.grounding_raw
            pos_weight = labels.new_tensor(self.pos_weight)
            total = total + losses.grounding(raw, labels, pos_weight, self.reduction, self.bce_input)
        return total
