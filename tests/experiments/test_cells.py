import json
import shutil
import subprocess
import sys
import textwrap

import pytest
from filelock import FileLock

from experiments.cells import Cell, run


def writer(log, name, fail=False):
    def work(folder):
        log.append(name)
        (folder / "result").write_text(name)
        if fail:
            raise RuntimeError("no")

    return work


def cell(tmp_path, name, log, needs=(), fail=False, **settings):
    return Cell(tmp_path / name, settings, writer(log, name, fail), list(needs))


def silent(text):
    pass


def test_each_is_done_once_and_after_its_needs(tmp_path):
    log = []
    first = cell(tmp_path, "first", log)
    cells = [cell(tmp_path, "second", log, [first]), first]
    run(cells, silent, wait=0.01)
    run(cells, silent, wait=0.01)
    assert log == ["first", "second"]
    assert (tmp_path / "second" / "result").read_text() == "second"


def test_a_failure_leaves_no_folder_and_is_done_again(tmp_path):
    log = []
    with pytest.raises(RuntimeError, match="no"):
        run([cell(tmp_path, "a", log, fail=True)], silent)
    assert not (tmp_path / "a").exists()
    run([cell(tmp_path, "a", log)], silent)
    assert log == ["a", "a"] and (tmp_path / "a" / "result").is_file()
    assert [path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")] == ["a"]


def test_other_settings_are_an_error_that_names_them(tmp_path):
    run([cell(tmp_path, "a", [], epochs=3, rates=(1e-3, 1e-4))], silent)
    run([cell(tmp_path, "a", [], epochs=3, rates=(1e-3, 1e-4))], silent)
    with pytest.raises(ValueError, match="other settings: epochs was 3 and is 4. Give another --out, or remove it"):
        run([cell(tmp_path, "a", [], epochs=4, rates=(1e-3, 1e-4))], silent)


def test_an_option_that_came_later_counts_as_its_default(tmp_path):
    log = []
    run([cell(tmp_path, "a", log, options={"w": 0.1})], silent)
    now = cell(tmp_path, "a", log, options={"w": 0.1, "new": (1, 2)})
    with pytest.raises(ValueError, match=r"other settings: options.new was None and is \[1, 2\]\. Give"):
        now.done()
    now.defaults = {"options": {"w": 0.3, "new": (1, 2)}}
    assert now.done()
    now.settings["options"]["new"] = (1, 3)
    with pytest.raises(ValueError, match=r"options.new was \[1, 2\] and is \[1, 3\]"):
        now.done()


def test_an_outdated_cell_is_an_error_even_if_what_it_needs_is_done_anew(tmp_path):
    def made(value):
        def work(folder):
            (folder / "value").write_text(value)

        def copy(folder):
            (folder / "copy").write_text((tmp_path / "first" / "value").read_text())

        def outdated(folder):
            return None if (folder / "copy").read_text() == (tmp_path / "first" / "value").read_text() else "no copy"

        first = Cell(tmp_path / "first", {}, work)
        return [first, Cell(tmp_path / "second", {}, copy, [first], outdated=outdated)]

    run(made("1"), silent)
    shutil.rmtree(tmp_path / "first")
    run(made("1"), silent)
    shutil.rmtree(tmp_path / "first")
    with pytest.raises(ValueError, match="second is outdated: no copy. Remove it"):
        run(made("2"), silent)


def test_a_cell_that_another_process_does_is_waited_for(tmp_path):
    log = []
    lock = FileLock(tmp_path / ".a.lock")
    lock.acquire()

    def release(text):
        lock.release()

    run([cell(tmp_path, "a", log), Cell(tmp_path / "b", {}, writer(log, "b"))], release, wait=0.01)
    assert log == ["b", "a"]


def test_two_processes_share_the_work(tmp_path):
    script = textwrap.dedent(
        f"""
        import sys, time
        from pathlib import Path
        from experiments.cells import Cell, run

        def work(folder):
            time.sleep(0.05)
            with open({str(tmp_path / "log")!r}, "a") as log:
                log.write(sys.argv[1] + "\\n")

        run([Cell(Path({str(tmp_path)!r}) / str(i), {{}}, work) for i in range(20)], lambda text: None, wait=0.01)
        """
    )
    both = [subprocess.Popen([sys.executable, "-c", script, name]) for name in "ab"]
    assert [process.wait(60) for process in both] == [0, 0]
    lines = (tmp_path / "log").read_text().split()
    assert len(lines) == 20 and set(lines) == {"a", "b"}
    assert all(json.loads((tmp_path / str(i) / "settings.json").read_text()) == {} for i in range(20))
