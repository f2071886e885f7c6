"""The files of a finished index, and reading them.

======================  ===========================================================================
``pt_meta.json``        type, format, version, fingerprint, counts; written last, so its presence means "whole"
``docnos.txt``          one document id a line, UTF-8, in document order
``docno_order.i4``      [n] int32: position of each document's id among the sorted ids (for ties)
``dense.f4``            [n, d] float32, C order
``toks_*``              document-major weights: ``indptr.i8``, ``indices.i4``, ``data.f4``
``postings_*``          concept-major weights: ``indptr.i8``, ``docs.i4``, ``data.f4``
``concepts.jsonl``      one ``{"name", "df"}`` a line, in concept order (sorted by name)
======================  ===========================================================================

All numbers are little-endian. The ids are a text file and not an ``npids`` lookup, because npids 0.1.3 cannot read back
what it wrote for a single id, nor for ids one of which is a prefix of all the others.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd

FORMAT_VERSION = 1
META = "pt_meta.json"
SHARDS = "shards"
LOCK = "write.lock"
DENSE_FILES = ("dense.f4",)
SPARSE_FILES = (
    "concepts.jsonl",
    "toks_indptr.i8",
    "toks_indices.i4",
    "toks_data.f4",
    "postings_indptr.i8",
    "postings_docs.i4",
    "postings_data.f4",
)
FILES = (META, "docnos.txt", "docno_order.i4", *DENSE_FILES, *SPARSE_FILES)
_DTYPES: dict[str, np.dtype[Any]] = {"f4": np.dtype("<f4"), "i4": np.dtype("<i4"), "i8": np.dtype("<i8")}


@dataclass(frozen=True)
class CompressedRows:
    """Rows of (id, weight) pairs: ids and weights of row r are at ``indptr[r]:indptr[r + 1]``.

    Attributes:
        indptr: int64, one more than rows.
        ids: int32, ascending in each row.
        data: float32.
    """

    indptr: np.ndarray
    ids: np.ndarray
    data: np.ndarray


@dataclass
class IndexData:
    """A finished index, memory-mapped.

    Attributes:
        meta: Content of ``pt_meta.json``.
        docnos: [n] object array of str.
        docno_order: [n] int32, position among the sorted docnos.
        dense: [n, d] float32, or None.
        concepts: Concept names, sorted, or None.
        toks: Document-major weights, or None.
        postings: Concept-major weights, or None.
    """

    meta: dict[str, Any]
    docnos: np.ndarray
    docno_order: np.ndarray
    dense: np.ndarray | None
    concepts: list[str] | None
    toks: CompressedRows | None
    postings: CompressedRows | None

    @cached_property
    def concept_ids(self) -> dict[str, int]:
        """Concept name -> number."""
        return {name: i for i, name in enumerate(self.concepts or [])}

    @cached_property
    def _docno_lookup(self) -> pd.Index:
        return pd.Index(self.docnos, dtype=object)

    def find(self, docnos: Any) -> np.ndarray:
        """Numbers of the given documents, -1 where an id is unknown. Returns [m] int64."""
        return self._docno_lookup.get_indexer(pd.Index(docnos, dtype=object)).astype(np.int64)

    def rows(self, docnos: Any) -> np.ndarray:
        """Numbers of the given documents, [m] int64.

        Raises:
            KeyError: Naming the first unknown id.
        """
        rows = self.find(docnos)
        if (rows < 0).any():
            unknown = np.asarray(docnos, dtype=object)[rows < 0]
            raise KeyError(f"docno {unknown[0]!r} is not in the index ({len(set(unknown))} unknown ids in the input)")
        return rows


def write_atomic(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a file under a temporary name and move it in place, so that a half-written one never has the final name."""
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as out:
        write(out)
        out.flush()
        os.fsync(out.fileno())
    os.replace(temporary, path)


def read_meta(folder: Path) -> dict[str, Any]:
    """Read and check ``pt_meta.json``.

    Raises:
        ValueError: If the file is damaged, or the folder holds another kind of artifact or a newer format version.
    """
    try:
        meta = json.loads((folder / META).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{folder / META} is not JSON: the index is damaged ({error})") from error
    if (meta.get("type"), meta.get("format")) != ("multimodal_index", "grasp"):
        raise ValueError(f"{folder} holds a {meta.get('type')}.{meta.get('format')}, not a multimodal_index.grasp")
    if meta["version"] > FORMAT_VERSION:
        raise ValueError(
            f"{folder} has index format version {meta['version']}, this package reads up to {FORMAT_VERSION}; "
            "install a newer pyterrier-grasp"
        )
    return meta


def open_index(folder: Path) -> IndexData:
    """Memory-map a finished index.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file has the wrong size, or the format is not ours.
    """
    meta = read_meta(folder)
    n, dim, n_concepts, n_weights = meta["count"], meta["dim"], meta["concepts"], meta["weights"]
    docnos = _read_text(folder / "docnos.txt").split("\n")[:-1]
    if len(docnos) != n:
        raise ValueError(f"{folder / 'docnos.txt'} holds {len(docnos)} ids, expected {n}: the index is damaged")
    dense, concepts, toks, postings = None, None, None, None
    if dim is not None:
        dense = map_array(folder / "dense.f4", (n, dim))
    if n_concepts is not None:
        lines = _read_text(folder / "concepts.jsonl").split("\n")[:-1]
        if len(lines) != n_concepts:
            raise ValueError(
                f"{folder / 'concepts.jsonl'} has {len(lines)} lines, expected {n_concepts}: the index is damaged"
            )
        concepts = [json.loads(line)["name"] for line in lines]
        toks = CompressedRows(
            map_array(folder / "toks_indptr.i8", (n + 1,)),
            map_array(folder / "toks_indices.i4", (n_weights,)),
            map_array(folder / "toks_data.f4", (n_weights,)),
        )
        postings = CompressedRows(
            map_array(folder / "postings_indptr.i8", (n_concepts + 1,)),
            map_array(folder / "postings_docs.i4", (n_weights,)),
            map_array(folder / "postings_data.f4", (n_weights,)),
        )
    order = map_array(folder / "docno_order.i4", (n,))
    return IndexData(meta, np.array(docnos, dtype=object), order, dense, concepts, toks, postings)


def _read_text(path: Path) -> str:
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: the index is damaged")
    return path.read_text(encoding="utf-8")


def map_array(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """Memory-map a raw array for reading; the dtype follows from the file's ending.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the size of the file does not fit the shape.
    """
    dtype = _DTYPES[path.suffix[1:]]
    expected = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: the index is damaged")
    if path.stat().st_size != expected:
        raise ValueError(f"{path} has {path.stat().st_size} bytes, expected {expected}: the index is damaged")
    if expected == 0:  # an empty file cannot be mapped
        return np.zeros(shape, dtype)
    return np.asarray(np.memmap(path, dtype=dtype, mode="r", shape=shape))
