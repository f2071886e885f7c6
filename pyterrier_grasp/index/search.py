"""Exact top-k over an index.

float32 finds candidates fast, float64 decides. The dot product of two float32 vectors of m terms, added in any order,
differs from the true value by at most gamma_m * |q| * |d| with gamma_m = m * u / (1 - m * u), u = 2**-24 (Higham,
*Accuracy and Stability of Numerical Algorithms*, 2nd ed., section 3.1). A document among the k best of the true scores
therefore has a float32 score of at least (k-th best float32 score - 2 * bound). All those are scored again in float64
in a fixed order of additions, so results do not depend on batches, threads or the BLAS library.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyterrier_grasp.index import kernels
from pyterrier_grasp.index.queries import SparseQueries
from pyterrier_grasp.index.storage import IndexData

BLOCK = 8192  # documents: a block's scores stay in cache between GEMM, scatter and top-k
MAX_HEAP = 1 << 24  # scores kept at a time, over all queries of a batch
_UNIT = 2.0**-24
_TINY = 2.0**-126


class Ranking(NamedTuple):
    """Results of one query: document numbers [m] int64 and scores [m] float64, best first."""

    rows: np.ndarray
    scores: np.ndarray


def rank(data: IndexData, rows: np.ndarray, scores: np.ndarray, k: int) -> Ranking:
    """The k best, by score descending, then docno descending (the order in which trec_eval reads ties)."""
    order = np.lexsort((-data.docno_order[rows].astype(np.int64), -scores))[:k]
    return Ranking(rows[order], scores[order])


def search_sparse(data: IndexData, queries: SparseQueries, k: int) -> list[Ranking]:
    """The k best documents with a sparse score above 0, for each query."""
    if data.postings is None:
        raise ValueError("the index has no concepts")
    n = len(data.docnos)
    k = min(k, n)
    scores = np.empty((1, n), np.float64)
    docs, found, counts = np.empty((1, n), np.int64), np.empty((1, n), np.float64), np.zeros(1, np.int64)
    exact = np.zeros(1)
    results = []
    for q in range(len(queries.indptr) - 1):
        ids, weights = queries.row(q)
        scores[:] = 0.0
        kernels.scatter(scores[0], ids, weights, data.postings.indptr, data.postings.ids, data.postings.data)
        heap = np.full((1, k), -np.inf)
        kernels.propose(scores, 0, 0.0, exact, heap, docs, found, counts)
        results.append(rank(data, docs[0, : counts[0]], found[0, : counts[0]], k))
    return results


def search_dense(data: IndexData, vectors: np.ndarray, k: int) -> list[Ranking]:
    """The k best documents by dense score, for each query ([B, d] float64)."""
    none = SparseQueries(np.zeros(len(vectors) + 1, np.int64), np.zeros(0, np.int32), np.zeros(0))
    return search_fused(data, vectors, none, 0.0, k)


def search_fused(data: IndexData, vectors: np.ndarray, queries: SparseQueries, w: float, k: int) -> list[Ranking]:
    """The k best documents by dense + w * sparse score, for each query.

    Raises:
        ValueError: If scores may be too large for float32.
    """
    if data.dense is None:
        raise ValueError("the index has no dense vectors")
    k = min(k, len(data.docnos))
    step = max(1, MAX_HEAP // k)
    results: list[Ranking] = []
    for lo in range(0, len(vectors), step):
        hi = min(lo + step, len(vectors))
        start, end = int(queries.indptr[lo]), int(queries.indptr[hi])
        part = SparseQueries(queries.indptr[lo : hi + 1] - start, queries.ids[start:end], queries.weights[start:end])
        candidates = _propose(data, vectors[lo:hi], part, w, k)
        for q, rows in enumerate(candidates):
            scores = kernels.dense_scores(rows, data.dense, vectors[lo + q])
            if w and end > start:
                scores = scores + w * sparse_scores(data, rows, *part.row(q))
            results.append(rank(data, rows, scores, k))
    return results


def sparse_scores(data: IndexData, rows: np.ndarray, ids: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Exact sparse scores of one query with given documents (-1: a document that the index lacks, score 0)."""
    if data.toks is None or data.concepts is None:
        raise ValueError("the index has no concepts")
    query = np.zeros(len(data.concepts))
    query[ids] = weights
    return kernels.sparse_scores(rows, data.toks.indptr, data.toks.ids, data.toks.data, query)


def _propose(data: IndexData, vectors: np.ndarray, queries: SparseQueries, w: float, k: int) -> list[np.ndarray]:
    """Documents that may be among the k best, for each query."""
    dense, postings = data.dense, data.postings
    if dense is None:
        raise ValueError("the index has no dense vectors")
    n_queries, n = len(vectors), len(data.docnos)
    slack = 2 * _float32_error(data, vectors, queries, w)
    vectors32 = np.ascontiguousarray(vectors, dtype=np.float32)
    weights32 = (w * queries.weights).astype(np.float32)
    if len(queries.ids) == 0 or w == 0.0:
        postings = None
    if postings is not None:
        cursor, ends = postings.indptr[queries.ids], postings.indptr[queries.ids + 1]
    heaps = np.full((n_queries, k), -np.inf, np.float32)
    width = min(BLOCK, n)
    docs, found = np.empty((n_queries, width), np.int64), np.empty((n_queries, width), np.float32)
    counts = np.zeros(n_queries, np.int64)
    kept: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in range(n_queries)]
    for lo in range(0, n, BLOCK):
        hi = min(lo + BLOCK, n)
        scores = vectors32 @ dense[lo:hi].T
        if postings is not None:
            kernels.scatter_block(
                scores,
                lo,
                hi,
                queries.indptr,
                queries.ids,
                weights32,
                cursor,
                ends,
                postings.ids,
                postings.data,
            )
        kernels.propose(scores, lo, -np.inf, slack, heaps, docs, found, counts)
        for q in np.flatnonzero(counts).tolist():
            kept[q].append((docs[q, : counts[q]].copy(), found[q, : counts[q]].copy()))
    candidates = []
    for query, parts in enumerate(kept):
        rows = np.concatenate([rows for rows, _ in parts])
        scores = np.concatenate([scores for _, scores in parts])
        candidates.append(rows[scores >= float(heaps[query, 0]) - slack[query]])
    return candidates


def _float32_error(data: IndexData, vectors: np.ndarray, queries: SparseQueries, w: float) -> np.ndarray:
    """A bound on |float32 score - true score| of any document, for each query. Returns [B] float64."""
    lengths = np.diff(queries.indptr)
    squares = np.add.reduceat(np.append(queries.weights**2, 0.0), queries.indptr[:-1]) * (lengths > 0)
    dense_norm, toks_norm = np.linalg.norm(vectors, axis=1), abs(w) * np.sqrt(squares)
    largest = np.array([data.meta["max_dense_norm"], data.meta["max_toks_norm"]])
    mass = dense_norm * largest[0] + toks_norm * largest[1]
    if (mass > 1e37).any() or max(dense_norm.max(), toks_norm.max()) > 1e37:
        raise ValueError("scores are too large for float32: normalise the vectors, or choose a smaller w")
    # one rounding for each query value and each product, and one for each addition but the first
    terms = vectors.shape[1] + lengths + 4
    gamma = terms * _UNIT / (1 - terms * _UNIT)
    underflow = terms * _TINY * (1 + dense_norm + toks_norm + largest.sum())
    return (gamma * mass + underflow) * (1 + 1e-6)
