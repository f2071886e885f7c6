"""The tables from the command line, on the toy corpus as a folder of one's own."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from experiments import figure2, table1, table2
from experiments.arguments import parse_options
from pyterrier_grasp.datasets import scenes
from pyterrier_grasp.training import GraspTrainer

COMMON = ["--epochs", "1", "--patience", "0", "--batch-size", "20", "--min-df", "1", "--start-epochs", "1"]
COMMON += ["--tokens", "seen", "--min-texts", "2", "--head-learning-rates", "1e-2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, toy_backbone):
    """A Karpathy file, images, triplets, image states and a text encoder: what --data, --states and --text name."""
    root = tmp_path_factory.mktemp("own")
    (root / "images").mkdir()
    (root / "states").mkdir()
    images, names, rows, sentid = [], [], [], 0
    for number, scene in enumerate(scenes.generate("pretrain", 40)):
        split = "train" if number < 24 else "val" if number < 32 else "test"
        name = f"{number}.png"
        scenes.render(scene).resize((32, 32)).save(root / "images" / name)
        sentences = []
        for caption in scene.captions:
            tokens = caption.text.split()
            sentences.append({"raw": caption.text, "sentid": sentid, "imgid": number, "tokens": tokens})
            rows.append({"sentid": sentid, "imgid": number, "triplets": [list(t) for t in caption.triplets]})
            sentid += 1
        sentids = [sentence["sentid"] for sentence in sentences]
        images.append({"filename": name, "imgid": number, "split": split, "sentences": sentences, "sentids": sentids})
        names.append(name)
    content = {"images": images, "dataset": "own"}
    (root / "data").mkdir()
    (root / "images").rename(root / "data" / "images")
    (root / "data" / "dataset_own.json").write_text(json.dumps(content))
    triplets = "".join(json.dumps(row) + "\n" for row in rows)
    (root / "data" / "triplets.jsonl").write_text(triplets)
    pictures = [Image.open(root / "data" / "images" / name) for name in names]
    states = np.concatenate([toy_backbone.encode_images([picture]).states.numpy() for picture in pictures])
    np.save(root / "states" / "states.npy", states.astype(np.float16))
    (root / "states" / "ids.txt").write_text("\n".join(names) + "\n")
    (root / "states" / "meta.json").write_text(json.dumps({"encoder": "toy"}))
    return root


@pytest.fixture(scope="module")
def arguments(folder, toy_backbone, tmp_path_factory):
    data, out = folder / "data", tmp_path_factory.mktemp("tables")
    text = toy_backbone.spec()["text"]
    named = {"--data": data, "--triplets": data / "triplets.jsonl", "--states": folder / "states", "--text": text}
    named |= {"--out": out, "--cache": out / "cache"}
    return [*COMMON, *(str(word) for pair in named.items() for word in pair)], out


def test_table1(arguments, capsys, monkeypatch):
    argv, out = arguments
    methods = ["--methods", "dense", "sdlbt", "stair", "grasp", "grasp-evidence"]
    table1.main([*argv, *methods, "--seeds", "1", "2", "--learning-rates", "1e-4", "1e-3", "--grid-steps", "1"])
    shown = capsys.readouterr().out
    systems = [line.split("|")[1:3] for line in shown.splitlines() if line.startswith("| ")][2:]
    assert [(a.strip(), b.strip()) for a, b in systems] == [
        ("Dense", "D"),
        *(("SDLBT", s) for s in ("D", "S", "D+S, published scale", "D+S, w from val")),
        *(("STAIR", s) for s in ("D", "S", "D+S, published scale", "D+S, w from val")),
        *(("GRASP", s) for s in ("D", "S", "D+S, published scale", "D+S, w from val")),
        *(("GRASP, evidence", s) for s in ("S", "D+S, w from val")),
    ]
    assert "missing" not in shown and "two or more" not in shown
    numbers = pd.read_csv(out / "table1-states.csv")
    assert len(numbers) == 15 * 2 * 3 and numbers["mean"].between(0, 1).all()
    grid = pd.read_csv(out / "cells" / "states" / "grasp" / "rates" / "grid.csv")
    assert sorted(grid["learning_rate"]) == [1e-4, 1e-3] and grid["selected"].notna().all()

    figures = json.loads((out / "table1.json").read_text())["figures"]["states"]
    assert len(figures) == len(numbers)

    # the second time nothing is trained, in the order and with the seeds asked for
    monkeypatch.setattr(GraspTrainer, "fit", None)
    table1.main(
        [*argv, "--methods", "grasp", "dense", "stair", "--only-table", "--direction", "t2i", "--seeds", "2", "3"]
    )
    again = capsys.readouterr().out
    assert "i2t" not in again and "±" not in again.split("Test split")[0] and "STAIR" in again
    table1.main(
        [*argv, "--methods", "dense", "--seeds", "1", "2", "--learning-rates", "1e-4", "1e-3", "--grid-steps", "1"]
    )
    # another row of the same models, and what is not there
    same = ["--learning-rates", "1e-4", "1e-3", "--grid-steps", "1", "--no-training", "--direction", "i2t"]
    table1.main([*argv, *same, "--methods", "grasp-blend", "d2s", "--seeds", "1", "2", "3"])
    rescored = capsys.readouterr().out
    assert "| GRASP, blend (2 of 3 seeds) | D+S, w from val |" in rescored and "| D2S | missing |" in rescored
    with pytest.raises(ValueError, match="other settings: grid_steps was 1 and is 2"):
        table1.main(
            [*argv, "--methods", "dense", "--seeds", "1", "--learning-rates", "1e-4", "1e-3", "--grid-steps", "2"]
        )


def test_table2_and_figure2_share_the_cells(arguments, capsys):
    argv, out = arguments
    same = ["--seeds", "1", "--learning-rates", "1e-4", "1e-3", "--grid-steps", "1"]
    table2.main([*argv, *same])
    shown = capsys.readouterr().out
    for label in ("SDLBT", "SDLBT on the concept space", "GRASP, entities only", "GRASP"):
        assert f"| {label} | D+S, w from val |" in shown
    dims = {row["method"]: row["dimensions"] for row in pd.read_csv(out / "table2-states.csv").to_dict("records")}
    assert dims["GRASP, entities only"] < dims["GRASP"] == dims["SDLBT on the concept space"] < dims["SDLBT"]

    figure2.main([*argv, *same, "--images", "2", "--top", "3"])
    shown = capsys.readouterr().out
    bars = pd.read_csv(out / "figure2a-states.csv")
    sizes = bars.groupby("model")["dimensions"].first()
    assert sizes["SDLBT, pruned"] == sizes["GRASP"] and len(bars) == 6
    examples = [json.loads(line) for line in (out / "figure2b-states.jsonl").read_text().splitlines()]
    assert len(examples) == 2 and all(len(example["sdlbt"]) <= 3 for example in examples)
    assert examples[0]["captions"][0] in shown

    figure2.main([*argv, "--seeds", "1", "7", "--only-table", "--baselines", "sdlbt", "d2s"])
    shown = capsys.readouterr().out
    assert "(1 of 2 seeds)" in shown and "| D2S, pruned | 0 | S | missing |" in shown


def test_a_grid_that_diverges_everywhere_is_an_error(arguments, monkeypatch, tmp_path):
    def diverge(self, *corpus):
        raise FloatingPointError("nan")

    argv = [*arguments[0], "--methods", "dense", "--seeds", "1", "--start-epochs", "0", "--out", str(tmp_path)]
    monkeypatch.setattr(GraspTrainer, "fit", diverge)
    with pytest.raises(FloatingPointError, match=r"dense diverged at every learning_rate of \[0.1, 1.0\]"):
        table1.main([*argv, "--learning-rates", "0.1", "1"])
    assert not (tmp_path / "cells" / "states" / "dense" / "rates").exists()


def test_rates_chosen_anew_make_trainings_outdated(arguments, tmp_path):
    argv = [*arguments[0], "--methods", "dense", "--seeds", "1", "--start-epochs", "0", "--out", str(tmp_path)]
    table1.main([*argv, "--learning-rates", "1e-4"])
    shutil.rmtree(tmp_path / "cells" / "states" / "dense" / "rates")
    with pytest.raises(ValueError, match="1 is outdated: it was trained with .*0.0001.* has chosen .*0.001"):
        table1.main([*argv, "--learning-rates", "1e-3"])


def test_the_same_seed_gives_the_same_figures(arguments, tmp_path):
    found = []
    for name in "ab":
        out = tmp_path / name
        argv = [*arguments[0], "--seeds", "1", "--learning-rates", "1e-3", "--out", str(out)]
        table1.main([*argv, "--methods", "sdlbt"])
        found.append((out / "table1-states.csv").read_text())
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (["--dataset", "coco"], "give --dataset, or --data"),
        (["--backbone", "scenes"], "give --backbone, or --states"),
        (["--option", "grasp=3"], "write ROW.NAME=VALUE"),
    ],
)
def test_arguments_that_do_not_go_together(arguments, changed, message):
    with pytest.raises(SystemExit, match=message):
        table1.main([*arguments[0], *changed])


def test_options_of_rows():
    given = ["grasp.w=0.3", "sdlbt.teacher=paper", "grasp.contrastive=dense,comb", "grasp.exclude_special=true"]
    assert parse_options(given) == {
        "grasp": {"w": 0.3, "contrastive": ("dense", "comb"), "exclude_special": True},
        "sdlbt": {"teacher": "paper"},
    }
