"""Loss terms against float64 numpy formulas written from the paper's equations."""

import numpy as np
import pytest
import torch

from pyterrier_grasp.methods import Batch, Encoded, load_method, losses
from pyterrier_grasp.methods.grasp import Grasp

B, C, D = 5, 7, 4
TAU = 0.07


@pytest.fixture
def numbers():
    rng = np.random.default_rng(0)
    dense = [rng.normal(size=(B, D)) for _ in range(2)]
    dense = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in dense]
    raw = [rng.normal(size=(B, C)) for _ in range(2)]
    labels = [(rng.random((B, C)) < 0.3).astype(float) for _ in range(2)]
    return dense, raw, labels


def log_softmax(x, axis):
    return x - np.log(np.exp(x).sum(axis, keepdims=True))


def info_nce(logits):
    return -(np.diag(log_softmax(logits, 1)).mean() + np.diag(log_softmax(logits, 0)).mean()) / 2


def cross_entropy(student, teacher):
    total = 0
    for axis in (1, 0):
        total += -(np.exp(log_softmax(teacher, axis)) * log_softmax(student, axis)).sum(axis).mean()
    return total / 2


def bce(raw, labels, pos_weight):
    p = 1 / (1 + np.exp(-raw))
    return -(pos_weight * labels * np.log(p) + (1 - labels) * np.log(1 - p))


def grasp_loss(dense, raw, labels, *, w=0.1, lam=0.5, pos_weight=10.0, cosine=True):
    """Equations 1 to 7, float64."""
    z = [np.log1p(np.maximum(x, 0)) for x in raw]
    unit = [x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12) for x in z] if cosine else z
    s_dense, s_sparse = dense[0] @ dense[1].T, unit[0] @ unit[1].T
    s_comb = s_dense + w * s_sparse
    base = info_nce(s_dense / TAU) + info_nce(s_comb / TAU)
    distill = cross_entropy(s_dense / TAU, s_comb / TAU) + cross_entropy(s_sparse, s_comb / TAU)
    ground = sum(bce(r, c, pos_weight).sum(1).mean() for r, c in zip(raw, labels, strict=True))
    return base + distill + lam * ground


def torch_loss(method, numbers, same_image=None):
    dense, raw, labels = ([torch.tensor(x) for x in part] for part in numbers)
    same_image = torch.zeros(B, B, dtype=torch.bool) if same_image is None else same_image
    text, image = Encoded(dense[0], raw[0], raw[0]), Encoded(dense[1], raw[1], raw[1])
    return method.loss(text, image, Batch(labels[0], labels[1], same_image), torch.tensor(TAU, dtype=torch.float64))


def test_grasp_is_the_sum_of_the_papers_equations(numbers):
    assert sum(torch_loss(Grasp(), numbers).values()).item() == pytest.approx(grasp_loss(*numbers), rel=1e-12)


@pytest.mark.parametrize(
    ("options", "reference"),
    [
        ({"w": 0.7, "grounding_weight": 2.0}, {"w": 0.7, "lam": 2.0}),
        ({"similarity": "dot"}, {"cosine": False}),
        ({"pos_weight": 1.0}, {"pos_weight": 1.0}),
    ],
)
def test_options_change_the_formula_as_named(numbers, options, reference):
    ours = sum(torch_loss(Grasp(**options), numbers).values()).item()
    assert ours == pytest.approx(grasp_loss(*numbers, **reference), rel=1e-12)
    assert ours != pytest.approx(grasp_loss(*numbers), rel=1e-6)


def test_mean_reduction_divides_by_the_number_of_concepts(numbers):
    by_sum, by_mean = (torch_loss(Grasp(reduction=r), numbers)["grounding"] for r in ("sum", "mean"))
    assert by_mean.item() == pytest.approx(by_sum.item() / C)


def test_prob_input_is_bce_on_one_minus_exp_minus_z(numbers):
    _, (raw, _), (labels, _) = numbers
    raw = np.abs(raw) + 0.01
    p = 1 - np.exp(-np.log1p(raw))
    expected = -(3 * labels * np.log(p) + (1 - labels) * np.log(1 - p)).sum(1).mean()
    ours = losses.grounding(torch.tensor(raw), torch.tensor(labels), torch.tensor(3.0), "sum", "prob")
    assert ours.item() == pytest.approx(expected, rel=1e-9)


def test_z_input_uses_the_activation_as_logit(numbers):
    _, (raw, _), (labels, _) = numbers
    z = np.log1p(np.maximum(raw, 0))
    ours = losses.grounding(torch.tensor(raw), torch.tensor(labels), None, "sum", "z")
    assert ours.item() == pytest.approx(bce(z, labels, 1.0).sum(1).mean(), rel=1e-12)


def test_terms_are_chosen_by_options(numbers):
    method = Grasp(contrastive=("dense", "sparse", "comb"), distill=(), l1_text=1e-3, l1_image=1e-3)
    names = set(torch_loss(method, numbers))
    assert names == {
        "contrastive_dense",
        "contrastive_sparse",
        "contrastive_comb",
        "grounding",
        "l1_text",
        "l1_image",
    }


def test_same_image_pairs_are_no_negatives_when_masked(numbers):
    same = torch.zeros(B, B, dtype=torch.bool)
    same[0, 1] = same[1, 0] = True
    ours = torch_loss(Grasp(mask_same_image=True, distill=(), grounding_weight=0.0), numbers, same)
    (t, i), _, _ = numbers
    logits = t @ i.T / TAU
    logits[0, 1] = logits[1, 0] = -1e9
    assert ours["contrastive_dense"].item() == pytest.approx(info_nce(logits), rel=1e-9)


def test_the_teacher_is_detached_by_default(numbers):
    def gradient(detach):
        dense = torch.tensor(numbers[0][0], requires_grad=True)
        raw = [torch.tensor(x) for x in numbers[1]]
        labels = [torch.tensor(x) for x in numbers[2]]
        batch = Batch(labels[0], labels[1], torch.zeros(B, B, dtype=torch.bool))
        image = Encoded(torch.tensor(numbers[0][1]), raw[1], raw[1])
        method = Grasp(detach_teacher=detach, contrastive=(), distill=("sparse",))
        terms = method.loss(Encoded(dense, raw[0], raw[0]), image, batch, torch.tensor(TAU))
        return torch.autograd.grad(terms["distill_sparse"], dense, allow_unused=True)[0]

    with pytest.raises(RuntimeError, match="does not require grad"):
        gradient(True)
    assert gradient(False).abs().max() > 0


def test_sparse_vectors_give_the_similarity_as_a_dot_product(numbers):
    raw = torch.tensor(numbers[1][0])
    z = np.log1p(np.maximum(numbers[1][0], 0))
    np.testing.assert_allclose(Grasp(similarity="dot").sparse_vectors(raw, "text"), z)
    np.testing.assert_allclose(Grasp().sparse_vectors(raw, "text"), z / np.linalg.norm(z, axis=1, keepdims=True))
    assert Grasp().sparse_vectors(torch.full((1, C), -1.0), "image").abs().sum() == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"similarity": "euclid"}, "similarity is 'euclid'"),
        ({"bce_input": "z"}, "nothing is learnt"),
        ({"pos_weight": 0}, "pos_weight is 0"),
        ({"lambda": 0.5}, "has no option 'lambda'"),
        ({"contrastive": ("both",)}, "contrastive is 'both'"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        load_method("grasp", options)


def test_unknown_method():
    with pytest.raises(ValueError, match="unknown method 'clip'; choose one of d2s, dense, grasp"):
        load_method("clip")


def test_dense_has_no_sparse_branch():
    with pytest.raises(ValueError, match="no sparse branch"):
        load_method("dense").sparse_vectors(torch.zeros(1, 1), "text")
