"""The Batch API path against a server on loopback."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.chat_server_batches import BatchDesk
from pyterrier_grasp.llm.batch import BatchRun
from pyterrier_grasp.llm.batch_book import BatchBook, fingerprint


def completion(body):
    """The answer to ``n`` is ``n`` doubled."""
    text = str(2 * int(body["messages"][0]["content"]))
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return 200, {"choices": [{"index": 0, "finish_reason": "stop", "message": message}], "usage": usage}


class Server:
    """A batch desk behind HTTP; ``refuse(method, path)`` gives a status to answer with instead, or None."""

    def __init__(self, answer=completion):
        self.desk = BatchDesk(answer)
        self.refuse = lambda method, path: None
        self.seen = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):  # noqa: N802
                url = urlsplit(self.path)
                path = url.path.removeprefix("/v1")
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                server.seen.append((self.command, path))
                status = server.refuse(self.command, path)
                found = None
                if status is None:
                    found = server.desk.handle(
                        self.command, path, dict(parse_qsl(url.query)), self.headers.get("Content-Type", ""), body
                    )
                status, answer = found or (status or 404, {"error": {"message": "not here", "code": "nothing"}})
                content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_GET  # noqa: N815

            def log_message(self, *args):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def server():
    server = Server()
    yield server
    server.close()


class Run:
    """A run against a server, with the answers it was given."""

    def __init__(self, server, path=None, **settings):
        self.answers = {}
        self.book = BatchBook(path, server.url)
        self.batches = BatchRun(
            openai.OpenAI(base_url=server.url, api_key="none", max_retries=0),
            self.book,
            lambda key: {"model": "m", "messages": [{"role": "user", "content": key.removeprefix("key")}]},
            self.take,
            **{"interval": 0.01, "verbose": False} | settings,
        )

    def take(self, key, completion):
        assert key not in self.answers, "an answer is handed over once"
        self.answers[key] = completion["choices"][0]["message"]["content"]

    def __call__(self, keys):
        try:
            self.batches.run(keys)
        finally:
            self.book.close()
        return self.answers


KEYS = [f"key{number}" for number in range(10)]
EXPECTED = {key: str(2 * number) for number, key in enumerate(KEYS)}


def test_all_are_asked_once_and_answered(server, tmp_path):
    assert Run(server, tmp_path / "answers.db")(KEYS) == EXPECTED
    assert server.desk.asked == KEYS
    assert len(server.desk.created) == 1
    again = Run(server, tmp_path / "answers.db")
    assert again.book.records() == [], "nothing is left to fetch"


def test_no_requests_no_batch(server):
    assert Run(server)([]) == {}
    assert server.desk.created == []


@pytest.mark.parametrize("limit", [{"max_requests": 3}, {"max_bytes": 3 * 140}])
def test_files_keep_within_the_limits(server, limit):
    assert Run(server, **limit)(KEYS) == EXPECTED
    assert server.desk.asked == KEYS
    assert len(server.desk.created) == 4


def test_a_request_beyond_the_limit_goes_alone(server):
    assert Run(server, max_bytes=10)(KEYS[:3]) == {key: EXPECTED[key] for key in KEYS[:3]}
    assert len(server.desk.created) == 3


@pytest.mark.parametrize("pick", ["created", "file"])
def test_killed_between_creation_and_writing_the_id_down(server, tmp_path, pick):
    """SIGKILL right after the batch was created (or its file uploaded): the next run finds it (or asks anew)."""
    script = f"""
        import os, signal, sys
        sys.path[:0] = {[str(Path(__file__).parents[2]), str(Path(__file__).parent)]!r}
        from types import SimpleNamespace
        from test_batch import KEYS, Run
        run = Run(SimpleNamespace(url={server.url!r}), {str(tmp_path / "answers.db")!r})
        part = {"run.book" if pick == "created" else "run.batches.api.batches"!r}
        setattr(eval(part), {"started" if pick == "created" else "create"!r},
                lambda *args, **kwargs: os.kill(os.getpid(), signal.SIGKILL))
        run(KEYS)
    """
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(server.desk.created) == (1 if pick == "created" else 0)
    assert Run(server, tmp_path / "answers.db")(KEYS) == EXPECTED
    assert len(server.desk.created) == 1
    assert server.desk.asked == KEYS


class Killed(BaseException):
    """Stands for a kill, as nothing catches it."""


def killed(*args, **kwargs):
    raise Killed


@pytest.fixture
def killed_while_waiting(monkeypatch):
    """``killed_while_waiting(run, keys)``"""

    def start(run, keys):
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr("pyterrier_grasp.llm.batch.time.sleep", killed)
            run(keys)

    return start


def killed_before_the_id(run, keys):
    run.book.started = killed
    with pytest.raises(Killed):
        run(keys)


def test_killed_while_waiting_and_run_again_with_more(server, tmp_path, killed_while_waiting):
    killed_while_waiting(Run(server, tmp_path / "answers.db"), KEYS[:6])
    assert Run(server, tmp_path / "answers.db")(KEYS) == EXPECTED
    assert server.desk.asked == KEYS, "the first six were not asked again"
    assert len(server.desk.created) == 2


def test_killed_before_the_id_and_run_again_with_more(server, tmp_path):
    killed_before_the_id(Run(server, tmp_path / "answers.db"), KEYS[:6])
    assert Run(server, tmp_path / "answers.db")(KEYS) == EXPECTED
    assert server.desk.asked == KEYS
    assert len(server.desk.created) == 2


def test_batches_for_other_requests_are_not_waited_for(server, tmp_path, killed_while_waiting):
    killed_while_waiting(Run(server, tmp_path / "answers.db"), KEYS[:6])
    server.seen.clear()
    assert set(Run(server, tmp_path / "answers.db")(KEYS[6:])) == set(KEYS[6:])
    assert ("GET", f"/batches/{server.desk.created[0]}") not in server.seen


def test_killed_while_answers_are_stored(server, tmp_path, monkeypatch):
    first = Run(server, tmp_path / "answers.db")
    take, taken = first.take, first.answers

    def killed_at_four(key, completion):
        if len(taken) == 4:
            raise Killed
        take(key, completion)

    first.batches.accept = killed_at_four
    with pytest.raises(Killed):
        first(KEYS)
    left = [key for key in KEYS if key not in taken]
    assert len(left) == 6
    assert taken | Run(server, tmp_path / "answers.db")(left) == EXPECTED
    assert server.desk.asked == KEYS


def test_a_run_for_some_leaves_the_others_to_be_fetched(server, tmp_path, killed_while_waiting):
    killed_while_waiting(Run(server, tmp_path / "answers.db"), KEYS)
    assert Run(server, tmp_path / "answers.db")(KEYS[:4]) == {key: EXPECTED[key] for key in KEYS[:4]}
    assert Run(server, tmp_path / "answers.db")(KEYS[4:]) == {key: EXPECTED[key] for key in KEYS[4:]}
    assert server.desk.asked == KEYS


def test_without_a_database_the_endpoint_remembers(server, killed_while_waiting):
    killed_while_waiting(Run(server), KEYS)
    assert Run(server)(KEYS[::-1]) == EXPECTED, "the order of the requests does not matter"
    assert server.desk.asked == KEYS


def test_many_foreign_batches_at_the_endpoint(server, tmp_path):
    """Batches of others are passed over, and ours is found on a later page."""
    run = Run(server, tmp_path / "answers.db")
    killed_before_the_id(run, KEYS)
    api = run.batches.api
    file = api.files.create(file=("x.jsonl", b""), purpose="batch")
    for number in range(250):
        metadata = {"theirs": "yes"} if number % 2 else None
        api.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", metadata=metadata
        )
    assert Run(server, tmp_path / "answers.db")(KEYS) == EXPECTED
    assert len(server.desk.created) == 251
    assert server.desk.asked == KEYS


def test_endpoints_do_not_share_batches(server, tmp_path, killed_while_waiting):
    other = Server()
    try:
        killed_while_waiting(Run(server, tmp_path / "answers.db"), KEYS)
        assert Run(other, tmp_path / "answers.db")(KEYS) == EXPECTED
        assert Run(server, tmp_path / "answers.db")(KEYS) == EXPECTED
        assert len(server.desk.created) == len(other.desk.created) == 1
    finally:
        other.close()


@pytest.mark.parametrize("ending", ["expired", "cancelled"])
def test_the_done_part_of_a_batch_is_kept(server, tmp_path, ending):
    server.desk.answered, server.desk.ending = 0.5, ending
    run = Run(server, tmp_path / "answers.db")
    with pytest.warns(UserWarning, match=rf"is {ending}, and 5 of 10 .*not asked before .* \(5 x\)"):
        answers = run(KEYS)
    assert answers == {key: EXPECTED[key] for key in KEYS[:5]}
    server.desk.answered, server.desk.ending = 1.0, "completed"
    left = Run(server, tmp_path / "answers.db")
    assert left.book.records() == []
    assert left(KEYS[5:]) == {key: EXPECTED[key] for key in KEYS[5:]}


def test_an_expired_batch_is_not_taken_for_a_running_one(server):
    server.desk.answered, server.desk.ending = 0.0, "expired"
    with pytest.warns(UserWarning, match="expired"):
        assert Run(server)(KEYS) == {}
    server.desk.answered, server.desk.ending = 1.0, "completed"
    assert Run(server)(KEYS) == EXPECTED
    assert len(server.desk.created) == 2


def test_failed_batch_says_why(server, tmp_path):
    server.desk.ending = "failed"
    run = Run(server, tmp_path / "answers.db")
    with pytest.warns(UserWarning, match=r"is failed, and 10 of 10 .*the file could not be read"):
        assert run(KEYS) == {}
    assert Run(server, tmp_path / "answers.db").book.records() == []


def test_refused_requests_are_counted_by_reason(server):
    def picky(body):
        if int(body["messages"][0]["content"]) % 3 == 0:
            return 400, {"error": {"message": "no threes", "code": "bad"}}
        return completion(body)

    server.desk._answer = picky
    with pytest.warns(UserWarning, match=r"is completed, and 4 of 10 .*no threes \(4 x\)"):
        answers = Run(server)(KEYS)
    assert set(answers) == {key for number, key in enumerate(KEYS) if number % 3}


def test_a_full_queue_is_waited_for(server):
    server.desk.queue = 5
    assert Run(server, max_requests=4)(KEYS) == EXPECTED
    assert sorted(server.desk.asked) == KEYS, "each was taken once"


def test_a_batch_larger_than_the_queue_is_given_up(server):
    server.desk.queue = 5
    with pytest.warns(UserWarning, match="the queue is full"):
        assert Run(server)(KEYS) == {}


@pytest.mark.parametrize("status", [404, 405])
@pytest.mark.parametrize("where", ["GET /batches", "POST /files", "POST /batches"])
def test_endpoint_without_batches(server, tmp_path, status, where):
    server.refuse = lambda method, path: status if f"{method} {path}" == where else None
    with pytest.warns(UserWarning, match="has no Batch API"):
        assert Run(server, tmp_path / "answers.db")(KEYS) == {}
    server.refuse = lambda method, path: None
    assert Run(server, tmp_path / "answers.db")(KEYS) == EXPECTED


@pytest.mark.parametrize("where", ["GET /batches", "POST /files", "POST /batches"])
def test_wrong_key_is_an_error(server, where):
    server.refuse = lambda method, path: 401 if f"{method} {path}" == where else None
    with pytest.raises(openai.AuthenticationError):
        Run(server)(KEYS)


def test_endpoint_that_loses_its_batches_midway(server, tmp_path):
    server.refuse = lambda method, path: 404 if (method, path) == ("POST", "/batches") and server.desk.created else None
    with pytest.raises(openai.NotFoundError):
        Run(server, tmp_path / "answers.db", max_requests=5)(KEYS)
    server.refuse = lambda method, path: None
    assert Run(server, tmp_path / "answers.db", max_requests=5)(KEYS) == EXPECTED
    assert server.desk.asked == KEYS


def test_endpoint_away_now_and_then(server, monkeypatch):
    monkeypatch.setattr("pyterrier_grasp.llm.batch._MAX_LOST_POLLS", 2)
    server.desk.looks = 5
    counts = iter(range(100))
    server.refuse = lambda method, path: 503 if path.startswith("/batches/") and next(counts) % 2 else None
    assert Run(server)(KEYS) == EXPECTED


def test_endpoint_away_for_a_while(server):
    counts = iter(range(100))
    server.refuse = lambda method, path: (
        [503, 429][next(counts) % 2] if re.match(r"/(batches|files)/", path) and len(server.seen) < 15 else None
    )
    assert Run(server)(KEYS) == EXPECTED
    assert next(counts) > 5


def test_endpoint_away_for_good(server, tmp_path, monkeypatch):
    monkeypatch.setattr("pyterrier_grasp.llm.batch._MAX_LOST_POLLS", 5)
    server.refuse = lambda method, path: 503 if path.startswith("/batches/") else None
    with pytest.raises(openai.InternalServerError):
        Run(server, tmp_path / "answers.db")(KEYS)
    server.refuse = lambda method, path: None
    assert Run(server, tmp_path / "answers.db")(KEYS) == EXPECTED
    assert len(server.desk.created) == 1


def test_lost_batch(server, tmp_path):
    run = Run(server, tmp_path / "answers.db")
    create = run.batches.api.batches.create

    def created_and_lost(**order):
        batch = create(**order)
        server.desk.forget(batch.id)
        return batch

    run.batches.api.batches.create = created_and_lost
    with pytest.warns(UserWarning, match="is gone"):
        assert run(KEYS) == {}
    assert Run(server, tmp_path / "answers.db")(KEYS) == EXPECTED


def test_ctrl_c_says_how_to_go_on(server, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        "pyterrier_grasp.llm.batch.time.sleep", lambda seconds: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    with pytest.raises(KeyboardInterrupt):
        Run(server, tmp_path / "answers.db", desc="captions")(KEYS)
    words = capsys.readouterr().err
    assert "captions" in words and server.desk.created[0] in words and "same cache" in words
    monkeypatch.undo()
    assert Run(server, tmp_path / "answers.db")(KEYS) == EXPECTED
    assert len(server.desk.created) == 1


def test_damaged_result_lines_are_left_unanswered(server):
    content = server.desk._file

    def damaged(text):
        lines = text.split(b"\n")
        if b"choices" in text:
            lines[0] = lines[0][:30]
            lines[1] = b"[]"
            lines[2] = b'{"custom_id": "stranger", "response": {"status_code": 200, "body": {}}}'
            lines.append(lines[4])
        return content(b"\n".join(lines))

    server.desk._file = damaged
    with pytest.warns(UserWarning, match="3 of 10"):
        answers = Run(server)(KEYS)
    assert answers == {key: EXPECTED[key] for key in KEYS[:7]}, "answers come in reverse"


def test_two_processes_with_one_database(server, tmp_path):
    script = f"""
        import sys
        sys.path[:0] = {[str(Path(__file__).parents[2])]!r}
        from pyterrier_grasp.llm.batch_book import BatchBook
        book = BatchBook({str(tmp_path / "answers.db")!r}, "x")
        print("ready", flush=True)
        input()
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "ready\n"
        with pytest.raises(ValueError, match=r"another run .*answers\.db"):
            BatchBook(tmp_path / "answers.db", server.url)
        os.kill(other.pid, signal.SIGKILL)
    BatchBook(tmp_path / "answers.db", server.url).close()


def test_full_disk_is_said_in_words_and_loses_nothing(server, tmp_path):
    keys = [f"key{number}" for number in range(3000)]
    run = Run(server, tmp_path / "answers.db")
    pages = run.book._db.execute("PRAGMA page_count").fetchone()[0]
    run.book._db.execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(OSError, match=r"batches under way cannot be written down.*full.*answers\.db"):
        run(keys)
    assert server.desk.created == [], "what cannot be written down is not handed in"
    assert len(Run(server, tmp_path / "answers.db")(keys)) == 3000


def test_file_that_is_no_database(tmp_path):
    (tmp_path / "answers.db").write_text("no database" * 100)
    for _ in range(2):
        with pytest.raises(OSError, match=r"answers\.db"):
            BatchBook(tmp_path / "answers.db", "x")


@given(st.sets(st.text("0123456789abcdef", min_size=1)), st.randoms())
def test_fingerprint_is_that_of_a_set(keys, random):
    shuffled = list(keys)
    random.shuffle(shuffled)
    assert fingerprint(shuffled) == fingerprint(keys)
    assert fingerprint([*keys, "x"]) != fingerprint(keys)
