"""Measures of image-text retrieval that ir_measures lacks."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from ir_measures import Metric
from ir_measures.measures import Measure, ParamInfo

if TYPE_CHECKING:
    import pandas as pd


class _MAPAtR(Measure):
    """Mean average precision at R, where R is the number of relevant documents of the query.

    ``(1 / R) * sum over r = 1..R of P(r) * rel(r)``, with ``P(r)`` the precision of the first r documents and
    ``rel(r)`` 1 where the r-th is relevant, else 0. Unlike trec_eval's ``AP`` it looks at the first R documents only:
    at most ``Rprec``, and 1 only where the first R are the relevant ones. Retrieve at least R documents (the largest R
    of ECCV Caption is 19 for captions and 48 for images): what is missing counts as not relevant. A query without
    relevant documents has 0.

    Documents are ordered as trec_eval does, so that the measure agrees with ``Rprec`` and ``Success``: by the score as
    float32, ties by document id, descending.

    Source: K. Musgrave et al., A Metric Learning Reality Check, ECCV 2020; for image-text retrieval S. Chun et
    al., ECCV Caption, ECCV 2022, and their package ``eccv-caption``.
    """

    __name__ = "mAP@R"
    NAME = __name__
    PRETTY_NAME = "Mean Average Precision at R"
    SHORT_DESC = (
        "Average precision within the first R documents, R being the number of relevant documents of the query."
    )
    SUPPORTED_PARAMS = {
        "rel": ParamInfo(dtype=int, default=1, desc="minimum relevance score to be considered relevant (inclusive)"),
    }
    RUN_INPUTS: ClassVar[list[str]] = ["query_id", "doc_id", "score"]
    QREL_INPUTS: ClassVar[list[str]] = ["query_id", "doc_id", "relevance"]

    def runtime_impl(self, qrels: "pd.DataFrame", run: "pd.DataFrame") -> Iterator[Metric]:
        """Called by ir_measures' provider of measures defined at run time.

        Args:
            qrels: Columns ``query_id``, ``doc_id``, ``relevance``.
            run: Columns ``query_id``, ``doc_id``, ``score``, in any order.

        Yields:
            The value of each query of ``run`` that has a relevant document.
        """
        judged = qrels[qrels["relevance"] >= self["rel"]]
        relevant = {query: set(docs) for query, docs in judged.groupby("query_id")["doc_id"]}
        for query, results in run[run["query_id"].isin(relevant.keys())].groupby("query_id"):
            docs = results["doc_id"].to_numpy(dtype=object)
            scores = results["score"].to_numpy(dtype=np.float32)
            ids_descending = np.argsort(docs)[::-1]
            order = ids_descending[np.argsort(-scores[ids_descending], kind="stable")]
            yield Metric(str(query), self, _average_precision_at_r(docs[order], relevant[query]))


def _average_precision_at_r(ranking: Any, relevant: set[str]) -> float:
    hits = np.array([doc in relevant for doc in ranking[: len(relevant)]], dtype=np.float64)
    precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    return float((precision * hits).sum() / len(relevant))


#: mAP@R, to be used like any measure of ir_measures: ``pt.Experiment(..., [mAP_R, Rprec, Success@1])``.
mAP_R = _MAPAtR()  # noqa: N816  (as the literature spells it)
