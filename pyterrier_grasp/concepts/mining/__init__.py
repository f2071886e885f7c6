"""From the phrases of the training captions to concepts: count, embed, cluster, refine."""

from pyterrier_grasp.concepts.mining.refine import Cluster, Group, Refinement, Refiner

__all__ = ["Cluster", "Group", "Refinement", "Refiner"]
