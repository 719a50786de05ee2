"""Pages: steps."""

from __future__ import annotations

from flask import Blueprint

routes = Blueprint("steps", __name__)
