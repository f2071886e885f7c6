"""The concept space: the dimensions of the sparse branch and the labels that ground them."""

import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal
from warnings import warn

import numpy as np
import pyterrier as pt
from scipy.sparse import csr_array

from pyterrier_grasp.concepts import storage
from pyterrier_grasp.concepts.build import Recipe, build
from pyterrier_grasp.concepts.corpus import Corpus
from pyterrier_grasp.concepts.edit import edited
from pyterrier_grasp.concepts.extract import Extractor
from pyterrier_grasp.concepts.faithfulness import Faithfulness, check
from pyterrier_grasp.concepts.mining import Refiner
from pyterrier_grasp.concepts.mining.embed import DEFAULT, Embedder
from pyterrier_grasp.concepts.report import report
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

    _keeper: "tempfile.TemporaryDirectory[str] | None" = None  # of the folder of an edited space

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
            self.df, self.text_df = storage.frequency(self._image_labels), storage.frequency(self._text_labels)
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
        refiner: Refiner | Literal["auto"] | None = "auto",
        embedder: str | Path | Embedder = DEFAULT,
        cluster_size: int = 10,
        max_cluster_size: int = 40,
        seed: int = 0,
        min_df: int = 1,
        max_df: float = 1.0,
        kinds: Sequence[str] = KINDS,
        overwrite: bool = False,
        verbose: bool = True,
    ) -> "ConceptSpace":
        """Mine the concepts of a training split and write them to a folder (the paper's section 3.1).

        Triplets are extracted from the captions; their phrases are normalised (lower case, single spaces), embedded and
        clustered by kind; a refiner merges and drops phrases of each cluster; what is left becomes the concepts, and a
        phrase that is both an entity and a relation becomes two. Without a refiner each phrase is a concept.

        The vocabulary comes from the captions of ``dataset`` alone: give the training split.

        The steps work in ``<path>.building``, where a build that was interrupted goes on. With the same arguments, a
        whole space at ``path`` is opened and nothing is done.

        Args:
            dataset: A PyTerrier dataset with ``get_topics`` and ``get_qrels``.
            extractor: Yields the triplets of the captions: ``OpenAIExtractor()``, ``SpacyExtractor()`` or
                ``TripletFile(path)``.
            path: The folder to write. It gets its name only when it is whole.
            refiner: ``OpenAIRefiner()``, ``RuleRefiner()`` or None; ``"auto"`` for the one that goes with the
                extractor: the same chat model, the rules for ``SpacyExtractor``, none for ``TripletFile``.
            embedder: Hub id or folder of a sentence-transformers model, or a function from n strings to an array
                ``[n, D]``. Used only with a refiner.
            cluster_size: Mean number of phrases of a cluster: K = ceil(n / ``cluster_size``).
            max_cluster_size: Largest number of phrases of a cluster; a larger one is split.
            seed: Seed of the clustering.
            min_df: Smallest number of training images that a concept must occur in.
            max_df: Largest share of training images that a concept may occur in, in (0, 1]. A concept of nearly every
                image, such as the relation "is", tells none apart.
            kinds: ``("entity", "relation")`` or one of them.
            overwrite: Whether a concept space at ``path`` that was made otherwise is replaced. Steps that it shares
                with this build are not done again.
            verbose: Whether to show progress.

        Returns:
            The space.

        Raises:
            FileExistsError: If ``path`` holds a space made otherwise or edited since, and ``overwrite`` is false, or
                anything but a concept space.
            ValueError: If the arguments are out of range, no concept is frequent enough, or another process is building
                the same space.
        """
        if isinstance(refiner, str):
            if refiner != "auto":
                raise ValueError(f"refiner must be a refiner, None or 'auto', got {refiner!r}")
            refiner = extractor.refiner() if hasattr(extractor, "refiner") else None
        recipe = Recipe(
            dataset=dataset,
            extractor=extractor,
            refiner=refiner,
            embedder=embedder,
            cluster_size=cluster_size,
            max_cluster_size=max_cluster_size,
            seed=seed,
            min_df=min_df,
            max_df=max_df,
            kinds=(kinds,) if isinstance(kinds, str) else tuple(kinds),
            verbose=verbose,
        )
        build(recipe, Path(path), overwrite=overwrite)
        return cls(path)

    def edit(
        self,
        *,
        drop: Iterable[str] = (),
        merge: Mapping[str, Iterable[str]] | None = None,
        rename: Mapping[str, str] | None = None,
    ) -> "ConceptSpace":
        """A new space with other concepts; this one and its folder stay as they are.

        Concepts are called by their dimension names (:attr:`names`). The labels follow: the phrases of a dropped
        concept have no label any more, those of merged ones have the label of the concept they went into.

        Args:
            drop: Concepts to remove.
            merge: Name of a concept -> those of its kind that become part of it. The name may be new.
            rename: Name -> new name. Its old name still counts as a phrase of it.

        Returns:
            The space, in a temporary folder that lasts as long as it; keep it with :meth:`save`.

        Raises:
            KeyError: If a concept is unknown, with the nearest names.
            ValueError: If the edits contradict each other, or nothing is left.
        """
        vocabulary = edited(self._vocabulary, drop=drop, merge=merge or {}, rename=rename or {})
        keeper = tempfile.TemporaryDirectory(prefix="grasp-concepts-")
        folder = Path(keeper.name) / "space"
        _write(folder, vocabulary, self._corpus, self._kept_meta(), source=Path(str(self.path)), overwrite=False)
        space = ConceptSpace(folder)
        space._keeper = keeper
        return space

    def report(self) -> None:
        """Print the size of the space, labels a caption and an image, frequent and rare concepts, what refining did."""
        print(report(self))

    def check_faithfulness(
        self,
        nli_model: str | Path,
        *,
        labels: Sequence[str] | None = None,
        sample: int = 1000,
        seed: int = 0,
        batch_size: int = 32,
        device: Any = None,
        verbose: bool = True,
    ) -> Faithfulness:
        """Let an NLI model judge whether the captions support their triplets (the paper's footnote 4).

        Args:
            nli_model: Hub id or folder of a transformers model for sequence classification, such as
                ``"FacebookAI/roberta-large-mnli"``, the paper's.
            labels: Which of "entailment", "neutral", "contradiction" each output stands for, where the model does not
                say.
            sample: Number of triplets, drawn at random.
            seed: Seed of the sample.
            batch_size: Number of triplets a forward pass.
            device: Where the model runs; None for a GPU if there is one.
            verbose: Whether to show progress.

        Returns:
            Shares of entailed, neutral and contradicted triplets.

        Raises:
            ValueError: If the space was built without the texts of its captions.
        """
        corpus = self._corpus
        if not corpus.texts:
            raise ValueError(f"{self.path} holds no caption texts; build it again to check its triplets")
        known = [(corpus.texts[q], t) for q, t in zip(corpus.qids, corpus.triplets, strict=True) if q in corpus.texts]
        return check(
            [text for text, _ in known],
            [triplets for _, triplets in known],
            nli_model,
            labels=labels,
            sample=sample,
            seed=seed,
            batch_size=batch_size,
            device=device,
            verbose=verbose,
        )

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the space to another folder, as it is in memory.

        Args:
            path: The folder to write. It gets its name only when it is whole.
            overwrite: Whether a concept space at ``path`` is replaced.

        Raises:
            FileExistsError: If ``path`` exists (and ``overwrite`` is false, or it holds other files too).
            ValueError: If the stored triplets changed after this space was opened.
        """
        source = Path(str(self.path))
        _write(Path(path), self._vocabulary, self._corpus, self._kept_meta(), source=source, overwrite=overwrite)

    def _kept_meta(self) -> dict[str, Any]:
        return {key: self._meta[key] for key in ("min_df", "max_df", "extractor") if key in self._meta}

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


def _write(
    path: Path, vocabulary: Vocabulary, corpus: Corpus, meta: dict[str, Any], *, source: Path, overwrite: bool
) -> None:
    storage.check_target(path, overwrite=overwrite)
    with whole_folder(path) as folder:
        for name in storage.HISTORY:
            if (source / name).is_file():
                shutil.copy2(source / name, folder / name)
        storage.write_triplets(folder, corpus.rows(), corpus.texts)
        storage.write_concepts(folder, vocabulary, corpus)
        storage.write_meta(folder, meta)


def _rows(row_of: dict[str, int], ids: Iterable[str], what: str) -> np.ndarray:
    wanted = [str(i) for i in ids]
    unknown = [i for i in wanted if i not in row_of]
    if unknown:
        raise KeyError(
            f"{len(unknown)} of {len(wanted)} ids are no training {what} of the concept space: {unknown[:3]}; "
            f"for another split use labels_for"
        )
    return np.array([row_of[i] for i in wanted], np.int64)
