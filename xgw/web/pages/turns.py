"""Pages: turns."""

from __future__ import annotations

from flask import Blueprint

routes = Blueprint("turns", __name__)
