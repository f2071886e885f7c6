"""The indexer: documents in, a finished index out, resumable in between."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyterrier as pt
from tqdm.auto import tqdm

from pyterrier_grasp.index.documents import parse_document
from pyterrier_grasp.index.writer import IndexWriter, remove_index, sole_writer

if TYPE_CHECKING:
    from pyterrier_grasp.index.grasp_index import GraspIndex

_END = object()


class GraspIndexer(pt.Indexer):
    """Writes documents to a :class:`GraspIndex`.

    Args:
        index: The index to write.
        mode: ``"create"`` writes a new index or goes on with an interrupted one; ``"overwrite"`` first removes what is
            there.
        shard_size: Documents a shard, the unit in which work is safe against a crash.
        verbose: Show progress.

    Raises:
        ValueError: On another mode or a shard size below 1.
    """

    schematic = {"label": "GraspIndexer", "help_url": None}

    def __init__(
        self, index: GraspIndex, *, mode: str = "create", shard_size: int = 1000, verbose: bool = True
    ) -> None:
        if mode not in ("create", "overwrite"):
            raise ValueError(f"mode must be 'create' or 'overwrite', got {mode!r}")
        if shard_size < 1:
            raise ValueError(f"shard_size must be at least 1, got {shard_size}")
        self._index = index
        self.mode = mode
        self.shard_size = shard_size
        self.verbose = verbose

    def index_inputs(self) -> list[list[str]]:
        """Columns of the documents."""
        return [["docno", "doc_vec", "toks"], ["docno", "doc_vec"], ["docno", "toks"]]

    def index(self, iter: Iterable[Mapping[str, Any]], **kwargs: Any) -> GraspIndex:
        """Write documents and finish the index.

        If it stops half-way, for whatever reason, the index is not built, but what is stored stays; go on with
        ``index.index(index.missing(corpus_iter))``.

        Args:
            iter: Dicts ``{docno: str, doc_vec: [d] float, toks: dict concept -> weight >= 0, doc_model: str}``. All
                have ``doc_vec``, or none; the same for ``toks``. ``doc_model`` is optional. Other keys are ignored.
            **kwargs: None are known.

        Returns:
            The index.

        Raises:
            FileExistsError: If the index is already built and there are documents to add (mode ``"create"``).
            ValueError: On a document that cannot be indexed; the message names it.
            RuntimeError: If another process is writing the index.
            TypeError: On keyword arguments.
        """
        if kwargs:
            raise TypeError(f"index() got unknown arguments {sorted(kwargs)}")
        with sole_writer(Path(str(self._index.path))):
            return self._write(builtins.iter(iter))

    def _write(self, docs: Iterator[Mapping[str, Any]]) -> GraspIndex:
        target = self._index
        folder = Path(str(target.path))
        if self.mode == "overwrite":
            target.close()
            remove_index(folder)
        elif target.built():
            if next(docs, _END) is _END:
                return target
            raise FileExistsError(
                f"{folder} already holds a finished index of {len(target)} documents; adding to it is not supported. "
                "Use another path, or index.indexer(mode='overwrite')"
            )
        target.close()
        writer = IndexWriter(folder, self.shard_size)
        try:
            for doc in tqdm(docs, desc="indexing", unit="doc", disable=not self.verbose):
                writer.add(parse_document(doc))
        except BaseException:
            writer.flush()  # what has been encoded is worth keeping
            raise
        writer.finish(self.verbose)
        return target

    def __repr__(self) -> str:
        return f"{self._index!r}.indexer(mode={self.mode!r})"
