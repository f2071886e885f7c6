"""From captions to concepts: triplets, the vocabulary mined from them, and labels."""

from pyterrier_grasp.concepts.extract import (
    CaptionText,
    CaptionTriplets,
    DescribedDataset,
    Extractor,
    OpenAIExtractor,
    SpacyExtractor,
    TripletFile,
    captions,
    describe,
    estimate_descriptions,
)
from pyterrier_grasp.concepts.faithfulness import Faithfulness
from pyterrier_grasp.concepts.mining import Cluster, Group, OpenAIRefiner, Refinement, Refiner, RuleRefiner
from pyterrier_grasp.concepts.space import ConceptSpace
from pyterrier_grasp.concepts.triplets import TripletRow, normalise, read_rows
from pyterrier_grasp.concepts.vocabulary import Alias, Concept, Vocabulary

__all__ = [
    "Alias",
    "CaptionText",
    "CaptionTriplets",
    "Cluster",
    "Concept",
    "ConceptSpace",
    "DescribedDataset",
    "Extractor",
    "Faithfulness",
    "Group",
    "OpenAIExtractor",
    "OpenAIRefiner",
    "Refinement",
    "Refiner",
    "RuleRefiner",
    "SpacyExtractor",
    "TripletFile",
    "TripletRow",
    "Vocabulary",
    "captions",
    "describe",
    "estimate_descriptions",
    "normalise",
    "read_rows",
]
