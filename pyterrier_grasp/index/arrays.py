"""Indexing whole arrays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy import sparse as sp

from pyterrier_grasp.ids import first_repeated
from pyterrier_grasp.index.documents import check_docno, check_names
from pyterrier_grasp.index.writer import IndexWriter, Shard, remove_index

SHARD_ROWS = 50_000


def index_arrays(
    folder: Path,
    docnos: Sequence[str],
    dense: np.ndarray | None,
    sparse: sp.csr_array | None,
    names: Sequence[str] | None,
    model: str | None,
    verbose: bool,
) -> None:
    """Write an index from arrays; see :meth:`GraspIndex.add_arrays`. Remains of an interrupted run are removed."""
    docnos = [check_docno(docno) for docno in docnos]
    twice = first_repeated(docnos)
    if twice is not None:
        raise ValueError(f"duplicate docno {twice!r}: each document is indexed once")
    if not docnos:
        raise ValueError(f"no documents to index in {folder}")
    if dense is None and sparse is None:
        raise ValueError("give dense vectors, sparse weights, or both")
    if dense is not None:
        dense = np.asarray(dense)
        if dense.ndim != 2 or len(dense) != len(docnos) or not dense.shape[1]:
            raise ValueError(f"dense must have shape [{len(docnos)}, d], got {dense.shape}")
    toks, columns = _check_sparse(len(docnos), sparse, names)
    remove_index(folder)
    writer = IndexWriter(folder, SHARD_ROWS)
    for lo in range(0, len(docnos), SHARD_ROWS):
        part = slice(lo, lo + SHARD_ROWS)
        with np.errstate(over="ignore"):
            block = None if dense is None else np.ascontiguousarray(dense[part], dtype=np.float32)
        if block is not None and not np.isfinite(block).all():
            row = int(np.argmin(np.isfinite(block).all(axis=1)))
            raise ValueError(f"dense vector of document {docnos[lo + row]!r} holds NaN or infinite values")
        writer.write(Shard(docnos[part], block, columns, None if toks is None else toks[part], model))
    writer.finish(verbose)


def _check_sparse(
    n: int, sparse: sp.csr_array | None, names: Sequence[str] | None
) -> tuple[sp.csr_array | None, list[str] | None]:
    """Canonical float32 weights with columns sorted by name, without explicit zeros."""
    if sparse is None:
        if names is not None:
            raise ValueError("names is given without sparse weights")
        return None, None
    if names is None:
        raise ValueError("sparse weights need names, one a column")
    if sparse.shape != (n, len(names)):
        raise ValueError(f"sparse must have shape [{n}, {len(names)}] (documents, names), got {list(sparse.shape)}")
    check_names(names, "names")
    twice = first_repeated(names)
    if twice is not None:
        raise ValueError(f"names holds {twice!r} twice")
    order = np.argsort(np.array(names, dtype=object), kind="stable")
    with np.errstate(over="ignore"):
        toks = sp.csr_array(sparse, dtype=np.float32, copy=True)[:, order]
    if not np.isfinite(toks.data).all() or (toks.data < 0).any():
        raise ValueError("sparse weights must be finite and >= 0")
    toks.sum_duplicates()
    toks.eliminate_zeros()
    toks.sort_indices()
    return toks, [names[i] for i in order]
