"""How fast requests are sent."""

import time
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_grasp.llm.endpoint import retry_after
from pyterrier_grasp.llm.limits import Pace


@given(st.lists(st.tuples(st.floats(0, 2), st.integers(1, 30)), min_size=1, max_size=60), st.floats(30, 600))
def test_no_more_is_granted_than_grew(steps, per_minute):
    pace, now, granted = Pace(per_minute), 0.0, []
    for pause, amount in steps:
        now += pause
        granted.append((now + pace.take(amount, now), amount))
    assert [at for at, _ in granted] == sorted(at for at, _ in granted), "first come, first served"
    for first, (start, _) in enumerate(granted):
        for last in range(first, len(granted)):
            # all but the last, which is granted as soon as nothing is owed
            amount = sum(amount for _, amount in granted[first:last])
            allowed = (granted[last][0] - start + 1) * per_minute / 60
            assert amount <= allowed + granted[first][1] + 1e-6


def test_a_rate_is_kept():
    pace = Pace(600)
    waits = [pace.take(1, 0.0) for _ in range(101)]
    assert waits[0] == 0 and waits[-1] == pytest.approx(9.0)
    assert pace.take(1, 1000.0) == 0


def test_corrections():
    pace = Pace(60)
    pace.take(10, 0.0)
    pace.correct(-5)
    assert pace.take(1, 0.0) == pytest.approx(4.0)


def test_requests_a_minute(server, client, requests):
    client(requests_per_minute=1200).ask(requests(40))
    times = sorted(server.stats()["times"])
    assert 0.7 < times[-1] - times[0] < 3


def test_tokens_a_minute_count_what_was_reported(server, client, requests):
    asker = client(tokens_per_minute=12_000, concurrency=2)
    start = time.monotonic()
    asker.ask(requests(20))
    taken = time.monotonic() - start
    used = asker.usage.input_tokens + asker.usage.output_tokens
    assert used / 200 - 1 < taken < 8, "with some 280 tokens expected of each request, it would take 28 s"


def test_retries_count(server, client, requests):
    server.control(script=["server_error"] * 6)
    client(requests_per_minute=600, max_retries=6).ask(requests(1))
    times = server.stats()["times"]
    assert len(times) == 7 and times[-1] - times[0] > 0.1


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after": "86400"}, 86400.0),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "9", "retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
    ],
)
def test_retry_after(headers, seconds):
    assert retry_after(headers) == seconds


def test_retry_after_a_date():
    assert retry_after({"retry-after": formatdate(time.time() + 90, usegmt=True)}) == pytest.approx(90, abs=2)
