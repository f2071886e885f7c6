"""Triplets from the dependency parse of an English caption."""

from pyterrier_grasp.concepts.extract.english.clauses import triplets_of
from pyterrier_grasp.concepts.extract.english.lemmas import Lemmas
from pyterrier_grasp.concepts.extract.english.words import RULES_VERSION

__all__ = ["RULES_VERSION", "Lemmas", "triplets_of"]
