"""Writing an index: shards while documents come in, then one pass over the shards that makes the final files.

A shard is one ``.npz`` file, moved in place when whole. Killing the process loses at most the documents of the shard in
memory; the shards on disk are what a later run continues from. ``pt_meta.json`` is written after everything else.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from filelock import FileLock, Timeout
from scipy import sparse
from tqdm.auto import tqdm

from pyterrier_grasp.index import kernels
from pyterrier_grasp.index.documents import Document
from pyterrier_grasp.index.storage import (
    DENSE_FILES,
    FILES,
    FORMAT_VERSION,
    LOCK,
    META,
    SHARDS,
    SPARSE_FILES,
    write_atomic,
)


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Keep other processes from writing the index meanwhile. A killed process holds nothing.

    Raises:
        RuntimeError: If another process is writing it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise RuntimeError(f"another process is writing the index in {folder}; wait for it, or end it") from None
    try:
        yield
    finally:
        with suppress(OSError):  # some systems do not remove a file that is open
            (folder / LOCK).unlink()
        lock.release()


class Shard(NamedTuple):
    """Some consecutive documents. ``names`` are sorted and number the columns of ``toks``."""

    docnos: list[str]
    dense: np.ndarray | None
    names: list[str] | None
    toks: sparse.csr_array | None
    model: str | None


class IndexWriter:
    """Collects documents into shards in a folder, going on from the shards that are already there.

    Args:
        folder: The index folder.
        shard_size: Documents a shard, at least 1.
    """

    def __init__(self, folder: Path, shard_size: int) -> None:
        self.folder = folder
        self.shard_size = shard_size
        (folder / SHARDS).mkdir(parents=True, exist_ok=True)
        for leftover in (folder / SHARDS).glob("*.tmp"):
            leftover.unlink()
        self._buffer: list[Document] = []
        self._docnos: set[str] = set()
        self.dim: int | None = None
        self.has_dense: bool | None = None
        self.has_toks: bool | None = None
        self.model: str | None = None
        for path in shard_paths(folder):
            header = read_header(path)
            self._docnos.update(header["docnos"])
            self.dim, self.has_dense, self.has_toks = header["dim"], header["dim"] is not None, header["has_toks"]
            self.model = header["model"] or self.model
        self.n_stored = len(self._docnos)

    def __len__(self) -> int:
        return len(self._docnos)

    def add(self, doc: Document) -> None:
        """Take one document.

        Raises:
            ValueError: On a duplicate docno, another number of dimensions, another model, or a branch that only some
                documents have.
        """
        self.check(doc.docno, None if doc.vec is None else len(doc.vec), doc.names is not None, doc.model)
        self._docnos.add(doc.docno)
        self._buffer.append(doc)
        if len(self._buffer) >= self.shard_size:
            self.flush()

    def check(self, docno: str, dim: int | None, has_toks: bool, model: str | None) -> None:
        """Check that a document fits those before it, and remember its kind if it is the first."""
        if docno in self._docnos:
            raise ValueError(f"duplicate docno {docno!r}: each document is indexed once{self._hint()}")
        if self.has_dense is None:
            self.dim, self.has_dense, self.has_toks = dim, dim is not None, has_toks
        for column, here, before in (("doc_vec", dim is not None, self.has_dense), ("toks", has_toks, self.has_toks)):
            if here != before:
                raise ValueError(
                    f"document {docno!r} has {'a' if here else 'no'} {column} and the documents before it have "
                    f"{'one' if before else 'none'}; give it to all documents or to none{self._hint()}"
                )
        if dim != self.dim:
            raise ValueError(
                f"doc_vec of document {docno!r} has {dim} dimensions, the documents before it have "
                f"{self.dim}{self._hint()}"
            )
        if model is not None:
            if self.model is not None and model != self.model:
                raise ValueError(
                    f"document {docno!r} comes from model {model!r}, the documents before it from "
                    f"{self.model!r}; use one model for an index{self._hint()}"
                )
            self.model = model

    def _hint(self) -> str:
        if not self.n_stored:
            return ""
        return (
            f". {self.folder} holds {self.n_stored} documents of an interrupted run: continue it with "
            "index.missing(corpus_iter), or start afresh with index.indexer(mode='overwrite')"
        )

    def flush(self) -> None:
        """Write the documents in memory as a shard."""
        if not self._buffer:
            return
        docs, self._buffer = self._buffer, []
        dense = np.stack([doc.vec for doc in docs if doc.vec is not None]) if self.has_dense else None
        names, toks = _as_csr(docs) if self.has_toks else (None, None)
        self.write(Shard([doc.docno for doc in docs], dense, names, toks, self.model))

    def write(self, shard: Shard) -> None:
        """Write one shard of checked documents."""
        self._docnos.update(shard.docnos)
        number = int(shard_paths(self.folder)[-1].stem.split("-")[1]) + 1 if shard_paths(self.folder) else 0
        header = {
            "docnos": shard.docnos,
            "dim": None if shard.dense is None else shard.dense.shape[1],
            "has_toks": shard.toks is not None,
            "names": shard.names,
            "model": shard.model,
        }
        arrays: dict[str, Any] = {"header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)}
        if shard.dense is not None:
            arrays["dense"] = shard.dense
        if shard.toks is not None:
            arrays |= {"indptr": shard.toks.indptr, "indices": shard.toks.indices, "data": shard.toks.data}
        path = self.folder / SHARDS / f"shard-{number:06d}.npz"
        write_atomic(path, lambda out: np.savez(out, **arrays))

    def finish(self, verbose: bool = False) -> None:
        """Make the final files from the shards, then remove the shards.

        Raises:
            ValueError: If no document was given.
        """
        self.flush()
        if not self._docnos:
            raise ValueError(f"no documents to index in {self.folder}")
        _merge(self.folder, verbose)
        remove_shards(self.folder)


def shard_paths(folder: Path) -> list[Path]:
    """The shards of an interrupted run, in order."""
    return sorted((folder / SHARDS).glob("shard-*.npz"))


def read_header(path: Path) -> dict[str, Any]:
    """What a shard holds, without its arrays."""
    with np.load(path, allow_pickle=False) as arrays:
        return json.loads(arrays["header"].tobytes())


def stored_docnos(folder: Path) -> Iterator[str]:
    """Ids of the documents in the shards of an interrupted run."""
    for path in shard_paths(folder):
        yield from read_header(path)["docnos"]


def remove_index(folder: Path) -> None:
    """Remove an index or what an interrupted run left of it. Files of other origin stay."""
    remove_shards(folder)
    for name in FILES:  # the metadata is the first: without it, the rest does not pass for an index
        (folder / name).unlink(missing_ok=True)
        (folder / (name + ".tmp")).unlink(missing_ok=True)


def remove_shards(folder: Path) -> None:
    """Remove the shards of an interrupted run."""
    if (folder / SHARDS).exists():
        shutil.rmtree(folder / SHARDS)


def _as_csr(docs: Sequence[Document]) -> tuple[list[str], sparse.csr_array]:
    rows = [(doc.names or [], doc.weights if doc.weights is not None else np.zeros(0, np.float32)) for doc in docs]
    names = sorted({name for row, _ in rows for name in row})
    ids = {name: i for i, name in enumerate(names)}
    indptr = np.cumsum([0, *(len(row) for row, _ in rows)], dtype=np.int64)
    indices = np.array([ids[name] for row, _ in rows for name in row], dtype=np.int32)
    data = np.concatenate([weights for _, weights in rows])
    toks = sparse.csr_array((data, indices, indptr), shape=(len(docs), len(names)))
    toks.sort_indices()
    return names, toks


def _merge(folder: Path, verbose: bool) -> None:
    paths = shard_paths(folder)
    headers = [read_header(path) for path in paths]
    docnos = [docno for header in headers for docno in header["docnos"]]
    dim, has_toks = headers[0]["dim"], headers[0]["has_toks"]
    write_atomic(folder / "docnos.txt", lambda out: out.write("".join(f"{d}\n" for d in docnos).encode()))
    order = np.empty(len(docnos), dtype="<i4")
    order[sorted(range(len(docnos)), key=docnos.__getitem__)] = np.arange(len(docnos), dtype="<i4")
    write_atomic(folder / "docno_order.i4", order.tofile)
    for name in (*(DENSE_FILES if dim is None else ()), *(() if has_toks else SPARSE_FILES)):
        (folder / name).unlink(missing_ok=True)
    max_dense = _merge_dense(folder, paths, verbose) if dim is not None else 0.0
    n_concepts, n_weights, max_toks = (None, 0, 0.0)
    if has_toks:
        n_concepts, n_weights, max_toks = _merge_toks(folder, paths, headers, verbose)
    meta = {
        "type": "multimodal_index",
        "format": "grasp",
        "package_hint": "pyterrier_grasp",
        "version": FORMAT_VERSION,
        "doc_model": next((header["model"] for header in headers if header["model"]), None),
        "count": len(docnos),
        "dim": dim,
        "concepts": n_concepts,
        "weights": n_weights,
        "max_dense_norm": max_dense,
        "max_toks_norm": max_toks,
    }
    write_atomic(folder / META, lambda out: out.write((json.dumps(meta, indent=1) + "\n").encode()))


def _merge_dense(folder: Path, paths: list[Path], verbose: bool) -> float:
    largest = 0.0

    def write(out: Any) -> None:
        nonlocal largest
        for path in tqdm(paths, desc="dense vectors", unit="shard", disable=not verbose):
            with np.load(path, allow_pickle=False) as arrays:
                dense = arrays["dense"]
            out.write(dense.astype("<f4", copy=False).tobytes())
            largest = max(largest, float(np.sqrt(np.einsum("ij,ij->i", dense, dense, dtype=np.float64).max())))

    write_atomic(folder / "dense.f4", write)
    return largest


def _merge_toks(
    folder: Path, paths: list[Path], headers: list[dict[str, Any]], verbose: bool
) -> tuple[int, int, float]:
    """Write the sparse files; return the numbers of concepts and weights, and the largest norm of a document."""
    names = sorted({name for header in headers for name in header["names"]})
    ids = {name: i for i, name in enumerate(names)}
    columns = [np.array([ids[name] for name in header["names"]], dtype=np.int32) for header in headers]
    df = np.zeros(len(names), dtype=np.int64)
    lengths, largest = [np.zeros(1, dtype=np.int64)], 0.0
    with open(folder / "toks_indices.i4", "wb") as out_ids, open(folder / "toks_data.f4", "wb") as out_data:
        for path, column in zip(tqdm(paths, desc="concepts", unit="shard", disable=not verbose), columns, strict=True):
            indptr, indices, data = _read_toks(path, column)
            df += np.bincount(indices, minlength=len(names))
            lengths.append(np.diff(indptr))
            out_ids.write(indices.astype("<i4", copy=False).tobytes())
            out_data.write(data.astype("<f4", copy=False).tobytes())
            squares = sparse.csr_array((np.square(data, dtype=np.float64), indices, indptr), (len(indptr) - 1, len(df)))
            largest = max(largest, float(np.sqrt(squares.sum(axis=1).max())))
    np.cumsum(np.concatenate(lengths)).astype("<i8").tofile(folder / "toks_indptr.i8")
    starts = np.concatenate([[0], np.cumsum(df)]).astype("<i8")
    starts.tofile(folder / "postings_indptr.i8")
    n_weights = int(starts[-1])
    p_docs = _create_array(folder / "postings_docs.i4", "<i4", n_weights)
    p_data = _create_array(folder / "postings_data.f4", "<f4", n_weights)
    cursor, first_doc = starts[:-1].copy(), 0
    for path, column in zip(tqdm(paths, desc="postings", unit="shard", disable=not verbose), columns, strict=True):
        indptr, indices, data = _read_toks(path, column)
        kernels.fill_postings(first_doc, indptr, indices, data, cursor, p_docs, p_data)
        first_doc += len(indptr) - 1
    for array in (p_docs, p_data):
        if isinstance(array, np.memmap):
            array.flush()
    lines = (json.dumps({"name": name, "df": int(count)}) + "\n" for name, count in zip(names, df, strict=True))
    write_atomic(folder / "concepts.jsonl", lambda out: out.write("".join(lines).encode()))
    return len(names), n_weights, largest


def _read_toks(path: Path, column: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A shard's weights with concepts numbered over the whole index; sorted names keep the order within a row."""
    with np.load(path, allow_pickle=False) as arrays:
        indices = column[arrays["indices"]] if len(column) else np.zeros(0, dtype=np.int32)
        return arrays["indptr"].astype(np.int64), indices, arrays["data"]


def _create_array(path: Path, dtype: str, length: int) -> np.ndarray:
    if length == 0:
        path.write_bytes(b"")
        return np.zeros(0, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="w+", shape=(length,))
