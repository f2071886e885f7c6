"""The loopback chat server itself."""

import http.client
import json
from urllib.parse import urlsplit

import pytest

from experiments.chat_rules import answer, fit
from experiments.chat_server import FAULTS, RunningServer


@pytest.fixture(scope="module")
def server():
    with RunningServer() as running:
        yield running


def post(connection, question, **fields):
    body = {"model": "m", "messages": [{"role": "user", "content": question}]} | fields
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    reply = connection.getresponse()
    return reply.status, json.loads(reply.read())


def connect(server):
    return http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=10)


def test_faults_follow_from_seed_and_number(server):
    drawn = []
    for seed in (1, 1, 2):
        server.control(reset=True)
        server.control(
            seed=seed, faults=dict.fromkeys(set(FAULTS) - {"hang", "disconnect"}, 0.0) | {"server_error": 0.5}
        )
        connection = connect(server)
        drawn.append([post(connection, f"question {n}")[0] for n in range(30)])
        connection.close()
    assert drawn[0] == drawn[1] != drawn[2]
    assert 5 < drawn[0].count(500) < 25


def test_one_connection_serves_many_requests_and_stats_count_them(server):
    server.control(reset=True)
    connection = connect(server)
    for _ in range(2):
        status, completion = post(connection, "hello")
        assert (status, completion["choices"][0]["message"]["content"]) == (200, "You said 'hello'")
    connection.request("GET", "/v1/nothing")
    reply = connection.getresponse()
    assert reply.status == 404 and b"there is nothing at /v1/nothing" in reply.read()
    stats = server.stats()
    assert stats["requests"] == 2 and stats["questions"] == {"hello": 2} and list(stats["bodies"].values()) == [2]
    connection.close()


def test_what_it_does_not_know_is_said(server):
    connection = connect(server)
    connection.request("POST", "/control", json.dumps({"latncy": 1}))
    reply = connection.getresponse()
    assert reply.status == 500 and b"latncy" in reply.read()
    connection.close()


def test_answers_fit_the_question():
    schema = {"properties": {"groups": {}, "dropped": {}}}
    body = {
        "response_format": {"type": "json_schema", "json_schema": {"schema": schema}},
        "messages": [{"role": "user", "content": 'A list:\n"dog"\n"a \\"b\\""'}],
    }
    phrases = [group["members"] for group in json.loads(answer(body))["groups"]]
    assert phrases == [["dog"], ['a "b"']]
    assert ["gryphon"] in [group["members"] for group in json.loads(answer(body, invent=True))["groups"]]


def test_any_schema_is_fitted():
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "array", "items": {"$ref": "#/$defs/B"}},
            "c": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "d": {"enum": ["x", "y"]},
        },
    }
    definitions = {"B": {"type": "object", "properties": {"e": {"type": "boolean"}, "f": {"type": "string"}}}}
    assert fit(schema, definitions, "word") == {"a": [{"e": True, "f": "word"}], "c": 1, "d": "x"}
