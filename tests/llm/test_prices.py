import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_grasp.llm.prices import PRICES, Estimate, Prices, count_tokens, dollars, duration

tokens = st.integers(0, 10**12)
models = st.sampled_from(sorted(PRICES))
estimates = st.builds(
    Estimate,
    st.integers(0, 10**7),
    st.integers(0, 10**7),
    tokens,
    tokens,
    st.none() | st.floats(0, 1e6),
    st.none() | st.floats(0, 1e6),
)


def test_cost_of_a_million_tokens():
    prices = Prices()
    assert prices.cost("gpt-4o-mini", 1_000_000, 0) == pytest.approx(0.15)
    assert prices.cost("gpt-4o-mini", 0, 1_000_000) == pytest.approx(0.60)
    assert prices.cost("gpt-4o", 2_000_000, 1_000_000) == pytest.approx(15.0)
    assert prices.cost("gpt-4o", 2_000_000, 1_000_000, batch=True) == pytest.approx(7.5)


def test_snapshot_costs_what_its_model_costs():
    prices = Prices()
    for model, snapshot in (
        ("gpt-4o-mini", "gpt-4o-mini-2024-07-18"),
        ("gpt-4o", "gpt-4o-2024-08-06"),
        ("gpt-4.1-nano", "gpt-4.1-nano-2025-04-14"),
        ("gpt-5", "gpt-5-2025-08-07"),
        ("gpt-5", "gpt-5-latest"),
    ):
        assert prices.cost(snapshot, 10**6, 10**6) == prices.cost(model, 10**6, 10**6)
    assert prices.cost("gpt-4o-2024-05-13", 10**6, 0) == 5.0, "a snapshot with a price of its own"


@pytest.mark.parametrize(
    "model", ["gpt-5-pro", "gpt-4o-audio-preview", "gpt-4omini", "gpt-4", "gpt", "", "ft:gpt-4o-mini:me", "Qwen3-VL-8B"]
)
def test_relative_has_no_price(model):
    assert not Prices().known(model)
    assert Prices().cost(model, 10, 10) is None


def test_mini_is_never_taken_for_its_big_brother():
    prices = Prices({"big": (100, 100), "big-mini": (1, 1)})
    assert prices.cost("big-mini-2026-01-02", 10**6, 0) == 1
    assert prices.cost("big-2026-01-02", 10**6, 0) == 100
    assert Prices({"big": (100, 100)}).cost("big-mini", 1, 1) is None


def test_overrides():
    prices = Prices({"gpt-4o-mini": (1, 2), "mine": (0, 0)})
    assert prices.cost("gpt-4o-mini-2024-07-18", 10**6, 10**6) == 3
    assert prices.image_tokens("gpt-4o-mini", 256) == 2833, "the price of a token has nothing to do with their number"
    assert prices.known("mine") and prices.cost("mine", 10**9, 10**9) == 0
    assert Prices().cost("gpt-4o-mini", 10**6, 0) == 0.15, "overrides stay with their object"


@pytest.mark.parametrize(
    "pair", [(-1, 2), (1, -0.01), ("1", 2), (1,), (1, 2, 3), 3, None, (math.nan, 1), (1, math.inf), (True, 1), "12"]
)
def test_bad_price_is_named(pair):
    with pytest.raises(ValueError, match="'my-model'"):
        Prices({"my-model": pair})


@pytest.mark.parametrize("overrides", [{"": (1, 2)}, {3: (1, 2)}, [("gpt-4o", (1, 2))], 5])
def test_bad_overrides(overrides):
    with pytest.raises(ValueError, match="price"):
        Prices(overrides)


def test_tokens_of_an_image():
    prices = Prices()
    assert prices.image_tokens("gpt-4o", 256) == 85
    assert prices.image_tokens("gpt-4o-mini-2024-07-18", 1) == 2833
    assert prices.image_tokens("gpt-4.1-mini", 256) == math.ceil(256 * 1.62)
    assert prices.image_tokens("unknown", 256) == 256


@given(models, tokens, tokens, tokens, tokens, st.booleans())
def test_cost_adds_up_and_grows(model, a, b, c, d, batch):
    prices = Prices()
    first, second = prices.cost(model, a, b, batch), prices.cost(model, c, d, batch)
    assert prices.cost(model, a + c, b + d, batch) == pytest.approx(first + second)
    assert prices.cost(model, a + c, b, batch) >= first >= 0
    assert prices.cost(model, a, b, batch=True) == pytest.approx(prices.cost(model, a, b) / 2)


@given(estimates, estimates, estimates)
def test_estimates_add_up(a, b, c):
    assert a + Estimate() == a
    assert a + b == b + a
    left, right = (a + b) + c, a + (b + c)
    assert left[:4] == right[:4]
    for one, other in zip(left[4:], right[4:], strict=True):
        assert one == other if one is None or other is None else one == pytest.approx(other)
    assert ((a + b).cost is None) == (a.cost is None or b.cost is None)


@given(estimates)
def test_estimate_is_one_line(estimate):
    line = str(estimate)
    assert "\n" not in line and "None" not in line and "nan" not in line
    assert f"{estimate.requests:,}" in line
    assert ("price not known" in line) == (estimate.cost is None)


def test_estimate_in_words():
    words = str(Estimate(29_000, 1_200, 12_300_000, 4_080_000, 4.3, 3_900))
    assert words == (
        "29,000 requests (1,200 cached), 12.3 M input tokens, 4.1 M output tokens, about $4.30, about 1 h 05 min"
    )
    assert str(Estimate(1, 0, 812, 45_060, None, None)) == (
        "1 request (0 cached), 812 input tokens, 45.1 k output tokens, price not known"
    )


def test_sums_and_times_in_words():
    assert [dollars(x) for x in (0, 0.5, 0.0042, 0.00999, 1234.5)] == [
        "$0.00",
        "$0.50",
        "$0.0042",
        "$0.0100",
        "$1,234.50",
    ]
    assert [duration(x) for x in (0, 59.4, 59.6, 3569, 3571, 3600, 90_061)] == [
        "0 s", "59 s", "1 min", "59 min", "1 h 00 min", "1 h 00 min", "25 h 01 min",
    ]  # fmt: skip


@given(st.text(), st.text())
def test_tokens_of_a_text_add_up(a, b):
    both = count_tokens(a + b)
    assert max(count_tokens(a), count_tokens(b)) <= both <= count_tokens(a) + count_tokens(b)


def test_tokens_of_a_text():
    assert count_tokens("") == 0
    assert count_tokens("a dog runs along the beach") == 7
    assert count_tokens("一只狗在海滩上奔跑") == 9
    assert count_tokens("собака бежит по пляжу") == 13
    assert count_tokens("\ud800") == 1, "half a surrogate pair, as JSON may hold"
