"""Imports under `/imports/<id>/…`: an application for each that is looked at, a few at a time."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from flask import Flask
from werkzeug.wsgi import ClosingIterator

from xgw import errors
from xgw.errors import ApiError
from xgw.portable.imports import Import, Imports
from xgw.web.headers import PAGE_HEADERS
from xgw.web.imported import root_of
from xgw.web.refusals import answer

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

    from xgw.web.security import Caller

KEPT = 8
_PATH = re.compile(r"/imports/([^/]+)(/.*)", re.DOTALL)

CreateReader = Callable[[Import], Flask]


class _Place:
    """One application; closed once it is let go of and nobody uses it any more."""

    def __init__(self, app: Flask, stamp: tuple[int, int, int] | None) -> None:
        self.app = app
        self.stamp = stamp
        self.users = 0
        self.is_left = False

    def close_if_left(self) -> None:
        if self.is_left and not self.users:
            self.app.extensions["xgw"].store.close()


class Mount:
    """WSGI middleware: what is not under an import's address goes on to `app`."""

    def __init__(self, app: WSGIApplication, imports: Imports, create: CreateReader) -> None:
        self._app = app
        self._imports = imports
        self._create = create
        self._lock = threading.Lock()
        self._places: OrderedDict[str, _Place] = OrderedDict()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        match = _PATH.fullmatch(environ.get("PATH_INFO", ""))
        if match is None:
            return self._app(environ, start_response)
        id, path = match.groups()
        try:
            _refuse_bounded(environ.get("xgw.caller"))
            place = self._take(id)
        except ApiError as error:
            return answer(error, environ, start_response)
        if path == "/":
            self._leave(place)
            return _to_pages(id, start_response)
        under = environ | {"SCRIPT_NAME": root_of(id), "PATH_INFO": path}
        return ClosingIterator(place.app(under, start_response), lambda: self._leave(place))

    def close(self) -> None:
        """Let go of all of them."""
        with self._lock:
            while self._places:
                self._let_go(next(iter(self._places)))

    def _take(self, id: str) -> _Place:
        with self._lock:
            stamp = self._imports.stamp(id)
            place = self._places.get(id)
            if place is None or place.stamp != stamp:
                self._let_go(id)
                one = self._imports.find(id) if stamp is not None else None
                if one is None:
                    message = f"there is no import {id[:64]!r}"
                    raise errors.not_found(message, code="import_not_found")
                place = self._places[id] = _Place(self._create(one), self._imports.stamp(id))
            self._places.move_to_end(id)
            place.users += 1
            while len(self._places) > KEPT:
                self._let_go(next(iter(self._places)))
            return place

    def _leave(self, place: _Place) -> None:
        with self._lock:
            place.users -= 1
            place.close_if_left()

    def _let_go(self, id: str) -> None:
        place = self._places.pop(id, None)
        if place is not None:
            place.is_left = True
            place.close_if_left()


def _refuse_bounded(caller: Caller | None) -> None:
    """ApiError 403 for a client key: what is imported belongs to no project here."""
    if caller is None or not caller.sees_all:
        message = "imports are open to the server's token alone, not to a client key"
        raise errors.forbidden(message, code="token_needed")


def _to_pages(id: str, start_response: StartResponse) -> Iterable[bytes]:
    location = [("Location", f"{root_of(id)}/ui/"), ("Content-Length", "0")]
    start_response("303 See Other", [*location, *PAGE_HEADERS.items()])
    return []
