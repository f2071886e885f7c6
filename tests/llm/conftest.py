import warnings

import pytest
from pydantic import BaseModel

from pyterrier_grasp.llm import ChatRequest
from pyterrier_grasp.llm.client import ChatClient

KEY = "sk-secret-of-the-tests"


class Word(BaseModel):
    """A word."""

    word: str


def _requests(count, start=0, **fields):
    return [ChatRequest(f"request {n}", f"question {n}", schema=Word, **fields) for n in range(start, start + count)]


@pytest.fixture
def requests():
    """``requests(count, start=0)``: questions whose answer is a word of their own."""
    return _requests


@pytest.fixture
def server(chat_server):
    """A chat server that behaves well and has seen nothing."""
    chat_server.control(reset=True)
    return chat_server


@pytest.fixture
def quick(monkeypatch):
    """Retries follow within milliseconds."""
    monkeypatch.setattr("pyterrier_grasp.llm.endpoint._FIRST_WAIT", 0.01)


@pytest.fixture
def client(server, tmp_path, quick, monkeypatch):
    """``client(**options)``: a client for the server with a cache of the test's own."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)

    def make(model="gpt-4o-mini", **options):
        settings = {"base_url": server.url, "api_key": KEY, "cache": tmp_path / "answers.sqlite", "verbose": False}
        return ChatClient(model, **settings | options)

    return make


@pytest.fixture
def ask(client):
    """``ask(requests, **options)``: answers of a new client, which may fail without a warning."""

    def run(requests, **options):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*requests failed")
            return client(**options).ask(requests)

    return run
