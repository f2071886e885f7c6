import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from experiments import tables
from experiments.scoring import NAMES

QIDS = ["a", "b", "c", "d", "e", "f"]


def write_cell(folder, values, systems=("S", "official", "calibrated")):
    """A cell whose system ``i`` has ``values + i`` (clipped) on every query and measure."""
    folder.mkdir(parents=True)
    frames, found = [], {}
    for i, system in enumerate(systems):
        table = pd.DataFrame({name: np.clip(np.array(values, float) + 0.1 * i, 0, 1) for name in NAMES})
        frames.append(table.assign(qid=QIDS, direction="t2i", system=system))
        found[system] = table.mean().to_dict()
    pd.concat(frames).to_csv(folder / "queries.csv.gz", index=False)
    weights = {name: 0.1 for name in systems if name not in ("S", "D")}
    metrics = {"systems": {"t2i": found}, "w": {"t2i": weights}, "active": [3.0, 5.0], "dimensions": 100}
    (folder / "metrics.json").write_text(json.dumps(metrics))


@pytest.fixture
def lines(tmp_path):
    write_cell(tmp_path / "base" / "1", [0, 1, 0, 0, 1, 0])
    write_cell(tmp_path / "base" / "2", [0, 1, 0, 0, 0, 0])
    write_cell(tmp_path / "grasp" / "1", [1, 1, 0, 1, 1, 1])
    write_cell(tmp_path / "grasp" / "2", [1, 1, 0, 1, 1, 0])
    base = tables.read(tmp_path / "base", "base", "Base", [1, 2])
    return base, tables.read(tmp_path / "grasp", "grasp", "GRASP", [1, 2, 3])


def test_means_and_deviations_over_seeds(lines):
    base, grasp = lines
    assert [line.system for line in base] == ["S", "official", "calibrated"]
    assert [(line.label, line.seeds) for line in grasp] == [("GRASP", 2)] * 3
    table = tables.text_table(base, ["t2i"])
    assert table["R@1"][0] == f"{100 * 3 / 12:.2f} ± {100 * np.std([2 / 6, 1 / 6], ddof=1):.2f}"
    assert table["active text / image"][0] == "3.0 / 5.0" and table["%"][0] == "3.0 / 5.0" and table["dims"][0] == "100"
    assert table["w"].tolist() == ["", "0.1, 0.1", "0.1, 0.1"]


def test_significance_is_a_paired_test_of_seed_means_against_the_best(lines):
    base, grasp = lines
    tables.test(grasp, base)
    best = np.clip(np.mean([[0, 1, 0, 0, 1, 0], [0, 1, 0, 0, 0, 0]], axis=0) + 0, 0, 1)
    best = np.mean([np.clip(np.array(v) + 0.2, 0, 1) for v in ([0, 1, 0, 0, 1, 0], [0, 1, 0, 0, 0, 0])], axis=0)
    own = np.mean([np.clip(np.array(v) + 0.0, 0, 1) for v in ([1, 1, 0, 1, 1, 1], [1, 1, 0, 1, 1, 0])], axis=0)
    expected = stats.ttest_rel(own, best).pvalue
    assert grasp[0].p_values["t2i"]["R@1"] == pytest.approx(expected)
    shown = tables.text_table(grasp, ["t2i"])["R@1"][0]
    assert shown.endswith(tables.DAGGER) == (expected < 0.05)


def test_a_worse_system_has_no_dagger_and_equal_ones_p_1():
    low, high = (pd.Series(np.array(v) + np.arange(6) / 1000, index=QIDS) for v in ([0.0] * 6, [1.0] * 6))
    p, better = tables.compare(low + np.array([0, 0.1] * 3), high)
    assert p < 0.05 and not better
    assert tables.compare(low, low.copy()) == (1.0, False)
    with pytest.raises(ValueError, match="different queries"):
        tables.compare(low, high.rename(index={"a": "z"}))


def test_missing_cells_are_shown_as_missing(tmp_path, lines):
    missing = tables.read(tmp_path / "nothing", "stair", "STAIR", [1, 2])
    table = tables.text_table([*missing, *lines[0]], ["t2i", "i2t"])
    assert table["R@1"][0] == table["i2t RR@10"][1] == "missing" and table["system"][0] == "missing"
    assert table["method"].tolist() == ["STAIR", "Base", "Base", "Base"]
    assert "stair" not in set(tables.numbers(missing).get("row", []))


def test_a_row_with_some_of_the_seeds_says_so(lines):
    table = tables.text_table([*lines[0], *lines[1]], ["t2i"])
    assert table["method"][0] == "Base" and table["method"][3] == "GRASP (2 of 3 seeds)"


def test_files(tmp_path, lines):
    base, grasp = lines
    tables.test(grasp, base)
    shown = tables.write([*base, *grasp], ["t2i"], tmp_path / "out", "table1-x", "A note with 5 % & more.")
    assert shown == (tmp_path / "out" / "table1-x.md").read_text()
    rows = [line for line in shown.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 6 and len({row.count("|") for row in rows}) == 1
    latex = (tmp_path / "out" / "table1-x.tex").read_text()
    assert r"\toprule" in latex and r" $\pm$ " in latex and "\n% A note" in latex
    assert latex.count(r"\\") == 1 + 6
    numbers = pd.read_csv(tmp_path / "out" / "table1-x.csv")
    assert len(numbers) == 6 * 3 and numbers.loc[0, "mean"] == pytest.approx(0.25)
    assert numbers["seeds"].unique().tolist() == ["1 2"]


def test_cells_of_different_splits_are_an_error(tmp_path):
    write_cell(tmp_path / "row" / "1", [0, 1, 0, 0, 1, 0])
    write_cell(tmp_path / "row" / "2", [0, 1, 0, 0, 1, 0])
    path = tmp_path / "row" / "2" / "queries.csv.gz"
    pd.read_csv(path).replace({"qid": {"a": "z"}}).to_csv(path, index=False)
    with pytest.raises(ValueError, match="do not have the same queries"):
        tables.read(tmp_path / "row", "row", "Row", [1, 2])
