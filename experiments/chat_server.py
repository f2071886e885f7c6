"""A server on loopback that speaks the OpenAI protocol and misbehaves on command; for tests and benchmarks.

``python -m experiments.chat_server --port 0`` prints its URL and serves until it is killed. It is steered over HTTP:
``POST /control`` changes the attributes of :class:`Behaviour` (and ``{"reset": true}`` forgets everything first),
``GET /stats`` tells what was seen.
"""

import argparse
import asyncio
import hashlib
import json
import random
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from experiments.chat_rules import answer, question_of
from experiments.chat_server_batches import BatchDesk

#: What can go wrong with an answer; each has a share of the requests.
FAULTS = (
    "rate_limit",  # 429 with Retry-After
    "rate_limit_silent",  # 429 without
    "server_error",  # 500
    "hang",  # no answer for a long time
    "disconnect",  # the connection closes instead of an answer
    "truncated",  # the JSON breaks off
    "prose",  # words and a code fence around the JSON
    "invented",  # things that were not asked about
    "empty",  # no text
    "refusal",  # the model refuses
    "length",  # the answer ran out of room
    "wrong_schema",  # JSON of another shape
    "changed",  # another answer the second time
)


@dataclass
class Behaviour:
    """How the server behaves.

    Attributes:
        latency: Seconds before an answer.
        faults: Share of each of :data:`FAULTS` among the requests.
        script: Faults of the next requests, one each, before the shares count; ``""`` for none.
        seed: Decides, with the number of the request, which fault strikes.
        retry_after: Seconds of ``Retry-After``.
        retry_after_date: Whether to give that as a date.
        hang: Seconds of a hang.
        rungs: Types of ``response_format`` that are taken; ``"text"`` stands for none.
        refused: Parameters that are refused.
        key: The key to ask for; None for any.
        models: Names of the models; None for any.
        status: A status to answer everything with; None for none.
        error: The error that goes with ``status``.
        text: An answer to give to everything; None for one that fits.
        reply: A body to send instead of a chat completion; None for none.
        usage: Whether to report tokens.
    """

    latency: float = 0.0
    faults: dict[str, float] = field(default_factory=dict)
    script: list[str] = field(default_factory=list)
    seed: int = 0
    retry_after: float = 0.05
    retry_after_date: bool = False
    hang: float = 30.0
    rungs: list[str] = field(default_factory=lambda: ["json_schema", "json_object", "text"])
    refused: list[str] = field(default_factory=list)
    key: str | None = None
    models: list[str] | None = None
    status: int | None = None
    error: dict[str, Any] = field(default_factory=dict)
    text: str | None = None
    reply: str | None = None
    usage: bool = True


class Reply(NamedTuple):
    """An HTTP reply; ``body`` None closes the connection."""

    status: int
    body: dict[str, Any] | bytes | None
    headers: dict[str, str] = {}


class ChatServer:
    """The server's memory and manners.

    Attributes:
        routes: ``{(method, path): coroutine function of (headers, body)}``; other paths go to ``desk``.
        desk: Takes files and batches.
    """

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.routes = {
            ("POST", "/v1/chat/completions"): self._chat,
            ("POST", "/control"): self._control,
            ("GET", "/stats"): self._stats,
        }
        self._forget()

    def _forget(self) -> None:
        self.desk = BatchDesk(lambda body: (200, self._completion(body, self._words(body, ""), "")))
        self._number = 0
        self._under_way = 0
        self._most_under_way = 0
        self._questions: Counter[str] = Counter()
        self._bodies: Counter[str] = Counter()
        self._faults: Counter[str] = Counter()
        self._times: list[float] = []
        self._last: dict[str, Any] = {}

    async def reply(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Reply:
        """Answer an HTTP request."""
        url = urlsplit(target)
        route = self.routes.get((method, url.path))
        if route is not None:
            return await route(headers, body)
        found = self.desk.handle(
            method,
            url.path.removeprefix("/v1"),
            dict(parse_qsl(url.query)),
            headers.get("content-type", ""),
            body,
        )
        return Reply(*found) if found else Reply(404, _error(f"there is nothing at {url.path}"))

    async def _control(self, headers: dict[str, str], body: bytes) -> Reply:
        wanted = json.loads(body)
        if wanted.pop("reset", False):
            self._forget()
            self.behaviour = Behaviour()
        for name, value in wanted.pop("desk", {}).items():
            setattr(self.desk, name, value)
        self.behaviour = replace(self.behaviour, **wanted)
        return Reply(200, {})

    async def _stats(self, headers: dict[str, str], body: bytes) -> Reply:
        return Reply(
            200,
            {
                "requests": self._number,
                "questions": dict(self._questions),
                "bodies": dict(self._bodies),
                "faults": dict(self._faults),
                "most_under_way": self._most_under_way,
                "times": self._times,
                "last": self._last,
                "batched": self.desk.asked,
            },
        )

    async def _chat(self, headers: dict[str, str], raw: bytes) -> Reply:
        self._under_way += 1
        self._most_under_way = max(self._most_under_way, self._under_way)
        try:
            return await self._answered(headers, raw)
        finally:
            self._under_way -= 1

    async def _answered(self, headers: dict[str, str], raw: bytes) -> Reply:
        how = self.behaviour
        self._times.append(time.time())
        body = json.loads(raw)
        self._last = body
        refusal = self._refusal(headers, body)
        if refusal is not None:
            return refusal
        number = self._number
        self._number += 1
        self._bodies[hashlib.sha256(raw).hexdigest()] += 1
        self._questions[question_of(body)] += 1
        fault = how.script.pop(0) if how.script else self._drawn(number)
        if fault:
            self._faults[fault] += 1
        if how.latency:
            await asyncio.sleep(how.latency)
        match fault:
            case "rate_limit":
                value = formatdate(time.time() + how.retry_after, usegmt=True)
                value = value if how.retry_after_date else str(how.retry_after)
                return Reply(429, _error("Rate limit reached", "rate_limit_exceeded"), {"Retry-After": value})
            case "rate_limit_silent":
                return Reply(429, _error("Rate limit reached", "rate_limit_exceeded"))
            case "server_error":
                return Reply(500, _error("The server had an error while processing your request"))
            case "hang":
                await asyncio.sleep(how.hang)
                return Reply(200, None)
            case "disconnect":
                return Reply(200, None)
        if how.reply is not None:
            return Reply(200, how.reply.encode())
        return Reply(200, self._completion(body, self._words(body, fault), fault))

    def _drawn(self, number: int) -> str:
        """The fault that strikes a request; empty for none."""
        shares = self.behaviour.faults
        left = random.Random(self.behaviour.seed * 1_000_003 + number).random() if shares else 1.0
        for fault, share in shares.items():
            if left < share:
                return fault
            left -= share
        return ""

    def _refusal(self, headers: dict[str, str], body: dict[str, Any]) -> Reply | None:
        """The reply to a request that is wrong in itself."""
        how = self.behaviour
        if how.status is not None:
            return Reply(how.status, {"error": how.error})
        given = headers.get("authorization", "").removeprefix("Bearer ")
        if how.key is not None and given != how.key:
            return Reply(401, _error(f"Incorrect API key provided: {given}.", "invalid_api_key"))
        if how.models is not None and body["model"] not in how.models:
            return Reply(404, _error(f"The model `{body['model']}` does not exist", "model_not_found"))
        rung = body.get("response_format", {}).get("type", "text")
        if rung not in how.rungs:
            words = f"Invalid parameter: 'response_format' of type '{rung}' is not supported with this model."
            return Reply(400, _error(words, None, "response_format"))
        for name in how.refused:
            if name in body:
                words = f"Unsupported parameter: '{name}' is not supported with this model."
                return Reply(400, _error(words, "unsupported_parameter", name))
        return None

    def _words(self, body: dict[str, Any], fault: str) -> str:
        """The text of an answer, with its fault."""
        if self.behaviour.text is not None:
            return self.behaviour.text
        seen = self._questions[question_of(body)]
        text = answer(body, fault == "invented", f" {seen}" if fault == "changed" and seen > 1 else "")
        match fault:
            case "truncated" | "length":
                return text[: len(text) // 2]
            case "prose":
                return f"Sure! Here is the {{JSON}}:\n```json\n{text}\n```\nLet me know if I can help."
            case "empty" | "refusal":
                return ""
            case "wrong_schema":
                return '{"answer": [1, 2, 3]}'
        return text

    def _completion(self, body: dict[str, Any], text: str, fault: str) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if fault == "refusal":
            message |= {"content": None, "refusal": "I'm sorry, I can't help with that."}
        sent, received = len(json.dumps(body["messages"])) // 4, len(text) // 4 + 1
        usage = {"prompt_tokens": sent, "completion_tokens": received, "total_tokens": sent + received}
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": f"{body['model']}-2026-01-01",
            "choices": [{"index": 0, "message": message, "finish_reason": "length" if fault == "length" else "stop"}],
        } | ({"usage": usage} if self.behaviour.usage else {})


def _error(message: str, code: str | None = None, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


class _Connection(asyncio.Protocol):
    """HTTP/1.1 with keep-alive, one request at a time."""

    def __init__(self, server: ChatServer) -> None:
        self._server = server
        self._data = bytearray()
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        self._data += data
        if self._task is None:
            self._next()

    def _next(self) -> None:
        """Start on the request in the buffer, if it is there in full."""
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            return
        first, *lines = self._data[:end].decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        size = end + 4 + int(headers.get("content-length", 0))
        if len(self._data) < size:
            return
        body = bytes(self._data[end + 4 : size])
        del self._data[:size]
        method, target, _ = first.split(" ", 2)
        self._task = asyncio.ensure_future(self._answer(method, target, headers, body))

    async def _answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> None:
        try:
            reply = await self._server.reply(method, target, headers, body)
        except Exception as error:
            reply = Reply(500, _error(f"the server is broken: {error!r}"))
        if reply.body is None:
            self._transport.close()
            return
        content = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        extra = "".join(f"{name}: {value}\r\n" for name, value in reply.headers.items())
        head = (
            f"HTTP/1.1 {reply.status} -\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\n{extra}\r\n"
        )
        self._transport.write(head.encode("latin-1") + content)
        self._task = None
        self._next()


async def serve(port: int) -> None:
    """Serve on loopback for ever; the first line on standard output is the URL."""
    server = ChatServer(Behaviour())
    listening = await asyncio.get_running_loop().create_server(
        lambda: _Connection(server), "127.0.0.1", port, backlog=1024
    )
    print(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", flush=True)
    async with listening:
        await listening.serve_forever()


class RunningServer:
    """A chat server in a process of its own, as a context manager.

    Attributes:
        root: ``http://127.0.0.1:port``.
        url: The base URL for clients.
    """

    def __enter__(self) -> "RunningServer":
        self._process = subprocess.Popen(
            [sys.executable, "-m", "experiments.chat_server", "--port", "0"],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
        )
        if self._process.stdout is None:
            raise OSError("the chat server has no output")
        self.root = self._process.stdout.readline().strip()
        self.url = f"{self.root}/v1"
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def control(self, **changes: Any) -> None:
        """Change the behaviour; ``reset=True`` forgets everything first."""
        self._call("/control", json.dumps(changes).encode())

    def stats(self) -> dict[str, Any]:
        """What was seen since the last reset."""
        return self._call("/stats", None)

    def _call(self, path: str, body: bytes | None) -> dict[str, Any]:
        with urllib.request.urlopen(urllib.request.Request(self.root + path, body), timeout=30) as reply:
            return json.load(reply)


def main(arguments: list[str] | None = None) -> None:
    """Serve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8000, help="0 for a free one")
    asyncio.run(serve(parser.parse_args(arguments).port))


if __name__ == "__main__":
    main()
