"""Extractors: what turns the captions of a dataset into triplets."""

from pyterrier_grasp.concepts.extract.base import CaptionText, CaptionTriplets, Extractor, captions
from pyterrier_grasp.concepts.extract.triplet_file import TripletFile

__all__ = ["CaptionText", "CaptionTriplets", "Extractor", "TripletFile", "captions"]
