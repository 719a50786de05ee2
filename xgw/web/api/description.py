"""The API's description of itself."""

from __future__ import annotations

from flask import Blueprint, Response

from xgw.web import openapi
from xgw.web.api import edge

routes = Blueprint("description", __name__)


@routes.get("/openapi.json")
def get_description() -> Response:
    """GET /openapi.json"""
    edge.only()
    return edge.answer(openapi.describe(wants_key=edge.services().keyring.wants_key))
