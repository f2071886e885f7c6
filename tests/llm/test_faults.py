"""An endpoint that misbehaves: what is tried again, what is mended, what fails, and in which words."""

import warnings

import pytest

from experiments.bench_llm import requests as image_requests
from experiments.chat_server import FAULTS
from pyterrier_grasp.llm import ChatRequest

TRANSPORT = ("rate_limit", "rate_limit_silent", "server_error", "disconnect", "hang")
MENDED = ("truncated", "empty", "length", "wrong_schema")


@pytest.mark.parametrize("fault", TRANSPORT)
def test_what_may_pass_is_tried_again(server, client, requests, fault):
    server.control(script=[fault], retry_after=0.05)
    asker = client(timeout=0.3)
    (answer,) = asker.ask(requests(1))
    assert answer.value and answer.usage.requests == 1
    assert server.stats()["requests"] == 2 and server.stats()["faults"] == {fault: 1}


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("rate_limit_silent", "HTTP 429: Rate limit reached"),
        ("server_error", "HTTP 500: The server had an error"),
        ("disconnect", "the connection failed"),
        ("hang", "no answer within 0.1 s"),
    ],
)
def test_what_does_not_pass_fails_by_name_and_is_not_kept(server, client, requests, fault, words):
    asker = client(timeout=0.1, max_retries=2, concurrency=1)
    server.control(script=["", fault, fault, fault])
    with pytest.warns(UserWarning, match="1 of 3 requests failed: request 1: "):
        answers = asker.ask(requests(3))
    assert [answer.value is None for answer in answers] == [False, True, False]
    assert answers[1].failure.startswith(words) and answers[1].failure.endswith("(tried 3 times)")
    assert [answer.cached for answer in asker.ask(requests(3))] == [True, False, True]


@pytest.mark.parametrize("fault", MENDED)
def test_an_answer_that_will_not_do_is_mended_in_one_turn(server, client, requests, fault):
    server.control(script=[fault])
    asker = client(max_tokens=50)
    (answer,) = asker.ask(requests(1))
    assert answer.value and answer.usage.requests == 2 and answer.usage == asker.usage
    last = server.stats()["last"]
    if fault == "length":
        assert last["max_tokens"] == 100 and len(last["messages"]) == 1
    elif fault == "empty":
        assert last["max_tokens"] == 50 and len(last["messages"]) == 1
        assert "An earlier answer will not do: the answer is empty" in last["messages"][0]["content"]
    else:
        assert [message["role"] for message in last["messages"]] == ["user", "assistant", "user"]
        assert last["messages"][2]["content"].startswith("This answer will not do: it ")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("truncated", 'it breaks off in the middle of its JSON; the answer begins: {"word": '),
        ("empty", "the answer is empty"),
        ("length", "the answer ran out of room"),
        ("wrong_schema", 'word: Field required; the answer begins: {"answer": [1, 2, 3]}'),
    ],
)
def test_an_answer_that_will_not_do_twice_fails(server, ask, requests, fault, words):
    server.control(script=[fault, fault])
    (answer,) = ask(requests(1))
    assert words in answer.failure and answer.usage.requests == 2
    assert server.stats()["requests"] == 2
    assert ask(requests(1))[0].value


def test_a_refusal_fails_at_once(server, ask, requests):
    server.control(script=["refusal"])
    (answer,) = ask(requests(1))
    assert answer.failure == "the model refused: I'm sorry, I can't help with that."
    assert server.stats()["requests"] == 1 and answer.usage.requests == 1


def test_words_around_the_json_do_not_matter(server, ask, requests):
    server.control(script=["prose"])
    assert ask(requests(1))[0].value and server.stats()["requests"] == 1


def test_what_a_check_says_is_told_to_the_model(server, ask, requests):
    seen = []

    def check(value):
        seen.append(value)
        if len(seen) == 1:
            raise ValueError("too plain a word")

    (answer,) = ask(requests(1, check=check))
    assert answer.value == seen[1] and server.stats()["requests"] == 2
    assert "will not do: too plain a word. " in server.stats()["last"]["messages"][2]["content"]


def test_a_room_that_is_not_ours_is_not_doubled(server, ask, requests):
    server.control(script=["length"])
    (answer,) = ask(requests(1), max_tokens=None)
    assert "ran out of room" in answer.failure and server.stats()["requests"] == 1


def test_a_fault_while_mending_names_both(server, ask, requests):
    server.control(script=["truncated", "server_error", "server_error"])
    (answer,) = ask(requests(1), max_retries=1)
    assert answer.failure.startswith("HTTP 500") and "when asked to mend an answer: it breaks off" in answer.failure
    assert answer.usage.requests == 1


def test_another_answer_the_second_time_changes_nothing(server, ask, requests):
    server.control(faults={"changed": 1.0})
    first = ask(requests(3))
    assert [a.value for a in ask(requests(3))] == [a.value for a in first]


@pytest.mark.parametrize("text", ["<html>log in</html>", '{"object": "error"}', '{"choices": []}'])
def test_a_reply_that_is_no_chat_completion(server, ask, requests, text, monkeypatch):
    server.control(reply=text)
    (answer,) = ask(requests(1), max_retries=1)
    assert answer.failure.startswith("the endpoint sent no chat completion")


def test_retry_after_holds_back_every_request(server, client, requests):
    server.control(script=[""] * 20 + ["rate_limit"], latency=0.01, retry_after=0.5)
    client(concurrency=4).ask(requests(60))
    times = sorted(server.stats()["times"])
    gaps = [after - before for before, after in zip(times, times[1:], strict=False)]
    assert sum(gap > 0.4 for gap in gaps) == 1 and sum(gaps) < 3


def test_a_long_wait_is_announced(server, client, requests, monkeypatch):
    monkeypatch.setattr("pyterrier_grasp.llm.endpoint._LONG_HOLD", 0.05)
    server.control(script=["rate_limit"], retry_after=0.1)
    with pytest.warns(UserWarning, match="wants no requests for 0 s: waiting"):
        client().ask(requests(1))


@pytest.mark.filterwarnings("ignore:the endpoint .* from now on")
class TestDialects:
    @pytest.mark.parametrize(("rungs", "used"), [(["json_object", "text"], "json_object"), (["text"], None)])
    def test_a_schema_is_asked_for_as_the_endpoint_can(self, server, client, requests, rungs, used):
        server.control(rungs=rungs, latency=0.01)
        asker = client(concurrency=4)
        with pytest.warns(UserWarning, match="from now on answers are asked for as json_object, not json_schema"):
            answers = asker.ask(requests(50))
        assert all(answer.value for answer in answers)
        stats = server.stats()
        assert stats["requests"] == 50 and len(stats["times"]) <= 50 + 2 * 4
        assert stats["last"].get("response_format", {}).get("type") == used
        assert '"title": "Word"' in stats["last"]["messages"][0]["content"]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            asker.ask(requests(10, start=50))
        assert client().estimate(requests(50)).cached == 50

    def test_strict_schema(self, server, client, requests):
        client().ask(requests(1))
        wanted = server.stats()["last"]["response_format"]
        schema = {
            "type": "object",
            "description": "A word.",
            "properties": {"word": {"type": "string"}},
            "required": ["word"],
            "additionalProperties": False,
        }
        assert wanted == {"type": "json_schema", "json_schema": {"name": "Word", "schema": schema, "strict": True}}

    @pytest.mark.parametrize("name", ["temperature", "seed", "max_tokens"])
    def test_a_parameter_that_is_not_taken(self, server, client, requests, name):
        server.control(refused=[name], latency=0.01)
        asker = client(concurrency=4)
        with pytest.warns(UserWarning, match=f"Unsupported parameter: '{name}'.*from now on") as caught:
            answers = asker.ask(requests(20))
        assert all(answer.value for answer in answers) and len(caught) == 1
        last = server.stats()["last"]
        assert name not in last and ("max_completion_tokens" in last) == (name == "max_tokens")

    def test_no_room_can_be_asked_for(self, server, client, requests):
        server.control(refused=["max_tokens", "max_completion_tokens", "seed"])
        with pytest.warns(UserWarning, match="max_tokens is left out"):
            assert client().ask(requests(1))[0].value
        assert not {"max_tokens", "max_completion_tokens", "seed"} & set(server.stats()["last"])

    def test_a_refusal_about_something_else_is_the_requests_own(self, server, ask, requests):
        words = "This model's maximum context length is 4096 tokens, max_tokens is too large"
        server.control(status=400, error={"message": words, "code": "context_length_exceeded"})
        answers = ask(requests(3))
        assert [a.failure for a in answers] == [f"the endpoint refused: HTTP 400: {words}"] * 3
        assert len(server.stats()["times"]) == 3


def test_five_per_cent_of_each_fault(server, client):
    server.control(faults=dict.fromkeys(FAULTS, 0.05), retry_after=0.01, hang=2.0)
    asked = image_requests(300)
    asker = client(timeout=0.3, concurrency=32)
    with pytest.warns(UserWarning, match="of 300 requests failed: image .*: .*; and .* more"):
        answers = asker.ask(asked)
    failed = [answer for answer in answers if answer.failure is not None]
    assert all((answer.value is None) == (answer.failure is not None) for answer in answers)
    # a fifth is expected: 6.7 % refusals, and a third that fail as their repairs do in two cases of five
    assert 20 < len(failed) < 110 and len(asker.cache) == 300 - len(failed)
    assert set(server.stats()["faults"]) == set(FAULTS)
    for answer in answers:
        if answer.value is not None:
            assert [caption.number for caption in answer.value.captions] == [1, 2, 3, 4, 5]
    server.control(faults={})
    assert all(answer.value for answer in asker.ask(asked))


def test_plain_text_that_is_cut_off_is_asked_for_with_more_room(server, client):
    server.control(script=["length"])
    (answer,) = client(max_tokens=10).ask([ChatRequest("a", "hello")])
    assert answer.value == "You said 'hello'" and server.stats()["last"]["max_tokens"] == 20
