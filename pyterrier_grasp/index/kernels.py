"""Compiled loops of the index. Each one releases the GIL and starts no threads of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile with numba and keep the machine code on disk where some folder for it is writable."""
    try:
        return njit(cache=True, nogil=True)(function)
    except RuntimeError:  # neither the package folder nor the user's cache folder can be written
        return njit(nogil=True)(function)


@jit
def scatter_block(scores, lo, hi, q_indptr, q_ids, q_weights, cursor, p_ends, p_docs, p_data):
    """Add the postings of one block of documents to a block of scores.

    Args:
        scores: [B, hi - lo] float32, changed in place.
        lo, hi: first document of the block and the one after its last.
        q_indptr, q_ids, q_weights: queries as CSR: int64, int32, float32.
        cursor: int64, one a query concept: where its posting list continues. Changed in place, so blocks must be
            visited in order.
        p_ends: int64, one a query concept: the end of its posting list.
        p_docs, p_data: concept-major postings, documents ascending within a concept.
    """
    for q in range(scores.shape[0]):
        for j in range(q_indptr[q], q_indptr[q + 1]):
            weight = q_weights[j]
            p = cursor[j]
            end = p_ends[j]
            while p < end and p_docs[p] < hi:
                scores[q, p_docs[p] - lo] += weight * p_data[p]
                p += 1
            cursor[j] = p


@jit
def scatter(out, q_ids, q_weights, p_indptr, p_docs, p_data):
    """Sparse scores of all documents for one query, in float64, concepts in ascending order.

    Args:
        out: [n] float64 of zeros, changed in place.
        q_ids, q_weights: int32, float64: the query's concepts, ascending.
        p_indptr, p_docs, p_data: concept-major postings.
    """
    for j in range(q_ids.shape[0]):
        weight = q_weights[j]
        for p in range(p_indptr[q_ids[j]], p_indptr[q_ids[j] + 1]):
            out[p_docs[p]] += weight * np.float64(p_data[p])


@jit
def propose(scores, lo, floor, slack, heaps, cand_docs, cand_scores, counts):
    """Update each query's k best scores with one block and collect the documents that may still belong to them.

    A document is collected if its score is above ``floor`` and at least (k-th best so far - slack). The k-th best only
    grows, so what is collected over all blocks contains every document with score >= (final k-th best - slack).

    Args:
        scores: [B, m] float32 or float64.
        lo: number of the block's first document.
        floor: scores must be greater than this.
        slack: [B] float64.
        heaps: [B, k] min-heaps of the best scores so far, in the dtype of ``scores``, -inf at first. Changed in place.
        cand_docs, cand_scores, counts: [B, >= m] int64 and scores' dtype, [B] int64. Filled here.
    """
    k = heaps.shape[1]
    for q in range(scores.shape[0]):
        heap = heaps[q]
        threshold = np.float64(heap[0]) - slack[q]
        found = 0
        for j in range(scores.shape[1]):
            s = scores[q, j]
            if s >= threshold and s > floor:
                cand_docs[q, found] = lo + j
                cand_scores[q, found] = s
                found += 1
                if s > heap[0]:
                    i = 0
                    while True:
                        child = 2 * i + 1
                        if child >= k:
                            break
                        if child + 1 < k and heap[child + 1] < heap[child]:
                            child += 1
                        if heap[child] >= s:
                            break
                        heap[i] = heap[child]
                        i = child
                    heap[i] = s
                    threshold = np.float64(heap[0]) - slack[q]
        counts[q] = found


@jit
def dense_scores(rows, dense, query):
    """Dot products in float64 with a fixed order of additions.

    Args:
        rows: [m] int64.
        dense: [n, d] float32.
        query: [d] float64.

    Returns:
        [m] float64.
    """
    out = np.empty(rows.shape[0], np.float64)
    dim = dense.shape[1]
    body = dim - dim % 4
    for r in range(rows.shape[0]):
        row = rows[r]
        a = b = c = e = 0.0
        for i in range(0, body, 4):
            a += np.float64(dense[row, i]) * query[i]
            b += np.float64(dense[row, i + 1]) * query[i + 1]
            c += np.float64(dense[row, i + 2]) * query[i + 2]
            e += np.float64(dense[row, i + 3]) * query[i + 3]
        for i in range(body, dim):
            a += np.float64(dense[row, i]) * query[i]
        out[r] = (a + b) + (c + e)
    return out


@jit
def sparse_scores(rows, indptr, indices, data, query):
    """Sparse scores of given documents in float64, concepts in ascending order.

    Args:
        rows: [m] int64; -1 stands for a document without concepts.
        indptr, indices, data: document-major weights: int64, int32, float32.
        query: [|C|] float64, the query's weights laid out over all concepts.

    Returns:
        [m] float64.
    """
    out = np.zeros(rows.shape[0], np.float64)
    for r in range(rows.shape[0]):
        row = rows[r]
        if row >= 0:
            total = 0.0
            for p in range(indptr[row], indptr[row + 1]):
                total += query[indices[p]] * np.float64(data[p])
            out[r] = total
    return out


@jit
def fill_postings(first_doc, indptr, indices, data, cursor, p_docs, p_data):
    """Write the rows of one shard to the concept-major postings.

    Args:
        first_doc: number of the shard's first document.
        indptr, indices, data: the shard, document-major.
        cursor: [|C|] int64: next free place of each posting list. Changed in place.
        p_docs, p_data: the postings, changed in place.
    """
    for r in range(indptr.shape[0] - 1):
        for p in range(indptr[r], indptr[r + 1]):
            c = indices[p]
            p_docs[cursor[c]] = first_doc + r
            p_data[cursor[c]] = data[p]
            cursor[c] += 1
