"""The surfaces on the one port, told apart by path: the dashboard, `/v1`, and the JSON API."""

from __future__ import annotations

import re

_OPENAI = re.compile(r"(?:/s/.+)?/v1(?:/.*)?", re.DOTALL)
_MODEL = re.compile(r"(?:/s/.+)?/v1/(?:chat/completions|embeddings)", re.DOTALL)
_IMPORTED = re.compile(r"/imports/[^/]+(?=/)")
_DASHBOARD = re.compile(r"/(?:ui(?:/.*)?|favicon\.ico)?", re.DOTALL)
_OPEN = re.compile(r"/ui/(?:static/.*|login|logout)|/favicon\.ico", re.DOTALL)


def is_openai(path: str) -> bool:
    """Whether this is a path for OpenAI-compatible clients."""
    return _OPENAI.fullmatch(path) is not None


def calls_model(path: str) -> bool:
    """Whether a POST there calls a model: such a call is recorded even if it is refused."""
    return _MODEL.fullmatch(path) is not None


def takes_files(path: str) -> bool:
    """Whether a body there is a file, which need not be JSON."""
    return path == "/import"


def is_dashboard(path: str) -> bool:
    """Whether this is the dashboard's, which answers with HTML whatever happens."""
    return _DASHBOARD.fullmatch(path[_own(path) :]) is not None


def _own(path: str) -> int:
    """Where a path begins that is under an import's address: there it is as anywhere."""
    under = _IMPORTED.match(path)
    return under.end() if under else 0


def is_open(path: str) -> bool:
    """Whether this is of the dashboard and needs no login: it shows nothing that was recorded."""
    return _OPEN.fullmatch(path) is not None
