"""The file of answers: what survives, who may share it, and what is wrong with other files."""

import multiprocessing
import shutil
import sqlite3
import subprocess
import threading
import warnings

import pytest

from pyterrier_grasp.llm import Usage
from pyterrier_grasp.llm.cache import AnswerCache, CacheFullError, KeptAnswer

USAGE = Usage(2, 30, 4, 0.5)


def answer(key, text="text", **fields):
    return KeptAnswer(
        **{"key": key, "request": f"request {key}", "model": "m", "snapshot": "m-1", "shape": "s"}
        | fields
        | {"text": text, "usage": USAGE, "seconds": 2.0}
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "new" / "answers.sqlite"


def test_answers_are_found_again(path):
    cache = AnswerCache(path)
    cache.put(answer("a", "犬 \x00 😀"))
    cache.put(answer("b")._replace(usage=Usage(1, 2, 3, None), seconds=None))
    for opened in (cache, AnswerCache(str(path))):
        assert opened.get("a") == answer("a", "犬 \x00 😀")
        assert opened.get("b").usage == Usage(1, 2, 3, None)
        assert opened.get("c") is None and len(opened) == 2


def test_the_newest_answer_counts_and_none_is_lost(path):
    cache = AnswerCache(path)
    for text in ("old", "new"):
        cache.put(answer("a", text))
    assert cache.get("a").text == "new" and len(cache) == 2


def test_averages(path):
    cache = AnswerCache(path)
    assert cache.averages("m", "s") is None
    for tokens in (10, 20, 60):
        cache.put(answer("a")._replace(usage=Usage(1, 1, tokens, 0.0)))
    cache.put(answer("b", shape="other"))
    assert cache.averages("m", "s") == (30.0, 2.0)
    assert cache.averages("m", "s", newest=1) == (60.0, 2.0)
    assert cache.averages("n", "s") is None


def test_write_ahead_log(path):
    AnswerCache(path)
    assert sqlite3.connect(path).execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_of_a_newer_release(path):
    AnswerCache(path).close()
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(ValueError, match="format 99, this release reads 1: update"):
        AnswerCache(path)


def test_other_files(tmp_path):
    (tmp_path / "text.sqlite").write_text("these are not the answers you are looking for\n" * 50)
    with pytest.raises(ValueError, match="text.sqlite is no cache of answers .*give another file"):
        AnswerCache(tmp_path / "text.sqlite")
    with sqlite3.connect(tmp_path / "other.sqlite") as database:
        database.execute("CREATE TABLE songs (title TEXT)")
    with pytest.raises(ValueError, match="other.sqlite is a database, but no cache of answers"):
        AnswerCache(tmp_path / "other.sqlite")
    with pytest.raises(ValueError, match="is a folder"):
        AnswerCache(tmp_path)
    with pytest.raises(ValueError, match="text.sqlite is a file"):
        AnswerCache(tmp_path / "text.sqlite" / "answers.sqlite")


def test_a_damaged_file(path):
    cache = AnswerCache(path)
    for number in range(200):
        cache.put(answer(str(number), "x" * 500))
    cache.close()
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(OSError, match="the cache of answers cannot be read: .*malformed"):
        AnswerCache(path).get("7")


def _write(path, name):
    cache = AnswerCache(path)
    for number in range(100):
        cache.put(answer(f"{name}{number}"))


def test_two_processes_and_their_threads_share_a_file(path):
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=_write, args=(path, name)) for name in "ab"]
    threads = [threading.Thread(target=_write, args=(path, name)) for name in "cd"]
    for runner in (*processes, *threads):
        runner.start()
    for runner in (*processes, *threads):
        runner.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert len(AnswerCache(path)) == 400


def test_the_database_is_full(path):
    cache = AnswerCache(path)
    cache.put(answer("a"))
    cache._db.execute("PRAGMA max_page_count = 10")
    with pytest.raises(CacheFullError, match="the disk is full. The answers before it are safe. Make room"):
        for _ in range(100):
            cache.put(answer("b", "x" * 1000))
    assert cache.get("a") is not None


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 512 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = [shutil.which("mount") or "mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_stops_the_run_and_loses_nothing(server, client, requests, small_disk):
    asker = client(cache=small_disk / "answers.sqlite", concurrency=4)
    asker.ask(requests(5))
    rest = (small_disk / "filler").open("wb", buffering=0)
    with pytest.raises(OSError):
        while True:
            rest.write(b"x" * 1024)
    with pytest.raises(CacheFullError, match="an answer cannot be kept: the disk is full"):
        asker.ask(requests(2000))
    assert server.stats()["requests"] < 1500
    rest.close()
    (small_disk / "filler").unlink()
    again = client(cache=small_disk / "answers.sqlite")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answers = again.ask(requests(20))
    assert all(answer.value for answer in answers) and all(answer.cached for answer in answers[:5])


def test_a_read_only_disk(small_disk):
    AnswerCache(small_disk / "answers.sqlite").close()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(OSError, match="the cache of answers cannot be|Read-only"):
        AnswerCache(small_disk / "answers.sqlite").put(answer("a"))
    with pytest.raises(OSError, match="the cache of answers cannot be|Read-only"):
        AnswerCache(small_disk / "new.sqlite")
