"""From captions to concepts: triplets, the vocabulary mined from them, and labels."""

from pyterrier_grasp.concepts.extract import CaptionText, CaptionTriplets, Extractor, TripletFile, captions
from pyterrier_grasp.concepts.space import ConceptSpace
from pyterrier_grasp.concepts.triplets import TripletRow, normalise, read_rows
from pyterrier_grasp.concepts.vocabulary import Alias, Concept, Vocabulary

__all__ = [
    "Alias",
    "CaptionText",
    "CaptionTriplets",
    "Concept",
    "ConceptSpace",
    "Extractor",
    "TripletFile",
    "TripletRow",
    "Vocabulary",
    "captions",
    "normalise",
    "read_rows",
]
