"""From the phrases of the training captions to concepts: count, embed, cluster, refine, select."""

from pyterrier_grasp.concepts.mining.llm_refiner import OpenAIRefiner
from pyterrier_grasp.concepts.mining.refine import Cluster, Group, Refinement, Refiner
from pyterrier_grasp.concepts.mining.rule_refiner import RuleRefiner

__all__ = ["Cluster", "Group", "OpenAIRefiner", "Refinement", "Refiner", "RuleRefiner"]
