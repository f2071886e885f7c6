"""Losses of the baselines against float64 numpy formulas written from their specifications."""

import numpy as np
import pytest
import torch

from pyterrier_grasp.methods import Batch, Encoded, load_method

B, V, D = 6, 9, 4
TAU = 0.07


@pytest.fixture
def numbers():
    rng = np.random.default_rng(1)
    dense = [rng.normal(size=(B, D)) for _ in range(2)]
    dense = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in dense]
    raw = [rng.normal(size=(B, V)) for _ in range(2)]
    own = (rng.random((B, V)) < 0.4).astype(float)
    return dense, raw, own


def z(raw):
    return np.log1p(np.maximum(raw, 0))


def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def rows_cross_entropy(logits, target):
    return -(target * np.log(softmax(logits))).sum(1).mean()


def info_nce(logits):
    eye = np.eye(len(logits))
    return (rows_cross_entropy(logits, eye) + rows_cross_entropy(logits.T, eye)) / 2


def kd(student, teacher):
    return (rows_cross_entropy(student, softmax(teacher)) + rows_cross_entropy(student.T, softmax(teacher.T))) / 2


def l1(x):
    return np.abs(x).sum(1).mean()


def flops(x):
    return (x.mean(0) ** 2).sum()


def terms(method, numbers, *, step=0, progress=0.5, grad=()):
    dense, raw, own = numbers
    tensors = {"t": raw[0], "i": raw[1], "dt": dense[0], "di": dense[1]}
    tensors = {name: torch.tensor(x, requires_grad=name in grad) for name, x in tensors.items()}
    batch = Batch(torch.tensor(own), None, torch.zeros(B, B, dtype=torch.bool), step, progress)
    text = Encoded(tensors["dt"], None if method.name == "visualsparta" else tensors["t"])
    loss = method.loss(text, Encoded(tensors["di"], tensors["i"]), batch, torch.tensor(TAU, dtype=torch.float64))
    return {name: value.item() for name, value in loss.items()}, sum(loss.values()), tensors


def scores(numbers):
    dense, raw, _ = numbers
    return dense[0] @ dense[1].T, z(raw[0]) @ z(raw[1]).T


# -- SDLBT ---------------------------------------------------------------------------------------------------------


def sdlbt_loss(numbers, teacher="official", w1=0.1, w2=0.2, lam1=0.3, lam2=0.3, rise=1.0):
    """The official objective: (L + L') / 2 and half of the weighted L1 norms."""
    cos, dot = scores(numbers)
    s_d = cos / TAU
    inter = w1 * s_d + w2 * dot

    def distilled(s):
        if teacher == "paper":
            return kd(s, inter)
        images_over_texts = softmax(inter.T)
        return (rows_cross_entropy(s.T, images_over_texts) + rows_cross_entropy(s, images_over_texts)) / 2

    contrast = (lam1 * info_nce(s_d) + lam2 * info_nce(dot) + info_nce(inter)) / 2
    distil = (lam1 * distilled(s_d) + lam2 * distilled(dot)) / 2
    sparsity = rise * (1e-4 * l1(z(numbers[1][0])) + 2e-5 * l1(z(numbers[1][1]))) / 2
    return (contrast + distil) / 2 + sparsity


def test_sdlbt_official(numbers):
    _, total, _ = terms(load_method("sdlbt"), numbers)
    assert total.item() == pytest.approx(sdlbt_loss(numbers), rel=1e-12)


def test_sdlbt_paper(numbers):
    _, total, _ = terms(load_method("sdlbt", {"teacher": "paper"}), numbers)
    assert total.item() == pytest.approx(sdlbt_loss(numbers, "paper"), rel=1e-12)
    assert total.item() != pytest.approx(sdlbt_loss(numbers), rel=1e-6)


def test_sdlbt_weights_and_the_quadratic_rise_of_l1(numbers):
    method = load_method("sdlbt", {"w1": 0.5, "w2": 0.7, "lambda_dense": 0.9, "lambda_sparse": 0.2})
    _, total, _ = terms(method, numbers, progress=0.1)
    expected = sdlbt_loss(numbers, w1=0.5, w2=0.7, lam1=0.9, lam2=0.2, rise=(0.1 / 0.2) ** 2)
    assert total.item() == pytest.approx(expected, rel=1e-12)


def test_sdlbts_teacher_passes_the_gradient_unless_detached(numbers):
    gradients = []
    for detach in (False, True):
        method = load_method("sdlbt", {"detach_teacher": detach, "lambda_sparse": 0.0})
        loss, _, tensors = terms(method, numbers, grad=("t",))
        del loss
        text = Encoded(torch.tensor(numbers[0][0]), tensors["t"])
        image = Encoded(torch.tensor(numbers[0][1]), tensors["i"])
        batch = Batch(None, None, torch.zeros(B, B, dtype=torch.bool), 0, 0.5)
        term = method.loss(text, image, batch, torch.tensor(TAU))["distill_dense"]
        # the student here is the dense score: only the teacher depends on the sparse scores
        gradients.append(torch.autograd.grad(term, tensors["t"])[0].abs().max().item() if term.requires_grad else 0.0)
    assert gradients[0] > 0 and gradients[1] == 0


def test_sdlbts_published_fusions_rank_as_theirs(numbers):
    cos, dot = scores(numbers)
    official, scaled = load_method("sdlbt"), load_method("sdlbt", {"fusion_scale": "temperature"})
    for method, theirs in ((official, 0.1 * cos + 0.2 * dot), (scaled, 0.1 * cos / TAU + 0.2 * dot)):
        ours = cos + method.official_w(TAU) * dot
        assert (np.argsort(-ours, 1) == np.argsort(-theirs, 1)).all()
        assert np.allclose(ours * (theirs[0, 0] / ours[0, 0]), theirs)


# -- D2S -----------------------------------------------------------------------------------------------------------


def step_with(method, masked, progress):
    return next(step for step in range(100) if method.masks(step, progress) is masked)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("source", ["image", "text"])
def test_d2s(numbers, masked, source):
    method = load_method("d2s", {"unmasked_text_source": source, "temperature": 0.05})
    (dense, raw, own), progress = numbers, 0.4
    z_t, z_i = z(raw[0]), z(raw[1])
    z_t = z_t * own if masked else z_i if source == "image" else z_t
    expected = kd(z_t @ z_i.T, dense[0] @ dense[1].T / 0.05) + (1e-3 * l1(z_t) + 1e-3 * l1(z_i)) / 2
    _, total, _ = terms(method, numbers, step=step_with(method, masked, progress), progress=progress)
    assert total.item() == pytest.approx(expected, rel=1e-12)


def test_d2s_masks_less_and_less():
    method = load_method("d2s")
    assert all(method.masks(step, 0.0) for step in range(200))
    assert not any(method.masks(step, 0.96) for step in range(200))
    assert method.mask_chance(0.475) == pytest.approx(0.5)
    share = np.mean([method.masks(step, 0.475) for step in range(2000)])
    assert share == pytest.approx(0.5, abs=0.04)
    other = load_method("d2s", {"seed": 1})
    assert [method.masks(s, 0.475) for s in range(50)] != [other.masks(s, 0.475) for s in range(50)]


# -- STAIR, LexLIP, VisualSparta -----------------------------------------------------------------------------------


@pytest.mark.parametrize("progress", [0.1, 0.5, 0.9])
def test_stair(numbers, progress):
    (dense, raw, own) = numbers
    z_t, z_i = z(raw[0]), z(raw[1])
    z_t = z_t * own if progress < 1 / 3 else z_t
    rise = min(1.0, progress / 0.2) ** 2
    expected = info_nce(dense[0] @ dense[1].T / TAU) + info_nce(z_t @ z_i.T)
    expected += rise * 1e-3 * (flops(z_t) + flops(z_i))
    _, total, tensors = terms(load_method("stair"), numbers, progress=progress, grad=("t", "i"))
    assert total.item() == pytest.approx(expected, rel=1e-12)
    text, image = torch.autograd.grad(total, (tensors["t"], tensors["i"]), allow_unused=True)
    outside_own = torch.tensor(own) == 0
    assert text.abs().max() > 0
    assert (text[outside_own].abs().max() == 0) == (progress < 1 / 3)
    assert (image is None) == (1 / 3 < progress < 2 / 3)


def test_lexlip(numbers):
    (dense, raw, _) = numbers
    z_t, z_i = z(raw[0]), z(raw[1])
    expected = info_nce(dense[0] @ dense[1].T / TAU) + info_nce(z_t @ z_i.T) + 0.25 * (flops(z_t) * 2 + flops(z_i))
    method = load_method("lexlip", {"flops_text": 2.0, "flops_image": 1.0})
    _, total, _ = terms(method, numbers, progress=0.1)
    assert total.item() == pytest.approx(expected, rel=1e-12)


def test_visualsparta(numbers):
    (dense, raw, own) = numbers
    sparse = own @ z(raw[1]).T
    expected = info_nce(dense[0] @ dense[1].T / TAU) + rows_cross_entropy(sparse, np.eye(B))
    method = load_method("visualsparta")
    _, total, _ = terms(method, numbers)
    assert total.item() == pytest.approx(expected, rel=1e-12)
    assert torch.equal(method.sparse_vectors(None, "text", torch.tensor(own)), torch.tensor(own))
    np.testing.assert_allclose(method.sparse_vectors(torch.tensor(raw[1]), "image"), z(raw[1]), rtol=1e-12)
    with pytest.raises(ValueError, match="no own tokens"):
        method.sparse_vectors(None, "text")


@pytest.mark.parametrize(
    ("method", "option", "value", "message"),
    [
        ("sdlbt", "teacher", "other", "choose one of 'official', 'paper'"),
        ("sdlbt", "w1", 0.0, "w1 is 0.0; it must be above 0"),
        ("sdlbt", "l1_text", -1.0, "l1_text is -1.0"),
        ("sdlbt", "fusion_scale", "minmax", "fusion_scale"),
        ("d2s", "unmasked_text_source", "words", "unmasked_text_source"),
        ("d2s", "temperature", 0.0, "temperature is 0.0"),
        ("d2s", "mask_until", 1.5, "mask_until is 1.5; it is a share"),
        ("stair", "frozen_until", 0.1, "before grounding_until"),
        ("stair", "flops_image", -0.1, "flops_image"),
        ("lexlip", "flops_warmup", 2.0, "flops_warmup"),
        ("visualsparta", "w", 2.0, "has no option 'w'"),
    ],
)
def test_wrong_options_are_named(method, option, value, message):
    with pytest.raises(ValueError, match=message):
        load_method(method, {option: value})
