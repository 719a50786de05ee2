"""The edge of the JSON API: what a request asks for, who asks, and how an answer is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

import orjson
from flask import Response, current_app, request

from xgw import errors
from xgw.queries import filters, pages, payloads
from xgw.queries.conditions import Reader
from xgw.queries.filters import Filters
from xgw.queries.pages import Page, Slice
from xgw.web.keys import Pass
from xgw.web.serialize import NO_BODIES, Json, Payloads, Row

if TYPE_CHECKING:
    from xgw.web.app import Services
    from xgw.web.security import Caller

_PAGE = frozenset({"limit", "cursor", "order", "expand"})
_WITH_BODIES = ("turns", "requests")

T = TypeVar("T")


def services() -> Services:
    """What the application runs on."""
    found: Services = current_app.extensions["xgw"]
    return found


def caller() -> Caller:
    """Who asks."""
    found: Caller = request.environ["xgw.caller"]
    return found


def watching() -> Pass:
    """What lets the caller watch for as long as it opens."""
    return Pass(partial(services().keyring.authenticate, request.environ))


def client() -> Json:
    """Who asks, as requests to models tell it in the record."""
    told = request.headers.get("User-Agent")
    return {
        "user_agent": told and services().masker.text(told),
        "address": request.remote_addr,
        "key": caller().alias,
    }


def project() -> str | None:
    """The project that bounds what the caller may read; None for all of them."""
    asking = caller()
    return None if asking.sees_all else asking.project_id


def own_project() -> str:
    """The project in which the caller's session keys are looked up."""
    return Reader(project()).own_project


def found(row: T | None, noun: str, ref: str) -> T:
    """The row; ApiError 404 if there is none, or none for this caller."""
    if row is None:
        raise errors.not_found(f"there is no {noun} {ref[:256]!r}", code=f"{noun}_not_found")
    return row


def asked_page() -> Page:
    """The page that the query parameters ask for."""
    expands()
    return pages.parse(*(parameter(name) for name in ("limit", "cursor", "order")))


@overload
def parameter(name: str) -> str | None: ...


@overload
def parameter(name: str, usual: str) -> str: ...


def parameter(name: str, usual: str | None = None) -> str | None:
    """A query parameter of which there can be but one, `usual` without it.

    ApiError 422 where it comes several times and differs.
    """
    given = dict.fromkeys(request.args.getlist(name))
    if len(given) > 1:
        raise errors.unprocessable(f"{name} can be given once only", param=name)
    return next(iter(given), usual)


def asked_filters(noun: str, *, without: str | None = None) -> Filters:
    """The filters of a list that the query parameters ask for; `without` is set by the path."""
    page = _PAGE if noun in _WITH_BODIES else _PAGE - {"expand"}
    given = [pair for pair in request.args.items(multi=True) if pair[0] not in page]
    if any(name == without for name, _ in given):
        raise errors.unprocessable(f"{without} is part of the path here", param=without or "")
    return filters.parse(noun, given)


def only(*names: str) -> None:
    """ApiError 422 for a query parameter that this path does not take."""
    for name in request.args:
        if name not in names:
            raise errors.unprocessable(f"there is no parameter {name[:64]!r} here", param=name[:64])


def expands() -> bool:
    """Whether the query asks for bodies; ApiError 422 for anything else that it says of them."""
    asked = parameter("expand")
    if asked not in (None, "payloads"):
        raise errors.unprocessable("expand can only be payloads", param="expand")
    return asked is not None


def show_payloads(rows: Iterable[Row], *, expanded: bool | None = None) -> Payloads:
    """How the payload columns of these rows are shown: as bodies if `expand=payloads` says so."""
    asked = expands()
    hashes = payloads.hashes_of(rows)
    if not hashes:
        return NO_BODIES
    store = services().store
    known = payloads.known(store, hashes)
    whole = asked if expanded is None else expanded
    bodies = payloads.bodies(store, known.sizes) if whole else {}
    return Payloads(known.sizes, bodies, known.pruned)


def answer(value: Any, status: int = 200) -> Response:
    """A JSON answer."""
    response = Response(orjson.dumps(value), status, mimetype="application/json")
    response.headers["Cache-Control"] = "no-store"
    return response


def answer_list(page: Slice, show: Callable[[Row], Json]) -> Response:
    """A page of a list."""
    return answer(
        {
            "object": "list",
            "data": [show(row) for row in page.rows],
            "has_more": page.has_more,
            "next_cursor": page.next_cursor,
        }
    )


def answer_nothing() -> Response:
    """204: it is done."""
    response = Response(status=204)
    del response.headers["Content-Type"]
    response.headers["Cache-Control"] = "no-store"
    return response


def answer_text(text: str) -> Response:
    """Plain text."""
    response = Response(text, mimetype="text/plain")
    response.headers["Cache-Control"] = "no-store"
    return response
