"""Pages: login."""

from __future__ import annotations

from flask import Blueprint

routes = Blueprint("login", __name__)
