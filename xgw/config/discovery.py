"""Providers that nobody configured: from well-known key variables, a local Ollama, or the demo."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from xgw.config.schema import DEFAULT_ENDPOINTS
from xgw.config.table import Text

Probe = Callable[[str, int], bool]
"""Whether something listens at a host and port."""

PROBE_SECONDS = 0.25
OLLAMA_PORT = 11434


@dataclass(frozen=True)
class Found:
    """A provider and what it comes from; `origins` holds keys that come from elsewhere."""

    provider: dict[str, Any]
    origin: str
    origins: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _WellKnown:
    name: str
    variable: str
    base_url: str
    base_url_variable: str = ""
    kind: str = "openai"
    endpoints: tuple[str, ...] = ("chat.completions", "models")
    usage_in_stream: bool = True


_CHAT_AND_EMBEDDINGS = ("chat.completions", "embeddings", "models")
_CHAT_AND_RESPONSES = ("chat.completions", "responses", "models")

# Mistral refuses `stream_options` and reports usage in its streams without being asked.
_WELL_KNOWN = (
    _WellKnown(
        "openai",
        "OPENAI_API_KEY",
        "https://api.openai.com/v1",
        base_url_variable="OPENAI_BASE_URL",
        endpoints=DEFAULT_ENDPOINTS["openai"],
    ),
    _WellKnown(
        "anthropic",
        "ANTHROPIC_API_KEY",
        "https://api.anthropic.com/v1",
        kind="anthropic",
        endpoints=DEFAULT_ENDPOINTS["anthropic"],
    ),
    _WellKnown(
        "gemini",
        "GEMINI_API_KEY",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        endpoints=_CHAT_AND_EMBEDDINGS,
    ),
    _WellKnown(
        "mistral",
        "MISTRAL_API_KEY",
        "https://api.mistral.ai/v1",
        endpoints=_CHAT_AND_EMBEDDINGS,
        usage_in_stream=False,
    ),
    _WellKnown("deepseek", "DEEPSEEK_API_KEY", "https://api.deepseek.com/v1"),
    _WellKnown(
        "groq", "GROQ_API_KEY", "https://api.groq.com/openai/v1", endpoints=_CHAT_AND_RESPONSES
    ),
    _WellKnown("xai", "XAI_API_KEY", "https://api.x.ai/v1", endpoints=_CHAT_AND_RESPONSES),
    _WellKnown(
        "openrouter",
        "OPENROUTER_API_KEY",
        "https://openrouter.ai/api/v1",
        endpoints=_CHAT_AND_EMBEDDINGS,
    ),
    _WellKnown(
        "together",
        "TOGETHER_API_KEY",
        "https://api.together.xyz/v1",
        endpoints=_CHAT_AND_EMBEDDINGS,
    ),
)
VARIABLES = {known.name: known.variable for known in _WELL_KNOWN}


def find_providers(
    env: Mapping[str, str], probe: Probe, is_own: Callable[[str], bool]
) -> list[Found]:
    """What serves where the file names no provider: the first is asked first.

    The demo joins where none of the others answers chat. `is_own` tells xgw's own address, which
    a client's OPENAI_BASE_URL in the same shell may well hold: it is passed over.
    """
    found = [_from_key(known, env, is_own) for known in _WELL_KNOWN if env.get(known.variable)]
    found += _ollama(env, probe)
    if not any("chat.completions" in one.provider["endpoints"] for one in found):
        found.append(demo("default"))
    return found


def demo(origin: str) -> Found:
    """The built-in scripted upstream."""
    return Found({"name": "demo", "kind": "demo"}, origin)


def demo_agent(provider: str) -> dict[str, Any]:
    """An agent on the built-in upstream, with tools that its script calls."""
    return {
        "description": "Shows what a turn with tools looks like; it is scripted, no model.",
        "model": f"{provider}/demo",
        "instructions": "Answer briefly. Use the tools for weather, sums and the time.",
        "tools": ["demo_weather", "calculator", "current_time"],
    }


def answers(host: str, port: int) -> bool:
    """Whether something accepts a connection there within a moment."""
    try:
        with socket.create_connection((host, port), timeout=PROBE_SECONDS):
            return True
    except (OSError, UnicodeError):
        return False


def _from_key(known: _WellKnown, env: Mapping[str, str], is_own: Callable[[str], bool]) -> Found:
    base_url, origins = known.base_url, {}
    named = env.get(known.base_url_variable, "").strip()
    if named and not is_own(named):
        base_url, origins = named, {"base_url": f"environment {known.base_url_variable}"}
    provider = {
        "name": known.name,
        "kind": known.kind,
        "base_url": base_url,
        "api_key": Text(env[known.variable].strip()),
        "endpoints": list(known.endpoints),
        "usage_in_stream": known.usage_in_stream,
    }
    return Found(provider, f"environment {known.variable}", origins)


def _ollama(env: Mapping[str, str], probe: Probe) -> list[Found]:
    address = _ollama_address(env.get("OLLAMA_HOST", "").strip())
    if address is None or not probe(address[1], address[2]):
        return []
    scheme, host, port = address
    provider = {
        "name": "ollama",
        "base_url": f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/v1",
        "endpoints": list(_CHAT_AND_EMBEDDINGS),
    }
    return [Found(provider, "environment OLLAMA_HOST" if env.get("OLLAMA_HOST") else "default")]


def _ollama_address(named: str) -> tuple[str, str, int] | None:
    """Scheme, host and port as Ollama itself reads OLLAMA_HOST; None if it cannot be read."""
    try:
        split = urlsplit(named if "://" in named else f"http://{named}")
        port = split.port
    except ValueError:
        return None
    if split.scheme not in ("http", "https"):
        return None
    usual = {"http": 80, "https": 443}[split.scheme] if "://" in named else OLLAMA_PORT
    host = split.hostname or "127.0.0.1"
    # An address to listen at on all interfaces is no address to call.
    return split.scheme, "127.0.0.1" if host in ("0.0.0.0", "::") else host, port or usual
