"""Credentials at the top level of a JSON body: found by their fields' names, masked in place."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

import msgspec

from xgw.config.credentials import MASK, is_credential_name

_MASK = MASK.encode()

USUAL = frozenset(
    {
        "choices",
        "created",
        "id",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "metadata",
        "model",
        "object",
        "service_tier",
        "stream",
        "stream_options",
        "system_fingerprint",
        "temperature",
        "tool_choice",
        "tools",
        "top_p",
        "usage",
        "user",
    }
)
"""Fields of most bodies, without credentials: quicker than to judge each name of a body."""

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+("?)|[{}\[\],:]', re.DOTALL)
_OBJECT = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*\{")


def without_credentials(raw: bytes, names: Collection[str] | None) -> bytes:
    """A JSON object without the string values of credential-named fields at its top level.

    `names` are its fields' names, where a strict reader has found them already. What is no object
    stays as it is.
    """
    if names is None:
        if not _OBJECT.match(raw) or not _may_hold_credentials(raw):
            return raw
    elif USUAL.issuperset(names) or not any(map(is_credential_name, names)):
        return raw
    pieces, kept_to = [], 0
    for string in _credential_strings(raw):
        closing = string[1]  # missing where the body broke off
        pieces += [raw[kept_to : string.start()], b'"', _MASK, closing]
        kept_to = string.end()
    return b"".join([*pieces, raw[kept_to:]]) if pieces else raw


def _may_hold_credentials(raw: bytes) -> bool:
    try:
        return any(map(is_credential_name, _members.decode(raw)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return True  # a broken body is looked through


def _credential_strings(raw: bytes) -> Iterator[re.Match[bytes]]:
    """The strings that credential-named fields at the top level hold; `raw` may be broken."""
    depth = 0
    string, name = b"", None  # the last string; the field whose value comes next
    for token in _TOKEN.finditer(raw):
        mark = token[0][:1]
        depth += (mark in b"{[") - (mark in b"}]")
        if depth != 1:
            continue
        if mark == b":":
            name = string
        elif mark == b'"' and name is None:
            string = token[0]
        else:
            if mark == b'"' and _names_credential(name):
                yield token
            name = None


def _names_credential(name: bytes | None) -> bool:
    try:
        return is_credential_name(msgspec.json.decode(name or b'""', type=str))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
