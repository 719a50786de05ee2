"""Pages: health."""

from __future__ import annotations

from flask import Blueprint

routes = Blueprint("health", __name__)
