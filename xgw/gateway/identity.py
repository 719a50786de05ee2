"""Which session and turn a request names: explicit identifiers only, sources in a fixed order."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote

import orjson

from xgw import ids
from xgw.config import Gateway
from xgw.errors import ApiError, bad_request
from xgw.frozen import field, frozen

OWN_KEYS = frozenset({"session_id", "turn_id", "task_id", "end_user_id", "parent_turn_id"})
HEADERS = {what: f"x-{what.replace('_', '-')}" for what in OWN_KEYS}
REPEATED = "\n"
"""Between the values of a header in `HEADERS` that came more than once; no value holds one."""

LABELS = frozenset({"task_id", "end_user_id"})
"""These are only shown and looked for: nothing continues by them."""

USER_SOURCES = ("body:safety_identifier", "body:user")
NEW = "new"
NOTED_CHARACTERS = 256

_HALF = re.compile(rb"\\u[dD][89a-fA-F]")

Mask = Callable[[str], str]
Claim = tuple[str, str]
Given = tuple[str, Any]
Seen = tuple[str, str]


@frozen
class Identity:
    """What a request says about where it belongs; None where it says nothing.

    `session_source` is `metadata`, `header`, `url`, `client` or `managed`. `parent` is the turn, by
    key or id, that started this sub-agent's. `others` are identifiers
    that disagreed, or that were not usable, by their source.
    """

    session_key: str | None = None
    session_source: str | None = None
    managed: bool = False
    turn_key: str | None = None
    parent: str | None = None
    task_id: str | None = None
    end_user_id: str | None = None
    others: dict[str, str] = field(default_factory=dict)
    metadata_keys: frozenset[str] = frozenset()


_UNNAMED = Identity()
_NAMED_BY_XGW = Identity(session_source="managed", managed=True)


def read_identity(
    gateway: Gateway,
    headers: Mapping[str, str],
    fields: Mapping[str, Any],
    url_key: str | None,
    mask: Mask = str,
) -> Identity:
    """The identity of one request; `headers` by lower-case name, `fields` its JSON's top level.

    What `mask` changes holds a secret: that cannot be an identifier, and is masked in labels.
    Raises ApiError 400 `invalid_session_id` for an identifier in xgw's own fields that cannot be.
    """
    metadata = fields.get("metadata")
    own = _own_metadata(metadata) if isinstance(metadata, dict) else {}
    if url_key is None and not own:
        names, keys = _places(gateway.session_sources, gateway.turn_sources)
        if names.isdisjoint(headers) and keys.isdisjoint(fields):
            return _NAMED_BY_XGW if gateway.managed_sessions else _UNNAMED
    others: dict[str, str] = {}

    def find(what: str, sources: tuple[str, ...] = (), url: str | None = None) -> Claim | None:
        header = _as_answered(_utf8(headers.get(HEADERS[what])))
        seen = [(spec, text) for spec in sources if (text := _read(spec, headers, fields))]
        if header is None and url is None and not seen and what not in own:
            return None
        if header is not None and REPEATED in header:
            raise _invalid(f"{what} cannot be used: its header comes twice, and differs", what)
        given = [("metadata", own.get(what)), ("header", header), ("url", url)]
        return _first(what, given, seen, others, mask)

    return _identity(
        gateway,
        find("session_id", gateway.session_sources, url_key),
        find("turn_id", gateway.turn_sources),
        find("parent_turn_id"),
        find("task_id"),
        find("end_user_id", USER_SOURCES),
        others,
        own,
    )


def _identity(
    gateway: Gateway,
    session: Claim | None,
    turn: Claim | None,
    parent: Claim | None,
    task: Claim | None,
    user: Claim | None,
    others: dict[str, str],
    own: Mapping[str, Any],
) -> Identity:
    source, key = session or (None, None)
    managed = key == NEW or (key is None and gateway.managed_sessions)
    return Identity(
        session_key=None if managed else key,
        session_source="managed" if managed else source,
        managed=managed,
        turn_key=turn[1] if turn else None,
        parent=parent[1] if parent else None,
        task_id=task[1] if task else None,
        end_user_id=user[1] if user else None,
        others=others,
        metadata_keys=frozenset(own),
    )


def _own_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """xgw's own keys of a metadata object, their names in lower case; JSON null means absent."""
    found: dict[str, Any] = {}
    for name, value in metadata.items():
        if name.lower() in OWN_KEYS and found.get(name.lower()) is None:
            found[name.lower()] = value
    return found


def _first(
    what: str, own: list[Given], client: list[Seen], others: dict[str, str], mask: Mask
) -> Claim | None:
    """The first identifier in order; those that disagree with it are kept in `others`.

    `own` are xgw's own fields by source, `client` what a known client sends, by its spec.
    """
    chosen: Claim | None = None
    for source, value in own:
        if value is not None:
            claim = source, _checked(value, what, mask)
            chosen = _choose(chosen, claim, f"{source}:{what}", others)
    for spec, text in client:
        try:
            claim = "client", _usable(text, what, mask)
        except ValueError:
            noted = mask(text.encode("utf-8", "replace").decode())
            others[spec] = noted[:NOTED_CHARACTERS]
            continue
        chosen = _choose(chosen, claim, spec, others)
    return chosen


def check_spelling(identity: Identity, body: bytes) -> None:
    """ApiError 400 where an identifier has a half of a character, which is read as U+FFFD.

    All of them are read as the same one, so that different identifiers would be one.
    """
    named = {
        "session_id": identity.session_key,
        "turn_id": identity.turn_key,
        "parent_turn_id": identity.parent,
        "task_id": identity.task_id,
        "end_user_id": identity.end_user_id,
    }
    for what, text in named.items():
        if text is not None and "\ufffd" in text and _HALF.search(body):
            raise _invalid(f"{what} cannot be used: it has half of a surrogate pair", what)


def _choose(chosen: Claim | None, claim: Claim, name: str, others: dict[str, str]) -> Claim:
    if chosen is None:
        return claim
    if chosen[1] != claim[1]:
        others[name] = claim[1]
    return chosen


def _usable(text: str, what: str, mask: Mask) -> str:
    """The identifier, a label without its secrets; ValueError for one that cannot be."""
    given = ids.client_identifier(text)
    masked = mask(given)
    if masked != given and what not in LABELS:
        raise ValueError("it holds a key, which is not stored")
    return masked


def _checked(value: Any, what: str, mask: Mask) -> str:
    if not isinstance(value, str):
        raise _invalid(f"{what} must be a string", what)
    try:
        return _usable(value, what, mask)
    except ValueError as error:
        raise _invalid(f"{what} cannot be used: {error}", what) from None


def _invalid(message: str, what: str) -> ApiError:
    return bad_request(message, code="invalid_session_id", param=what)


def _read(spec: str, headers: Mapping[str, str], fields: Mapping[str, Any]) -> str | None:
    """The text at a source: "header:NAME", "body:path", "header-json:NAME:path"."""
    kind, name, path = _taken_apart(spec)
    if kind == "body":
        return _at(fields, path)
    header = headers.get(name)
    if not header or kind == "header":
        return _utf8(header) or None
    try:
        parsed = orjson.loads(header.encode("latin-1", "replace"))
    except orjson.JSONDecodeError:
        return None
    return _at(parsed, path)


@lru_cache(maxsize=16)
def _places(*sources: tuple[str, ...]) -> tuple[frozenset[str], frozenset[str]]:
    """The headers and the fields at a request's top level that may say where it belongs."""
    apart = [_taken_apart(spec) for specs in (*sources, USER_SOURCES) for spec in specs]
    names = {name for kind, name, _ in apart if kind != "body"}
    keys = {path[0] for kind, _, path in apart if kind == "body"}
    return frozenset(names.union(HEADERS.values())), frozenset(keys)


@lru_cache(maxsize=256)
def _taken_apart(spec: str) -> tuple[str, str, tuple[str, ...]]:
    """A source's kind, the header's name in lower case, and the names on the way down."""
    kind, _, rest = spec.partition(":")
    if kind == "body":
        return kind, "", tuple(rest.split("."))
    name, _, path = rest.partition(":") if kind == "header-json" else (rest, "", "")
    return kind, name.lower(), tuple(path.split("."))


def _at(value: Any, path: tuple[str, ...]) -> str | None:
    for name in path:
        if value is None:
            return None
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, dict):
        value = value.get("id")
    return value if isinstance(value, str) and value else None


def _utf8(value: str | None) -> str | None:
    """A header's bytes as UTF-8; they arrive as latin-1 text. What is no UTF-8 is not printable.

    Blanks around it are not a part of it, and not every server takes them away.
    """
    value = value and value.strip(" \t")
    if value is None or value.isascii():
        return value
    return value.encode("latin-1", "replace").decode("utf-8", "surrogateescape")


def header_value(key: str) -> str:
    """An identifier as a response header carries it: percent-encoded unless it is plain ASCII.

    One that would be read as another one's encoding is encoded too.
    """
    is_plain = key.isascii() and _as_answered(key) == key
    return key if is_plain else quote(key, safe="")


def _as_answered(value: str | None) -> str | None:
    """A header's identifier; one that is spelled as an answer's header has it is the same one."""
    if value is None or "%" not in value:
        return value
    plain = unquote(value)
    return plain if plain != value and header_value(plain) == value else value


def parse_traceparent(value: str | None) -> str | None:
    """The trace id of a W3C `traceparent` header; None if it is not a valid one."""
    parts = (value or "").strip().split("-")
    if len(parts) < 4 or len(parts[0]) != 2 or parts[0] == "ff":
        return None
    if parts[0] == "00" and len(parts) != 4:
        return None
    trace, span, flags = parts[1:4]
    for text, length in ((trace, 32), (span, 16), (flags, 2)):
        if len(text) != length or not all(c in "0123456789abcdef" for c in text):
            return None
    return trace if trace.strip("0") and span.strip("0") else None
