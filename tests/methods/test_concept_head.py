"""The max-pooled head against the naive formula that materialises [B, L, |C|]."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_grasp.methods import concept_head
from pyterrier_grasp.methods.concept_head import ConceptHead, activate, concept_bias


def make_inputs(batch, length, dim, concepts, seed, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(batch, length, dim, generator=generator, dtype=dtype)
    mask = torch.rand(batch, length, generator=generator) > 0.4
    mask[:, 0] = True
    head = ConceptHead(dim, torch.randn(concepts, generator=generator), generator).to(dtype)
    return states, mask, head


def naive(states, mask, weight, bias):
    scores = states @ weight.T + bias
    return scores.masked_fill(~mask.unsqueeze(2), -torch.inf).amax(1)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 4), st.integers(1, 7), st.integers(0, 10_000))
def test_values_and_gradients_equal_the_naive_formula(batch, length, dim, concepts, seed):
    states, mask, head = make_inputs(batch, length, dim, concepts, seed)
    upstream = torch.randn(batch, concepts, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    ours, reference = states.clone().requires_grad_(), states.clone().requires_grad_()
    weight, bias = head.weight.detach().clone().requires_grad_(), head.bias.detach().clone().requires_grad_()

    raw = head(ours, mask)
    expected = naive(reference, mask, weight, bias)
    (raw * upstream).sum().backward()
    (expected * upstream).sum().backward()

    torch.testing.assert_close(raw, expected)
    torch.testing.assert_close(ours.grad, reference.grad)
    torch.testing.assert_close(head.weight.grad, weight.grad)
    torch.testing.assert_close(head.bias.grad, bias.grad)


def test_gradcheck_in_float64():
    states, mask, head = make_inputs(3, 4, 3, 5, seed=1)

    def function(states, weight, bias):
        return activate(concept_head._MaxPooledLinear.apply(states, mask, weight) + bias)

    inputs = (states.requires_grad_(), head.weight, head.bias)
    assert torch.autograd.gradcheck(function, inputs)


def test_chunks_change_nothing(monkeypatch):
    states, mask, head = make_inputs(7, 5, 4, 6, seed=2)
    whole = head(states, mask)
    monkeypatch.setattr(concept_head, "_CHUNK_BYTES", 1)
    torch.testing.assert_close(head(states, mask), whole)


def test_padding_never_wins_even_with_a_positive_bias():
    states, mask, head = make_inputs(2, 3, 4, 5, seed=3)
    states[:, 2] = 1e6
    mask[:, 2] = False
    assert head(states, mask).abs().max() < 1e3


def test_backward_needs_no_tensor_of_the_naive_size():
    """Peak of tensors saved for backward is O(B |C|): no saved tensor has a position axis beside a concept axis."""
    states, mask, head = make_inputs(4, 50, 8, 200, seed=4, dtype=torch.float32)
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
        head(states.requires_grad_(), mask)
    assert max(sizes) < 4 * 50 * 200 / 10


def test_half_precision_input_is_computed_in_float32():
    states, mask, head = make_inputs(2, 3, 4, 5, seed=5, dtype=torch.float32)
    assert head(states.half(), mask).dtype == torch.float32


def test_concept_bias_formulas():
    df, n = torch.tensor([0, 3, 99]), 99
    np.testing.assert_allclose(concept_bias(df, n, "neg_idf"), -np.log(100 / np.array([1, 4, 100])), rtol=1e-6)
    np.testing.assert_allclose(concept_bias(df, n, "idf"), np.log(100 / np.array([1, 4, 100])), rtol=1e-6)
    p = (np.array([0, 3, 99]) + 0.5) / 100
    np.testing.assert_allclose(concept_bias(df, n, "prior_logit"), np.log(p / (1 - p)), rtol=1e-5)
    assert concept_bias(df, n, "zeros").tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="bias_init is 'log'"):
        concept_bias(df, n, "log")
