"""What all pages share: how one is answered, its headers, and the token that its forms carry."""

from __future__ import annotations

import hmac
import io
import secrets
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from flask import Response, current_app, g, request

from xgw import errors
from xgw.config.first_call import FirstCall
from xgw.config.first_call import first_call as first_call_of
from xgw.portable.unpacking import MOST_PACKED
from xgw.web.bodies import read_body
from xgw.web.condition import writing_troubles
from xgw.web.headers import PAGE_HEADERS
from xgw.web.imported import imported, root
from xgw.web.live.socket import CSRF_COOKIE
from xgw.web.security import COOKIE
from xgw.web.templating import render

if TYPE_CHECKING:
    from xgw.web.app import Services

CSRF_FIELD = "csrf"
FORM_BYTES = 1 << 20
UPLOAD = "multipart/form-data"


def services() -> Services:
    """What the application runs on."""
    found: Services = current_app.extensions["xgw"]
    return found


def page(template: str, *, status: int = 200, **values: Any) -> Response:
    """A page in the frame: navigation, search, what is wrong, and what `values` put into it."""
    token = csrf_token()
    shared = {
        "csrf": token,
        "path": root() + request.path,
        "base_url": base_url(),
        "logged_in": request.environ.get("xgw.credential") == COOKIE,
        # Others who may open the page are told nothing of the server.
        "notices": writing_troubles(services()) if "xgw.caller" in request.environ else [],
    }
    response = answer(render(template, **shared, **values), status)
    if token and request.cookies.get(CSRF_COOKIE) != token:
        # Not "Strict": a link from elsewhere would have the browser's other tabs' forms outdated.
        response.set_cookie(
            CSRF_COOKIE, token, httponly=True, samesite="Lax", secure=request.is_secure, path="/"
        )
    return response


def partial(template: str, **values: Any) -> Response:
    """A part of a page alone, as the page and the socket show it."""
    return answer(render(template, **values))


def answer(html: str, status: int = 200) -> Response:
    """HTML under the dashboard's policy: nothing is loaded from elsewhere, no script inside."""
    response = Response(html, status, mimetype="text/html")
    response.headers.update(PAGE_HEADERS)
    return response


def plain_text(text: str, status: int = 200) -> Response:
    """A text as it is: nothing in it is markup, whatever a browser may think of it."""
    response = Response(text, status, mimetype="text/plain")
    response.headers.update(PAGE_HEADERS)
    return response


def see_other(path: str) -> Response:
    """303: a form was carried out, its result is at `path`; what was asked for is there."""
    return Response(status=303, headers={**PAGE_HEADERS, "Location": root() + path})


def back(default: str) -> Response:
    """303 to the page that a form was sent from, `default` where that is not known."""
    parts = urlsplit(request.referrer or "")
    inside = parts.netloc == request.host and parts.path.startswith("/ui/")
    # A form that was refused is answered where it was sent to, and nothing is there to be read.
    inside = inside and current_app.create_url_adapter(request).test(parts.path, "GET")  # type: ignore[union-attr]
    where = parts.path + (f"?{parts.query}" if parts.query else "")
    return see_other(where if inside else default)


def is_from_script() -> bool:
    """Whether a page's script sent this, and not the browser a form by itself."""
    return "HX-Request" in request.headers


def nothing() -> Response:
    """204: a form was carried out for a page's script, which sees what came of it live."""
    return Response(status=204, headers=PAGE_HEADERS)


def base_url() -> str:
    """What to paste into a client, by the name that the browser uses."""
    return f"{request.scheme}://{request.host}/v1"


def first_call(session: str) -> FirstCall:
    """A first request to this server, in the session with this key."""
    running = services()
    url = base_url().removesuffix("/v1")
    return first_call_of(running.config.config, url, running.keyring.wants_key, session)


def csrf_token() -> str:
    """The browser's token, a new one if it has none: a form sends it, a foreign page cannot.

    "" in an import, which has no forms.
    """
    if imported() is not None:
        return ""
    if "csrf" not in g:
        known = request.cookies.get(CSRF_COOKIE, "")
        g.csrf = known if len(known) == 43 and known.isascii() else secrets.token_urlsafe(32)
    token: str = g.csrf
    return token


def check_form() -> None:
    """ApiError 403 for a form without the token of the browser that sends it."""
    if request.method in ("GET", "HEAD", "OPTIONS"):
        return
    if request.mimetype == UPLOAD:
        _bound_upload()
    else:
        _read_form()
    sent, known = request.form.get(CSRF_FIELD, ""), request.cookies.get(CSRF_COOKIE, "")
    if not known or not hmac.compare_digest(sent.encode(), known.encode()):
        message = "this form is out of date: go back, reload the page and send it again"
        raise errors.forbidden(message, code="csrf")


def _bound_upload() -> None:
    """Have a form with a file read as it comes, the file to disk; ApiError 413 for a longer."""
    if (request.content_length or 0) > MOST_PACKED + FORM_BYTES:
        raise errors.too_large(f"the file is over the limit of {MOST_PACKED} bytes")
    request.max_content_length = MOST_PACKED + FORM_BYTES
    request.max_form_memory_size = FORM_BYTES


def _read_form() -> None:
    """Have the form's body read within limits; ApiError as `read_body` has it, and 413."""
    body = read_body(request.environ, services().config.config.server.max_body_bytes)
    if len(body) > FORM_BYTES:
        raise errors.too_large(f"a form must not be over {FORM_BYTES} bytes")
    request.environ["wsgi.input"] = io.BytesIO(body)
    request.environ["CONTENT_LENGTH"] = str(len(body))
    request.environ.pop("HTTP_TRANSFER_ENCODING", None)
    request.max_form_memory_size = FORM_BYTES
