"""The chat client against a server on loopback: how fast it asks, and whether faults and kills cost an answer.

``python -m experiments.bench_llm`` compares its rate with a bare ``openai`` loop and a bare ``httpx2`` loop at the same
concurrency. ``python -m experiments.bench_llm --faults`` asks through 5 % of each fault, killed five times.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from experiments.chat_server import FAULTS, RunningServer
from pyterrier_grasp.llm.client import ChatClient
from pyterrier_grasp.llm.request import Answer, ChatRequest
from pyterrier_grasp.llm.structured import build_body

KEY = "a-key-for-nobody"


class BenchTriplet(BaseModel):
    """One triplet."""

    subject: str
    relation: str
    object: str


class BenchCaption(BaseModel):
    """The triplets of one caption."""

    number: int
    triplets: list[BenchTriplet]


class BenchImage(BaseModel):
    """The triplets of each caption of an image."""

    captions: list[BenchCaption]


def check_image(image: BenchImage) -> None:
    """Every caption once."""
    if [caption.number for caption in image.captions] != [1, 2, 3, 4, 5]:
        raise ValueError(f"the captions 1 to 5 are wanted, got {[caption.number for caption in image.captions]}")


def requests(count: int) -> list[ChatRequest]:
    """Questions about so many images with five captions each."""
    system = "You turn the captions of a picture into triplets (subject, relation, object). " * 10
    return [
        ChatRequest(
            id=f"image {image}",
            system=system,
            user="\n".join(f'{n}: "Two brown dogs number {image} are running through deep snow"' for n in range(1, 6)),
            schema=BenchImage,
            check=check_image,
        )
        for image in range(count)
    ]


def client(url: str, cache: Path, concurrency: int, **options: Any) -> ChatClient:
    """A chat client without a progress bar."""
    return ChatClient(
        "gpt-4o-mini", base_url=url, api_key=KEY, cache=cache, concurrency=concurrency, **{"verbose": False} | options
    )


def bodies(count: int) -> list[dict[str, Any]]:
    """The same questions as bodies."""
    settings = client("http://127.0.0.1:1/v1", Path(":memory:"), 1)._settings
    return [build_body(settings, request) for request in requests(count)]


async def loop(bodies: list[dict[str, Any]], concurrency: int, ask: Callable[[dict[str, Any]], Awaitable[Any]]) -> None:
    """The shortest loop that keeps so many requests under way."""
    work = iter(bodies)

    async def worker() -> None:
        for body in work:
            await ask(body)

    await asyncio.gather(*(worker() for _ in range(concurrency)))


async def bare_openai(url: str, bodies: list[dict[str, Any]], concurrency: int) -> None:
    """``openai`` and nothing else."""
    import openai

    async with openai.AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0) as api:
        await loop(bodies, concurrency, lambda body: api.chat.completions.create(**body))


async def bare_httpx2(url: str, bodies: list[dict[str, Any]], concurrency: int) -> None:
    """``httpx2`` and nothing else."""
    import httpx2

    limits = httpx2.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
    async with httpx2.AsyncClient(limits=limits, timeout=60, headers={"Authorization": f"Bearer {KEY}"}) as api:

        async def ask(body: dict[str, Any]) -> Any:
            reply = await api.post(f"{url}/chat/completions", json=body)
            return reply.raise_for_status().json()

        await loop(bodies, concurrency, ask)


def throughput(count: int, concurrency: int, latency: float, rounds: int) -> None:
    """Print requests a second of each way to ask, the best of some rounds, taken in turn."""
    sent = bodies(count)
    asked = requests(count)
    rates: dict[str, list[float]] = {}
    with RunningServer() as server, tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            for name in ("ChatClient", "bare openai", "bare httpx2"):
                server.control(reset=True, latency=latency)
                start, cpu = time.perf_counter(), time.process_time()
                if name == "ChatClient":
                    ours = client(server.url, Path(folder) / f"{number}.sqlite", concurrency)
                    answers = ours.ask(asked)
                    if any(answer.value is None for answer in answers):
                        raise ValueError("a request failed")
                elif name == "bare openai":
                    asyncio.run(bare_openai(server.url, sent, concurrency))
                else:
                    asyncio.run(bare_httpx2(server.url, sent, concurrency))
                seconds = time.perf_counter() - start
                rates.setdefault(name, []).append(count / seconds)
                print(
                    f"round {number + 1} {name:12} {count / seconds:6.1f} requests/s, "
                    f"{1e3 * (time.process_time() - cpu) / count:.2f} ms of CPU a request",
                    flush=True,
                )
    ideal = concurrency / latency
    print(f"\n{count:,} requests, {concurrency} at a time, {latency * 1e3:.0f} ms each; best of {rounds}")
    print(f"{'':14}requests/s   of the ideal")
    print(f"{'ideal':14}{ideal:10.1f}   100.0 %")
    for name, rate in rates.items():
        print(f"{name:14}{max(rate):10.1f}   {100 * max(rate) / ideal:5.1f} %")
    share = max(rates["ChatClient"]) / max(rates["bare openai"])
    print(f"ChatClient at {100 * share:.1f} % of the bare openai loop")


def run_through_faults(url: str, cache: Path, count: int, concurrency: int) -> list[Answer]:
    """One run that asks everything that has no answer yet."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return client(url, cache, concurrency, timeout=1.0).ask(requests(count))


def faults(count: int, concurrency: int, kills: int, seed: int) -> None:
    """Ask through 5 % of each fault, killed at random and resumed; print what was seen twice and what failed."""
    chance = random.Random(seed)
    with RunningServer() as server, tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "answers.sqlite"
        server.control(faults=dict.fromkeys(FAULTS, 0.05), latency=0.05, seed=seed, hang=5.0)
        command = [sys.executable, "-m", "experiments.bench_llm", "--child", server.url, str(cache)]
        command += ["--count", str(count), "--concurrency", str(concurrency)]
        for number in range(kills):
            process = subprocess.Popen(command)
            target = min(count - 1, len(_stored(cache)) + chance.randint(count // 20, count // 5))
            while process.poll() is None and len(_stored(cache)) < target:
                time.sleep(0.01)
            if process.poll() is not None:
                raise ValueError(f"the run ended before it could be killed, with code {process.returncode}")
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            time.sleep(1.0)
            stored = _stored(cache)
            again = _again(server, count)
            print(f"kill {number + 1}: {len(stored):5,} of {count:,} answers stored, {len(again)} of them asked again")
            # only what is asked from here on counts against them
            server.control(reset=True)
            server.control(faults=dict.fromkeys(FAULTS, 0.05), latency=0.05, seed=seed + number + 1, hang=5.0)
            _STORED_BEFORE.clear()
            _STORED_BEFORE.update(stored)
        start = time.perf_counter()
        answers = run_through_faults(server.url, cache, count, concurrency)
        print(
            f"last run: {time.perf_counter() - start:.0f} s, stored answers asked again: {len(_again(server, count))}"
        )
        failed = [answer for answer in answers if answer.failure is not None]
        valued = [answer for answer in answers if answer.value is not None]
        print(f"{len(valued):,} answers, {len(failed)} named failures, {count - len(valued) - len(failed)} lost")
        for reason, times in Counter(str(answer.failure)[:60] for answer in failed).most_common(8):
            print(f"  {times} x {reason}")
        print("faults given in the last run:", json.dumps(server.stats()["faults"]))
        while failed:
            answers = run_through_faults(server.url, cache, count, concurrency)
            failed = [answer for answer in answers if answer.failure is not None]
            print(f"run again: {len(failed)} failures")


#: Ids of the requests whose answers were stored when the server's memory was last wiped.
_STORED_BEFORE: set[str] = set()


def _again(server: RunningServer, count: int) -> list[str]:
    """Ids of requests that the server saw although their answers were stored."""
    seen = server.stats()["questions"]
    return [request.id for request in requests(count) if request.user in seen and request.id in _STORED_BEFORE]


def _stored(cache: Path) -> set[str]:
    """Ids of the requests whose answers are stored."""
    if not cache.exists():
        return set()
    connection = sqlite3.connect(cache, timeout=10)
    try:
        return {row[0] for row in connection.execute("SELECT request FROM answers")}
    except sqlite3.OperationalError:
        return set()
    finally:
        connection.close()


def main(arguments: list[str] | None = None) -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=None, help="requests; 3,200 by default, 2,000 with --faults")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--latency", type=float, default=0.2, help="seconds of an answer")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--faults", action="store_true", help="ask through faults and kills instead")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", nargs=2, metavar=("URL", "CACHE"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.child:
        run_through_faults(given.child[0], Path(given.child[1]), given.count, given.concurrency)
    elif given.faults:
        faults(given.count or 2000, given.concurrency, given.kills, given.seed)
    else:
        throughput(given.count or 3200, given.concurrency, given.latency, given.rounds)


if __name__ == "__main__":
    main()
