"""Checks of providers: each is asked for its models, all at once and not for long."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from xgw import clock, spelling
from xgw.config import Config, Provider
from xgw.exchange.headers import credential
from xgw.masking import Masker
from xgw.providers.transport import Call, Timeouts, Transport, UpstreamRequest
from xgw.upkeep.findings import Finding, fine, note, wrong
from xgw.values import UpstreamFailure

TIMEOUTS = Timeouts(connect=3, first_byte=5, idle=5)
TOGETHER = 16
REFUSED = (401, 403)


def check(config: Config) -> list[Finding]:
    """Whether each provider answers, in their order; nothing secret is in what is said."""
    transport = Transport()
    masker = Masker(config.secrets())
    try:
        with ThreadPoolExecutor(TOGETHER) as pool:
            found = pool.map(lambda one: _check(transport, masker, one), config.providers)
            return list(found) or [_none()]
    finally:
        transport.close()


def _none() -> Finding:
    return wrong("providers", "there is no provider", "name one under [[providers]] in xgw.toml")


def _check(transport: Transport, masker: Masker, provider: Provider) -> Finding:
    name = f"provider {provider.name}"
    if provider.kind == "demo":
        return fine(name, "built in: scripted, no model")
    headers: Iterable[tuple[str, str]] = (*credential(provider), *provider.headers.items())
    request = UpstreamRequest("GET", f"{provider.base_url}/models", tuple(headers))
    started = clock.monotonic()
    try:
        response = transport.send(request, TIMEOUTS, Call())
        response.close()
    except (UpstreamFailure, ValueError) as error:
        says = masker.text(f"{provider.base_url} cannot be asked: {error}")
        return wrong(name, says, "check base_url, and the network between here and there")
    took = spelling.duration((clock.monotonic() - started) * 1000)
    return _judged(name, provider, masker.text(provider.base_url), response.status, took)


def _judged(name: str, provider: Provider, url: str, status: int, took: str) -> Finding:
    if status in REFUSED and provider.passthrough:
        return fine(name, f"{url} answers in {took}; the keys are the clients' own")
    if status in REFUSED:
        says = f"{url} refuses the key (HTTP {status})"
        return wrong(name, says, "check api_key: whether it is set, valid and for this provider")
    if status >= 500:
        return wrong(name, f"{url} fails (HTTP {status})", "see whether the provider has trouble")
    if status >= 400:
        return note(name, f"{url} answers in {took}, but lists no models (HTTP {status})")
    return fine(name, f"{url} answers in {took}")
