"""Building result frames from rankings, and ranks from scores, without a Python loop over rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from pyterrier_grasp.index.search import Ranking
from pyterrier_grasp.index.storage import IndexData


def results_frame(
    queries: pd.DataFrame, rankings: Sequence[Ranking], data: IndexData | None, drop: Sequence[str] = ()
) -> pd.DataFrame:
    """One row a result: the query's columns, then docno (str), score (float64), rank (int64, from 0).

    Args:
        queries: [m] rows.
        rankings: One a query; none at all for an empty frame.
        data: The index; may be None where there are no rankings.
        drop: Columns to leave out.
    """
    base = queries.drop(columns=[c for c in (*drop, "docno", "score", "rank") if c in queries.columns])
    lengths = np.array([len(r.rows) for r in rankings], dtype=np.int64)
    rows = np.concatenate([r.rows for r in rankings]) if len(rankings) else np.zeros(0, np.int64)
    scores = np.concatenate([r.scores for r in rankings]) if len(rankings) else np.zeros(0, np.float64)
    docnos = data.docnos[rows] if data is not None else np.zeros(0, dtype=object)
    out = base.iloc[np.repeat(np.arange(len(rankings)), lengths)].reset_index(drop=True)
    starts = np.cumsum(lengths) - lengths
    return out.assign(
        docno=pd.Series(docnos, dtype=str),
        score=scores.astype(np.float64, copy=False),
        rank=np.arange(len(rows), dtype=np.int64) - np.repeat(starts, lengths),
    )


def empty_results(inp: pd.DataFrame, drop: Sequence[str] = ()) -> pd.DataFrame:
    """The result frame of no queries."""
    return results_frame(inp.iloc[:0], [], None, drop)


def rerank(inp: pd.DataFrame, codes: np.ndarray, scores: np.ndarray, num_results: int | None) -> pd.DataFrame:
    """Give a result frame new scores: sort by query (order of appearance), score descending, docno descending.

    Args:
        inp: Result frame with ``docno``; not changed.
        codes: [rows] number of each row's query.
        scores: [rows] float64.
        num_results: Keep so many rows a query; None keeps all.

    Returns:
        The input's columns with ``score`` (float64) and ``rank`` (int64, from 0) set.
    """
    docno_order = pd.Series(inp["docno"].to_numpy(dtype=object)).rank(method="dense").to_numpy(dtype=np.float64)
    order = np.lexsort((-docno_order, -scores, codes))
    sorted_codes = codes[order]
    new_query = np.flatnonzero(np.diff(sorted_codes, prepend=-1))
    ranks = np.arange(len(order), dtype=np.int64) - np.repeat(new_query, np.diff(np.append(new_query, len(order))))
    if num_results is not None:
        kept = ranks < num_results
        order, ranks = order[kept], ranks[kept]
    return inp.iloc[order].reset_index(drop=True).assign(score=scores[order], rank=ranks)


def empty_reranked(inp: pd.DataFrame) -> pd.DataFrame:
    """The result of :func:`rerank` for a frame without rows."""
    return inp.iloc[:0].reset_index(drop=True).assign(score=np.zeros(0, np.float64), rank=np.zeros(0, np.int64))
