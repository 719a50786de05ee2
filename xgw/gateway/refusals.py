"""Requests that xgw itself refuses: recorded as turns on their own, with what was sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from xgw import clock, ids
from xgw.errors import ApiError
from xgw.exchange.headers import Headers
from xgw.exchange.means import Means
from xgw.providers.dialects.loose_json import parse_and_judge
from xgw.recording.elements import text_of
from xgw.recording.facts import Scope, TurnEnd, TurnFacts
from xgw.recording.requests import Opening
from xgw.store.writer import Patience

KEPT_BYTES = 65536


@dataclass(frozen=True, slots=True)
class Refused:
    """A request at a model endpoint that goes nowhere; `size` is that of its body, read or not."""

    endpoint: str
    body: bytes
    size: int
    headers: Headers
    project_id: str
    client: dict[str, Any]


class Refusals:
    """Writes down what was refused, and why."""

    def __init__(self, means: Means) -> None:
        self._means = means

    def record(self, refused: Refused, error: ApiError) -> tuple[tuple[str, str], ...]:
        """A turn without a session, `ended_by = gateway`; returns the headers that name it."""
        at = clock.now()
        turn_id, run_id = ids.mint("turn"), ids.mint("run")
        trace_id = ids.trace_id_of(turn_id)
        scope = Scope(refused.project_id, None, turn_id, run_id, trace_id)
        shelf, masker = self._means.recorder.shelf, self._means.for_client(refused.headers).masker
        masked = masker.body(refused.body)
        stored = shelf.whole(masked[:KEPT_BYTES]) if masked else None
        metadata = {
            "code": error.code,
            "http_status": error.status,
            "param": error.param,
            "client": refused.client,
        }
        if refused.size > len(refused.body) or len(masked) > KEPT_BYTES:
            metadata["input_bytes"] = refused.size
        turn = TurnFacts(
            scope=scope,
            started_at=at,
            endpoint=refused.endpoint,
            user_input=_user_input(masked),
            input_payload=stored.hash if stored else None,
            metadata=metadata,
            owner=self._means.recorder.owner,
        )
        end = TurnEnd(
            "gateway",
            at,
            0,
            error_type=error.type,
            error_message=masker.text(error.message),
        )
        bodies = [stored] if stored else []
        ticket = self._means.recorder.refuse(Opening(scope, at, turn=turn), end, bodies)
        self._means.recorder.writer.wait(ticket, Patience())
        return (("X-Turn-Id", turn_id), ("X-Run-Id", run_id), ("X-Trace-Id", trace_id))


def _user_input(body: bytes) -> str | None:
    """The text of the last user message, where the body can be read at all."""
    if len(body) > KEPT_BYTES:
        return None
    try:
        parsed, _ = parse_and_judge(body)
    except ValueError:
        return None
    messages = parsed.get("messages") if isinstance(parsed, dict) else None
    for message in reversed(messages if isinstance(messages, list) else []):
        if isinstance(message, dict) and message.get("role") == "user":
            return text_of(message.get("content"))
    return None
