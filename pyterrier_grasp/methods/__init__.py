"""Methods: one file a row of the paper's Table 1."""

from pyterrier_grasp.methods.base import Batch, Method, load_method
from pyterrier_grasp.methods.concept_head import ConceptHead, activate, concept_bias
from pyterrier_grasp.methods.dual_encoder import DualEncoder, Encoded

__all__ = ["Batch", "ConceptHead", "DualEncoder", "Encoded", "Method", "activate", "concept_bias", "load_method"]
