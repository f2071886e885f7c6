"""What a client promises: order, equal requests, the cache, wrong settings, interruption."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from PIL import Image

from pyterrier_grasp.llm import ChatRequest, Usage
from pyterrier_grasp.llm.cache import AnswerCache
from pyterrier_grasp.llm.client import ChatClient

KEY = "sk-secret-of-the-tests"
FROM_HERE = {"cwd": Path(__file__).parents[2], "env": os.environ | {"PYTHONPATH": "."}}


def test_answers_come_in_order_and_equal_requests_are_asked_once(server, client, requests):
    asked = requests(20) + requests(5)
    answers = client(concurrency=7).ask(asked)
    assert [answer.request for answer in answers] == asked
    assert len({answer.value.word for answer in answers}) == 20
    assert [answer.value for answer in answers[20:]] == [answer.value for answer in answers[:5]]
    stats = server.stats()
    assert stats["requests"] == 20 and stats["most_under_way"] <= 7
    assert stats["last"]["model"] == "gpt-4o-mini"
    assert (stats["last"]["temperature"], stats["last"]["seed"], stats["last"]["max_tokens"]) == (0.0, 0, 4096)


def test_kept_answers_are_not_asked_again(server, client, requests):
    first = client().ask(requests(10))
    second = client(base_url="http://127.0.0.1:1/v1", api_key=None).ask(requests(10))
    assert [a.value for a in first] == [a.value for a in second]
    assert [a.usage for a in first] == [a.usage for a in second]
    assert not any(a.cached for a in first) and all(a.cached for a in second)
    client().ask(requests(12))
    assert server.stats()["requests"] == 12


@pytest.mark.parametrize(
    "change", [{"temperature": 0.5}, {"seed": 1}, {"max_tokens": 99}, {"params": {"top_p": 0.5}}, {"model": "gpt-4o"}]
)
def test_another_setting_is_another_question(server, client, requests, change):
    client().ask(requests(1))
    assert not client(**change).ask(requests(1))[0].cached


def test_url_concurrency_and_id_decide_nothing(server, client, requests):
    client().ask(requests(1))
    renamed = ChatRequest("another name", requests(1)[0].user, schema=requests(1)[0].schema)
    assert client(concurrency=2, base_url=server.url + "/", timeout=5).ask([renamed])[0].cached


def test_nothing_to_ask(client):
    assert client().ask([]) == []


def test_plain_text(client):
    (answer,) = client().ask([ChatRequest("a", "hello")])
    assert answer.value == "You said 'hello'"


def test_a_kept_answer_that_no_longer_will_do_is_asked_again(server, client, requests):
    def refuse(value):
        raise ValueError("words have changed")

    client().ask(requests(1))
    with pytest.warns(UserWarning, match="request 0: words have changed; the answer begins:"):
        (answer,) = client().ask(requests(1, check=refuse))
    assert answer.value is None and server.stats()["requests"] == 3
    assert client().ask(requests(1))[0].cached


def test_usage_and_cost(client, requests):
    asker = client()
    answers = asker.ask(requests(5))
    assert asker.usage == sum((answer.usage for answer in answers), Usage())
    assert asker.usage.requests == 5
    expected = (asker.usage.input_tokens * 0.15 + asker.usage.output_tokens * 0.60) / 1e6
    assert asker.usage.cost == pytest.approx(expected)
    assert client(model="my-model").ask(requests(1))[0].usage.cost is None


def test_tokens_are_estimated_where_the_endpoint_tells_none(server, client, requests):
    server.control(usage=False)
    asker = client()
    asker.ask(requests(1))
    assert asker.usage.input_tokens > 0 and asker.usage.output_tokens > 0


def test_settings_are_what_decides(client):
    assert client(params={"top_p": 0.5}).settings() == {
        "model": "gpt-4o-mini",
        "temperature": 0.0,
        "seed": 0,
        "max_tokens": 4096,
        "params": {"top_p": 0.5},
    }


def test_none_leaves_a_parameter_to_the_endpoint(server, client, requests):
    client(temperature=None, seed=None, max_tokens=None).ask(requests(1))
    assert not {"temperature", "seed", "max_tokens"} & set(server.stats()["last"])


def test_estimate(server, client, requests):
    asker = client(concurrency=4)
    before = asker.estimate(requests(10) + requests(3))
    assert (before.requests, before.cached, before.output_tokens, before.seconds) == (10, 0, 2500, None)
    assert before.cost == pytest.approx((before.input_tokens * 0.15 + 2500 * 0.60) / 1e6)
    answers = asker.ask(requests(10))
    after = client().estimate(requests(14))
    assert (after.requests, after.cached) == (14, 10)
    assert after.output_tokens == 4 * answers[0].usage.output_tokens and after.seconds >= 0
    assert asker.estimate(requests(10))[1:] == (10, 0, 0, 0.0, 0.0)
    assert client(requests_per_minute=60).estimate(requests(14)).seconds == pytest.approx(4)
    assert client(model="my-model").estimate(requests(1)).cost is None
    assert server.stats()["requests"] == 10


def test_works_where_an_event_loop_is_running(client, requests):
    async def cell():
        return client().ask(requests(3))

    assert all(answer.value for answer in asyncio.run(cell()))


def test_many_requests_are_not_as_many_tasks(client, requests):
    most = 0

    def count(value):
        nonlocal most
        most = max(most, len(asyncio.all_tasks()))

    client(concurrency=4).ask(requests(300, check=count))
    assert 4 <= most < 10


class TestImages:
    @pytest.fixture
    def picture(self, tmp_path):
        def make(colour, name="picture.png"):
            Image.new("RGB", (20, 10), colour).save(tmp_path / name)
            return tmp_path / name

        return make

    def test_are_sent_small_before_the_question(self, server, client, picture):
        asker = client()
        asker.ask([ChatRequest("a", "what is it?", images=(picture("red"),))])
        image, text = server.stats()["last"]["messages"][0]["content"]
        assert image["type"] == "image_url" and image["image_url"]["detail"] == "low"
        assert image["image_url"]["url"].startswith("data:image/jpeg;base64,")
        assert text == {"type": "text", "text": "what is it?"}

    def test_count_by_content_not_by_name(self, server, client, picture):
        asker = client()
        red, other, blue = picture("red"), picture("red", "other.png"), picture("blue", "blue.png")
        asker.ask([ChatRequest(str(path), "what?", images=(path,)) for path in (red, other, blue)])
        assert server.stats()["requests"] == 2
        picture("green")
        assert not asker.ask([ChatRequest("a", "what?", images=(red,))])[0].cached

    def test_that_cannot_be_read_fail_alone(self, server, client, picture, tmp_path):
        (tmp_path / "broken.png").write_bytes(b"not an image")
        paths = [picture("red"), tmp_path / "missing.png", tmp_path / "broken.png"]
        asked = [ChatRequest(path.name, "what?", images=(path,)) for path in paths]
        asker = client()
        with pytest.warns(UserWarning, match="2 of 3 requests failed: missing.png: there is no image file .*missing"):
            answers = asker.ask(asked)
        assert [answer.failure is None for answer in answers] == [True, False, False]
        with pytest.warns(UserWarning, match="2 requests have images that cannot be read"):
            assert asker.estimate(asked).requests == 1

    def test_cost_tokens_in_an_estimate(self, client, picture):
        estimate = client().estimate([ChatRequest("a", "what?", images=(picture("red"),))])
        assert 2833 < estimate.input_tokens < 2900


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": ""}, "model must be the name"),
        ({"model": None}, "model must be the name"),
        ({"base_url": "localhost:8000"}, "base_url must be a URL like"),
        ({"api_key": "two\nlines"}, "api_key must be"),
        ({"concurrency": 0}, "concurrency must be a whole number of at least 1, got 0"),
        ({"concurrency": 1.5}, "concurrency must be a whole"),
        ({"requests_per_minute": 0}, "requests_per_minute must be a number above 0 or None"),
        ({"tokens_per_minute": "many"}, "tokens_per_minute must be"),
        ({"timeout": -1}, "timeout must be"),
        ({"max_retries": True}, "max_retries must be"),
        ({"temperature": float("nan")}, "temperature must be"),
        ({"seed": "0"}, "seed must be"),
        ({"max_tokens": 0}, "max_tokens must be"),
        ({"max_cost": -1}, "max_cost must be"),
        ({"params": {"model": "x"}}, "params holds \\['model'\\]"),
        ({"params": {"x": object()}}, "params must be JSON"),
        ({"params": [1]}, "params must be"),
        ({"prices": {"m": 1}}, "price of 'm'"),
    ],
)
def test_wrong_settings(client, options, words):
    with pytest.raises(ValueError, match=words):
        client(**options)


def test_what_is_no_request(client):
    with pytest.raises(ValueError, match="requests must be ChatRequest objects, got 'hello'"):
        client().ask(["hello"])
    with pytest.raises(ValueError, match="must be a pydantic model"):
        client().ask([ChatRequest("a", "b", schema=dict)])


def test_no_key(tmp_path, monkeypatch, requests):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    keyless = ChatClient("gpt-4o-mini", cache=tmp_path / "a.sqlite", verbose=False)
    assert keyless.estimate(requests(1)).requests == 1
    with pytest.raises(ValueError, match="there is no key for a chat model: set .*OPENAI_API_KEY.*base_url"):
        keyless.ask(requests(1))


def test_key_and_url_from_the_environment(server, tmp_path, monkeypatch, requests):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-environment")
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    server.control(key="sk-environment")
    assert ChatClient("m", cache=tmp_path / "a.sqlite", verbose=False).ask(requests(1))[0].value


def test_an_endpoint_of_ones_own_needs_no_key(client, requests):
    assert client(api_key=None).ask(requests(1))[0].value


def test_the_default_cache_is_in_the_home_of_pyterrier(monkeypatch, tmp_path):
    monkeypatch.setattr("pyterrier.io.pyterrier_home", lambda: str(tmp_path))
    assert ChatClient("m", base_url="http://127.0.0.1:1/v1").cache.path == tmp_path / "grasp" / "answers.sqlite"


def test_a_wrong_key_stops_at_once_and_is_not_shown(server, client, requests, tmp_path):
    server.control(key="another", latency=0.01)
    asker = client()
    with pytest.raises(ValueError, match="does not accept the key .*set OPENAI_API_KEY or give api_key") as caught:
        asker.ask(requests(2000))
    assert KEY not in str(caught.value) and KEY not in repr(asker)
    assert len(server.stats()["times"]) <= 32
    server.control(key=KEY)
    asker.ask(requests(2))
    assert not any(KEY.encode() in path.read_bytes() for path in tmp_path.glob("answers*"))


def test_an_unknown_model_stops_at_once(server, client, requests):
    server.control(models=["another"])
    with pytest.raises(ValueError, match="has no model 'gpt-4o-mini', .*does not exist.*give another model"):
        client().ask(requests(2000))
    with pytest.raises(ValueError, match="is not the base URL .* usually ends in /v1"):
        client(base_url=server.root).ask(requests(1))
    assert len(server.stats()["times"]) <= 16


def test_no_credit_left_stops_at_once(server, client, requests):
    server.control(status=429, error={"message": "You exceeded your quota", "code": "insufficient_quota"})
    with pytest.raises(ValueError, match="no credit left"):
        client().ask(requests(2000))
    assert len(server.stats()["times"]) <= 16


@pytest.mark.parametrize("count", [1, 2000])
def test_an_endpoint_that_is_down(client, requests, count):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    start = time.monotonic()
    with pytest.raises(ConnectionError, match=f"the endpoint {url} cannot be reached: .*base_url right"):
        client(base_url=url, max_retries=2).ask(requests(count))
    assert time.monotonic() - start < 5


def test_an_endpoint_that_dies_in_the_middle(server, client, requests):
    asker = client(max_retries=1, concurrency=4)
    asker.ask(requests(50))
    server.control(faults={"disconnect": 1.0})
    with pytest.raises(ConnectionError, match="seems to be down: the last 20 requests failed, .*run it again"):
        asker.ask(requests(2000))
    server.control(faults={})
    assert sum(answer.cached for answer in asker.ask(requests(60))) == 50


def test_an_endpoint_that_refuses_everything(server, client, requests):
    server.control(status=400, error={"message": "top_p must be in [0, 1]"})
    with pytest.raises(ValueError, match="refused all of the first 20 requests: HTTP 400: top_p must be"):
        client(params={"top_p": 7}).ask(requests(2000))


def test_progress(client, requests, capsys):
    client(verbose=True).ask(requests(3), desc="words")
    shown = capsys.readouterr().err
    assert "words: 100%" in shown and "done=3 cached=0 failed=0 tokens=" in shown and "cost=$" in shown
    client(verbose=False).ask(requests(3))
    assert capsys.readouterr().err == ""


def test_halves_of_surrogate_pairs(client):
    requests = [ChatRequest("\ud83d", "half \ud83d", system="\udc00"), ChatRequest("b", "\x00 null")]
    assert all(answer.value for answer in client().ask(requests))


SCRIPT = """
    import json, sys
    from pydantic import BaseModel
    from pyterrier_grasp.llm import ChatRequest
    from pyterrier_grasp.llm.client import ChatClient

    class Word(BaseModel):
        "A word."

        word: str

    url, cache, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    asked = [ChatRequest(f"request {n}", f"question {n}", schema=Word) for n in range(count)]
    client = ChatClient("gpt-4o-mini", base_url=url, cache=cache, verbose=False)
    try:
        client.ask(asked)
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.fixture
def start(server, tmp_path):
    """``start(count)``: another process that asks; returned once ``count / 3`` answers are kept, with the path."""
    script, cache = tmp_path / "script.py", tmp_path / "answers.sqlite"
    script.write_text(textwrap.dedent(SCRIPT))

    def run(count, share=3):
        kept = AnswerCache(cache)
        target = len(kept) + count // share
        command = [sys.executable, str(script), server.url, str(cache), str(count)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **FROM_HERE)
        while len(kept) < target:
            time.sleep(0.005)
            assert process.poll() is None, process.communicate()
        return process, cache

    return run


def test_ctrl_c_keeps_what_was_answered(server, client, requests, start):
    server.control(latency=0.05)
    process, _ = start(400)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert out == "interrupted\n" and "new answers are kept" in err and "Traceback" not in err
    before = server.stats()["requests"]
    assert before < 400
    server.control(latency=0.0)
    answers = client().ask(requests(400))
    kept = sum(answer.cached for answer in answers)
    assert before - 16 <= kept <= before and server.stats()["requests"] == before + 400 - kept


def test_killed_and_resumed_nothing_kept_is_asked_again(server, client, requests, start):
    server.control(latency=0.02)
    seen_at = []
    for _ in range(3):
        process, path = start(300, share=5)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        time.sleep(0.1)
        cache = AnswerCache(path)
        kept = {row[0] for row in cache._db.execute("SELECT request FROM answers")}
        assert len(kept) == len(cache), "no answer twice"
        seen_at.append((kept, server.stats()["questions"]))
    server.control(latency=0.0)
    assert all(answer.value for answer in client().ask(requests(300)))
    seen_at.append((set(), server.stats()["questions"]))
    for (kept, before), (_, after) in zip(seen_at, seen_at[1:], strict=False):
        again = [r.id for r in requests(300) if r.id in kept and after[r.user] > before[r.user]]
        assert again == []
    assert server.stats()["requests"] <= 300 + 3 * 16
