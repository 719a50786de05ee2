"""What a model answer costs and how much context a model takes, by name and without the network.

Configured prices first, then the table that genai-prices ships. Where neither knows, the answer is
None, never 0. Only token rates are applied: fees a request, a search or an image are left out.
"""

from __future__ import annotations

import ipaddress
import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from xgw.frozen import frozen
from xgw.values import Usage

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, Provider

PER_TOKENS = 1_000_000
MAX_MODEL_NAME = 256

# Models that only their vendors serve: what a name on this list costs is known without knowing the
# provider, and also behind another gateway on this machine. Open models run anywhere, at any price.
_VENDORS = (
    ("openai", re.compile(r"gpt-[3-9]|o[134](-|$)|chatgpt-|text-embedding-(3|ada)")),
    ("anthropic", re.compile(r"claude-")),
    ("google", re.compile(r"gemini-")),
    ("x-ai", re.compile(r"grok-[2-9]")),
)

_log = logging.getLogger(__name__)


class TokenPrice(Protocol):
    """A configured price in USD per million tokens; what is None costs what `input` costs."""

    @property
    def input(self) -> float: ...
    @property
    def cached_input(self) -> float | None: ...
    @property
    def cache_write(self) -> float | None: ...
    @property
    def output(self) -> float: ...


class PricedProvider(Protocol):
    """What a provider's configuration says about whose prices are meant."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def base_url(self) -> str: ...


@frozen
class _Rate:
    """USD per million tokens: that of the last tier whose start the input exceeds."""

    tiers: tuple[tuple[int, float], ...]

    def at(self, input_tokens: int) -> float:
        return [rate for start, rate in self.tiers if input_tokens > start or start < 0][-1]


@frozen
class _Rates:
    input: _Rate | None
    cached: _Rate | None
    cache_write: _Rate | None
    output: _Rate | None


@frozen
class PriceLine:
    """A part of a usage and its `rate` in USD per million tokens."""

    name: str
    tokens: int
    rate: float

    @property
    def cost_usd(self) -> float:
        """What it costs."""
        return self.tokens * self.rate / PER_TOKENS


class PriceBook:
    """Prices and context windows by served model; safe to use from any thread.

    `overrides` are `config.prices`: keys are `provider/model` or the served model's name, `*` is a
    glob. Exact keys win over globs, globs go in their order. Nothing else prices the demo, nor open
    models of a provider on this machine or a private network.
    """

    def __init__(self, overrides: Mapping[str, TokenPrice] | None = None) -> None:
        self._overrides = {key: _configured_rates(p) for key, p in (overrides or {}).items()}
        self._globs = [(_glob(key), r) for key, r in self._overrides.items() if "*" in key]
        self._table = _Table()
        self._configured = lru_cache(maxsize=2048)(self._find_configured)

    def start(self) -> None:
        """Loads the shipped table in a background thread; otherwise the first need of it does."""
        threading.Thread(target=self._table.providers, name="xgw-prices", daemon=True).start()

    def load(self) -> None:
        """Loads the shipped table and returns when it is there."""
        self._table.providers()

    def cost_usd(
        self, model: str | None, usage: Usage, provider: PricedProvider | None = None
    ) -> float | None:
        """Cost of one answer of the served `model`; None without a price or without any count.

        Cached and cache-write tokens are parts of the input and cost their own rate. Where the
        input or the output is unknown, it is the cost of the other one (the usage says `partial`).
        """
        if not model or len(model) > MAX_MODEL_NAME:
            return None
        if _known(usage.input_tokens) is None and _known(usage.output_tokens) is None:
            return None
        rates = self._rates(model, provider)
        return None if rates is None else _cost(rates, usage)

    def price_lines(
        self, model: str | None, usage: Usage, provider: PricedProvider | None = None
    ) -> list[PriceLine]:
        """The parts of such a cost at the rates of this moment; [] where none are known."""
        if not model or len(model) > MAX_MODEL_NAME:
            return []
        rates = self._rates(model, provider)
        return [] if rates is None else _lines(rates, usage)

    def context_window(
        self, model: str | None, provider: PricedProvider | None = None
    ) -> int | None:
        """Most input tokens that the model takes; None where the shipped table does not say."""
        if not model or len(model) > MAX_MODEL_NAME:
            return None
        found = self._table.find(model, provider)
        return found.context_window if found else None

    def _rates(self, model: str, provider: PricedProvider | None) -> _Rates | None:
        rates = self._configured(model, provider.name if provider else None)
        return self._table.rates(model, provider) if rates is None else rates

    def _find_configured(self, model: str, provider: str | None) -> _Rates | None:
        names = ([f"{provider}/{model}"] if provider else []) + list(_names(model))
        exact = (self._overrides[name] for name in names if name in self._overrides)
        globbed = (r for matches, r in self._globs for name in names if matches(name))
        return next(exact, None) or next(globbed, None)


class _Table:
    """The table of genai-prices, loaded once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._providers: list[Provider] | None = None
        self._rates: dict[int, _Rates | None] = {}
        self._find = lru_cache(maxsize=2048)(self._look_up)

    def providers(self) -> list[Provider]:
        """All providers of the table; none where the package is missing."""
        with self._lock:
            if self._providers is None:
                self._providers = _open_table()
            return self._providers

    def find(self, model: str, provider: PricedProvider | None) -> ModelInfo | None:
        """The model's entry at that provider, else at its vendor."""
        if provider is None:
            return self._find(model, "", "", "")
        return self._find(model, provider.name, provider.kind, provider.base_url)

    def rates(self, model: str, provider: PricedProvider | None) -> _Rates | None:
        """The rates that apply at this moment (some change with the date or the hour)."""
        found = self.find(model, provider)
        if found is None or not found.prices:
            return None
        price = found.get_prices(datetime.now(UTC))
        if id(price) not in self._rates:
            self._rates[id(price)] = _listed_rates(price)
        return self._rates[id(price)]

    def _look_up(self, model: str, name: str, kind: str, base_url: str) -> ModelInfo | None:
        if kind == "demo":
            return None
        if _is_local(base_url):
            return self._of_vendor(model)
        known = self._by_url(base_url) or self._by_id(name)
        if known is not None:
            return self._first(known, _names(model))
        return self._of_vendor(model) or self._by_name(model)

    def _of_vendor(self, model: str) -> ModelInfo | None:
        prefix, _, bare = model.lower().rpartition("/")
        for vendor, pattern in _VENDORS:
            if prefix in ("", vendor) and pattern.match(bare):
                known = self._by_id(vendor)
                return self._first(known, [bare]) if known else None
        return None

    def _by_name(self, model: str) -> ModelInfo | None:
        name = model.lower()
        prefix, _, bare = name.partition("/")
        known = self._by_id(prefix) if bare else None
        if known is not None:
            return self._first(known, [bare])
        claimed = (p for p in self.providers() if p.model_match and p.model_match.is_match(name))
        return next((found for p in claimed if (found := self._first(p, [name]))), None)

    def _by_url(self, base_url: str) -> Provider | None:
        if not base_url:
            return None
        return next((p for p in self.providers() if re.match(p.api_pattern, base_url)), None)

    def _by_id(self, name: str) -> Provider | None:
        return next((p for p in self.providers() if p.id == name.lower()), None)

    def _first(self, provider: Provider, names: Iterable[str]) -> ModelInfo | None:
        every = self.providers()
        found = (provider.find_model(name, all_providers=every) for name in names)
        return next((model for model in found if model), None)


def _open_table() -> list[Provider]:
    try:
        from genai_prices.data_snapshot import get_snapshot
    except ImportError as missing:
        _log.warning("only configured prices are known: %s", missing)
        return []
    return get_snapshot().providers


def _names(model: str) -> Iterator[str]:
    """The model's name, then without what stands before its first slash."""
    yield model
    if "/" in model:
        yield model.partition("/")[2]


def _glob(key: str) -> Callable[[str], object]:
    return re.compile(".*".join(re.escape(part) for part in key.split("*")), re.DOTALL).fullmatch


def _is_local(base_url: str) -> bool:
    """Whether a URL leads to this machine, its network or a container beside it."""
    try:
        host = urlsplit(base_url).hostname or ""
    except ValueError:
        return False
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return bool(host) and (
            "." not in host or host.endswith((".local", ".localhost", ".internal"))
        )
    return address.is_private or address.is_loopback or address.is_link_local


def _known(count: int | None) -> int | None:
    return count if isinstance(count, int) and count >= 0 else None


def _cost(rates: _Rates, usage: Usage) -> float | None:
    """Input parts at their rates plus output; None where no known part has a rate."""
    costs = [line.tokens * line.rate for line in _lines(rates, usage)]
    return sum(costs) / PER_TOKENS if costs else None


def _lines(rates: _Rates, usage: Usage) -> list[PriceLine]:
    """The known parts of a usage that have a rate."""
    total = _known(usage.input_tokens)
    cached = min(_known(usage.cached_tokens) or 0, total or 0)
    written = min(_known(usage.cache_write_tokens) or 0, (total or 0) - cached)
    plain = None if total is None else total - cached - written
    parts = (
        ("input", plain, rates.input),
        ("input, cached", cached if total is not None else None, rates.cached or rates.input),
        (
            "input, cache write",
            written if total is not None else None,
            rates.cache_write or rates.input,
        ),
        ("output", _known(usage.output_tokens), rates.output),
    )
    return [
        PriceLine(name, tokens, rate.at(total or 0))
        for name, tokens, rate in parts
        if tokens is not None and rate is not None
    ]


def _configured_rates(price: TokenPrice) -> _Rates:
    return _Rates(
        input=_flat(price.input),
        cached=_flat(price.cached_input),
        cache_write=_flat(price.cache_write),
        output=_flat(price.output),
    )


def _flat(rate: float | None) -> _Rate | None:
    return None if rate is None else _Rate(((-1, float(rate)),))


def _listed_rates(price: ModelPrice) -> _Rates | None:
    rates = _Rates(
        input=_listed(price.input_mtok),
        cached=_listed(price.cache_read_mtok),
        cache_write=_listed(price.cache_write_mtok),
        output=_listed(price.output_mtok),
    )
    return rates if rates.input or rates.output else None


def _listed(price: object) -> _Rate | None:
    from genai_prices.types import TieredPrices

    if isinstance(price, TieredPrices):
        tiers = ((tier.start, float(tier.price)) for tier in price.tiers)
        return _Rate(((-1, float(price.base)), *tiers))
    return None if price is None else _flat(float(str(price)))
