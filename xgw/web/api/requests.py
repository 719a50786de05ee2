"""Request logs, and each as a command to send it again."""

from __future__ import annotations

from flask import Blueprint, Response

from xgw.errors import not_found
from xgw.queries import payloads, requests
from xgw.web import serialize
from xgw.web.api import curl, edge
from xgw.web.serialize import Row

routes = Blueprint("requests", __name__)


@routes.get("/requests")
def list_requests() -> Response:
    """GET /requests"""
    wanted, page = edge.asked_filters("requests"), edge.asked_page()
    found = requests.list_requests(edge.services().store, wanted, page, edge.project())
    shown = edge.show_payloads(found.rows)
    return edge.answer_list(found, lambda row: serialize.request(row, shown))


@routes.get("/requests/<id>")
def get_request(id: str) -> Response:
    """GET /requests/{id}"""
    edge.only("expand")
    row = _find(id)
    return edge.answer(serialize.request(row, edge.show_payloads([row])))


@routes.get("/requests/<id>/curl")
def get_curl(id: str) -> Response:
    """GET /requests/{id}/curl: text; secrets are shell variables to fill in"""
    edge.only()
    row = _find(id)
    key = row["request_payload"]
    store = edge.services().store
    body = payloads.find_body(store, key) if key else None
    if words := payloads.pruned_words(store, None if body else key):
        raise not_found(f"there is nothing to send again: {words}", code="body_pruned")
    return edge.answer_text(curl.render(row, body))


def _find(id: str) -> Row:
    row = requests.find_request(edge.services().store, id, edge.project())
    return edge.found(row, "request", id)
