"""Logins to the dashboard: the cookie that stands for the token, and where a login leads.

The cookie's value is the second at which it ends and the HMAC of that, `SECONDS.BASE64URL`, with a
key made from the token: nothing is kept here, a restart changes nothing, and another token makes
every cookie worthless.
"""

from __future__ import annotations

import base64
import datetime
import hmac
import re
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from werkzeug.http import parse_cookie

from xgw import clock

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

LOGIN_PAGE = "/ui/login"
HOME = "/ui/"
LIFETIME = datetime.timedelta(days=30)
MAX_NEXT = 2000

_PURPOSE = b"xgw dashboard login"
_VALUE = re.compile(r"([0-9]{1,12})\.[A-Za-z0-9_-]{43}", re.ASCII)
_DOTS = re.compile(r"(?:\.|%2e){1,2}", re.ASCII | re.I)
_NEXT = re.compile(r"(?:/imports/imp_[0-9a-f]{32})?/ui(?:[/?#].*)?")


class Logins:
    """What the token gives to browsers instead of itself."""

    def __init__(self, token: str) -> None:
        self._key = hmac.digest(token.encode(), _PURPOSE, "sha256")
        # Browsers share cookies between ports: two servers on one machine have two names.
        self.cookie = f"xgw_login_{hmac.digest(self._key, b'name', 'sha256').hex()[:8]}"

    def issue(self, now: datetime.datetime | None = None) -> str:
        """A value that opens from now on for LIFETIME."""
        ends_at = int(_seconds((now or clock.now()) + LIFETIME))
        return self._signed(str(ends_at))

    def accepts(self, value: str, now: datetime.datetime | None = None) -> bool:
        """Whether this is a value that `issue` made for this token and that has not ended."""
        match = _VALUE.fullmatch(value)
        if match is None or not hmac.compare_digest(self._signed(match[1]), value):
            return False
        return int(match[1]) > _seconds(now or clock.now())

    def admits(self, environ: WSGIEnvironment) -> bool:
        """Whether the request's cookies hold such a value."""
        return any(map(self.accepts, parse_cookie(environ).getlist(self.cookie)))

    def _signed(self, ends_at: str) -> str:
        signature = hmac.digest(self._key, ends_at.encode(), "sha256")
        return f"{ends_at}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def _seconds(moment: datetime.datetime) -> float:
    return moment.replace(tzinfo=datetime.UTC).timestamp()


# -- where a login leads ---------------------------------------------------------------------------


def login_url(environ: WSGIEnvironment) -> str:
    """The login page, which then leads to what this request asked for."""
    path = quote(environ.get("PATH_INFO", "").encode("latin-1", "replace"), safe="/:@!$&'()*+,;=~")
    query = environ.get("QUERY_STRING", "")
    wanted = safe_next(f"{path}?{query}" if query else path)
    return f"{LOGIN_PAGE}?{urlencode({'next': wanted})}"


def safe_next(wanted: str) -> str:
    """`wanted` if it is a path of this dashboard, with or without a query; else the first page.

    Never another server, whatever a browser makes of it: no scheme, no `//` or `\\` in front, no
    control characters, and no `..` that leads out of `/ui/`.
    """
    path = re.split(r"[?#]", wanted, maxsplit=1)[0]
    is_ours = (
        len(wanted) <= MAX_NEXT
        and _NEXT.fullmatch(wanted) is not None
        and wanted.isprintable()
        and "\\" not in wanted
        and not any(map(_DOTS.fullmatch, path.split("/")))
    )
    return wanted if is_ours else HOME
