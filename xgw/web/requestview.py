"""One HTTP request to a provider as its page shows it: bodies, timing, how to repeat it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from xgw.queries import payloads
from xgw.queries.pages import Row
from xgw.queries.payloads import Known
from xgw.queries.wording import reads_words
from xgw.store.database import Store
from xgw.web.api import curl
from xgw.web.words import SHOWN_BYTES, set_out

COLUMNS = 120
"""Into how many columns the time of an answer is parted."""


@dataclass(frozen=True, slots=True)
class Body:
    """A body as it is shown: JSON set out; `is_cut` where there is more of it.

    `size` is that of the whole, in bytes. `text` is None where the store has it no more: then
    `pruned` is the hash of one that was pruned.
    """

    text: str | None
    size: int | None
    is_cut: bool = False
    pruned: str | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A part of the time of an answer, `x` and `height` in percent: how many bytes came in it."""

    x: float
    height: float


@dataclass(frozen=True, slots=True)
class Reads:
    """When the pieces of an answer came: `until_ms` is the last of them."""

    words: str
    until_ms: float
    width: float
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class RequestView:
    """A request log with what is made of it; bodies are None where there were none."""

    log: Row
    request: Body | None
    response: Body | None
    reads: Reads | None
    curl: str | None


def load_view(store: Store, log: Row) -> RequestView:
    """The view of a request, its bodies read together."""
    keys = [log[name] for name in ("request_payload", "response_body") if log[name]]
    return view_with(store, log, payloads.find_bodies(store, keys) if keys else {})


def view_with(store: Store, log: Row, bodies: Mapping[str, bytes]) -> RequestView:
    """The view of a request whose bodies were read, as far as the store has them."""
    keys = [log[name] for name in ("request_payload", "response_body") if log[name]]
    missing = payloads.known(store, [key for key in keys if key not in bodies])
    return RequestView(
        log,
        _body(bodies, log["request_payload"], missing),
        _body(bodies, log["response_body"], missing),
        _reads(log),
        _curl(log, bodies),
    )


def _body(bodies: Mapping[str, bytes], key: str | None, missing: Known) -> Body | None:
    if key is None:
        return None
    body = bodies.get(key)
    if body is None:
        return Body(None, missing.sizes.get(key), pruned=key if key in missing.pruned else None)
    return shown(body)


def shown(body: bytes) -> Body:
    """At most SHOWN_BYTES of a body."""
    if len(body) > SHOWN_BYTES:
        return Body(body[:SHOWN_BYTES].decode(errors="replace"), len(body), is_cut=True)
    return Body(set_out(body.decode(errors="replace")), len(body))


def _curl(log: Row, bodies: Mapping[str, bytes]) -> str | None:
    """The command; None where the body is gone, or too long to be pasted."""
    key = log["request_payload"]
    body = bodies.get(key) if key else None
    if (key and body is None) or len(body or b"") > SHOWN_BYTES:
        return None
    return curl.render(log, body).rstrip("\n")


def _reads(log: Row) -> Reads | None:
    words = reads_words(log)
    if words is None:
        return None
    frames: list[list[Any]] = [frame for frame in log["frames"] if len(frame) == 2]
    until = max(frame[1] for frame in frames) or 1
    ends = [frame[0] for frame in frames[1:]] + [log["bytes_received"] or frames[-1][0]]
    sums = [0] * (COLUMNS + 1)
    for (start, ms), end in zip(frames, ends, strict=True):
        sums[int(ms * COLUMNS / until)] += max(1, end - start)
    width, most = 100 / (COLUMNS + 1), max(sums)
    columns = tuple(
        Column(round(index * width, 3), round(100 * bytes / most, 1))
        for index, bytes in enumerate(sums)
        if bytes
    )
    return Reads(words, until, round(width, 3), columns)
