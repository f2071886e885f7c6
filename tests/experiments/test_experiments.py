"""What the experiments share, on the toy corpus."""

import argparse
import json
import math

import pytest

from experiments.compare import Splits, compare, grounding, show, train_both
from experiments.report import Report, parser
from pyterrier_grasp import TokenStateCache, TripletFile


@pytest.fixture
def report(tmp_path):
    return Report(argparse.Namespace(out=tmp_path / "run", seed=7))


def test_metrics_hold_figures_settings_versions_and_commit(report):
    report.add("w", 0.3)
    report.add("nan", math.nan)
    content = json.loads((report.out / "metrics.json").read_text())
    assert content["figures"]["w"] == 0.3 and content["seed"] == 7
    assert {"torch", "pyterrier", "pyterrier-grasp"} <= set(content["packages"])
    assert set(content) == {"figures", "seconds", "settings", "seed", "git_commit", "python", "packages"}


def test_every_experiment_takes_out_and_seed():
    args = parser("Words.\n\nMore.", "name").parse_args(["--out", "x", "--seed", "5"])
    assert (str(args.out), args.seed) == ("x", 5)


def test_from_splits_to_the_table(toy, toy_backbone, toy_cache, report):
    splits = Splits(toy.train, toy.val, toy.test)
    settings = {"epochs": 1, "batch_size": 20, "seed": 1, "cache_dir": toy_cache, "verbose": False}
    dense, grasp = train_both(toy_backbone, toy.space, splits, report, learning_rates=(1e-4, 1e-3), **settings)
    table = compare(dense, grasp, toy.test, report)
    assert table["name"].tolist()[:5] == ["D0", "D", "S", "D%100>>fuse w=0.1", "D+S w=0.1"]
    assert "R@1 p-value v. D" in table and "D+S w=0.1" in show(table)
    # Only 8 images: fusing 100 candidates is fusing all of them.
    assert table["R@1"][3] == table["R@1"][4] and table["R@1"][5] == table["R@1"][6]

    figures = grounding(grasp, toy.val, TripletFile(toy.triplets), TokenStateCache(toy_cache, toy_backbone), report)
    assert all(0 <= value <= 1 for value in figures.values())
    content = json.loads((report.out / "metrics.json").read_text())["figures"]
    assert set(content) == {"validation_dense", "validation_grasp", "w", "test", "grounding"}
    assert len(content["validation_grasp"]) == 2
