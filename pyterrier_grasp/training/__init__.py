"""Training: the PyTerrier Estimator, its data, loop and validation."""

from pyterrier_grasp.training.grid import learning_rate_grid
from pyterrier_grasp.training.trainer import GraspTrainer
from pyterrier_grasp.training.validation import W_GRID, Validation

__all__ = ["W_GRID", "GraspTrainer", "Validation", "learning_rate_grid"]
