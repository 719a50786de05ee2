"""Recorded requests made ready to be sent again: what of them counts, and variables for keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote_plus

from xgw.config.credentials import is_credential_name, is_credential_parameter
from xgw.config.discovery import VARIABLES
from xgw.frozen import frozen
from xgw.portable.formats.shelf import Row, Shelf

_OF_THE_CONNECTION = frozenset(
    {"host", "content-length", "connection", "accept-encoding", "transfer-encoding", "expect"}
    | {"keep-alive", "proxy-connection", "te", "trailer", "upgrade"}
)
"""Headers that whoever sends it makes anew."""

_SCHEMED = frozenset({"authorization", "proxy-authorization"})
_SCHEME = re.compile(r"(?:Bearer|Basic|Token|ApiKey)(?=\s)", re.IGNORECASE)
_PARAMETER = re.compile(r"(?<=[?&])([^=&#]+)=([^&#]*)")

Text = tuple[str, ...]
"""Texts and names of variables in turn: `("Bearer ", "OPENAI_API_KEY", "")`."""


@frozen
class Sendable:
    """A request: texts are in turn with the names of variables that hold keys.

    `body` is None where there was none or it is not in the export; `why` says so then.
    """

    id: str
    told: str
    method: str
    url: Text
    headers: tuple[tuple[str, Text], ...]
    body: bytes | None
    why: str

    @property
    def variables(self) -> list[str]:
        """The variables that it needs, each once."""
        texts = [self.url, *(value for _, value in self.headers)]
        return list(dict.fromkeys(name for text in texts for name in text[1::2]))


def sendables(shelf: Shelf) -> Iterator[Sendable]:
    """Every request of an export, in the order in which they were sent."""
    for log in shelf.rows("request_logs"):
        if log["url"] and log["method"]:
            yield _sendable(shelf, log)


def _sendable(shelf: Shelf, log: Row) -> Sendable:
    key = variable_of(log["provider_name"] or "")
    body = shelf.body(log["request_payload"])
    missing = log["request_payload"] is not None and body is None
    headers = tuple(
        (name, _header(name, value, key))
        for name, value in _pairs(log["request_headers"])
        if name.lower() not in _OF_THE_CONNECTION
    )
    return Sendable(
        log["id"],
        _told(log),
        log["method"],
        _url(log["url"], key),
        headers,
        body,
        "its body is not in this export" if missing else "",
    )


def variable_of(provider: str) -> str:
    """The environment variable that holds a provider's key."""
    known = VARIABLES.get(provider)
    if known:
        return known
    spelled = re.sub(r"[^A-Za-z0-9]+", "_", provider).strip("_").upper()
    return f"{spelled}_API_KEY" if spelled and not spelled[0].isdigit() else "API_KEY"


def _told(log: Row) -> str:
    status = log["status_code"] or log["error_type"] or "no answer"
    return (
        f"{log['id']} of {log['started_at'] or 'an unknown time'}: {log['model'] or ''} -> {status}"
    )


def _pairs(headers: Any) -> Iterator[tuple[str, str]]:
    for pair in headers or ():
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(p, str) for p in pair):
            yield pair[0], pair[1]


def _header(name: str, value: str, key: str) -> Text:
    if not is_credential_name(name):
        return (value,)
    if name.lower() in _SCHEMED:
        scheme = _SCHEME.match(value)
        return (f"{scheme[0] if scheme else 'Bearer'} ", key, "")
    if "cookie" in name.lower():
        return ("", key.removesuffix("_API_KEY") + "_COOKIE", "")
    return ("", key, "")


def _url(url: str, key: str) -> Text:
    """A URL with the variable in the place of every parameter that holds a credential."""
    pieces: list[str] = []
    at = 0
    for found in _PARAMETER.finditer(url):
        if is_credential_parameter(unquote_plus(found[1])):
            pieces += (url[at : found.start(2)], key)
            at = found.end(2)
    return (*pieces, url[at:])
