"""The query side of a frame as arrays, with the checks that belong to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pyterrier_grasp.index.storage import IndexData


class SparseQueries(NamedTuple):
    """Queries as CSR over the concepts of an index: int64 [m + 1], int32 (ascending in a query), float64."""

    indptr: np.ndarray
    ids: np.ndarray
    weights: np.ndarray

    def row(self, q: int) -> tuple[np.ndarray, np.ndarray]:
        """Concepts and weights of one query."""
        part = slice(self.indptr[q], self.indptr[q + 1])
        return self.ids[part], self.weights[part]


def dense_queries(data: IndexData, qids: Iterable[Any], vectors: Iterable[Any]) -> np.ndarray:
    """Stack ``query_vec``.

    Returns:
        [m, d] float64.

    Raises:
        ValueError: If the index has no dense vectors, or a vector has another size or is not finite; the message names
            the query.
    """
    if data.dense is None:
        raise ValueError("the index has no dense vectors: its documents were indexed without doc_vec")
    dim = data.dense.shape[1]
    rows = []
    for qid, vector in zip(qids, vectors, strict=True):
        try:
            row = np.asarray(vector, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"query_vec of query {qid!r} is not an array of numbers") from None
        if row.shape != (dim,):
            raise ValueError(f"query_vec of query {qid!r} has shape {row.shape}, the index has {dim} dimensions")
        if not np.isfinite(row).all():
            raise ValueError(f"query_vec of query {qid!r} holds NaN or infinite values")
        rows.append(row)
    return np.stack(rows) if rows else np.zeros((0, dim))


def sparse_queries(data: IndexData, qids: Iterable[Any], toks: Iterable[Any]) -> SparseQueries:
    """Number the concepts of ``query_toks``; names that no document has match nothing and are left out.

    Raises:
        ValueError: If the index has no concepts, or an entry is not a dict of finite weights; the message names the
            query.
    """
    if data.toks is None:
        raise ValueError("the index has no concepts: its documents were indexed without toks")
    lookup = data.concept_ids
    indptr: list[int] = [0]
    ids: list[int] = []
    weights: list[float] = []
    for qid, query in zip(qids, toks, strict=True):
        if not isinstance(query, Mapping):
            raise ValueError(f"query_toks of query {qid!r} must be a dict concept -> weight, got {query!r:.80}")
        try:
            values = np.array(list(query.values()), dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"query_toks of query {qid!r} holds weights that are not numbers") from None
        if not np.isfinite(values).all():
            raise ValueError(f"query_toks of query {qid!r} holds NaN or infinite weights")
        known = sorted((lookup[name], value) for name, value in zip(query, values, strict=True) if name in lookup)
        ids.extend(concept for concept, _ in known)
        weights.extend(value for _, value in known)
        indptr.append(len(ids))
    return SparseQueries(np.array(indptr, np.int64), np.array(ids, np.int32), np.array(weights, np.float64))


def check_models(doc_model: str | None, query_models: Iterable[Any]) -> None:
    """Check that queries and documents come from one model. Absent fingerprints (None, NaN) are accepted.

    Raises:
        ValueError: Naming both fingerprints.
    """
    if doc_model is None:
        return
    for query_model in pd.unique(pd.Series(list(query_models), dtype=object)):
        if isinstance(query_model, str) and query_model != doc_model:
            raise ValueError(
                f"the queries were encoded by model {query_model!r} and the index by model {doc_model!r}; their scores "
                "have no meaning together. Encode the queries with the model of the index"
            )


def group_by_query(frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Number the queries of a result frame in order of appearance.

    Returns:
        codes [rows] int64, the number of each row's query, and the [queries] qids.

    Raises:
        ValueError: If a row has no qid.
    """
    codes, qids = pd.factorize(frame["qid"])
    if (codes < 0).any():
        raise ValueError(f"row {int(np.argmin(codes))} of the input has no qid")
    return codes.astype(np.int64), np.asarray(qids, dtype=object)


def query_values(frame: pd.DataFrame, column: str, codes: np.ndarray, qids: np.ndarray) -> list[Any]:
    """The value that a query-level column has in the rows of each query.

    Rows without a value (None or NaN, as the ``+`` operator leaves them) take that of the query's other rows.

    Raises:
        ValueError: Naming a query that has no value, or two different ones.
    """
    found: list[Any] = [None] * len(qids)
    for code, value in zip(codes.tolist(), frame[column].to_numpy(dtype=object), strict=True):
        known = found[code]
        if value is known or value is None or isinstance(value, float):
            continue
        if known is None:
            found[code] = value
        elif not (value == known if isinstance(value, str | Mapping) else np.array_equal(value, known)):
            raise ValueError(f"query {qids[code]!r} has two different values of {column} in its rows")
    for qid, value in zip(qids, found, strict=True):
        if value is None:
            raise ValueError(f"query {qid!r} has no {column}")
    return found
