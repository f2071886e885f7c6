"""Scores of given documents, computed exactly from the index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_grasp.index import kernels
from pyterrier_grasp.index.base import IndexTransformer, check_num_results, check_w, cut_off
from pyterrier_grasp.index.frames import empty_reranked, rerank
from pyterrier_grasp.index.queries import check_models, dense_queries, group_by_query, query_values, sparse_queries
from pyterrier_grasp.index.search import sparse_scores
from pyterrier_grasp.index.storage import IndexData

if TYPE_CHECKING:
    from pyterrier_grasp.index.grasp_index import GraspIndex

_COLUMNS = {"dense": ["query_vec"], "sparse": ["query_toks"], "fused": ["query_vec", "query_toks"]}


class IndexScorer(IndexTransformer):
    """Gives the documents of a result frame the index's score; the frame's own scores are replaced.

    Args:
        index: A :class:`GraspIndex`.
        kind: ``"dense"``, ``"sparse"`` or ``"fused"``, which is dense + w * sparse.
        w: Weight of the sparse score in ``"fused"``.
        num_results: Keep so many documents a query; None keeps all.

    Raises:
        ValueError: On another ``kind`` or a ``num_results`` below 1.
    """

    _identity = ("index", "kind", "w", "num_results")

    def __init__(
        self, index: GraspIndex, kind: str = "fused", *, w: float = 0.1, num_results: int | None = None
    ) -> None:
        if kind not in _COLUMNS:
            raise ValueError(f"kind must be one of {sorted(_COLUMNS)}, got {kind!r}")
        check_num_results(num_results, optional=True)
        self.index = index
        self.kind = kind
        self.w = w
        self.num_results = num_results

    def schematic(self, *, input_columns: list[str] | None = None) -> dict[str, Any]:
        """How it is drawn."""
        return {"label": f"Score {self.kind}", "help_url": None}

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Score.

        Args:
            inp: Result frame with ``query_vec`` and/or ``query_toks``, equal in all rows of a query.

        Returns:
            The rows sorted by query, score descending, docno descending, with ``score`` (float64) and ``rank``.

        Raises:
            KeyError: Naming a docno that is not in the index.
            ValueError: If a query cannot be used or comes from another model.
        """
        pt.validate.result_frame(inp, extra_columns=_COLUMNS[self.kind], context=self)
        if not len(inp):
            return empty_reranked(inp)
        data = self.index.data
        if "query_model" in inp.columns:
            check_models(data.meta["doc_model"], inp["query_model"])
        codes, qids = group_by_query(inp)
        queries = {column: query_values(inp, column, codes, qids) for column in _COLUMNS[self.kind]}
        rows = data.rows(inp["docno"])
        scores = np.zeros(len(inp))
        if self.kind != "sparse":
            scores += dense_pair_scores(data, rows, codes, qids, queries["query_vec"])
        if self.kind != "dense":
            weight = check_w(self.w) if self.kind == "fused" else 1.0
            scores += weight * sparse_pair_scores(data, rows, codes, qids, queries["query_toks"])
        return rerank(inp, codes, scores, self.num_results)

    def fuse_rank_cutoff(self, k: int) -> pt.Transformer | None:
        """A copy with ``num_results=k`` if that is fewer, else None."""
        return cut_off(self, self.num_results, k)

    def __repr__(self) -> str:
        w = f", w={self.w}" if self.kind == "fused" else ""
        cut = "" if self.num_results is None else f", num_results={self.num_results}"
        return f"{self.index!r}.scorer({self.kind!r}{w}{cut})"


def rows_by_query(codes: np.ndarray) -> list[np.ndarray]:
    """Positions of each query's rows, in order."""
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)


def dense_pair_scores(data: IndexData, rows: np.ndarray, codes: np.ndarray, qids: Any, vecs: Any) -> np.ndarray:
    """Dense score of each (query, document) row, [rows] float64."""
    vectors = dense_queries(data, qids, vecs)
    scores = np.zeros(len(rows))
    for q, positions in enumerate(rows_by_query(codes)):
        scores[positions] = kernels.dense_scores(rows[positions], data.dense, vectors[q])
    return scores


def sparse_pair_scores(data: IndexData, rows: np.ndarray, codes: np.ndarray, qids: Any, toks: Any) -> np.ndarray:
    """Sparse score of each (query, document) row, [rows] float64; 0 where ``rows`` is -1."""
    queries = sparse_queries(data, qids, toks)
    scores = np.zeros(len(rows))
    for q, positions in enumerate(rows_by_query(codes)):
        scores[positions] = sparse_scores(data, rows[positions], *queries.row(q))
    return scores
