"""Validation during training: D, S and D+S of a split, ranked as trec_eval ranks."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from pyterrier_grasp.backbones import LiveStore, StateStore
from pyterrier_grasp.methods import DualEncoder, Encoded, Method
from pyterrier_grasp.training.pairs import Pairs, dense_rows

# Sparse scores are cosines (the upper end), evidence, or dot products of thousands of dimensions (the lower end).
W_GRID = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 2.0)


class Validation:
    """Scores every query of a split against every image of it.

    Args:
        pairs: The split.
        method: Turns raw scores into vectors.
        own: Which tokens each text has itself, CSR ``[n_texts, |C|]``; for a method that needs them.
        tune_w: Also choose ``w`` from ``W_GRID`` (which has no 0) by R@1.
        batch_size: Inputs a pass.
    """

    def __init__(
        self,
        pairs: Pairs,
        method: Method,
        *,
        own: sp.csr_array | None = None,
        tune_w: bool = False,
        batch_size: int = 256,
    ) -> None:
        self.pairs = pairs
        self.method = method
        self.own = own
        self.tune_w = tune_w
        self.batch_size = batch_size
        # trec_eval breaks ties by docno, descending: with images in that order, an earlier column wins a tie.
        self.order = np.argsort(np.asarray(pairs.docnos, dtype=object))[::-1].copy()
        column = np.empty(len(self.order), dtype=np.int64)
        column[self.order] = np.arange(len(self.order))
        self.relevant = column[pairs.image_index]

    @torch.no_grad()
    def __call__(self, encoder: DualEncoder) -> dict[str, float]:
        """Metrics by name: ``D_R@1``, ``S_R@1``, ``D+S_R@1`` (published weight), ``D+S_w_R@1`` (``tune_w``), ``w``, ...

        Also ``text_active`` and ``image_active``, the shares of non-zero sparse dimensions, in [0, 1]. A pair whose
        score is not a number, as after a diverged training, counts as not found.
        """
        training = encoder.training
        encoder.eval()
        try:
            text_dense, text_sparse = self._encode(encoder, "text", self.pairs.texts, self.pairs.text_rows)
            image_rows = self.pairs.image_rows[self.order]
            image_dense, image_sparse = self._encode(encoder, "image", self.pairs.images, image_rows)
        finally:
            encoder.train(training)
        dense = text_dense @ image_dense.T
        metrics = self._measures("D", dense)
        if text_sparse is None or image_sparse is None:
            return metrics
        sparse = text_sparse @ image_sparse.T
        metrics |= self._measures("S", sparse, retrieved=sparse > 0)
        official = self.method.official_w(encoder.tau().item())
        metrics |= self._measures("D+S", dense + official * sparse)
        if self.tune_w:
            scored = [(self._measures("D+S_w", dense + w * sparse), w) for w in W_GRID]
            best, w = max(scored, key=lambda pair: (pair[0]["D+S_w_R@1"], pair[0]["D+S_w_RR@10"], -pair[1]))
            metrics |= best | {"w": w}
        else:
            metrics["w"] = official
        metrics["text_active"] = float((text_sparse > 0).float().mean())
        metrics["image_active"] = float((image_sparse > 0).float().mean())
        return metrics

    def _encode(
        self, encoder: DualEncoder, modality: str, store: StateStore | LiveStore, rows: np.ndarray
    ) -> tuple[Tensor, Any]:
        dense: list[Tensor] = []
        sparse: list[Tensor] = []
        own = self.own if self.method.needs_own(modality) else None
        for encoded in encode_rows(encoder, store, rows, modality, batch_size=self.batch_size):
            start = sum(map(len, dense))
            dense.append(encoded.dense.float())
            if encoded.raw is not None or own is not None:
                part = None if own is None else dense_rows(own, slice(start, start + len(encoded.dense)))
                part = None if part is None else part.to(encoded.dense.device)
                sparse.append(self.method.sparse_vectors(encoded.raw, modality, part).float())
        return torch.cat(dense), torch.cat(sparse) if sparse else None

    def _measures(self, name: str, scores: Tensor, retrieved: Tensor | None = None) -> dict[str, float]:
        """R@1, R@5 and RR@10 of ``scores`` ``[n_texts, n_images]``, averaged over queries."""
        n_queries, n_images = scores.shape
        not_found = max(n_images, 10)  # beyond every cut-off, also where there are fewer images than that
        queries = self.pairs.text_index
        query_of, column_of = (torch.tensor(index, device=scores.device) for index in (queries, self.relevant))
        ranks = np.empty(len(queries), dtype=np.int64)
        earlier = torch.arange(n_images, device=scores.device).unsqueeze(0)
        for start in range(0, len(queries), 1024):
            part = slice(start, start + 1024)
            rows, column = scores[query_of[part]], column_of[part].unsqueeze(1)
            own = rows.gather(1, column)
            above = (rows > own) | ((rows == own) & (earlier < column))
            found = ~own.isnan().squeeze(1)
            if retrieved is not None:
                found &= retrieved[query_of[part], column_of[part]]
            ranks[part] = torch.where(found, above.sum(1), not_found).cpu().numpy()
        relevant = np.bincount(queries, minlength=n_queries)
        best = np.full(n_queries, not_found)
        np.minimum.at(best, queries, ranks)
        measures = {
            f"{name}_R@{k}": float((np.bincount(queries, ranks < k, n_queries) / relevant).mean()) for k in (1, 5)
        }
        measures[f"{name}_RR@10"] = float(np.where(best < 10, 1 / (best + 1), 0).mean())
        return measures


def encode_rows(
    encoder: DualEncoder, store: StateStore | LiveStore, rows: np.ndarray, modality: str, *, batch_size: int = 256
) -> Iterator[Encoded]:
    """Stored token states through the encoder, a batch at a time, on the encoder's device.

    Args:
        encoder: The trainable part.
        store: Where the states are.
        rows: Rows of the store, int64 ``[n]``.
        modality: ``text`` or ``image``.
        batch_size: Inputs a pass.

    Yields:
        The encodings of up to ``batch_size`` inputs, in the order of ``rows``.
    """
    for start in range(0, len(rows), batch_size):
        tokens = store.batch(rows[start : start + batch_size]).to(encoder.temperature.device)
        yield encoder.encode(tokens, modality)
