"""``ScoreFuser``: adds the exact sparse score to the scores of any first stage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_grasp.index.base import IndexTransformer, check_num_results, check_w, cut_off
from pyterrier_grasp.index.frames import empty_reranked, rerank
from pyterrier_grasp.index.queries import check_models, group_by_query, query_values
from pyterrier_grasp.index.scorer import sparse_pair_scores

if TYPE_CHECKING:
    from pyterrier_grasp.index.grasp_index import GraspIndex


class ScoreFuser(IndexTransformer):
    """score + w * sparse score, for every given (query, document).

    The sparse score is computed from the index for each row, never guessed. Its query side is the column ``query_toks``
    where the frame has it; otherwise ``query`` is encoded with ``model``, each distinct text once. Where queries are
    images, a frame without ``query_toks`` gets it from ``model.image_query_encoder() >> index.fuser()``.

    Args:
        index: A :class:`GraspIndex` with concept weights.
        model: Something with ``concept_encoder()`` (a transformer ``query`` -> ``query_toks``) and ``fingerprint``; may
            be None if frames bring ``query_toks``.
        w: Weight of the sparse score. A plain attribute, so that ``pt.GridSearch`` can tune it.
        num_results: Keep so many documents a query; None keeps all.
        normalise: Brings the incoming scores of each query to one scale before the sum: None leaves them,
            ``"minmax"`` maps them to [0, 1], ``"zscore"`` to mean 0 and standard deviation 1. Where all scores of a
            query are equal, both give 0.
        missing: ``"error"`` raises on a docno that the index lacks, ``"zero"`` adds nothing to its score.

    Raises:
        ValueError: On another ``normalise`` or ``missing``, or a ``num_results`` below 1.
    """

    schematic: ClassVar[dict[str, Any]] = {"label": "+ w Sparse", "help_url": None}
    _identity = ("index", "w", "num_results", "normalise", "missing")

    def __init__(
        self,
        index: GraspIndex,
        model: Any = None,
        *,
        w: float = 0.1,
        num_results: int | None = None,
        normalise: str | None = None,
        missing: str = "error",
    ) -> None:
        if normalise not in (None, "minmax", "zscore"):
            raise ValueError(f"normalise must be None, 'minmax' or 'zscore', got {normalise!r}")
        if missing not in ("error", "zero"):
            raise ValueError(f"missing must be 'error' or 'zero', got {missing!r}")
        check_num_results(num_results, optional=True)
        self.index = index
        self.model = model
        self.w = w
        self.num_results = num_results
        self.normalise = normalise
        self.missing = missing

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Fuse.

        Args:
            inp: Result frame with ``score``, and ``query_toks`` (equal in all rows of a query) or ``query``.

        Returns:
            The rows sorted by query, new score descending, docno descending, with ``score`` (float64) and ``rank``
            (int64, from 0) replaced; other columns are kept.

        Raises:
            KeyError: Naming a docno that is not in the index, with ``missing="error"``.
            ValueError: If an incoming score is not finite, or queries and index come from different models.
        """
        with pt.validate.any(inp, context=self) as v:
            v.result_frame(["score", "query_toks"], mode="toks")
            if self.model is not None:
                v.result_frame(["score", "query"], mode="model")
        if not len(inp):
            return empty_reranked(inp)
        data = self.index.data
        own_toks = "query_toks" in inp.columns
        codes, qids = group_by_query(inp)
        values = query_values(inp, "query_toks" if own_toks else "query", codes, qids)
        if own_toks:
            if "query_model" in inp.columns:
                check_models(data.meta["doc_model"], inp["query_model"])
            toks = values
        else:
            check_models(data.meta["doc_model"], [getattr(self.model, "fingerprint", None)])
            toks = self._encode(values)
        scores = inp["score"].to_numpy(dtype=np.float64)
        bad = ~np.isfinite(scores)
        if bad.any():
            row = inp.iloc[int(np.argmax(bad))]
            raise ValueError(f"score of query {row['qid']!r}, document {row['docno']!r} is {row['score']}, not finite")
        rows = data.find(inp["docno"]) if self.missing == "zero" else data.rows(inp["docno"])
        incoming = normalise_scores(scores, codes, self.normalise)
        fused = incoming + check_w(self.w) * sparse_pair_scores(data, rows, codes, qids, toks)
        return rerank(inp, codes, fused, self.num_results)

    def _encode(self, queries: list[Any]) -> list[Any]:
        """``query_toks`` of each query, each distinct text encoded once."""
        which, texts = pd.factorize(np.array(queries, dtype=object))
        frame = pd.DataFrame({"qid": [str(i) for i in range(len(texts))], "query": list(texts)})
        encoded = self.model.concept_encoder()(frame).set_index("qid")["query_toks"]
        return [encoded[str(i)] for i in which]

    def fuse_rank_cutoff(self, k: int) -> pt.Transformer | None:
        """A copy with ``num_results=k`` if that is fewer, else None."""
        return cut_off(self, self.num_results, k)

    def _key(self) -> tuple[Any, ...]:
        return (*super()._key(), getattr(self.model, "fingerprint", self.model))

    def __repr__(self) -> str:
        options = [f"w={self.w}"]
        options += [f"num_results={self.num_results}"] if self.num_results is not None else []
        options += [f"normalise={self.normalise!r}"] if self.normalise else []
        options += [f"missing={self.missing!r}"] if self.missing != "error" else []
        return f"{self.index!r}.fuser({', '.join(options)})"


def normalise_scores(scores: np.ndarray, codes: np.ndarray, how: str | None) -> np.ndarray:
    """Normalise the scores of each query.

    Args:
        scores: [rows] float64.
        codes: [rows] number of each row's query.
        how: None, ``"minmax"`` or ``"zscore"`` (population standard deviation).

    Returns:
        [rows] float64; 0 where all scores of a query are equal.
    """
    if how is None:
        return scores
    groups = pd.Series(scores).groupby(codes)
    low, high = groups.transform("min").to_numpy(), groups.transform("max").to_numpy()
    flat = low == high
    if how == "minmax":
        return np.where(flat, 0.0, (scores - low) / np.where(flat, 1.0, high - low))
    mean, spread = groups.transform("mean").to_numpy(), groups.transform("std", ddof=0).to_numpy()
    return np.where(flat, 0.0, (scores - mean) / np.where(flat | (spread == 0), 1.0, spread))
