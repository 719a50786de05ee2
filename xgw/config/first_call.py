"""A first request to a gateway with this configuration, to be pasted; no key is ever in it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from urllib.parse import quote

import orjson

from xgw.config.schema import Config

EXAMPLE_QUESTION = "What can you do?"


def curl_line(config: Config, url: str, issued: bool = False, *, session: str = "") -> str:
    """A command that streams an answer, in the session with this key if one is named.

    `url` is the server's; `issued` tells that its store has client keys.
    """
    body = {
        "model": _example_model(config),
        "stream": True,
        "messages": [{"role": "user", "content": EXAMPLE_QUESTION}],
    }
    named = _key_variable(config, issued)
    key = f' -H "Authorization: Bearer ${named}"' if named else ""
    # Not every shell and client sends other letters in a header as they are.
    is_header = session.isascii()
    root = url if is_header else f"{url}/s/{quote(session, safe='')}"
    placed = f" -H {shlex.quote(f'X-Session-Id: {session}')}" if session and is_header else ""
    return (
        f'curl -N {root}/v1/chat/completions{key} -H "Content-Type: application/json"{placed}'
        f" -d {shlex.quote(orjson.dumps(body).decode())}"
    )


@dataclass(frozen=True, slots=True)
class FirstCall:
    """The same in three ways: a command, variables for an application, lines of Python."""

    curl: str
    environment: str
    python: str


def first_call(config: Config, url: str, issued: bool, session: str) -> FirstCall:
    """A first request in the session with this key; the rest is as `curl_line` has it."""
    return FirstCall(
        curl_line(config, url, issued, session=session),
        _environment_lines(config, url, issued),
        _python_lines(config, url, issued, session),
    )


def _environment_lines(config: Config, url: str, issued: bool) -> str:
    """The two variables from which OpenAI's own clients take where to call."""
    named = _key_variable(config, issued)
    key = f'"${named}"' if named else "unused"
    return f"export OPENAI_BASE_URL={url}/v1\nexport OPENAI_API_KEY={key}"


def _python_lines(config: Config, url: str, issued: bool, session: str) -> str:
    """The same request with OpenAI's Python library."""
    named = _key_variable(config, issued)
    key = f'os.environ["{named}"]' if named else '"unused"'
    lines = ["import os", ""] if named else []
    lines += [
        "from openai import OpenAI",
        "",
        f'client = OpenAI(base_url="{url}/v1", api_key={key})',
        "answer = client.chat.completions.create(",
        f"    model={orjson.dumps(_example_model(config)).decode()},",
        f'    messages=[{{"role": "user", "content": "{EXAMPLE_QUESTION}"}}],',
        f'    extra_headers={{"X-Session-Id": "{session}"}},',
        ")",
        "print(answer.choices[0].message.content)",
    ]
    return "\n".join(lines)


def _example_model(config: Config) -> str:
    """A model that the gateway serves, as far as that can be told."""
    for route in config.routes:
        if "*" not in route.model:
            return route.model
    return "demo" if config.providers[0].kind == "demo" else "MODEL"


def _key_variable(config: Config, issued: bool) -> str | None:
    """The shell variable that should hold a key; None where none is needed."""
    return "XGW_TOKEN" if config.server.token or config.keys else "XGW_KEY" if issued else None
