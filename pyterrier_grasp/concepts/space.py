"""The concept space: the dimensions of the sparse branch and the labels that ground them."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any
from warnings import warn

import numpy as np
import pyterrier as pt
from scipy.sparse import csr_array
from tqdm.auto import tqdm

from pyterrier_grasp.concepts import storage
from pyterrier_grasp.concepts.corpus import Corpus
from pyterrier_grasp.concepts.extract import Extractor
from pyterrier_grasp.concepts.mining.phrases import mine
from pyterrier_grasp.concepts.vocabulary import KINDS, Concept, Vocabulary
from pyterrier_grasp.folders import whole_folder


class ConceptSpace(pt.Artifact):
    """Concepts mined from the captions of a training split, and the labels of its captions and images.

    Make one with :meth:`build`; open one with ``ConceptSpace.load(path)``. The folder holds plain files; those a person
    may edit are described in :mod:`pyterrier_grasp.concepts.storage`. An edited space is labelled and counted anew.

    Args:
        path: The folder.

    Attributes:
        concepts: The concepts, in the order of the dimensions.
        names: Unique names of the dimensions: a concept's name, or ``kind:name`` where both kinds have it.
        kinds: Array of ``"entity"`` and ``"relation"``, ``[|C|]``.
        df: Number of training images that have each concept, int64 ``[|C|]``.
        text_df: Number of training captions that have each concept, int64 ``[|C|]``.
        n_images: Number of training images.
        n_texts: Number of training captions.
        fingerprint: Identifier of the ordered concepts and their phrases, 16 hexadecimal digits.

    Raises:
        FileNotFoundError: If the folder is missing or incomplete.
        ValueError: If its files are malformed or contradict each other.
    """

    ARTIFACT_TYPE = "concept_space"
    ARTIFACT_FORMAT = "grasp"
    ARTIFACT_PACKAGE_HINT = "pyterrier_grasp"

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        folder = Path(path)
        self._meta = storage.read_meta(folder)
        self._vocabulary, lines = storage.read_vocabulary(folder)
        self._digests = {name: storage.digest(folder / name) for name in storage.DATA_FILES}
        if self._digests == self._meta["sha256"]:
            self.n_images, self.n_texts = int(self._meta["n_images"]), int(self._meta["n_texts"])
            self.df = np.array([line["df"] for line in lines], np.int64)
            self.text_df = np.array([line["text_df"] for line in lines], np.int64)
        else:
            self.n_images, self.n_texts = len(self._corpus.docnos), len(self._corpus.qids)
            self.df, self.text_df = _frequency(self._image_labels), _frequency(self._text_labels)
            self._warn_of_unused()
        self.concepts: tuple[Concept, ...] = storage.concepts_of(self._vocabulary, self.df, self.text_df)
        self.names: list[str] = self._vocabulary.names
        self.kinds = np.array(self._vocabulary.kinds)
        self.fingerprint = self._vocabulary.fingerprint()

    @classmethod
    def build(
        cls,
        dataset: Any,
        extractor: Extractor,
        path: str | Path,
        *,
        min_df: int = 1,
        max_df: float = 1.0,
        kinds: Sequence[str] = KINDS,
        overwrite: bool = False,
        verbose: bool = False,
    ) -> "ConceptSpace":
        """Mine the concepts of a training split and write them to a folder.

        The vocabulary comes from the captions of ``dataset`` alone: give the training split. Phrases are normalised
        (lower case, single spaces); a phrase that is both an entity and a relation becomes two concepts.

        Args:
            dataset: A PyTerrier dataset with ``get_topics`` and ``get_qrels``.
            extractor: Yields the triplets of the captions, such as ``TripletFile(path)``.
            path: The folder to write. It gets its name only when it is whole.
            min_df: Smallest number of training images that a concept must occur in.
            max_df: Largest share of training images that a concept may occur in, in (0, 1]. A concept of nearly every
                image, such as the relation "is", tells none apart.
            kinds: ``("entity", "relation")`` or one of them.
            overwrite: Whether a concept space at ``path`` is replaced.
            verbose: Whether to show progress.

        Returns:
            The space.

        Raises:
            FileExistsError: If ``path`` exists (and ``overwrite`` is false, or it holds other files too).
            ValueError: If the arguments are out of range, or no phrase is frequent enough.
        """
        if not isinstance(extractor, Extractor):
            raise ValueError(f"the extractor must have a method extract(dataset), like TripletFile; got {extractor!r}")
        storage.check_target(Path(path), overwrite=overwrite)  # before the extraction, which may take hours
        rows = tqdm(extractor.extract(dataset), desc="triplets", unit="caption", disable=not verbose)
        corpus = Corpus(list(rows))
        vocabulary = mine(corpus, min_df=min_df, max_df=max_df, kinds=kinds)
        meta = {"min_df": int(min_df), "max_df": float(max_df), "extractor": type(extractor).__name__}
        _write(Path(path), vocabulary, corpus, meta, overwrite=overwrite)
        return cls(path)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the space to another folder, as it is in memory.

        Args:
            path: The folder to write. It gets its name only when it is whole.
            overwrite: Whether a concept space at ``path`` is replaced.

        Raises:
            FileExistsError: If ``path`` exists (and ``overwrite`` is false, or it holds other files too).
            ValueError: If the stored triplets changed after this space was opened.
        """
        meta: dict[str, Any] = {k: self._meta[k] for k in ("min_df", "max_df", "extractor") if k in self._meta}
        _write(Path(path), self._vocabulary, self._corpus, meta, overwrite=overwrite)

    @property
    def qids(self) -> list[str]:
        """The training captions, in the order of the stored triplets."""
        return self._corpus.qids

    @property
    def docnos(self) -> list[str]:
        """The training images, in the order of the stored triplets."""
        return self._corpus.docnos

    def labels(self, triplets: Sequence[Sequence[Any]]) -> csr_array:
        """Labels of any texts, from their triplets; phrases outside the space have no label.

        Args:
            triplets: For each text, its (subject, relation, object) triplets.

        Returns:
            float32 {0, 1} of shape ``[len(triplets), |C|]``.

        Raises:
            ValueError: If a triplet is not three strings.
        """
        return self._vocabulary.labels(triplets)

    def text_labels(self, qids: Iterable[str]) -> csr_array:
        """Labels of training captions.

        Args:
            qids: Their qids.

        Returns:
            float32 {0, 1} of shape ``[len(qids), |C|]``, row by row as asked for.

        Raises:
            KeyError: If a qid is not among the training captions.
        """
        return self._text_labels[_rows(self._text_rows, qids, "caption")]

    def image_labels(self, docnos: Iterable[str]) -> csr_array:
        """Labels of training images: the union of those of their captions (the paper's c_i).

        Args:
            docnos: Their docnos.

        Returns:
            float32 {0, 1} of shape ``[len(docnos), |C|]``, row by row as asked for.

        Raises:
            KeyError: If a docno is not among the training images.
        """
        return self._image_labels[_rows(self._image_rows, docnos, "image")]

    def labels_for(self, dataset: Any, extractor: Extractor) -> tuple[list[str], csr_array, list[str], csr_array]:
        """Labels of the captions and images of another split, such as validation.

        Args:
            dataset: A PyTerrier dataset with ``get_topics`` and ``get_qrels``.
            extractor: Yields the triplets of its captions.

        Returns:
            ``(qids, text_labels, docnos, image_labels)``: float32 {0, 1} of shapes ``[len(qids), |C|]`` and
            ``[len(docnos), |C|]``.
        """
        corpus = Corpus(list(extractor.extract(dataset)))
        text_labels = self.labels(corpus.triplets)
        return corpus.qids, text_labels, corpus.docnos, corpus.image_labels(text_labels)

    def summary(self) -> dict[str, float]:
        """Size of the space, and how many labels the training captions and images have (mean, 95th percentile, max)."""
        result: dict[str, float] = {"concepts": len(self)}
        result |= {kind: int((self.kinds == kind).sum()) for kind in KINDS}
        for what, labels in (("text", self._text_labels), ("image", self._image_labels)):
            counts = np.diff(labels.indptr)
            result[f"labels_{what}_mean"] = float(counts.mean())
            result[f"labels_{what}_p95"] = float(np.percentile(counts, 95))
            result[f"labels_{what}_max"] = int(counts.max())
        return result

    def __len__(self) -> int:
        return len(self._vocabulary)

    def __repr__(self) -> str:
        return f"ConceptSpace({str(self.path)!r}, concepts={len(self)}, fingerprint={self.fingerprint!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConceptSpace) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    @cached_property
    def _corpus(self) -> Corpus:
        folder = Path(str(self.path))
        if storage.digest(folder / storage.TRIPLETS) != self._digests[storage.TRIPLETS]:
            raise ValueError(f"{folder / storage.TRIPLETS} changed after the space was opened; load the space again")
        return storage.read_corpus(folder)

    @cached_property
    def _text_labels(self) -> csr_array:
        return self._vocabulary.labels(self._corpus.triplets)

    @cached_property
    def _image_labels(self) -> csr_array:
        return self._corpus.image_labels(self._text_labels)

    @cached_property
    def _text_rows(self) -> dict[str, int]:
        return {qid: row for row, qid in enumerate(self._corpus.qids)}

    @cached_property
    def _image_rows(self) -> dict[str, int]:
        return {docno: row for row, docno in enumerate(self._corpus.docnos)}

    def _warn_of_unused(self) -> None:
        unused = [name for name, df in zip(self._vocabulary.names, self.df.tolist(), strict=True) if df == 0]
        if unused:
            warn(
                f"{len(unused)} concepts of {self.path} occur in no training image and cannot be learned: {unused[:5]}",
                stacklevel=3,
            )


def _write(path: Path, vocabulary: Vocabulary, corpus: Corpus, meta: dict[str, Any], *, overwrite: bool) -> None:
    text_labels = vocabulary.labels(corpus.triplets)
    image_labels = corpus.image_labels(text_labels)
    concepts = storage.concepts_of(vocabulary, _frequency(image_labels), _frequency(text_labels))
    meta = {
        "type": ConceptSpace.ARTIFACT_TYPE,
        "format": ConceptSpace.ARTIFACT_FORMAT,
        "package_hint": ConceptSpace.ARTIFACT_PACKAGE_HINT,
        **meta,
    }
    storage.check_target(path, overwrite=overwrite)
    with whole_folder(path) as folder:
        storage.write_space(folder, vocabulary, concepts, corpus, meta)


def _frequency(labels: csr_array) -> np.ndarray:
    return np.bincount(labels.indices, minlength=labels.shape[1]).astype(np.int64)


def _rows(row_of: dict[str, int], ids: Iterable[str], what: str) -> np.ndarray:
    wanted = [str(i) for i in ids]
    unknown = [i for i in wanted if i not in row_of]
    if unknown:
        raise KeyError(
            f"{len(unknown)} of {len(wanted)} ids are no training {what} of the concept space: {unknown[:3]}; "
            f"for another split use labels_for"
        )
    return np.array([row_of[i] for i in wanted], np.int64)
