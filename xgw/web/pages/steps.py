"""Pages of steps, and their bodies in whole as plain text."""

from __future__ import annotations

from flask import Blueprint, Response, request

from xgw import errors
from xgw.queries import payloads, steps
from xgw.queries.pages import Row
from xgw.queries.snapshot import snapshot
from xgw.web import words
from xgw.web.live.step import load
from xgw.web.pages import frame
from xgw.web.steps.view import SUMMARY

MOST_DIGITS = 9

routes = Blueprint("steps", __name__)


@routes.get("/ui/steps/<step_id>")
def show_step(step_id: str) -> Response:
    """GET /ui/steps/ID?tab=…&from=NUMBER: all that is known of a step, live while it runs"""
    running, tab = frame.services(), request.args.get("tab", SUMMARY)
    number = request.args.get("from", 1, _number)
    with snapshot(running.store):
        view = load(running, step_id, tab, as_it_is=request.args.get("raw") == "1", number=number)
    if view is None:
        raise _no_step(step_id)
    return frame.page("steps/show.html", cursor=view.closeup.newest, view=view)


@routes.get("/ui/steps/<step_id>/sent")
def show_sent(step_id: str) -> Response:
    """GET /ui/steps/ID/sent: the whole request that was made for it, or a tool's arguments"""
    return _whole(_find(step_id)["input_payload"])


@routes.get("/ui/steps/<step_id>/sent/<int:number>")
def show_message(step_id: str, number: int) -> Response:
    """GET /ui/steps/ID/sent/NUMBER: one message of that request in whole, counted from 1"""
    store, key = frame.services().store, _find(step_id)["input_payload"]
    body = payloads.bodies(store, [key or ""])
    if gone := payloads.pruned_words(store, None if body else key):
        raise errors.not_found(gone)
    request_sent = next(iter(body.values()), None)
    sent = request_sent if isinstance(request_sent, dict) else {}
    messages = sent.get("messages", sent.get("input"))
    if not isinstance(messages, list) or not 0 < number <= len(messages):
        raise errors.not_found(f"there is no message {number} in what the step sent")
    return frame.plain_text(words.json_text(messages[number - 1]))


@routes.get("/ui/steps/<step_id>/received")
def show_received(step_id: str) -> Response:
    """GET /ui/steps/ID/received: the whole answer as JSON, or what a tool brought"""
    step = _find(step_id)
    if step["output_payload"] is None and step["partial_output"]:
        return frame.plain_text(step["partial_output"])
    return _whole(step["output_payload"])


def _number(text: str) -> int:
    """Of a message; ValueError, by which the first one is meant, for what is none."""
    if not (text.isascii() and text.isdigit()) or len(text) > MOST_DIGITS:
        raise ValueError(text)
    return int(text)


def _find(step_id: str) -> Row:
    row = steps.find_step(frame.services().store, step_id)
    if row is None:
        raise _no_step(step_id)
    return row


def _whole(key: str | None) -> Response:
    store = frame.services().store
    body = payloads.find_body(store, key) if key else None
    if body is None:
        raise errors.not_found(payloads.pruned_words(store, key) or "nothing was kept of it")
    return frame.plain_text(body.decode(errors="replace"))


def _no_step(step_id: str) -> errors.ApiError:
    return errors.not_found(f"there is no step {step_id[:256]!r}", code="step_not_found")
