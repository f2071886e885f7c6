"""Training pairs (caption, image) over cached token states: from PyTerrier frames to batches."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyterrier as pt
import scipy.sparse as sp
import torch
from torch import Tensor

from pyterrier_grasp.backbones import Backbone, LiveStates, LiveStore, StateStore, TokenSpace, TokenStateCache
from pyterrier_grasp.methods import Space

Corpus = Any  # a PyTerrier dataset, or an iterable of dicts {docno, path}


@dataclass(frozen=True)
class Pairs:
    """Relevant (text, image) pairs of a split, and where their token states are.

    Attributes:
        qids: Distinct queries, length ``n_texts``.
        queries: Their texts.
        docnos: Distinct images, length ``n_images``.
        text_index: Pair -> position in ``qids``, int64 ``[n]``.
        image_index: Pair -> position in ``docnos``, int64 ``[n]``.
        texts: Store of text states; ``text_rows`` int64 ``[n_texts]`` are the rows of ``qids``.
        images: Store of image states; ``image_rows`` int64 ``[n_images]`` are the rows of ``docnos``.
    """

    qids: list[str]
    queries: list[str]
    docnos: list[str]
    text_index: np.ndarray
    image_index: np.ndarray
    texts: StateStore | LiveStore
    text_rows: np.ndarray
    images: StateStore | LiveStore
    image_rows: np.ndarray

    def __len__(self) -> int:
        return len(self.text_index)


def collect_paths(corpus: Corpus | Sequence[Corpus] | None, docnos: Iterable[str]) -> dict[str, str]:
    """Image paths of ``docnos``.

    Args:
        corpus: A PyTerrier dataset or an iterable of dicts ``{docno, path}``, or a list of such.
        docnos: The images that are needed.

    Raises:
        ValueError: If there is no corpus, an image is not in it, or a document has no path.
    """
    if corpus is None:
        raise ValueError("no corpus: give corpus=[train, val], the datasets whose images the qrels name")
    wanted = dict.fromkeys(docnos)
    sources = corpus if isinstance(corpus, (list, tuple)) and not _is_docs(corpus) else [corpus]
    paths: dict[str, str] = {}
    for source in sources:
        docs = source.get_corpus_iter(verbose=False) if hasattr(source, "get_corpus_iter") else source
        for doc in docs:
            if not isinstance(doc, Mapping) or "docno" not in doc or "path" not in doc:
                raise ValueError(f"a document of the corpus is {doc!r:.200}; it must be a dict with docno and path")
            if doc["docno"] in wanted:
                paths[doc["docno"]] = doc["path"]
    missing = [docno for docno in wanted if docno not in paths]
    if missing:
        raise ValueError(
            f"{len(missing)} of {len(wanted)} images in the qrels are not in the corpus, for example {missing[0]!r}; "
            "give every dataset that the qrels come from, as in corpus=[train, val]"
        )
    return paths


def _is_docs(corpus: Sequence[Any]) -> bool:
    return len(corpus) > 0 and isinstance(corpus[0], dict)


def relevant_pairs(topics: pd.DataFrame, qrels: pd.DataFrame) -> pd.DataFrame:
    """Join topics and qrels.

    Args:
        topics: Frame with ``qid, query``; a result frame works too, its queries are taken.
        qrels: Frame with ``qid, docno, label``; labels above 0 are pairs.

    Returns:
        A frame ``qid, docno, query``, a row a relevant pair.

    Raises:
        ValueError: If columns are missing, or no topic has a relevant image.
    """
    for name, frame, columns in (("topics", topics, ["qid", "query"]), ("qrels", qrels, ["qid", "docno", "label"])):
        absent = [column for column in columns if column not in frame.columns]
        if absent:
            raise ValueError(f"{name} lack the columns {absent}; they have {list(frame.columns)}")
    topics = topics[["qid", "query"]].drop_duplicates("qid")
    relevant = qrels[qrels["label"] > 0][["qid", "docno"]].drop_duplicates()
    # Numbers and strings never join; pandas' own message does not say which frame to change.
    pairs = relevant.astype({"qid": object}).merge(topics.astype({"qid": object}), on="qid")
    if pairs.empty:
        examples = [frame["qid"].tolist()[0] for frame in (topics, qrels) if len(frame)]
        raise ValueError(
            f"none of the {len(topics)} topics has a relevant image among the {len(qrels)} qrels; "
            f"their qids look like {' and '.join(map(repr, examples))}"
        )
    return pairs


def make_pairs(
    pairs: pd.DataFrame, paths: Mapping[str, str], cache: TokenStateCache | LiveStates, *, verbose: bool = False
) -> Pairs:
    """Encode with the frozen backbone whatever the cache lacks, and find the states of each pair.

    Args:
        pairs: What :func:`relevant_pairs` returns.
        paths: Image path of each docno, as :func:`collect_paths` returns.
        cache: Where token states are kept, or :class:`LiveStates` to keep none.
        verbose: Show progress.
    """
    text_index, qids = pd.factorize(pairs["qid"])
    image_index, docnos = pd.factorize(pairs["docno"])
    queries = pairs.drop_duplicates("qid")["query"].tolist()
    images: list[str | Path] = [paths[docno] for docno in docnos]
    text_store = cache.texts(queries, verbose=verbose)
    image_store = cache.images(images, verbose=verbose)
    return Pairs(
        list(qids),
        queries,
        list(docnos),
        text_index.astype(np.int64),
        image_index.astype(np.int64),
        text_store,
        text_store.rows(queries),
        image_store,
        image_store.rows([cache.backbone.image_key(path) for path in images]),
    )


class PairDataset(torch.utils.data.Dataset):
    """Pair numbers; the collator turns them into tensors, a whole batch at a time."""

    def __init__(self, pairs: Pairs) -> None:
        self.pairs = pairs

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> int:
        return index


class Labels(NamedTuple):
    """What a loss is told of each text and image, CSR ``[n_texts, |C|]`` and ``[n_images, |C|]``; None for nothing."""

    texts: sp.csr_array | None = None
    images: sp.csr_array | None = None


def make_labels(pairs: Pairs, space: Space | None, backbone: Backbone) -> Labels:
    """Labels of the pairs in ``space``: concepts of texts and images, or the tokens that a text has itself.

    Raises:
        KeyError: If a caption or an image of the pairs is not one the concept space was built from.
    """
    if isinstance(space, TokenSpace):
        return Labels(space.multi_hot(backbone, pairs.queries))
    return Labels() if space is None else Labels(space.text_labels(pairs.qids), space.image_labels(pairs.docnos))


class PairCollator:
    """Batch of pair numbers -> token states, image ids and labels, as the training module takes them.

    Args:
        pairs: The pairs.
        labels: Their labels.
    """

    def __init__(self, pairs: Pairs, labels: Labels) -> None:
        self.pairs = pairs
        self.labels = labels

    def __call__(self, batch: list[int]) -> dict[str, Tensor]:
        pairs = self.pairs
        texts, images = pairs.text_index[batch], pairs.image_index[batch]
        text, image = pairs.texts.batch(pairs.text_rows[texts]), pairs.images.batch(pairs.image_rows[images])
        tensors = {
            "text_states": text.states,
            "text_mask": text.mask,
            "text_special": text.special,
            "image_states": image.states,
            "image_mask": image.mask,
            "image_special": image.special,
            "image_ids": torch.from_numpy(images),
        }
        if self.labels.texts is not None:
            tensors["text_labels"] = dense_rows(self.labels.texts, texts)
        if self.labels.images is not None:
            tensors["image_labels"] = dense_rows(self.labels.images, images)
        return tensors


def dense_rows(labels: sp.csr_array, rows: np.ndarray | slice) -> Tensor:
    """Rows of a label matrix as float32 ``[len(rows), |C|]``."""
    return torch.from_numpy(labels[rows].toarray().astype(np.float32, copy=False))


def cache_folder(root: str | Path | None) -> Path:
    """``root``, or the default folder for token states under PyTerrier's home."""
    return Path(root) if root is not None else Path(pt.io.pyterrier_home()) / "grasp" / "token_states"
