import pytest

from experiments import check_backbone
from pyterrier_grasp import Backbone


@pytest.fixture(scope="module")
def backbone():
    return Backbone.load("scenes")


def test_scenes_has_no_published_figure(tmp_path, capsys):
    check_backbone.main(
        ["--backbone", "scenes", "--dataset", "scenes", "--out", str(tmp_path), "--cache", str(tmp_path)]
    )
    shown = capsys.readouterr().out
    assert "2,500 captions, 500 images" in shown and "no figure is published" in shown
    # chance is 0.2
    assert 30 < float(shown.split("R@1 ")[1].split()[0]) < 60


def test_a_match_is_within_the_tolerance(backbone):
    assert check_backbone.verdict(backbone, "coco", 53.05, 53.3, (25_010, 5_000)).startswith("match")
    assert check_backbone.verdict(backbone, "coco", 52.95, 53.3, (25_010, 5_000)).startswith("no match")


def test_a_mismatch_names_steps(backbone):
    small = check_backbone.verdict(backbone, "coco", 52.0, 53.3, (25_010, 5_000))
    assert "(-1.30)" in small and "caption rules" in small and "split" not in small.split("captions and")[0]
    large = check_backbone.verdict(backbone, "flickr30k", 1.0, 79.1, (5_000, 999))
    assert "(5000, 999) captions and images instead of (5000, 1000)" in large and "are all its keys read" in large


@pytest.mark.parametrize("corpus", [[], ["--dataset", "scenes", "--data", "folder"]])
def test_one_corpus_is_needed(corpus, tmp_path):
    with pytest.raises(SystemExit, match="give --dataset, or --data"):
        check_backbone.main(["--backbone", "scenes", *corpus, "--out", str(tmp_path)])
