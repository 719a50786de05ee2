"""Pages: requests."""

from __future__ import annotations

from flask import Blueprint

routes = Blueprint("requests", __name__)
