"""A model's dense and sparse scores of a whole split, and their measures query by query."""

from typing import Any, NamedTuple

import ir_measures
import numpy as np
import pandas as pd
from ir_measures import RR, R, Success

import pyterrier_grasp as ptg
from pyterrier_grasp.backbones import LiveStates
from pyterrier_grasp.training.pairs import make_pairs, relevant_pairs
from pyterrier_grasp.training.validation import Validation

# Of a caption with one image; an image has several captions, and the literature's R@k is then Success@k.
MEASURES = {"t2i": [R @ 1, R @ 5, RR @ 10], "i2t": [Success @ 1, Success @ 5, RR @ 10]}
NAMES = ("R@1", "R@5", "RR@10")
DEPTH = 10


class Scores(NamedTuple):
    """Scores of every text and image of a split.

    Attributes:
        qids: Texts, length n.
        docnos: Images, length m.
        dense: Cosines, float32 ``[n, m]``.
        sparse: Sparse scores, float32 ``[n, m]``; None without a sparse branch.
        active: Mean number of non-zero dimensions of a text and of an image.
    """

    qids: list[str]
    docnos: list[str]
    dense: np.ndarray
    sparse: np.ndarray | None
    active: tuple[float, float] | None


def score(
    model: ptg.GraspModel, split: Any, cache: ptg.TokenStateCache | LiveStates, *, batch_size: int = 256
) -> Scores:
    """All scores of a split.

    They are those of the model's encoders and an exact index, computed as matrix products over cached token states: a
    token-space model without pruning has ten thousand active dimensions a caption.

    Args:
        model: A trained model.
        split: A text -> image dataset.
        cache: Token states.
        batch_size: Inputs a pass.
    """
    topics = split.get_topics()
    docs = list(split.get_corpus_iter(verbose=False))
    queries, paths = topics["query"].tolist(), [doc["path"] for doc in docs]
    texts, images = cache.texts(queries), cache.images(paths)
    text_rows, image_rows = texts.rows(queries), images.rows([cache.backbone.image_key(path) for path in paths])

    encoded = [
        model.encode_states(images.batch(image_rows[start : start + batch_size]), "image")
        for start in range(0, len(paths), batch_size)
    ]
    image_dense = np.concatenate([dense for dense, _ in encoded])
    image_sparse = np.concatenate([sparse.toarray() for _, sparse in encoded]) if model.has_concepts else None
    dense_rows, sparse_rows, active = [], [], 0
    for start in range(0, len(queries), batch_size):
        part = slice(start, start + batch_size)
        dense, sparse = model.encode_states(texts.batch(text_rows[part]), "text", texts=queries[part])
        dense_rows.append(dense @ image_dense.T)
        if image_sparse is not None:
            sparse_rows.append(sparse.toarray() @ image_sparse.T)
            active += int((sparse.data != 0).sum())
    return Scores(
        topics["qid"].astype(str).tolist(),
        [str(doc["docno"]) for doc in docs],
        np.concatenate(dense_rows),
        np.concatenate(sparse_rows) if sparse_rows else None,
        None if image_sparse is None else (active / len(queries), float((image_sparse != 0).sum(1).mean())),
    )


def measure(scores: np.ndarray, scored: Scores, qrels: pd.DataFrame, direction: str, *, retrieved: Any = None) -> Any:
    """Measures of each query.

    Args:
        scores: Float ``[n, m]``, texts by images, in either direction.
        scored: Gives the ids.
        qrels: Of the direction.
        direction: ``t2i`` or ``i2t``.
        retrieved: Bool ``[n, m]``: what has a score at all; None for everything.

    Returns:
        A frame with a row a query (index ``qid``, sorted) and the columns R@1, R@5, RR@10 in [0, 1]; 0 where nothing is
        retrieved.
    """
    qids, docnos = scored.qids, scored.docnos
    if direction == "i2t":
        scores, qids, docnos = scores.T, docnos, qids
        retrieved = None if retrieved is None else retrieved.T
    # ties go to the larger docno, as in trec_eval
    order = np.argsort(np.asarray(docnos, dtype=object))[::-1]
    names = np.asarray(docnos, dtype=object)[order]
    ordered = scores[:, order]
    if retrieved is not None:
        ordered = np.where(retrieved[:, order], ordered, -np.inf)
    top = np.argsort(-ordered, axis=1, kind="stable")[:, :DEPTH]
    values = np.take_along_axis(ordered, top, axis=1)
    run = pd.DataFrame(
        {
            "query_id": np.repeat(np.asarray(qids, dtype=object), top.shape[1]),
            "doc_id": names[top].ravel(),
            "score": values.ravel().astype(np.float64),
        }
    )
    run = run[np.isfinite(run["score"])]
    judged = qrels.rename(columns={"qid": "query_id", "docno": "doc_id", "label": "relevance"})
    measures = MEASURES[direction]
    found = pd.DataFrame(ir_measures.iter_calc(measures, judged, run), columns=["query_id", "measure", "value"])
    found["measure"] = found["measure"].map(dict(zip(measures, NAMES, strict=True)))
    table = found.pivot(index="query_id", columns="measure", values="value")
    # pytrec_eval leaves out a query without results
    return table.reindex(index=sorted(qids), columns=list(NAMES)).fillna(0.0).rename_axis("qid")


def choose_w(model: ptg.GraspModel, split: Any, cache: ptg.TokenStateCache | LiveStates) -> dict[str, float]:
    """Measures of a split by name, with ``w``: the weight of the grid with the best D+S; see ``Validation``."""
    relevant = relevant_pairs(split.get_topics(), split.get_qrels())
    paths = {str(doc["docno"]): doc["path"] for doc in split.get_corpus_iter(verbose=False)}
    pairs = make_pairs(relevant, paths, cache)
    own = None
    if model.method.needs_own_tokens and isinstance(model.space, ptg.TokenSpace):
        own = model.space.multi_hot(model.backbone, pairs.queries)
    return Validation(pairs, model.method, own=own, tune_w=True)(model.encoder)
