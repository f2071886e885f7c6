"""The stop before too much is spent."""

import re

import pytest

from pyterrier_grasp.llm.client import CostLimit

FREE = {"my-model": (0, 0)}
DEAR = {"my-model": (0, 1000)}


def test_a_limit_needs_a_price(client):
    with pytest.raises(ValueError, match=r"max_cost needs the price of 'my-model'.*prices=\{'my-model': \(input, out"):
        client(model="my-model", max_cost=1)
    client(model="my-model", max_cost=1, prices=FREE)


def test_nothing_more_is_sent_than_was_allowed(server, client, requests):
    # an answer has some 8 tokens at $0.001 each; 250 are expected of the first ones
    asker = client(model="my-model", prices=DEAR, max_cost=0.6, concurrency=2)
    with pytest.raises(CostLimit) as caught:
        asker.ask(requests(500))
    done = len(asker.cache)
    assert 5 < done < 500 and server.stats()["requests"] == done
    assert 0.3 < asker.usage.cost <= 0.6
    spent, given, left = re.search(r"\$([0-9.]+) spent; (\d+) of 500 .* (\d+) are left\.", str(caught.value)).groups()
    assert float(spent) == pytest.approx(asker.usage.cost, abs=0.01)
    assert (int(given), int(left)) == (done, 500 - done)
    assert "run it again with a higher max_cost" in str(caught.value)


def test_it_goes_on_with_a_higher_limit(server, client, requests):
    with pytest.raises(CostLimit):
        client(model="my-model", prices=DEAR, max_cost=0.6).ask(requests(100))
    before = server.stats()["requests"]
    answers = client(model="my-model", prices=DEAR, max_cost=60).ask(requests(100))
    assert sum(answer.cached for answer in answers) == before
    assert server.stats()["requests"] == 100


def test_kept_answers_cost_nothing(client, requests):
    client(model="my-model", prices=DEAR).ask(requests(10))
    asker = client(model="my-model", prices=DEAR, max_cost=0)
    assert all(answer.cached for answer in asker.ask(requests(10)))
    with pytest.raises(CostLimit, match="10 of 11 requests are done .0 failed., 1 are left"):
        asker.ask(requests(11))


def test_the_limit_holds_over_several_runs(client, requests):
    asker = client(model="my-model", prices=DEAR, max_cost=0.4, concurrency=1)
    asker.ask(requests(10))
    with pytest.raises(CostLimit):
        for start in range(10, 500, 10):
            asker.ask(requests(10, start))
    assert asker.usage.cost <= 0.4


def test_a_repair_is_not_sent_beyond_the_limit(server, client, requests):
    # 250 tokens are expected at first, 100 are used, so that 175 are expected of the repair: 275 in all
    server.control(text="x" * 400)
    asker = client(model="my-model", prices={"my-model": (0, 100)}, max_cost=0.027)
    with pytest.raises(CostLimit, match="0 of 1 requests are done"):
        asker.ask(requests(1))
    assert server.stats()["requests"] == 1 and asker.usage.requests == 1


def test_what_failed_counts(server, client, requests):
    server.control(script=["refusal", "wrong_schema", "wrong_schema"])
    asker = client(concurrency=1)
    with pytest.warns(UserWarning, match="2 of 3 requests failed"):
        answers = asker.ask(requests(3))
    assert [answer.usage.requests for answer in answers] == [1, 2, 1]
    assert asker.usage.requests == 4
    assert asker.usage.cost == pytest.approx(sum(answer.usage.cost for answer in answers))
