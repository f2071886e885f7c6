"""Train D0 and GRASP alike, index the test images and compare the pipelines in one ``pt.Experiment``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt
import torch
from ir_measures import RR, R
from sklearn.metrics import average_precision_score

import pyterrier_grasp as ptg
from experiments.report import Report
from pyterrier_grasp.backbones import LiveStore, StateStore
from pyterrier_grasp.training import learning_rate_grid
from pyterrier_grasp.training.pairs import collect_paths, make_pairs, relevant_pairs
from pyterrier_grasp.training.validation import encode_rows

MEASURES = [R @ 1, R @ 5, RR @ 10]


@dataclass(frozen=True)
class Splits:
    """The three splits of a dataset as PyTerrier datasets."""

    train: Any
    val: Any
    test: Any

    def fit_arguments(self) -> tuple[Any, ...]:
        """What ``GraspTrainer.fit`` takes."""
        train, val = self.train, self.val
        return train.get_topics(), train.get_qrels(), val.get_topics(), val.get_qrels(), [train, val]


def train_both(
    backbone: ptg.Backbone,
    space: ptg.ConceptSpace,
    splits: Splits,
    report: Report,
    *,
    learning_rates: tuple[float, ...],
    options: dict[str, Any] | None = None,
    **settings: Any,
) -> tuple[ptg.GraspModel, ptg.GraspModel]:
    """D0 (the dense method alone) and GRASP: equal steps, start and learning-rate grid, chosen on validation.

    Args:
        backbone: The frozen backbone.
        space: The concept space.
        splits: The dataset.
        report: Takes the grids.
        learning_rates: Grid of the projections' learning rate.
        options: Options of the GRASP method.
        **settings: Of both trainers.

    Returns:
        The dense model and the GRASP model.
    """
    models = []
    for method in ("dense", "grasp"):
        report.step(f"training {method}, learning rates {learning_rates}")
        trainer = ptg.GraspTrainer(
            backbone,
            space if method == "grasp" else None,
            method=method,
            options=options if method == "grasp" else None,
            tune_w=method == "grasp",
            **settings,
        )
        best, grid = learning_rate_grid(trainer, *splits.fit_arguments(), learning_rates=learning_rates)
        print(grid.to_string(index=False, float_format=lambda value: f"{value:.4g}"))
        report.add(f"validation_{method}", grid)
        if best.model is None:
            raise RuntimeError("the grid returned an unfitted trainer")
        models.append(best.model)
    return models[0], models[1]


def compare(dense: ptg.GraspModel, grasp: ptg.GraspModel, test: Any, report: Report) -> pd.DataFrame:
    """Index the test images with both models and run ``pt.Experiment``.

    Args:
        dense: The model of row D0.
        grasp: The model of the other rows.
        test: The test split.
        report: Takes the table; the indexes lie in its folder.

    Returns:
        The table with D0 as the baseline, and the p-value of R@1 against D beside it.
    """
    report.step("indexing the test images")
    d0_index = build_index(dense, test, report.out)
    index = build_index(grasp, test, report.out)
    w = grasp.w
    encode_all = grasp.query_encoder()
    d = grasp.dense_encoder() >> index.dense(num_results=100)
    systems = {
        "D0": dense.dense_encoder() >> d0_index.dense(num_results=100),
        "D": d,
        "S": grasp.concept_encoder() >> index.sparse(num_results=100),
        "D%100>>fuse w=0.1": d % 100 >> index.fuser(grasp, w=0.1),
        "D+S w=0.1": encode_all >> index.fused(w=0.1, num_results=100),
        f"D%100>>fuse w={w:g}": d % 100 >> index.fuser(grasp, w=w),
        f"D+S w={w:g}": encode_all >> index.fused(w=w, num_results=100),
    }
    report.step(f"pt.Experiment: {len(test.get_topics())} queries, w = {w:g} chosen on validation")
    topics, qrels = test.get_topics(), test.get_qrels()
    results = [system(topics) for system in systems.values()]
    table, against_d = (
        pt.Experiment(results, topics, qrels, MEASURES, names=list(systems), baseline=baseline, correction="holm")
        for baseline in (0, 1)
    )
    table["R@1 p-value v. D"] = against_d["R@1 p-value"]
    report.add("w", w)
    report.add("test", table)
    return table


def build_index(model: ptg.GraspModel, split: Any, folder: Path) -> Any:
    """Index the images of a split, going on with an index left half-way."""
    index = ptg.GraspIndex(folder / f"{model.fingerprint}.index", verbose=False)
    if not index.built():
        (model.doc_encoder() >> index).index(index.missing(split.get_corpus_iter(verbose=False)))
    return index


def show(table: pd.DataFrame) -> str:
    """The table as text: measures in percent, and the p-values of R@1 (against D0, the same after Holm, against D)."""
    shown = pd.DataFrame({"name": table["name"]})
    for measure in MEASURES:
        shown[str(measure)] = table[str(measure)].map(lambda value: f"{100 * value:.2f}")
    for title, column in (
        ("p v. D0", "R@1 p-value"),
        ("Holm", "R@1 p-value corrected"),
        ("p v. D", "R@1 p-value v. D"),
    ):
        shown[title] = table[column].map(lambda value: "" if pd.isna(value) else f"{value:.2g}")
    return shown.to_string(index=False)


def grounding(
    model: ptg.GraspModel, split: Any, extractor: Any, cache: ptg.TokenStateCache, report: Report
) -> dict[str, float]:
    """Micro average precision of concept labels, and of ranking concepts by document frequency.

    Args:
        model: A model with a sparse branch.
        split: A labelled split the model was not trained on.
        extractor: Gives the triplets of its captions.
        cache: Token states.
        report: Takes the figures.

    Returns:
        ``{text|image}_ap``, ``..._ap_by_df`` and ``..._active`` (share of non-zero dimensions), all in [0, 1].
    """
    if model.space is None:
        raise ValueError(f"{model!r} has no concept space")
    relevant = relevant_pairs(split.get_topics(), split.get_qrels())
    pairs = make_pairs(relevant, collect_paths(split, relevant["docno"]), cache)
    qids, text_labels, docnos, image_labels = model.space.labels_for(split, extractor)
    figures: dict[str, float] = {}
    for modality, ids, store, rows, known, labels in (
        ("text", pairs.qids, pairs.texts, pairs.text_rows, qids, text_labels),
        ("image", pairs.docnos, pairs.images, pairs.image_rows, docnos, image_labels),
    ):
        position = {identifier: row for row, identifier in enumerate(known)}
        truth = labels[[position[identifier] for identifier in ids]].toarray() > 0
        scores = _raw_scores(model, store, rows, modality)
        by_df = np.broadcast_to(model.space.df.astype(float), truth.shape)
        figures[f"{modality}_ap"] = float(average_precision_score(truth.ravel(), scores.ravel()))
        figures[f"{modality}_ap_by_df"] = float(average_precision_score(truth.ravel(), by_df.ravel()))
        figures[f"{modality}_active"] = float((scores > 0).mean())
    report.add("grounding", figures)
    return figures


@torch.no_grad()
def _raw_scores(model: ptg.GraspModel, store: StateStore | LiveStore, rows: np.ndarray, modality: str) -> np.ndarray:
    """Concept scores before the activation, float ``[n, |C|]``."""
    encoded = encode_rows(model.encoder, store, rows, modality)
    return np.concatenate([part.raw.cpu().numpy() for part in encoded if part.raw is not None])
