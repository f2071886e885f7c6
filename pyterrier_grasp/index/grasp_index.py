"""``GraspIndex``: the artifact and the factory of everything that reads or writes it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyterrier as pt

from pyterrier_grasp.index.arrays import index_arrays
from pyterrier_grasp.index.fuser import ScoreFuser
from pyterrier_grasp.index.indexer import GraspIndexer
from pyterrier_grasp.index.loaders import ToksLoader, VecLoader
from pyterrier_grasp.index.retrievers import DenseRetriever, FusedRetriever, SparseRetriever
from pyterrier_grasp.index.scorer import IndexScorer
from pyterrier_grasp.index.storage import META, IndexData, open_index, read_meta
from pyterrier_grasp.index.writer import sole_writer, stored_docnos

if TYPE_CHECKING:
    import numpy as np
    from scipy.sparse import csr_array


class GraspIndex(pt.Artifact, pt.Indexer):
    """Dense vectors and concept weights of a corpus, on disk.

    Args:
        path: The index folder. It need not exist yet.
        verbose: Show progress while indexing.

    Example::

        index = GraspIndex("photos.index")
        (model.doc_encoder() >> index).index(corpus_iter)
        fused = model.query_encoder() >> index.fused(w=0.1, num_results=100)
    """

    ARTIFACT_TYPE = "multimodal_index"
    ARTIFACT_FORMAT = "grasp"
    ARTIFACT_PACKAGE_HINT = "pyterrier_grasp"
    schematic = {"label": "GraspIndex", "help_url": None}

    def __init__(self, path: str | os.PathLike[str], *, verbose: bool = True) -> None:
        super().__init__(Path(path))
        self.verbose = verbose
        self._opened: IndexData | None = None

    # -- writing ------------------------------------------------------------------------------------------------------
    def index_inputs(self) -> list[list[str]]:
        """Columns of the documents to index."""
        return self.indexer().index_inputs()

    def indexer(self, mode: str = "create", *, shard_size: int = 1000, verbose: bool | None = None) -> GraspIndexer:
        """An indexer for this index; see :class:`GraspIndexer`.

        Args:
            mode: ``"create"`` or ``"overwrite"``. Overwriting removes the old index as soon as indexing starts.
            shard_size: Documents written at a time. A crash loses at most so many.
            verbose: Show progress; by default as the index does.
        """
        verbose = self.verbose if verbose is None else verbose
        return GraspIndexer(self, mode=mode, shard_size=shard_size, verbose=verbose)

    def index(self, iter: Iterable[Mapping[str, Any]], **kwargs: Any) -> GraspIndex:
        """Write documents ``{docno, doc_vec?, toks?, doc_model?}`` and finish; see :meth:`GraspIndexer.index`."""
        return self.indexer().index(iter, **kwargs)

    def add_arrays(
        self,
        docnos: Sequence[str],
        dense: np.ndarray | None = None,
        sparse: csr_array | None = None,
        *,
        names: Sequence[str] | None = None,
        doc_model: str | None = None,
    ) -> GraspIndex:
        """Make the index from whole arrays.

        Args:
            docnos: n document ids.
            dense: [n, d] float, or None.
            sparse: [n, |C|] scipy sparse array of weights >= 0, or None.
            names: Name of each column of ``sparse``.
            doc_model: Fingerprint of the model that made them.

        Returns:
            The index, built.

        Raises:
            FileExistsError: If the index is built already.
            ValueError: If shapes do not fit together, or values are not allowed.
            RuntimeError: If another process is writing the index.
        """
        with sole_writer(self._folder):
            if self.built():
                raise FileExistsError(f"{self.path} already holds a finished index; use another path")
            self.close()
            index_arrays(self._folder, docnos, dense, sparse, names, doc_model, self.verbose)
        return self

    def missing(self, corpus_iter: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """Only those documents that are not stored yet, in a finished or in an interrupted index.

        Args:
            corpus_iter: Dicts with ``docno``.

        Yields:
            The dicts whose docno is not stored. ``(encoder >> index).index(index.missing(corpus_iter))`` finishes an
            interrupted run and encodes nothing twice.
        """
        stored = set(self.docnos() if self.built() else stored_docnos(self._folder))
        for doc in corpus_iter:
            if doc["docno"] not in stored:
                yield doc

    # -- reading ------------------------------------------------------------------------------------------------------
    @property
    def _folder(self) -> Path:
        return Path(str(self.path))

    def built(self) -> bool:
        """Whether the index is whole."""
        return (self._folder / META).exists()

    @property
    def data(self) -> IndexData:
        """The stored arrays, memory-mapped; opened at first use.

        Raises:
            FileNotFoundError: If the index is not built.
        """
        if self._opened is None:
            self._check_built()
            self._opened = open_index(self._folder)
        return self._opened

    def _check_built(self) -> None:
        if self.built():
            return
        stored = sum(1 for _ in stored_docnos(self._folder))
        if stored:
            raise FileNotFoundError(
                f"the index in {self.path} is not finished: an interrupted run stored {stored} documents; continue "
                "with (encoder >> index).index(index.missing(corpus_iter))"
            )
        raise FileNotFoundError(f"there is no index in {self.path}; make one: (encoder >> index).index(corpus_iter)")

    def close(self) -> None:
        """Forget the opened files; they are opened again when needed."""
        self._opened = None

    def __len__(self) -> int:
        if self._opened is None:
            self._check_built()
            return int(read_meta(self._folder)["count"])
        return len(self._opened.docnos)

    def __bool__(self) -> bool:
        return True  # an index object is not "false" because it is empty or unbuilt

    def docnos(self) -> list[str]:
        """Ids of the documents, in the order of indexing."""
        return self.data.docnos.tolist()

    @property
    def dim(self) -> int | None:
        """Number of dimensions of the dense vectors; None if there are none."""
        return self.data.meta["dim"]

    @property
    def concepts(self) -> list[str] | None:
        """Concept names, sorted; None if documents were indexed without ``toks``."""
        return self.data.concepts

    @property
    def doc_model(self) -> str | None:
        """Fingerprint of the model that encoded the documents, if it said so."""
        return self.data.meta["doc_model"]

    # -- transformers -------------------------------------------------------------------------------------------------
    def dense(
        self,
        num_results: int = 1000,
        *,
        batch_size: int = 128,
        verbose: bool = False,
        drop_query_vec: bool = False,
    ) -> DenseRetriever:
        """Retriever by dot product with ``query_vec``; see :class:`DenseRetriever`."""
        return DenseRetriever(
            self, num_results=num_results, batch_size=batch_size, verbose=verbose, drop_query_vec=drop_query_vec
        )

    def sparse(
        self,
        num_results: int = 1000,
        *,
        batch_size: int = 128,
        verbose: bool = False,
        drop_query_vec: bool = False,
    ) -> SparseRetriever:
        """Retriever by dot product with ``query_toks``; see :class:`SparseRetriever`."""
        return SparseRetriever(
            self, num_results=num_results, batch_size=batch_size, verbose=verbose, drop_query_vec=drop_query_vec
        )

    def fused(
        self,
        w: float = 0.1,
        num_results: int = 1000,
        *,
        batch_size: int = 128,
        verbose: bool = False,
        drop_query_vec: bool = False,
    ) -> FusedRetriever:
        """Retriever by dense score + w * sparse score; see :class:`FusedRetriever`."""
        return FusedRetriever(
            self, w=w, num_results=num_results, batch_size=batch_size, verbose=verbose, drop_query_vec=drop_query_vec
        )

    def fuser(
        self,
        model: Any = None,
        w: float = 0.1,
        num_results: int | None = None,
        *,
        normalise: str | None = None,
        missing: str = "error",
    ) -> ScoreFuser:
        """Adds w * exact sparse score to the scores of a result frame; see :class:`ScoreFuser`."""
        return ScoreFuser(self, model, w=w, num_results=num_results, normalise=normalise, missing=missing)

    def scorer(self, kind: str = "fused", *, w: float = 0.1, num_results: int | None = None) -> IndexScorer:
        """Scores given documents by the dense, sparse or fused score; see :class:`IndexScorer`."""
        return IndexScorer(self, kind, w=w, num_results=num_results)

    def vec_loader(self) -> VecLoader:
        """Adds the column ``doc_vec``; see :class:`VecLoader`."""
        return VecLoader(self)

    def toks_loader(self) -> ToksLoader:
        """Adds the column ``toks``; see :class:`ToksLoader`."""
        return ToksLoader(self)

    # -- identity -----------------------------------------------------------------------------------------------------
    def __repr__(self) -> str:
        return f"GraspIndex({str(self.path)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GraspIndex) and os.path.abspath(self._folder) == os.path.abspath(other._folder)

    def __hash__(self) -> int:
        return hash(("GraspIndex", os.path.abspath(self._folder)))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}  # memory maps are opened again where the copy lives
