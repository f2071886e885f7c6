"""The terms of the training objective, each as the paper writes it. Directions (t2i, i2t) are averaged."""

import torch
import torch.nn.functional as F
from torch import Tensor

from pyterrier_grasp.methods.concept_head import activate


def contrastive(logits: Tensor, excluded: Tensor | None = None) -> Tensor:
    """``L_CL`` of Eq. 2: InfoNCE over in-batch candidates, mean over the batch and both directions.

    Args:
        logits: Float ``[B, B]``, texts by images, positives on the diagonal, temperature applied.
        excluded: Bool ``[B, B]``, True where a pair is no negative; None for none.
    """
    logits = _exclude(logits, excluded)
    target = torch.arange(len(logits), device=logits.device)
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2


def distillation(student: Tensor, teacher: Tensor, excluded: Tensor | None = None) -> Tensor:
    """``L_distill`` of Eq. 2: ``-sum p(teacher) log p(student)``, mean over the batch and both directions.

    Args:
        student: Float ``[B, B]`` logits, texts by images.
        teacher: Float ``[B, B]`` logits; detach it to stop its gradient.
        excluded: Bool ``[B, B]``, True where a pair is no candidate; None for none.
    """
    # cross_entropy with probabilities multiplies log p(student) by p(teacher) = 0 where a pair is excluded:
    # a large finite negative instead of -inf keeps 0 * -inf out.
    student, teacher = (_exclude(scores, excluded) for scores in (student, teacher))
    t2i = soft_cross_entropy(student, teacher.softmax(1))
    i2t = soft_cross_entropy(student.T, teacher.T.softmax(1))
    return (t2i + i2t) / 2


def soft_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """``-sum_j target_ij log softmax(logits)_ij``, mean over rows; both float ``[B, B]``."""
    return F.cross_entropy(logits, target)


def _exclude(logits: Tensor, excluded: Tensor | None) -> Tensor:
    return logits if excluded is None else logits.masked_fill(excluded, -1e9)


def grounding(raw: Tensor, labels: Tensor, pos_weight: Tensor | None, reduction: str, bce_input: str) -> Tensor:
    """``L_BCE(z, c)`` of Eq. 6 for one modality.

    Args:
        raw: Max-pooled scores before the activation, float ``[B, |C|]``.
        labels: ``{0, 1}`` float ``[B, |C|]``.
        pos_weight: Weight of the positive term, scalar or ``[|C|]``; None for 1.
        reduction: ``sum`` over concepts or ``mean`` over concepts; always mean over the batch.
        bce_input: What the paper's ``z`` means inside BCE. ``logit``: ``raw`` is the logit (z > 0 iff p > 0.5);
            ``z``: ``log(1 + relu(raw))`` is the logit; ``prob``: ``1 - exp(-z)`` is the probability.
    """
    if bce_input == "prob":
        # -log(1 - p) = z exactly, and log p = log(1 - exp(-z)).
        activated = activate(raw)
        weight = 1.0 if pos_weight is None else pos_weight
        log_p = torch.log(-torch.expm1(-activated.clamp_min(1e-6)))
        loss = -weight * labels * log_p + (1 - labels) * activated
    else:
        logit = raw if bce_input == "logit" else activate(raw)
        loss = F.binary_cross_entropy_with_logits(logit, labels, pos_weight=pos_weight, reduction="none")
    per_input = loss.sum(1) if reduction == "sum" else loss.mean(1)
    return per_input.mean()


def l1(z: Tensor) -> Tensor:
    """Mean over the batch of ``sum_j |z_j|``, the regulariser the paper omits "for simplicity"; z is ``[B, |C|]``."""
    return z.abs().sum(1).mean()


def flops(z: Tensor) -> Tensor:
    """``sum_j (mean_i z_ij)^2`` over the batch, the FLOPs regulariser of SPLADE (Paria et al., 2020).

    z is ``[B, |V|]``. It depends on the batch: half as many inputs a batch give larger values.
    """
    return z.mean(0).square().sum()


def quadratic_warmup(progress: float, share: float) -> float:
    """``min(1, progress / share)^2``, how SPLADE and its followers raise the weight of a regulariser.

    Args:
        progress: Share of the training done, in [0, 1).
        share: Share of the training that the rise takes; 0 for none.
    """
    return 1.0 if progress >= share else (progress / share) ** 2
