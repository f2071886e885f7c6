"""The benchmark compares what it says: the same loss by two heads, ratios of the right cells."""

from argparse import Namespace

import pytest
import torch

from experiments import bench_training as bench
from experiments.bench_training import Cell
from pyterrier_grasp.methods import load_method
from pyterrier_grasp.training.module import TrainingModule

ARGUMENTS = Namespace(
    lengths=[577, 50], concepts=[7, 9], batch=6, naive_batch=2, methods=["dense", "sdlbt", "stair", "grasp"]
)


def test_grasp_is_measured_at_both_batches_where_the_naive_head_takes_a_small_one():
    cells = bench.plan(ARGUMENTS)
    assert [cell for cell in cells if cell.length == 577 and cell.concepts == 7] == [
        Cell("grasp", 577, 7, 2),
        Cell("grasp-naive", 577, 7, 2),
        Cell("grasp", 577, 7, 6),
    ]
    assert {cell.method for cell in cells if cell.length == 577} == {"grasp", "grasp-naive", "dense", "sdlbt"}
    assert {cell.batch for cell in cells if cell.length == 50} == {6}


def test_both_heads_give_the_same_loss_and_gradient(tmp_path):
    found = {}
    for name in ("grasp", "grasp-naive"):
        torch.manual_seed(0)
        method = load_method("grasp")
        encoder = method.build(bench._Widths(), bench._concepts(12, tmp_path), 0)
        if name == "grasp-naive":
            bench._use_naive_heads(encoder)
        batch = bench._batch(Cell(name, 5, 12, 4), True, True, 12)
        loss = TrainingModule(encoder, method)(**batch)["loss"]
        loss.backward()
        found[name] = loss.item(), encoder.heads["shared"].weight.grad
    assert found["grasp"][0] == pytest.approx(found["grasp-naive"][0], rel=1e-5)
    torch.testing.assert_close(found["grasp"][1], found["grasp-naive"][1], rtol=1e-3, atol=1e-5)


def test_a_step_has_a_time_and_memory(tmp_path):
    found = bench.measure(Cell("grasp-naive", 20, 12, 4), 1, 1, tmp_path)
    assert found["seconds"] > 0 and found["extra_gib"] >= 0


def test_ratios_are_of_medians_of_the_same_shape():
    measured = {
        Cell("grasp", 50, 7, 6): [{"seconds": s, "extra_gib": 0.1} for s in (1.0, 9.0, 2.0)],
        Cell("grasp-naive", 50, 7, 6): [{"seconds": 5.0, "extra_gib": 2.0}],
        Cell("sdlbt", 50, 30_522, 6): [{"seconds": 4.0, "extra_gib": 1.0}],
        Cell("sdlbt", 577, 30_522, 6): [{"seconds": 400.0, "extra_gib": 1.0}],
    }
    (row,) = bench.ratios(bench.table(measured)).to_dict("records")
    assert row["naive / grasp, time"] == 2.5 and row["grasp / sdlbt, time"] == 0.5
    assert row["grasp / naive, extra memory"] == pytest.approx(0.05)
