"""Evaluation beyond what ir_measures brings."""

from pyterrier_grasp.evaluation.judge import Judgement, estimate_judging, judge
from pyterrier_grasp.evaluation.measures import mAP_R

__all__ = ["Judgement", "estimate_judging", "judge", "mAP_R"]
