"""Extractors: what turns the captions of a dataset into triplets."""

from pyterrier_grasp.concepts.extract.base import CaptionText, CaptionTriplets, Extractor, captions
from pyterrier_grasp.concepts.extract.describe import describe, estimate_descriptions
from pyterrier_grasp.concepts.extract.described import DescribedDataset
from pyterrier_grasp.concepts.extract.llm import OpenAIExtractor
from pyterrier_grasp.concepts.extract.spacy import SpacyExtractor
from pyterrier_grasp.concepts.extract.triplet_file import TripletFile

__all__ = [
    "CaptionText",
    "CaptionTriplets",
    "DescribedDataset",
    "Extractor",
    "OpenAIExtractor",
    "SpacyExtractor",
    "TripletFile",
    "captions",
    "describe",
    "estimate_descriptions",
]
