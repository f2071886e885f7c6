"""Methods: one file a row of the paper's Table 1."""

from pyterrier_grasp.methods.base import Batch, Method, Space, load_method
from pyterrier_grasp.methods.concept_head import ConceptHead, activate, concept_bias
from pyterrier_grasp.methods.dual_encoder import DualEncoder, Encoded
from pyterrier_grasp.methods.token_head import TokenHead

__all__ = [
    "Batch",
    "ConceptHead",
    "DualEncoder",
    "Encoded",
    "Method",
    "Space",
    "TokenHead",
    "activate",
    "concept_bias",
    "load_method",
]
