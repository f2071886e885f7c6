"""Bringing stored vectors and concept weights to a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_grasp.index.base import IndexTransformer

if TYPE_CHECKING:
    from pyterrier_grasp.index.grasp_index import GraspIndex


def _objects(values: list) -> np.ndarray:
    out = np.empty(len(values), dtype=object)  # np.array(values) would make one 2-D array of equal-sized vectors
    for i, value in enumerate(values):
        out[i] = value
    return out


class _Loader(IndexTransformer):
    def __init__(self, index: GraspIndex) -> None:
        self.index = index

    def fuse_rank_cutoff(self, k: int) -> pt.Transformer | None:
        """Cut first, load then."""
        return pt.RankCutoff(k) >> self


class VecLoader(_Loader):
    """Adds ``doc_vec``, [d] float32, to a frame with ``docno``.

    Args:
        index: A :class:`GraspIndex` with dense vectors.
    """

    schematic = {"label": "Load doc_vec", "help_url": None}
    _method = "vec_loader"

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Load.

        Raises:
            KeyError: Naming a docno that is not in the index.
            ValueError: If the index has no dense vectors.
        """
        pt.validate.columns(inp, includes=["docno"], context=self)
        if not len(inp):
            return inp.assign(doc_vec=_objects([]))
        data = self.index.data
        if data.dense is None:
            raise ValueError("the index has no dense vectors: its documents were indexed without doc_vec")
        return inp.assign(doc_vec=_objects(list(data.dense[data.rows(inp["docno"])])))


class ToksLoader(_Loader):
    """Adds ``toks``, dict concept name -> float, to a frame with ``docno``.

    Args:
        index: A :class:`GraspIndex` with concept weights.
    """

    schematic = {"label": "Load toks", "help_url": None}
    _method = "toks_loader"

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Load.

        Raises:
            KeyError: Naming a docno that is not in the index.
            ValueError: If the index has no concepts.
        """
        pt.validate.columns(inp, includes=["docno"], context=self)
        if not len(inp):
            return inp.assign(toks=_objects([]))
        data = self.index.data
        if data.toks is None or data.concepts is None:
            raise ValueError("the index has no concepts: its documents were indexed without toks")
        toks = []
        for row in data.rows(inp["docno"]):
            part = slice(data.toks.indptr[row], data.toks.indptr[row + 1])
            names = (data.concepts[i] for i in data.toks.ids[part])
            toks.append(dict(zip(names, data.toks.data[part].tolist(), strict=True)))
        return inp.assign(toks=_objects(toks))
