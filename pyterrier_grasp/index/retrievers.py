"""Exact retrieval over the whole index: dense, sparse, fused."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pandas as pd
import pyterrier as pt
from tqdm.auto import tqdm

from pyterrier_grasp.index.base import IndexTransformer, check_num_results, check_w, cut_off
from pyterrier_grasp.index.frames import empty_results, results_frame
from pyterrier_grasp.index.queries import check_models, dense_queries, sparse_queries
from pyterrier_grasp.index.search import Ranking, search_dense, search_fused, search_sparse
from pyterrier_grasp.index.storage import IndexData

if TYPE_CHECKING:
    from pyterrier_grasp.index.grasp_index import GraspIndex


class _Retriever(IndexTransformer):
    """The common part: a query frame in, a result frame out.

    Queries are answered in batches; results do not depend on the batch size. The input's columns are kept, except that
    ``query_vec`` is left out with ``drop_query_vec``; ``docno`` (str), ``score`` (float64) and ``rank`` (int64, from 0)
    are added. Rows come in the order of the queries, best document first, ties by docno descending.
    """

    _columns: ClassVar[list[str]]

    def __init__(
        self,
        index: GraspIndex,
        *,
        num_results: int = 1000,
        batch_size: int = 128,
        verbose: bool = False,
        drop_query_vec: bool = False,
    ) -> None:
        check_num_results(num_results)
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size!r}")
        self.index = index
        self.num_results = num_results
        self.batch_size = batch_size
        self.verbose = verbose
        self.drop_query_vec = drop_query_vec

    def _search(self, data: IndexData, batch: pd.DataFrame) -> list[Ranking]:
        raise NotImplementedError

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Retrieve.

        Args:
            inp: Query frame with the columns the retriever needs, each qid once.

        Returns:
            Result frame.

        Raises:
            ValueError: If a qid occurs twice, a query cannot be used, the index lacks the needed branch, or the queries
                come from another model (column ``query_model``).
            FileNotFoundError: If the index is not built.
        """
        pt.validate.query_frame(inp, extra_columns=self._columns, context=self)
        drop = ["query_vec"] if self.drop_query_vec else []
        if not len(inp):
            return empty_results(inp, drop)
        twice = inp["qid"][inp["qid"].duplicated()]
        if len(twice):
            raise ValueError(f"qid {twice.iloc[0]!r} occurs twice in the input; give each query a qid of its own")
        data = self.index.data
        if "query_model" in inp.columns:
            check_models(data.meta["doc_model"], inp["query_model"])
        rankings: list[Ranking] = []
        for lo in tqdm(range(0, len(inp), self.batch_size), desc=repr(self), disable=not self.verbose):
            rankings += self._search(data, inp.iloc[lo : lo + self.batch_size])
        return results_frame(inp, rankings, data, drop)

    def fuse_rank_cutoff(self, k: int) -> pt.Transformer | None:
        """A copy with ``num_results=k`` if that is fewer, else None."""
        return cut_off(self, self.num_results, k)


class DenseRetriever(_Retriever):
    """Exact top-k by dense score, the dot product of ``query_vec`` and ``doc_vec`` (a cosine for unit vectors).

    Args:
        index: A :class:`GraspIndex` with dense vectors.
        num_results: Documents a query; all of them if the index holds fewer.
        batch_size: Queries at a time.
        verbose: Show progress.
        drop_query_vec: Leave the column ``query_vec`` out of the result.
    """

    schematic = {"label": "Dense", "help_url": None}
    _columns = ["query_vec"]
    _identity = ("index", "num_results", "drop_query_vec")

    def _search(self, data: IndexData, batch: pd.DataFrame) -> list[Ranking]:
        return search_dense(data, dense_queries(data, batch["qid"], batch["query_vec"]), self.num_results)

    def __repr__(self) -> str:
        return f"{self.index!r}.dense(num_results={self.num_results})"


class SparseRetriever(_Retriever):
    """Exact top-k by sparse score, the dot product of ``query_toks`` and ``toks``.

    Only documents with a score above 0 are retrieved: a query may have fewer results than asked for, and a query
    without an active concept has none. Concepts of a query that no document has match nothing.

    Args:
        index: A :class:`GraspIndex` with concept weights.
        num_results: Documents a query.
        batch_size: Queries at a time.
        verbose: Show progress.
        drop_query_vec: Leave the column ``query_vec`` out of the result, where the input has one.
    """

    schematic = {"label": "Sparse", "help_url": None}
    _columns = ["query_toks"]
    _identity = ("index", "num_results", "drop_query_vec")

    def _search(self, data: IndexData, batch: pd.DataFrame) -> list[Ranking]:
        return search_sparse(data, sparse_queries(data, batch["qid"], batch["query_toks"]), self.num_results)

    def __repr__(self) -> str:
        return f"{self.index!r}.sparse(num_results={self.num_results})"


class FusedRetriever(_Retriever):
    """Exact top-k by dense score + w * sparse score over all documents.

    A query without an active concept is answered by its dense score alone.

    Args:
        index: A :class:`GraspIndex` with dense vectors and concept weights.
        w: Weight of the sparse score; the paper's is 0.1. A plain attribute, so that ``pt.GridSearch`` can tune it.
        num_results: Documents a query; all of them if the index holds fewer.
        batch_size: Queries at a time.
        verbose: Show progress.
        drop_query_vec: Leave the column ``query_vec`` out of the result.
    """

    schematic = {"label": "Dense + w Sparse", "help_url": None}
    _columns = ["query_vec", "query_toks"]
    _identity = ("index", "w", "num_results", "drop_query_vec")

    def __init__(
        self,
        index: GraspIndex,
        *,
        w: float = 0.1,
        num_results: int = 1000,
        batch_size: int = 128,
        verbose: bool = False,
        drop_query_vec: bool = False,
    ) -> None:
        super().__init__(
            index, num_results=num_results, batch_size=batch_size, verbose=verbose, drop_query_vec=drop_query_vec
        )
        self.w = w

    def _search(self, data: IndexData, batch: pd.DataFrame) -> list[Ranking]:
        w = check_w(self.w)
        vectors = dense_queries(data, batch["qid"], batch["query_vec"])
        queries = sparse_queries(data, batch["qid"], batch["query_toks"])
        return search_fused(data, vectors, queries, w, self.num_results)

    def __repr__(self) -> str:
        return f"{self.index!r}.fused(w={self.w}, num_results={self.num_results})"
