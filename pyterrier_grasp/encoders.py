"""PyTerrier transformers that turn queries and images into dense vectors and concept dictionaries."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyterrier as pt
import scipy.sparse as sp
from tqdm.auto import tqdm

from pyterrier_grasp.model import GraspModel


class _Encoder(pt.Transformer):
    """Encodes one input column, each distinct value once, into the columns that ``_dense`` and ``_sparse`` name."""

    _input: ClassVar[str]
    _image: ClassVar[bool] = False
    _dense: ClassVar[str | None] = None
    _sparse: ClassVar[str | None] = None
    _model: ClassVar[str] = "query_model"
    _label: ClassVar[str]

    def __init__(self, model: GraspModel, *, batch_size: int = 64, verbose: bool = False) -> None:
        """Make the encoder.

        Args:
            model: The model.
            batch_size: Inputs a backbone pass.
            verbose: Show a progress bar.
        """
        super().__init__()
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}; it must be at least 1")
        if self._dense is None:
            model._require_concepts()
        self.model = model
        self.batch_size = batch_size
        self.verbose = verbose

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Add the output columns.

        Args:
            inp: A frame with the input column; other columns are kept.

        Returns:
            A new frame in the order of ``inp``. Vectors are float32 ``[d]`` of length 1; dictionaries map concept
            names to positive floats whose dot product is the sparse score.

        Raises:
            ValueError: If an input is missing (not a string), or an image cannot be read; names it.
            FileNotFoundError: If an image file is missing; names it.
        """
        pt.validate.columns(inp, includes=[self._input], context=self)
        columns = self._encode(inp[self._input].tolist())
        return inp.assign(**{name: pd.Series(values, inp.index, dtype) for name, (values, dtype) in columns.items()})

    def _encode(self, inputs: list[str]) -> dict[str, tuple[list[Any], Any]]:
        for value in inputs:
            if not isinstance(value, str):
                raise ValueError(f"{self!r}: column {self._input!r} holds {value!r}, which is not a string")
        codes, distinct = pd.factorize(np.asarray(inputs, dtype=object))
        sparse_wanted = self._sparse is not None and self.model.has_concepts
        vectors: list[np.ndarray] = []
        toks: list[dict[str, float]] = []
        starts = range(0, len(distinct), self.batch_size)
        for start in tqdm(starts, desc=str(self), unit="batch", disable=not self.verbose):
            dense, sparse = self._encode_batch(distinct[start : start + self.batch_size].tolist(), sparse_wanted)
            vectors.extend(dense)
            if sparse_wanted:
                toks.extend(self.model.to_toks(sparse))
        columns: dict[str, tuple[list[Any], Any]] = {}
        if self._dense is not None:
            columns[self._dense] = ([vectors[code] for code in codes], object)
        if sparse_wanted and self._sparse is not None:
            # A row's dictionary is its own, so that changing one in place changes no other.
            columns[self._sparse] = ([dict(toks[code]) for code in codes], object)
        columns[self._model] = ([self.model.fingerprint] * len(codes), "str")
        return columns

    def _encode_batch(self, inputs: Sequence[str], sparse: bool) -> tuple[np.ndarray, sp.csr_array]:
        encode = self.model.encode_images if self._image else self.model.encode_texts
        return encode(inputs, sparse=sparse)

    def fuse_rank_cutoff(self, k: int) -> pt.Transformer:
        """Encoding is row by row, so a rank cutoff may come first."""
        return pt.RankCutoff(k) >> self

    def schematic(self, *, input_columns: Sequence[str] | None = None) -> dict[str, Any]:
        """How PyTerrier draws it."""
        return {"label": self._label, "help_url": None}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


class DenseEncoder(_Encoder):
    """``query`` -> ``query_vec`` (float32 ``[d]``, L2-normalised) and ``query_model``."""

    _input = "query"
    _dense = "query_vec"
    _label = "GRASP Dense"


class ConceptEncoder(_Encoder):
    """``query`` -> ``query_toks`` (concept name -> weight, Eq. 5) and ``query_model``; needs a sparse branch."""

    _input = "query"
    _sparse = "query_toks"
    _label = "GRASP Concepts"


class QueryEncoder(_Encoder):
    """``query`` -> ``query_vec``, ``query_toks`` (with a sparse branch) and ``query_model``, one backbone pass."""

    _input = "query"
    _dense = "query_vec"
    _sparse = "query_toks"
    _label = "GRASP Query"


class DocEncoder(_Encoder):
    """``path`` of an image -> ``doc_vec``, ``toks`` (with a sparse branch) and ``doc_model``, one backbone pass."""

    _input = "path"
    _image = True
    _dense = "doc_vec"
    _sparse = "toks"
    _model = "doc_model"
    _label = "GRASP Image"


class ImageQueryEncoder(_Encoder):
    """``path`` of an image -> ``query_vec``, ``query_toks`` (with a sparse branch) and ``query_model``.

    The query side of image -> text retrieval; the same columns as :class:`QueryEncoder`, so that every retriever,
    scorer and fuser of an index takes them. It also serves result frames, for a fuser or scorer that follows.
    """

    _input = "path"
    _image = True
    _dense = "query_vec"
    _sparse = "query_toks"
    _label = "GRASP Image Query"


class TextDocEncoder(_Encoder):
    """``text`` of a document -> ``doc_vec``, ``toks`` (with a sparse branch) and ``doc_model``.

    The document side of image -> text retrieval; the same columns as :class:`DocEncoder`.
    """

    _input = "text"
    _dense = "doc_vec"
    _sparse = "toks"
    _model = "doc_model"
    _label = "GRASP Text"
