"""The way in: a login stands for the token, in a cookie that scripts and other sites never see."""

from __future__ import annotations

from flask import Blueprint, Response, request

from xgw.errors import ApiError
from xgw.web.logins import HOME, LIFETIME, LOGIN_PAGE, safe_next
from xgw.web.origins import came_by_https
from xgw.web.pages import frame

PAGES = ("/ui", "/imports")
"""The paths under which there are pages."""

routes = Blueprint("login", __name__)


@routes.get("/ui/login")
def show_form() -> Response:
    """GET /ui/login?next=PATH: whoever is in already goes on to there"""
    wanted = safe_next(request.args.get("next", HOME))
    return frame.see_other(wanted) if _may_enter() else _show(wanted)


@routes.post("/ui/login")
def log_in() -> Response:
    """POST /ui/login: 303 to `next` with the token, 403 and the form again without"""
    wanted = safe_next(request.form.get("next", HOME))
    keyring = frame.services().keyring
    if not keyring.wants_key:
        return frame.see_other(wanted)
    value = keyring.log_in(request.form.get("token", "").strip())
    if value is None or keyring.logins is None:
        return _show(wanted, is_wrong=True)
    response = frame.see_other(wanted)
    for path in PAGES:
        response.set_cookie(
            keyring.logins.cookie,
            value,
            max_age=LIFETIME,
            path=path,
            secure=came_by_https(request.environ),
            httponly=True,
            samesite="Strict",
        )
    return response


@routes.post("/ui/logout")
def log_out() -> Response:
    """POST /ui/logout: 303 to the form, the cookie taken back"""
    response = frame.see_other(LOGIN_PAGE)
    if (logins := frame.services().keyring.logins) is not None:
        for path in PAGES:
            response.delete_cookie(logins.cookie, path=path, httponly=True, samesite="Strict")
    return response


def _show(wanted: str, *, is_wrong: bool = False) -> Response:
    # From a link on another site a browser sends no strict cookie. Asked for once more, by this
    # page itself, it does.
    return frame.page(
        "login/show.html",
        status=403 if is_wrong else 200,
        next=wanted,
        has_token=frame.services().keyring.logins is not None,
        is_wrong=is_wrong,
        comes_from_elsewhere=request.headers.get("Sec-Fetch-Site") == "cross-site",
    )


def _may_enter() -> bool:
    try:
        frame.services().keyring.admit(request.environ)
    except ApiError:
        return False
    return True
