"""Request bodies: read once, whole, within limits."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import orjson

from xgw.errors import ApiError, bad_request, too_large
from xgw.gateway.resending import Taken, Taking
from xgw.providers.dialects.loose_json import begins_deeper, is_deeper, tell_fault
from xgw.store.payloads import RUNS_FROM

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

BODY_SILENCE_SECONDS = 30.0
"""A body may come slowly, but not stand still for longer."""

MAX_JSON_DEPTH = 200
_STEP = 1 << 24
BLOCK_BYTES = 1 << 19
SPARE_BLOCKS = 4
_JSON_TYPE = re.compile(r"application/(?:[\w!#$&^.+-]+\+)?json\s*(?:;.*)?", re.ASCII | re.I)


class BrokenBody(Exception):
    """The body cannot be read to its end; the text can be shown to the client."""


def has_body(environ: WSGIEnvironment) -> bool:
    """Whether the request announces a body."""
    return "HTTP_TRANSFER_ENCODING" in environ or environ.get("CONTENT_LENGTH", "0") not in (
        "",
        "0",
    )


def read_body(environ: WSGIEnvironment, limit: int) -> bytes:
    """The whole body, its chunks joined; b"" if the request has none.

    ApiError: 413 over `limit` bytes (at once where the length is announced), 408 after 30 s of
    silence, 400 if it ends early or is not validly chunked, 415 if it is compressed.
    """
    if not has_body(environ):
        return b""
    coding = environ.get("HTTP_CONTENT_ENCODING", "identity").strip().lower()
    if coding not in ("", "identity"):
        raise unsupported_media_type("compressed request bodies are not accepted")
    announced = _announced(environ)
    if announced is not None and announced > limit:
        raise _over(limit)
    with _TRANSLATED:
        body = _read(environ["wsgi.input"], announced, limit)
    if len(body) > limit:
        raise _over(limit)
    return body if announced is None else _whole(body, announced)


def receive(environ: WSGIEnvironment, limit: int) -> Iterator[bytes]:
    """A body that may be long, block by block, as it comes; ApiError as `read_body` has it."""
    announced = _announced(environ) if has_body(environ) else 0
    if announced is not None and announced > limit:
        raise too_large(f"the file is over the limit of {limit} bytes")
    left = limit + 1 if announced is None else announced
    while left:
        with _TRANSLATED:
            block = environ["wsgi.input"].read(min(left, BLOCK_BYTES))
        if not block:
            break
        left -= len(block)
        yield block
    if announced is None and not left:
        raise too_large(f"the file is over the limit of {limit} bytes")
    if announced is not None and left:
        raise _ended_early()


def take_body(
    environ: WSGIEnvironment, limit: int, new_taking: Callable[[], Taking]
) -> bytes | Taken:
    """The body as `read_body` has it, or as it was taken, block by block."""
    length = environ.get("CONTENT_LENGTH", "")
    announced = int(length) if length.isascii() and length.isdigit() and len(length) < 10 else 0
    coded = "HTTP_TRANSFER_ENCODING" in environ or "HTTP_CONTENT_ENCODING" in environ
    if coded or not 0 < announced <= limit:
        return read_body(environ, limit)
    stream = environ["wsgi.input"]
    if announced < RUNS_FROM:
        with _TRANSLATED:
            return _whole(_read(stream, announced, limit), announced)
    taking = new_taking()
    with _BLOCKS.lent() as block, _TRANSLATED:
        left = announced - (size := _fill(stream, block, announced))
        if not taking.begin(block, size):
            rest = _read(stream, left, limit)
            return _whole(b"".join((bytes(block[:size]), rest)), announced)
        while left:
            size = _fill(stream, block, left)
            if not size:
                raise _ended_early()
            taking.feed(block, size)
            left -= size
    return taking.end()


def parse_json(body: bytes, what: str = "body") -> Any:
    """The value of a JSON text: strict (no NaN), nested at most 200 deep; else ApiError 400.

    `what` is what the message calls it.
    """
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if begins_deeper(body, MAX_JSON_DEPTH):
            raise _too_deep(what) from None
        fault = tell_fault(body, error)
        raise bad_request(f"the {what} is not valid JSON: {fault}", code="invalid_json") from None
    if is_deeper(body, value, MAX_JSON_DEPTH):
        raise _too_deep(what)
    return value


def _too_deep(what: str) -> ApiError:
    message = f"the {what}'s JSON is nested deeper than {MAX_JSON_DEPTH} levels"
    return bad_request(message, code="json_too_deep")


def check_json_type(environ: WSGIEnvironment) -> None:
    """ApiError 415 for a body that does not say it is JSON: a form needs no one's permission."""
    if has_body(environ) and not _JSON_TYPE.fullmatch(environ.get("CONTENT_TYPE", "").strip()):
        raise unsupported_media_type("the body must be JSON: Content-Type: application/json")


def unsupported_media_type(message: str) -> ApiError:
    """415: the body is of a kind that is not taken here."""
    return ApiError(415, "invalid_request_error", message, code="unsupported_media_type")


def _announced(environ: WSGIEnvironment) -> int | None:
    if "HTTP_TRANSFER_ENCODING" in environ:
        return None
    length = environ["CONTENT_LENGTH"]
    if not (length.isascii() and length.isdigit()) or len(length) > 18:
        raise bad_request("Content-Length is not a length")
    return int(length)


def _read(stream: Any, announced: int | None, limit: int) -> bytes:
    """At most one byte more than the limit."""
    blocks: list[bytes] = []
    left = limit + 1 if announced is None else announced
    while left > 0 and (block := stream.read(min(left, _STEP))):
        blocks.append(block)
        left -= len(block)
    return b"".join(blocks)


def _fill(stream: Any, block: bytearray, left: int) -> int:
    """Fill the block, as far as there is something left; how many bytes came."""
    size = 0
    with memoryview(block) as view:
        wanted = min(left, len(block))
        while size < wanted and (count := stream.readinto(view[size:wanted])):
            size += count
    return size


class _Blocks:
    """Buffers that are used again: to bring the pages of a new one takes as long as to fill it."""

    def __init__(self) -> None:
        self._spare: list[bytearray] = []

    @contextlib.contextmanager
    def lent(self) -> Iterator[bytearray]:
        """One for the block's time."""
        try:
            block = self._spare.pop()
        except IndexError:
            block = bytearray(BLOCK_BYTES)
        yield block
        if len(self._spare) < SPARE_BLOCKS:
            self._spare.append(block)


_BLOCKS = _Blocks()


class _Translated:
    """What goes wrong while a body is read, as the client is told of it."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, TimeoutError):
            message = f"nothing of the request's body came for {BODY_SILENCE_SECONDS:.0f} s"
            raise ApiError(408, "invalid_request_error", message, code="request_timeout") from None
        if isinstance(error, (BrokenBody, OSError)):
            raise bad_request(_words(error)) from None


_TRANSLATED = _Translated()


def _whole(body: bytes, announced: int) -> bytes:
    if len(body) < announced:
        raise _ended_early()
    return body


def _ended_early() -> ApiError:
    return bad_request("the request's body ended before it was complete")


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, BrokenBody) else "the request's body cannot be read"


def _over(limit: int) -> ApiError:
    return too_large(f"the request's body is over the limit of {limit} bytes (max_body_bytes)")
