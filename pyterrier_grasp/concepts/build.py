"""The steps from the captions of a training split to a concept space (the paper's section 3.1)."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from tqdm.auto import tqdm

from pyterrier_grasp.concepts import storage
from pyterrier_grasp.concepts.corpus import Corpus
from pyterrier_grasp.concepts.extract import CaptionText, CaptionTriplets, Extractor, captions
from pyterrier_grasp.concepts.extract.described import DescribedDataset, write_descriptions
from pyterrier_grasp.concepts.mining import files
from pyterrier_grasp.concepts.mining.cluster import cluster, clusters
from pyterrier_grasp.concepts.mining.embed import Embedder, embed, embedder, name_of
from pyterrier_grasp.concepts.mining.phrases import count_phrases
from pyterrier_grasp.concepts.mining.refine import Cluster, Refinement, Refiner, check_refinement, unchanged
from pyterrier_grasp.concepts.mining.rule_refiner import RuleRefiner
from pyterrier_grasp.concepts.mining.select import join, select
from pyterrier_grasp.concepts.steps import Record, Step
from pyterrier_grasp.concepts.vocabulary import KINDS
from pyterrier_grasp.folders import put_in_place

_LOCK = "lock"


@dataclass(frozen=True)
class Recipe:
    """How a concept space is built; the arguments of ``ConceptSpace.build``, checked.

    Raises:
        ValueError: If one is out of range.
    """

    dataset: Any
    extractor: Extractor
    refiner: Refiner | None
    embedder: str | Path | Embedder
    cluster_size: int
    max_cluster_size: int
    seed: int
    min_df: int
    max_df: float
    kinds: tuple[str, ...]
    verbose: bool

    def meta(self) -> dict[str, Any]:
        """What the metadata of the space keeps."""
        return {
            "min_df": int(self.min_df),
            "max_df": float(self.max_df),
            "extractor": type(self.extractor).__name__,
        }

    def __post_init__(self) -> None:
        if not isinstance(self.extractor, Extractor):
            raise ValueError(
                f"the extractor must have a method extract(dataset), like TripletFile; got {self.extractor!r}"
            )
        if self.refiner is not None and not isinstance(self.refiner, Refiner):
            raise ValueError(
                f"the refiner must have a method refine(clusters), like OpenAIRefiner and RuleRefiner, or be None for "
                f"no refinement, or 'auto'; got {self.refiner!r}"
            )
        if not self.kinds or not set(self.kinds) <= set(KINDS):
            raise ValueError(f"kinds must be some of {KINDS}, got {self.kinds}")
        least = {"cluster_size": 1, "max_cluster_size": self.cluster_size, "seed": 0, "min_df": 1}
        for name, smallest in least.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < smallest:
                raise ValueError(f"{name} must be an integer of at least {smallest}, got {value!r}")
        if isinstance(self.max_df, bool) or not isinstance(self.max_df, int | float) or not 0 < self.max_df <= 1:
            raise ValueError(f"max_df must be a share of the images, above 0 and at most 1, got {self.max_df!r}")


def build(recipe: Recipe, path: Path, *, overwrite: bool) -> None:
    """Build a concept space in ``<path>.building`` and give it its name when it is whole.

    Args:
        recipe: How.
        path: The folder. If it holds a whole space made by the same recipe and not edited since, nothing is done.
        overwrite: Whether a space made otherwise is replaced; steps that it shares with the recipe are not done again.

    Raises:
        FileExistsError: If ``path`` holds something else, or a space made otherwise and ``overwrite`` is false.
        ValueError: If another process builds the same space.
    """
    storage.check_target(path)
    if path.exists():
        other = _first_difference(recipe, path)
        if other is None:
            return
        if not overwrite:
            raise FileExistsError(
                f"{path} exists and is not what this build makes: {other}; choose another path, or pass "
                f"overwrite=True to replace it, which does again only what has changed"
            )
    with _building(path) as folder:
        if path.exists():
            for name in (*storage.STEP_FILES, storage.DESCRIPTIONS, storage.BUILD):
                if (path / name).is_file() and not (folder / name).is_file():
                    shutil.copy2(path / name, folder / name)
        steps, record = _Builder(recipe, folder).steps(), Record(folder)
        for step in steps:
            record.do(step)
        record.keep_only(steps)
        storage.write_meta(folder, recipe.meta())
        (folder / _LOCK).unlink(missing_ok=True)
        put_in_place(folder, path)


def _first_difference(recipe: Recipe, path: Path) -> str | None:
    """In words, the first step that would have to be done again; None if the space is whole and as the recipe says."""
    try:
        meta = storage.read_meta(path)
    except (FileNotFoundError, ValueError) as error:
        return str(error)
    record = Record(path)
    steps = _Builder(recipe, path).steps()
    if record.steps and ("refine" in record.steps) != (recipe.refiner is not None):
        return "it was refined, and the refiner is None" if recipe.refiner is None else "it was not refined"
    for step in steps:
        if record.is_done(step):
            continue
        before, now = record.steps.get(step.name, {}).get("settings"), step.settings
        if now is None:
            return f"{type(recipe.extractor).__name__} has no settings() by which to tell that it would do the same"
        if before is None or before == now:
            return f"its step {step.name!r} is missing, or its files were edited"
        changed = {name for name in {*before, *now} if before.get(name) != now.get(name)}
        words = ", ".join(f"{name} was {before.get(name)!r} and is {now.get(name)!r}" for name in sorted(changed))
        return f"in its step {step.name!r} {words}"
    edited = [name for name in storage.DATA_FILES if storage.digest(path / name) != meta["sha256"].get(name)]
    return f"{edited[0]} was edited" if edited else None


@contextmanager
def _building(path: Path) -> Iterator[Path]:
    """The folder that a space is built in, held against other processes; it stays after an error."""
    folder = path.with_name(f"{path.name}.building")
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / _LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(
            f"another process is building {path} (its files are in {folder}); wait until it has ended, or choose "
            f"another path"
        ) from None
    try:
        yield folder
    finally:
        lock.release()


class _Builder:
    """The steps, each a method that reads and writes files of the folder."""

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        self.recipe, self.folder = recipe, folder

    def steps(self) -> list[Step]:
        """The steps in their order."""
        recipe = self.recipe
        extract = _settings(recipe.extractor)
        if extract is not None:
            extract = {"captions": self._captions_digest, **extract}
        described = (storage.DESCRIPTIONS,) if isinstance(recipe.dataset, DescribedDataset) else ()
        choice = {"min_df": int(recipe.min_df), "max_df": float(recipe.max_df)}
        made = [
            Step("extract", self._extract, extract, (), (storage.TRIPLETS, *described)),
            Step("phrases", self._phrases, {"kinds": list(recipe.kinds)}, (storage.TRIPLETS,), (storage.PHRASES,)),
        ]
        if recipe.refiner is None:
            read: tuple[str, ...] = (storage.TRIPLETS, storage.PHRASES)
            return [*made, Step("concepts", self._concepts, choice, read, (storage.CONCEPTS, storage.ALIASES))]
        by = {"embedder": name_of(recipe.embedder)}
        sizes = {
            "cluster_size": int(recipe.cluster_size),
            "max_cluster_size": int(recipe.max_cluster_size),
            "seed": int(recipe.seed),
        }
        read = (storage.TRIPLETS, storage.PHRASES, storage.REFINED)
        return [
            *made,
            Step("embed", self._embed, by, (storage.PHRASES,), (storage.VECTORS,)),
            Step("cluster", self._cluster, sizes, (storage.PHRASES, storage.VECTORS), (storage.CLUSTERS,)),
            Step(
                "refine",
                self._refine,
                _settings(recipe.refiner),
                (storage.PHRASES, storage.CLUSTERS),
                (storage.REFINED,),
            ),
            Step("concepts", self._concepts, choice, read, (storage.CONCEPTS, storage.ALIASES)),
        ]

    @cached_property
    def _captions(self) -> list[CaptionText]:
        return captions(self.recipe.dataset)

    @cached_property
    def _captions_digest(self) -> str:
        found = hashlib.sha256()
        for caption in self._captions:
            found.update(json.dumps(caption).encode() + b"\n")
        return found.hexdigest()[:16]

    @cached_property
    def _corpus(self) -> Corpus:
        return storage.read_corpus(self.folder)

    def _extract(self) -> dict[str, Any]:
        self.__dict__.pop("_corpus", None)
        texts = {caption.qid: caption.text for caption in self._captions}
        counts = storage.write_triplets(self.folder, self._rows(), texts)
        if isinstance(self.recipe.dataset, DescribedDataset):
            write_descriptions(self.folder / storage.DESCRIPTIONS, self.recipe.dataset.descriptions)
        return {"dataset": repr(self.recipe.dataset), **counts, **_outcome(self.recipe.extractor)}

    def _rows(self) -> Iterator[CaptionTriplets]:
        rows = iter(self.recipe.extractor.extract(self.recipe.dataset))
        for first in rows:  # a bar only then: the extractor may have shown one of its own while it asked
            bar = {"total": len(self._captions), "initial": 1, "desc": "triplets", "unit": "caption"}
            yield first
            yield from tqdm(rows, **bar, disable=not self.recipe.verbose)

    def _phrases(self) -> dict[str, Any]:
        phrases = count_phrases(self._corpus, self.recipe.kinds)
        files.write_phrases(self.folder, phrases)
        return {kind: sum(phrase.kind == kind for phrase in phrases) for kind in self.recipe.kinds}

    def _embed(self) -> dict[str, Any]:
        phrases = [phrase.phrase for phrase in files.read_phrases(self.folder)]
        vectors = embed(phrases, embedder(self.recipe.embedder), verbose=self.recipe.verbose) if phrases else _NONE
        files.write_vectors(self.folder, vectors)
        return {"width": vectors.shape[1]}

    def _cluster(self) -> dict[str, Any]:
        recipe = self.recipe
        phrases, vectors = files.read_phrases(self.folder), files.read_vectors(self.folder)
        found: list[Cluster] = []
        for kind in KINDS:
            rows = [row for row, phrase in enumerate(phrases) if phrase.kind == kind]
            if rows:
                ids = cluster(
                    vectors[rows],
                    size=recipe.cluster_size,
                    max_size=recipe.max_cluster_size,
                    seed=recipe.seed,
                    verbose=recipe.verbose,
                )
                found += clusters([phrases[row].phrase for row in rows], kind, ids)
        files.write_clusters(self.folder, found)
        return {"clusters": len(found), "largest": max((len(one.phrases) for one in found), default=0)}

    def _refine(self) -> dict[str, Any]:
        refiner = self.recipe.refiner
        if refiner is None:
            raise ValueError("there is no refiner")
        if isinstance(refiner, RuleRefiner) and refiner.counts is None:
            by_count = sorted(files.read_phrases(self.folder), key=lambda phrase: phrase.text_df)
            refiner = copy(refiner)
            refiner.counts = {phrase.phrase: phrase.text_df for phrase in by_count}
        found = files.read_clusters(self.folder)
        kept = 0
        refined: list[tuple[Cluster, Refinement]] = []
        for one, refinement in zip(found, refiner.refine(found), strict=True):
            try:
                check_refinement(one, refinement)
            except ValueError as error:
                refinement = unchanged(one, f"the refiner's answer does not fit the cluster: {error}")
            kept += refinement.problem is not None
            refined.append((one, refinement))
        files.write_refined(self.folder, refined)
        return {"kept_as_they_were": kept, **_outcome(refiner)}

    def _concepts(self) -> dict[str, Any]:
        phrases = files.read_phrases(self.folder)
        if self.recipe.refiner is None:
            refined = [(one := Cluster(p.kind, (p.phrase,)), unchanged(one)) for p in phrases]
        else:
            refined = files.read_refined(self.folder)
        concepts = join(refined, {(phrase.kind, phrase.phrase): phrase.df for phrase in phrases})
        vocabulary = select(concepts, self._corpus, min_df=self.recipe.min_df, max_df=self.recipe.max_df)
        storage.write_concepts(self.folder, vocabulary, self._corpus)
        return {kind: vocabulary.kinds.count(kind) for kind in KINDS}


_NONE = np.zeros((0, 1), np.float32)


def _settings(part: Any) -> dict[str, Any] | None:
    """What a part of the recipe says about itself, as JSON gives it back; None if it says nothing."""
    if not hasattr(part, "settings"):
        return None
    return json.loads(json.dumps({"type": type(part).__name__, **part.settings()}))


def _outcome(part: Any) -> dict[str, Any]:
    return dict(part.outcome()) if hasattr(part, "outcome") else {}
