"""Evaluation beyond what ir_measures brings."""

from pyterrier_grasp.evaluation.measures import mAP_R

__all__ = ["mAP_R"]
