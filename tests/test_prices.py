"""Prices: configured ones to 1e-9, the shipped table, what stays unknown, sources of totals."""

from __future__ import annotations

import socket
from dataclasses import dataclass

import pytest

from xgw.accounting.prices import PriceBook
from xgw.values import Usage


@dataclass(frozen=True)
class Price:
    input: float
    output: float
    cached_input: float | None = None
    cache_write: float | None = None


@dataclass(frozen=True)
class Provider:
    name: str = "p1"
    kind: str = "openai"
    base_url: str = "https://gateway.example.com/v1"


MAIN = Price(input=2, cached_input=0.2, output=10)
LOCAL = Provider(name="local", base_url="http://127.0.0.1:11434/v1")
OPENAI = Provider(name="main", base_url="https://api.openai.com/v1")


def cost(
    model: str | None, usage: Usage, provider: Provider | None = None, **prices: Price
) -> float | None:
    return PriceBook(prices).cost_usd(model, usage, provider)


@pytest.mark.parametrize(
    ("usage", "usd"),
    [
        (Usage(input_tokens=100, output_tokens=10), 0.0003),
        (Usage(input_tokens=40, output_tokens=4, cached_tokens=None), 0.00012),
        (Usage(input_tokens=1000, output_tokens=0, cached_tokens=400), 0.00128),
        (Usage(input_tokens=1000, output_tokens=100, cached_tokens=1000), 0.0012),
        (Usage(input_tokens=10, output_tokens=None, cached_tokens=25), 0.000002),
        (Usage(input_tokens=10, output_tokens=-1), 0.00002),
        (Usage(input_tokens=None, output_tokens=7), 0.00007),
        (Usage(input_tokens=1_500_000_000, output_tokens=1), 3000.00001),
        (Usage(input_tokens=0, output_tokens=0), 0.0),
    ],
)
def test_configured_prices_are_exact(usage: Usage, usd: float) -> None:
    assert cost("main", usage, LOCAL, main=MAIN) == pytest.approx(usd, abs=1e-9)


def test_the_served_model_decides() -> None:
    usage = Usage(input_tokens=1000, output_tokens=100)
    book = PriceBook({"m-main": Price(10, 30), "m-backup": Price(1, 3)})
    assert book.cost_usd("m-backup", usage, LOCAL) == pytest.approx(0.0013, abs=1e-9)
    assert book.cost_usd("m-main", usage, LOCAL) == pytest.approx(0.013, abs=1e-9)


def test_cache_writes_have_their_own_rate_and_are_part_of_the_input() -> None:
    price = Price(input=3, cached_input=0.3, cache_write=3.75, output=15)
    usage = Usage(input_tokens=1000, output_tokens=10, cached_tokens=600, cache_write_tokens=300)
    usd = (100 * 3 + 600 * 0.3 + 300 * 3.75 + 10 * 15) / 1e6
    assert cost("m", usage, m=price) == pytest.approx(usd, abs=1e-9)
    too_many = Usage(input_tokens=100, output_tokens=0, cached_tokens=90, cache_write_tokens=90)
    assert cost("m", too_many, m=price) == pytest.approx((90 * 0.3 + 10 * 3.75) / 1e6, abs=1e-9)


def test_the_lines_of_a_price_come_to_its_cost() -> None:
    book = PriceBook({"m": Price(input=3, cached_input=0.3, cache_write=3.75, output=15)})
    usage = Usage(input_tokens=1000, output_tokens=10, cached_tokens=600, cache_write_tokens=300)
    lines = book.price_lines("m", usage)
    assert [(line.name, line.tokens, line.rate) for line in lines] == [
        ("input", 100, 3.0),
        ("input, cached", 600, 0.3),
        ("input, cache write", 300, 3.75),
        ("output", 10, 15.0),
    ]
    assert sum(line.cost_usd for line in lines) == pytest.approx(book.cost_usd("m", usage))
    assert [line.name for line in book.price_lines("m", Usage(output_tokens=1))] == ["output"]
    assert book.price_lines("m", Usage()) == []
    assert book.price_lines("unheard-of", usage, LOCAL) == []
    assert book.price_lines(None, usage) == []


def test_rates_that_are_left_out_are_those_of_the_input() -> None:
    usage = Usage(input_tokens=1000, output_tokens=0, cached_tokens=600, cache_write_tokens=300)
    assert cost("m", usage, m=Price(input=2, output=1)) == pytest.approx(0.002, abs=1e-9)
    free_writes = Price(input=2, output=1, cache_write=0)
    assert cost("m", usage, m=free_writes) == pytest.approx(0.0014, abs=1e-9)


@pytest.mark.parametrize(
    ("model", "usd"),
    [
        ("llama", 1.0),
        ("meta/llama", 1.0),
        ("vendor/exact", 2.0),
        ("exact", 4.0),
        ("qwen-7b", 8.0),
        ("org/qwen-7b", 8.0),
        ("special", 16.0),
        ("q.en-7b", None),
        ("other", None),
    ],
)
def test_which_configured_price_applies(model: str, usd: float | None) -> None:
    book = PriceBook(
        {
            "qwen-*": Price(8, 0),
            "llama": Price(1, 0),
            "vendor/exact": Price(2, 0),
            "exact": Price(4, 0),
            "local/special": Price(16, 0),
            "special": Price(32, 0),
            "qwen-7*": Price(64, 0),
        }
    )
    usage = Usage(input_tokens=1_000_000, output_tokens=0)
    assert book.cost_usd(model, usage, LOCAL) == usd


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("m-main-2031", LOCAL),
        ("m-main-2031", OPENAI),
        ("m-main-2031", None),
        ("demo", Provider(name="demo", kind="demo", base_url="http://127.0.0.1:9/v1")),
        ("gpt-4o", Provider(name="demo", kind="demo", base_url="http://127.0.0.1:9/v1")),
        ("llama3.2", LOCAL),
        ("deepseek-r1", LOCAL),
        ("gpt-oss:20b", LOCAL),
        ("mistral-large", Provider(base_url="http://ollama:11434/v1")),
        ("x" * 5000, None),
        ("", None),
        (None, None),
    ],
)
def test_without_a_known_price_the_cost_is_unknown(
    model: str | None, provider: Provider | None
) -> None:
    assert cost(model, Usage(input_tokens=5, output_tokens=1), provider, other=MAIN) is None


def test_without_counts_the_cost_is_unknown() -> None:
    assert cost("main", Usage(), LOCAL, main=MAIN) is None
    assert cost("main", Usage(total_tokens=7, cached_tokens=3), LOCAL, main=MAIN) is None


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("gpt-4o", None),
        ("gpt-4o", OPENAI),
        ("gpt-4o", LOCAL),
        ("gpt-4o", Provider()),
        ("openai/gpt-4o", Provider()),
        ("openai/gpt-4o", None),
        ("gpt-4o-2024-08-06", OPENAI),
    ],
)
def test_the_shipped_table_prices_what_only_its_vendor_serves(
    model: str, provider: Provider | None
) -> None:
    usage = Usage(input_tokens=1_000_000, output_tokens=100_000, cached_tokens=400_000)
    assert cost(model, usage, provider) == pytest.approx(0.6 * 2.5 + 0.4 * 1.25 + 1.0, abs=1e-9)


def test_the_shipped_table_by_the_provider_that_serves() -> None:
    usage = Usage(input_tokens=1_000_000, output_tokens=0)
    book = PriceBook()
    embeddings = book.cost_usd("text-embedding-3-small", usage, OPENAI)
    assert embeddings == pytest.approx(0.02, abs=1e-9)
    openrouter = Provider(name="or", base_url="https://openrouter.ai/api/v1")
    assert book.cost_usd("openai/gpt-4o", usage, openrouter) == pytest.approx(2.5, abs=1e-9)
    groq = Provider(name="groq", base_url="https://proxy.example.com/groq/v1")
    assert book.cost_usd("llama-3.3-70b-versatile", usage, groq) is not None
    assert book.cost_usd("llama-3.3-70b-versatile", usage, Provider()) is None


def test_tiers_apply_to_all_tokens_of_a_long_request() -> None:
    book = PriceBook()
    short = Usage(input_tokens=100_000, output_tokens=1000)
    long = Usage(input_tokens=300_000, output_tokens=1000)
    assert book.cost_usd("claude-sonnet-4-5", short) == pytest.approx(0.3 + 0.015, abs=1e-9)
    assert book.cost_usd("claude-sonnet-4-5", long) == pytest.approx(1.8 + 0.0225, abs=1e-9)


def test_a_configured_price_wins_over_the_shipped_one() -> None:
    usage = Usage(input_tokens=1_000_000, output_tokens=0)
    book = PriceBook({"gpt-4o": Price(7, 7)})
    assert book.cost_usd("gpt-4o", usage, OPENAI) == 7
    assert book.cost_usd("openai/gpt-4o", usage, OPENAI) == 7
    assert book.cost_usd("gpt-4o-mini", usage, OPENAI) == pytest.approx(0.15, abs=1e-9)


def test_context_windows() -> None:
    book = PriceBook({"m": MAIN})
    assert book.context_window("gpt-4o") == 128_000
    assert book.context_window("openai/gpt-4o", OPENAI) == 128_000
    assert book.context_window("m") is None
    assert book.context_window("gpt-4o", Provider(kind="demo")) is None
    assert book.context_window(None) is None


def test_the_network_is_never_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    book = PriceBook()
    book.start()
    book.load()
    assert book.cost_usd("gpt-4o", Usage(input_tokens=1, output_tokens=1)) is not None
