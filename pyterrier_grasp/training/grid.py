"""The paper's grid over learning rates."""

import pandas as pd

from pyterrier_grasp.training.pairs import Corpus
from pyterrier_grasp.training.trainer import GraspTrainer


def learning_rate_grid(
    trainer: GraspTrainer,
    topics_tr: pd.DataFrame,
    qrels_tr: pd.DataFrame,
    topics_va: pd.DataFrame,
    qrels_va: pd.DataFrame,
    corpus: Corpus | list[Corpus] | None = None,
    *,
    learning_rates: tuple[float, ...] = (1e-5, 1e-4, 1e-3, 1e-2),
    head_learning_rates: tuple[float, ...] | None = None,
) -> tuple[GraspTrainer, pd.DataFrame]:
    """Train once a learning rate and keep the best by the trainer's validation score.

    Args:
        trainer: The settings; it is not fitted itself.
        topics_tr: As in :meth:`GraspTrainer.fit`, and so the next four.
        qrels_tr: See ``topics_tr``.
        topics_va: See ``topics_tr``.
        qrels_va: See ``topics_tr``.
        corpus: See ``topics_tr``.
        learning_rates: The grid; the paper's by default.
        head_learning_rates: A second axis; None keeps the trainer's.

    Returns:
        The best fitted trainer, and a frame with a row a run: ``learning_rate, head_learning_rate`` and its metrics,
        which are missing where the training diverged.

    Raises:
        FloatingPointError: If the training diverged at every rate.
    """
    if trainer.output_dir is not None:
        raise ValueError("a grid would overwrite one run's checkpoints with the next's; leave output_dir out")
    if not learning_rates:
        raise ValueError("learning_rates is empty")
    metric = trainer.selection_metric
    best: GraspTrainer | None = None
    rows = []
    for head_rate in head_learning_rates or (trainer.head_learning_rate,):
        for rate in learning_rates:
            run = trainer.clone(learning_rate=rate, head_learning_rate=head_rate)
            row: dict[str, float] = {"learning_rate": rate, "head_learning_rate": head_rate}
            rows.append(row)
            try:
                run.fit(topics_tr, qrels_tr, topics_va, qrels_va, corpus)
            except FloatingPointError:
                continue
            scores = run.validation_scores()
            row |= scores
            if best is None or scores[metric] > best.validation_scores()[metric]:
                best = run
    if best is None:
        raise FloatingPointError(f"the training diverged at every rate of {learning_rates}; give lower ones")
    return best, pd.DataFrame(rows)
