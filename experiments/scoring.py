"""A model's dense and sparse scores of a whole split, their measures query by query, and weights from validation."""

from typing import Any, NamedTuple

import ir_measures
import numpy as np
import pandas as pd
from ir_measures import RR, R, Success

import pyterrier_grasp as ptg
from experiments.corpora import Corpus
from pyterrier_grasp.backbones import LiveStates
from pyterrier_grasp.training.pairs import make_pairs, relevant_pairs
from pyterrier_grasp.training.validation import W_GRID, Validation

# Of a caption with one image; an image has several captions, and the literature's R@k is then Success@k.
MEASURES = {"t2i": [R @ 1, R @ 5, RR @ 10], "i2t": [Success @ 1, Success @ 5, RR @ 10]}
NAMES = ("R@1", "R@5", "RR@10")
# Dense, sparse, fused with the method's own weight, fused with the weight that is best on validation.
SYSTEMS = ("D", "S", "official", "calibrated")
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


def evaluate(
    model: ptg.GraspModel,
    corpus: Corpus,
    states: ptg.TokenStateCache | LiveStates,
    systems: tuple[str, ...] = SYSTEMS,
) -> tuple[dict[str, Any], pd.DataFrame]:
    """A model's figures on test, in both directions; each direction has its own ``w`` from validation.

    Args:
        model: A trained model.
        corpus: Its splits.
        states: Token states.
        systems: Of ``SYSTEMS``; those that need a sparse branch are left out of a model without one.

    Returns:
        Figures: ``systems`` (direction -> system -> measure, in [0, 1]), ``w`` (direction -> system), ``active``,
        ``dimensions`` and ``validation``; and the measures of each query, with ``direction`` and ``system``.
    """
    splits = corpus.splits
    validation = choose_w(model, splits.val, states)
    scored = score(model, splits.test, states)
    figures: dict[str, Any] = {"dimensions": 0 if model.space is None else len(model.space), "systems": {}, "w": {}}
    figures["validation"] = validation
    if scored.sparse is not None:
        figures["active"] = scored.active
        reverse = choose_reverse_w(score(model, splits.val, states), corpus.reverse_qrels("val"))
        for direction, calibrated in (("t2i", validation["w"]), ("i2t", reverse)):
            official = model.method.official_w(model.encoder.tau().item())
            weights = {"official": official, "calibrated": calibrated}
            figures["w"][direction] = {name: w for name, w in weights.items() if name in systems}
    queries = []
    for direction, qrels in (("t2i", splits.test.get_qrels()), ("i2t", corpus.reverse_qrels("test"))):
        found: dict[str, tuple[np.ndarray, np.ndarray | None]] = {"D": (scored.dense, None)}
        if scored.sparse is not None:
            found["S"] = (scored.sparse, scored.sparse > 0)
            found |= {name: (scored.dense + w * scored.sparse, None) for name, w in figures["w"][direction].items()}
        for system in (name for name in systems if name in found):
            table = measure(found[system][0], scored, qrels, direction, retrieved=found[system][1])
            figures["systems"].setdefault(direction, {})[system] = {n: float(table[n].mean()) for n in NAMES}
            queries.append(table.reset_index().assign(direction=direction, system=system))
    return figures, pd.concat(queries)


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


def choose_reverse_w(scored: Scores, qrels: pd.DataFrame) -> float:
    """The weight of ``W_GRID`` with the best Success@1 image -> text; then the best RR@10, then the smallest.

    Args:
        scored: Of a validation split, with a sparse branch.
        qrels: Image -> text.
    """
    if scored.sparse is None:
        raise ValueError("a model without a sparse branch has no weight to choose")
    # ties go to the larger docno, as in trec_eval: with texts in that order, an earlier column wins a tie
    order = np.argsort(np.asarray(scored.qids, dtype=object))[::-1]
    dense, sparse = (np.ascontiguousarray(scores.T[:, order]) for scores in (scored.dense, scored.sparse))
    rows, columns = pd.Index(scored.docnos), pd.Index(np.asarray(scored.qids, dtype=object)[order])
    judged = qrels[(qrels["label"] > 0) & qrels["qid"].isin(rows) & qrels["docno"].isin(columns)]
    relevant = np.zeros(dense.shape, dtype=bool)
    relevant[rows.get_indexer(pd.Index(judged["qid"])), columns.get_indexer(pd.Index(judged["docno"]))] = True
    relevant, dense, sparse = (table[relevant.any(axis=1)] for table in (relevant, dense, sparse))

    def quality(w: float) -> tuple[float, float, float]:
        scores = dense + w * sparse
        own = np.where(relevant, scores, -np.inf)
        first = own.argmax(axis=1)[:, None]
        best = np.take_along_axis(own, first, axis=1)
        ranks = ((scores > best) | ((scores == best) & (np.arange(scores.shape[1]) < first))).sum(axis=1)
        reciprocal = np.where(ranks < DEPTH, 1 / (ranks + 1), 0)
        # equal sums in another order differ in their last digits
        return float((ranks == 0).mean()), round(float(reciprocal.mean()), 9), -w

    return max(W_GRID, key=quality)
