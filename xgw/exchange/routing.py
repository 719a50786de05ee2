"""Which targets may answer a model: routes, `provider/model`, the providers' lists, defaults."""

from __future__ import annotations

import fnmatch
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import orjson

from xgw import clock
from xgw.config import Config, Provider, Retry
from xgw.errors import ApiError, not_found
from xgw.frozen import frozen
from xgw.providers.transport import Call, Timeouts, Transport, UpstreamRequest
from xgw.values import UpstreamFailure

LIST_SECONDS = 60.0
LIST_TIMEOUTS = Timeouts(connect=2, first_byte=5, idle=5)
LIST_BYTES = 8 << 20
LONGEST_KEPT = 256
"""Characters of a model's name for which its way is remembered."""

FALLBACK_ON = ("connection", "timeout", "429", "5xx")


@frozen
class Target:
    """A provider and the name that the model has there."""

    provider: Provider
    model: str

    @property
    def name(self) -> str:
        """As routes spell it."""
        return f"{self.provider.name}/{self.model}"


@frozen
class Way:
    """The targets for a request, in order, and how to retry and fall back."""

    targets: tuple[Target, ...]
    retry: Retry
    fallback_on: tuple[str, ...]


class Catalog:
    """The providers' own model lists, kept for 60 s; a provider that fails lists nothing."""

    def __init__(self, transport: Transport, headers_for: Callable[[Provider], Any]) -> None:
        self._transport = transport
        self._headers_for = headers_for
        self._asking = threading.Lock()
        self._lists: dict[str, tuple[float, list[dict[str, Any]]]] = {}

    def lists(self, providers: Sequence[Provider]) -> dict[str, list[dict[str, Any]]]:
        """Model objects by provider name; those that are not fresh are asked for at once."""
        with self._asking:  # whoever comes meanwhile waits for the same answers
            now = clock.monotonic()
            stale = [p for p in providers if "models" in p.endpoints and self._is_stale(p, now)]
            if stale:
                with ThreadPoolExecutor(len(stale)) as pool:
                    for provider, models in zip(stale, pool.map(self._ask, stale), strict=True):
                        self._lists[provider.name] = (clock.monotonic(), models)
            return {p.name: self._lists.get(p.name, (0.0, []))[1] for p in providers}

    def _is_stale(self, provider: Provider, now: float) -> bool:
        known = self._lists.get(provider.name)
        return known is None or now - known[0] >= LIST_SECONDS

    def _ask(self, provider: Provider) -> list[dict[str, Any]]:
        request = UpstreamRequest(
            "GET",
            f"{provider.base_url}/models",
            tuple(self._headers_for(provider)),
            direct=provider.kind == "demo",
        )
        try:
            response = self._transport.send(request, LIST_TIMEOUTS, Call())
            try:
                body = _read_all(response)
            finally:
                response.close()
            listed = orjson.loads(body) if response.status == 200 else {}
        except (UpstreamFailure, orjson.JSONDecodeError):
            return []
        models = listed.get("data") if isinstance(listed, dict) else None
        if not isinstance(models, list):
            return []
        return [m for m in models if isinstance(m, dict) and isinstance(m.get("id"), str)]


class Router:
    """Finds the targets of a model for one endpoint (`chat.completions`, `embeddings`)."""

    def __init__(self, config: Config, catalog: Catalog) -> None:
        self._config = config
        self._catalog = catalog
        self._providers = {provider.name: provider for provider in config.providers}
        self._find_fixed = lru_cache(maxsize=1024)(self._configured)
        self._exact = {r.model: r for r in config.routes if not _is_glob(r.model)}
        self._globs = [
            (re.compile(fnmatch.translate(r.model)), r) for r in config.routes if _is_glob(r.model)
        ]

    def find(self, model: str, endpoint: str) -> Way:
        """The way for a request; ApiError 404 `model_not_found` if nothing serves it."""
        known = self.find_configured(model, endpoint)
        return known or self._way(model, endpoint, self._listed(model, endpoint))

    def find_configured(self, model: str, endpoint: str) -> Way | None:
        """The same where the configuration alone decides it: no provider is asked what it has."""
        find = self._find_fixed if len(model) <= LONGEST_KEPT else self._configured
        return find(model, endpoint)

    def _configured(self, model: str, endpoint: str) -> Way | None:
        """The way that the configuration alone decides; None if the providers' lists do."""
        route = self._exact.get(model)
        if route is None:
            route = next((r for pattern, r in self._globs if pattern.fullmatch(model)), None)
        if route is not None:
            targets = [self._target(text, model) for text in route.targets]
            return self._way(model, endpoint, targets, route.retry, route.fallback_on)
        unrouted = self._unrouted(model, endpoint)
        return None if unrouted is None else self._way(model, endpoint, unrouted)

    def models(self) -> list[dict[str, Any]]:
        """What `/v1/models` lists: routes without globs, then providers' lists, each id once."""
        routed = [
            {"id": r.model, "object": "model", "created": 0, "owned_by": "xgw"}
            for r in self._config.routes
            if not _is_glob(r.model)
        ]
        lists = self._catalog.lists(self._config.providers)
        seen: dict[str, dict[str, Any]] = {}
        for listed in (routed, *lists.values()):
            for model in listed:
                seen.setdefault(model["id"], model)
        return list(seen.values())

    def _unrouted(self, model: str, endpoint: str) -> list[Target] | None:
        provider_name, slash, rest = model.partition("/")
        if slash and rest and provider_name in self._providers:
            return [Target(self._providers[provider_name], rest)]
        serving, real = self._serving(endpoint)
        if len(real) > 1 or (real and self._config.routes):
            return None
        return [Target(p, model) for p in (real or serving)[:1]] if not self._config.routes else []

    def _listed(self, model: str, endpoint: str) -> list[Target]:
        _, real = self._serving(endpoint)
        lists = self._catalog.lists(real)
        listing = [p for p in real if any(m["id"] == model for m in lists[p.name])]
        if listing:
            return [Target(listing[0], model)]
        return [] if self._config.routes else [Target(p, model) for p in real[:1]]

    def _serving(self, endpoint: str) -> tuple[list[Provider], list[Provider]]:
        """The providers that have this endpoint, and those of them that are not the demo."""
        serving = [p for p in self._config.providers if endpoint in p.endpoints]
        return serving, [p for p in serving if p.kind != "demo"]

    def _target(self, text: str, asked: str) -> Target:
        provider, _, model = text.partition("/")
        return Target(self._providers[provider], asked if model == "*" else model)

    def _way(
        self,
        model: str,
        endpoint: str,
        targets: Sequence[Target],
        retry: Retry | None = None,
        fallback_on: tuple[str, ...] = FALLBACK_ON,
    ) -> Way:
        serving = tuple(t for t in targets if endpoint in t.provider.endpoints)
        if serving:
            return Way(serving, retry or self._config.gateway.retry, fallback_on)
        if targets:
            raise not_found(
                f"The model `{model}` is not served at {endpoint}: "
                f"no provider of its route offers that endpoint.",
                code="model_not_found",
                param="model",
            )
        raise _unknown(model)


def _unknown(model: str) -> ApiError:
    return not_found(
        f"The model `{model[:200]}` does not exist here: no route and no provider has it. "
        "GET /v1/models lists what there is.",
        code="model_not_found",
        param="model",
    )


def _is_glob(model: str) -> bool:
    return any(mark in model for mark in "*?[")


def _read_all(response: Any) -> bytes:
    parts: list[bytes] = []
    size = 0
    while block := response.read():
        parts.append(block)
        size += len(block)
        if size > LIST_BYTES:
            return b""
    return b"".join(parts)
