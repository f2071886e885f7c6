"""The max-pooled concept head (Eq. 5) that never materialises ``[B, L, |C|]``."""

import math
import warnings
from typing import Any

import torch
from torch import Tensor, nn

_CHUNK_BYTES = 8 * 2**20


def _sparse_csr(row_starts: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse (CSR tensor support|invariant checks)")
        return torch.sparse_csr_tensor(row_starts, columns, values, shape, check_invariants=False)


class _MaxPooledLinear(torch.autograd.Function):
    """``max_m (W h_m)_j`` with the gradient sent to the winning position only."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, mask: Tensor, weight: Tensor) -> Tensor:
        batch, length, _ = states.shape
        values = states.new_empty(batch, weight.shape[0])
        # 32 bits: half the memory, and what sparse products take as it is
        winners = torch.empty(batch, weight.shape[0], dtype=torch.int32, device=states.device)
        padding = None if mask.all() else torch.where(mask, 0.0, -math.inf).to(states.dtype).unsqueeze(2)
        step = max(1, _CHUNK_BYTES // max(1, length * weight.shape[0] * states.element_size()))
        for start in range(0, batch, step):
            rows = slice(start, start + step)
            scores = torch.matmul(states[rows], weight.T)
            if padding is not None:
                scores += padding[rows]
            values[rows], winners[rows] = torch.max(scores, dim=1)
        ctx.save_for_backward(states, weight, winners)
        return values

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, Tensor | None]:
        states, weight, winners = ctx.saved_tensors
        gradient = gradients[0]
        batch, length, dim = states.shape
        concepts = weight.shape[0]
        device = states.device
        first_position = torch.arange(batch, dtype=torch.int32, device=device).unsqueeze(1) * length
        grad_states = grad_weight = None
        if ctx.needs_input_grad[2]:
            # One entry a (concept, input): row j of the sparse matrix points at the winners of concept j.
            columns = (winners + first_position).T.reshape(-1)
            starts = torch.arange(concepts + 1, dtype=torch.int32, device=device) * batch
            by_concept = _sparse_csr(starts, columns, gradient.T.reshape(-1), (concepts, batch * length))
            grad_weight = by_concept @ states.reshape(-1, dim)
        if ctx.needs_input_grad[0]:
            order = torch.argsort(winners, dim=1)
            counts = torch.bincount((winners + first_position).reshape(-1), minlength=batch * length)
            starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(torch.int32)
            values = gradient.gather(1, order).reshape(-1)
            columns = order.to(torch.int32).reshape(-1)
            by_position = _sparse_csr(starts, columns, values, (batch * length, concepts))
            grad_states = (by_position @ weight).reshape(batch, length, dim)
        return grad_states, None, grad_weight


def max_pooled_linear(states: Tensor, mask: Tensor, weight: Tensor) -> Tensor:
    """``max_m (W h_m)_j`` over the positions of ``mask``: states ``[B, L, D]``, weight ``[|C|, D]`` -> ``[B, |C|]``."""
    if states.shape[1] == 1:
        return states.squeeze(1) @ weight.T
    return _MaxPooledLinear.apply(states, mask, weight)


class ConceptHead(nn.Module):
    """``g_C`` of the paper: a linear layer over concepts, maximum over positions (Eq. 5).

    ``log(1 + relu(.))`` is monotone, so the maximum is taken over the raw scores, in chunks of inputs, and the
    activation is applied afterwards. Memory is ``O(B |C|)`` plus one chunk, not ``O(B L |C|)``.

    Args:
        dim: Size of a position's state.
        bias: Initial bias, float ``[|C|]`` (see :func:`concept_bias`).
        generator: Source of the initial weight, uniform in ``±1/sqrt(dim)``.
    """

    def __init__(self, dim: int, bias: Tensor, generator: torch.Generator) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(dim)
        self.weight = nn.Parameter(torch.empty(len(bias), dim).uniform_(-bound, bound, generator=generator))
        self.bias = nn.Parameter(bias.detach().clone().to(torch.float32))

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Raw scores ``max_m g_C(h_m)_j`` before the activation.

        Args:
            states: Float ``[B, L, dim]``.
            mask: Bool ``[B, L]``, True where a position takes part; every row needs one.

        Returns:
            Float ``[B, |C|]``, float32 or float64; lower precisions are computed in float32.
        """
        with torch.autocast(states.device.type, enabled=False):
            dtype = torch.promote_types(states.dtype, self.weight.dtype)
            return max_pooled_linear(states.to(dtype), mask, self.weight.to(dtype)) + self.bias


def activate(raw: Tensor) -> Tensor:
    """``z = log(1 + relu(raw))``, the sparsifying activation of Eq. 5; any shape."""
    return torch.log1p(torch.relu(raw))


def concept_bias(df: Tensor, n: int, kind: str) -> Tensor:
    """The "concept-IDF bias initialization" of the paper's implementation details, float32 ``[|C|]``.

    The paper gives no formula and no sign. ``neg_idf`` (ours) starts each concept near its log prior.

    Args:
        df: Document frequency of each concept, ``[|C|]``.
        n: Number of documents counted.
        kind: ``neg_idf`` = ``-log((n+1)/(df+1))``; ``idf`` = its negation; ``prior_logit`` = the logit of
            ``(df+0.5)/(n+1)``; ``zeros``.

    Raises:
        ValueError: For an unknown ``kind``.
    """
    df = df.to(torch.float64)
    if kind == "neg_idf":
        bias = -torch.log((n + 1) / (df + 1))
    elif kind == "idf":
        bias = torch.log((n + 1) / (df + 1))
    elif kind == "prior_logit":
        bias = torch.logit((df + 0.5) / (n + 1))
    elif kind == "zeros":
        bias = torch.zeros_like(df)
    else:
        raise ValueError(f"bias_init is {kind!r}; choose neg_idf, idf, prior_logit or zeros")
    return bias.to(torch.float32)
