import pyterrier as pt
import pytest

from experiments import judge
from pyterrier_grasp.datasets import scenes


def test_runs_from_files(tmp_path, chat_server, capsys):
    chat_server.control(reset=True)
    scenes.materialise("test")
    dataset = pt.get_dataset("irds:scenes/test")
    topics, docnos = dataset.get_topics(), [doc["docno"] for doc in dataset.get_corpus_iter(verbose=False)]
    for name, shift in (("a", 0), ("b", 1)):
        run = topics[["qid"]].assign(docno=[docnos[(i + shift * (i < 3)) % 20] for i in range(len(topics))], score=1.0)
        pt.io.write_results(run.assign(rank=0), str(tmp_path / f"{name}.res.gz"))
    runs = ["--runs", str(tmp_path / "a.res.gz"), str(tmp_path / "b.res.gz"), "--dataset", "irds:scenes/test"]
    common = [*runs, "--out", str(tmp_path / "out"), "--answers", str(tmp_path / "answers.sqlite"), "--repeats", "2"]
    judge.main([*common, "--dry-run"])
    assert chat_server.stats()["requests"] == 0 and "12" in capsys.readouterr().out
    judge.main([*common, "--base-url", chat_server.url])
    shown = capsys.readouterr().out
    assert "99.9 % have the same first image" in shown and "3 were judged, 2 times, by gpt-4o-mini" in shown
    assert "A - B" in shown and chat_server.stats()["requests"] == 12
    assert len((tmp_path / "out" / "verdicts.csv").read_text().splitlines()) == 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dataset", "irds:scenes/test"], "give --runs A B"),
        (["--runs", "x", "y"], "give --dataset, or --data"),
        (["--dataset", "irds:scenes/test", "--runs", "x.res", "y.res"], "there is no run file"),
    ],
)
def test_wrong_arguments(arguments, message, tmp_path):
    with pytest.raises(SystemExit, match=message):
        judge.main([*arguments, "--out", str(tmp_path)])
