"""``ChatClient(batch=True)`` against the chat server, in a process of its own."""

import os
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from pathlib import Path

import pytest
from PIL import Image
from pydantic import BaseModel

from experiments.chat_server import RunningServer
from pyterrier_grasp.llm.client import ChatClient
from pyterrier_grasp.llm.meter import CostLimit
from pyterrier_grasp.llm.request import ChatRequest

ROOT = Path(__file__).parents[2]
MODEL = "gpt-4o-mini"


class Thing(BaseModel):
    name: str


@pytest.fixture(scope="module")
def process():
    with RunningServer() as server:
        yield server


@pytest.fixture
def server(process):
    process.control(reset=True)
    return process


def client(server, tmp_path, **settings):
    found = ChatClient(
        MODEL,
        base_url=server.url,
        api_key="key",
        cache=tmp_path / "answers.sqlite",
        **{"batch": True, "verbose": False, "max_retries": 1} | settings,
    )
    found.batch_interval = 0.02
    return found


def things(n):
    return [ChatRequest(f"thing {number}", f"What is thing {number}?", schema=Thing) for number in range(n)]


def test_all_through_one_batch_at_half_the_price(server, tmp_path):
    batched, direct = client(server, tmp_path), client(server, tmp_path / "direct", batch=False)
    estimate = batched.estimate(things(20))
    assert estimate.cost == pytest.approx(direct.estimate(things(20)).cost / 2)
    answers = batched.ask(things(20) + things(5))
    assert [answer.value for answer in answers[20:]] == [answer.value for answer in answers[:5]]
    assert all(isinstance(answer.value, Thing) and not answer.cached for answer in answers)
    stats = server.stats()
    assert stats["requests"] == 0 and len(stats["batched"]) == 20
    direct.ask(things(20))
    assert batched.usage.cost == pytest.approx(direct.usage.cost / 2)
    assert batched.usage[:3] == direct.usage[:3]


def test_kept_answers_are_the_same_whichever_way_they_came(server, tmp_path):
    first = client(server, tmp_path, batch=False).ask(things(4))
    again = client(server, tmp_path).ask(things(6))
    assert [answer.cached for answer in again] == [True] * 4 + [False] * 2
    assert [a.value for a in again[:4]] == [a.value for a in first]
    assert len(server.stats()["batched"]) == 2
    assert all(answer.cached for answer in client(server, tmp_path, batch=False).ask(things(6)))


def test_images_travel(server, tmp_path):
    requests = []
    for number in range(3):
        path = tmp_path / f"{number}.png"
        Image.new("RGB", (40, 30), (80 * number, 0, 0)).save(path)
        requests.append(ChatRequest(path.stem, "Describe it.", images=(path,)))
    lost = ChatRequest("lost", "Describe it.", images=(tmp_path / "nowhere.png",))
    with pytest.warns(UserWarning, match="nowhere"):
        answers = client(server, tmp_path).ask([*requests, lost])
    assert [answer.failure is None for answer in answers] == [True] * 3 + [False]
    assert all(answer.usage.input_tokens > 200 for answer in answers[:3]), "the server counts the data URL as text"
    assert len(server.stats()["batched"]) == 3


def test_invalid_answers_are_repaired_one_by_one(server, tmp_path):
    server.control(desk={"spoiled": 3})
    asker = client(server, tmp_path)
    answers = asker.ask(things(10))
    assert all(answer.failure is None for answer in answers)
    stats = server.stats()
    assert stats["requests"] == 3
    assert len(stats["last"]["messages"]) > 2, "the broken answer is shown to the model"
    assert asker.usage.requests == 13
    assert sum(answer.usage.requests == 2 for answer in answers) == 3


def test_what_a_batch_leaves_is_asked_one_by_one(server, tmp_path):
    server.control(desk={"answered": 0.4, "ending": "expired"})
    with pytest.warns(UserWarning, match="expired, and 6 of 10 "):
        answers = client(server, tmp_path).ask(things(10))
    assert all(answer.failure is None for answer in answers)
    assert server.stats()["requests"] == 6


def test_failed_batch(server, tmp_path):
    server.control(desk={"ending": "failed"})
    with pytest.warns(UserWarning, match="failed, and 10 of 10 .*could not be read"):
        answers = client(server, tmp_path).ask(things(10))
    assert all(answer.failure is None for answer in answers)
    assert server.stats()["requests"] == 10


@pytest.mark.parametrize("status", [404, 405])
def test_endpoint_without_batches(server, tmp_path, status):
    server.control(desk={"status": status})
    with pytest.warns(UserWarning, match="no Batch API"):
        answers = client(server, tmp_path).ask(things(5))
    assert all(answer.failure is None for answer in answers)
    assert server.stats()["requests"] == 5


def test_wrong_key_is_said_in_words(server, tmp_path):
    server.control(desk={"status": 401})
    with pytest.raises(ValueError, match="OPENAI_API_KEY"):
        client(server, tmp_path).ask(things(2))


def test_endpoint_down(tmp_path):
    with RunningServer() as gone:
        pass
    with pytest.raises(ConnectionError, match="cannot be reached"):
        client(gone, tmp_path, max_retries=0).ask(things(2))


def test_max_cost_stops_before_anything_is_sent(server, tmp_path):
    cost = client(server, tmp_path).estimate(things(20)).cost
    with pytest.raises(CostLimit, match="20 requests"):
        client(server, tmp_path, max_cost=cost * 0.9).ask(things(20))
    assert server.stats()["batched"] == []
    client(server, tmp_path, max_cost=cost * 1.1).ask(things(20))
    assert len(server.stats()["batched"]) == 20


def start(server, tmp_path):
    script = f"""
        import sys
        sys.path[:0] = {[str(ROOT), str(Path(__file__).parent)]!r}
        from pathlib import Path
        from types import SimpleNamespace
        from test_batched import client, things
        client(SimpleNamespace(url={server.url!r}), Path({str(tmp_path)!r})).ask(things(50))
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )


def wait_for_batch(server, process):
    deadline = time.monotonic() + 60
    while not server.stats()["batched"]:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("delay", [0.0, 0.1])
def test_killed_run_takes_its_batch_up_again(server, tmp_path, delay):
    server.control(desk={"stuck": True})
    with start(server, tmp_path) as running:
        wait_for_batch(server, running)
        time.sleep(delay)
        os.kill(running.pid, signal.SIGKILL)
    server.control(desk={"stuck": False})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answers = client(server, tmp_path).ask(things(50))
    assert all(answer.failure is None for answer in answers)
    stats = server.stats()
    assert len(stats["batched"]) == len(set(stats["batched"])) == 50, "one batch only"
    assert stats["requests"] == 0


def test_ctrl_c_leaves_the_batch_running(server, tmp_path):
    server.control(desk={"stuck": True})
    with start(server, tmp_path) as running:
        wait_for_batch(server, running)
        time.sleep(0.3)
        running.send_signal(signal.SIGINT)
        words = running.stderr.read()
    assert "go on at the endpoint (batch_" in words and "same cache" in words
    server.control(desk={"stuck": False})
    assert all(answer.failure is None for answer in client(server, tmp_path).ask(things(50)))
    assert len(server.stats()["batched"]) == 50
