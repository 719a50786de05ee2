"""A recorder on a store of its own, and requests that are recorded with it."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from servers import DEADLINE
from xgw import clock, ids
from xgw.events import Envelope
from xgw.hub import Hub
from xgw.queries import events
from xgw.queries.texts import bring_back
from xgw.recording.facts import (
    AttemptEnd,
    AttemptFacts,
    MessageFacts,
    RequestFacts,
    Retry,
    Scope,
    SessionFacts,
    ToolEnd,
    ToolStart,
    TurnEnd,
    TurnFacts,
)
from xgw.recording.recorder import Recorder
from xgw.recording.recovery import Recovery
from xgw.recording.requests import Arrived, Ending, Opening
from xgw.store import migrations
from xgw.store.database import Store
from xgw.store.payloads import Shelf
from xgw.store.writer import Ticket, Writer
from xgw.values import Usage

KNOWN = Usage(10, 20, 4, None, 5, 30, {"prompt_tokens": 10}, "provider")


class Recorded:
    """The parts of a server that record, without its pulse; `told` is what the hub gave out."""

    def __init__(self, path: Path, writer: type[Writer] = Writer, **options: Any) -> None:
        """`options` are the writer's."""
        self.store = Store(path)
        migrations.migrate(self.store)
        self.hub = Hub(self._read, events.newest(self.store))
        self.writer = writer(self.store, self._published, **options)
        self.recorder = Recorder(self.writer, self.hub, Shelf(packs=False))
        self.recovery = Recovery(self.store, self.writer)
        self.told = self.hub.subscribe(lambda _: True)
        self.writer.start()

    def _published(self, envelopes: Sequence[Envelope]) -> None:
        self.recorder.published(envelopes)

    def _read(self, after: int, upto: int) -> list[Envelope]:
        return [e for e in events.list_events(self.store, after) if (e.seq or 0) <= upto]

    def close(self) -> None:
        self.recorder.stop()
        self.recovery.stop()
        self.writer.stop()
        self.store.close()

    # -- what is in the store ------------------------------------------------------------------

    def rows(self, table: str, where: str = "1", *params: Any) -> list[dict[str, Any]]:
        """Rows as SQLite has them, and their long texts, which are payloads."""
        order = {"events": "seq", "sessions": "created_at"}.get(table, "rowid")
        names = [row[1] for row in self.store.sql(f"PRAGMA table_info({table})")]
        query = f"SELECT * FROM {table} WHERE {where} ORDER BY {order}"
        found = [dict(zip(names, row, strict=True)) for row in self.store.sql(query, params)]
        bring_back(self.store, found, ("content", "user_input", "final_output"))
        return found

    def row(self, table: str, id: str) -> dict[str, Any]:
        """The row of an id."""
        [row] = self.rows(table, "id = ?", id)
        return row

    def events(self) -> list[Envelope]:
        """The stored events, in order."""
        return events.list_events(self.store, 0)

    def types(self) -> list[str]:
        """The types of the stored events, in order."""
        return [envelope.type for envelope in self.events()]

    def publications(self) -> list[Envelope]:
        """What the hub gave out since last asked, once all that is stored was among it."""
        newest = self.events()[-1].seq
        arrived: list[Envelope] = []
        while not any(envelope.seq == newest for envelope in arrived):
            more = self.told.get(DEADLINE)
            assert more, "not all was published"
            arrived += more
        return arrived

    # -- what is recorded ----------------------------------------------------------------------

    def session(self) -> SessionFacts:
        """A session that begins with its first request."""
        id = ids.mint("sess")
        return SessionFacts(id, id, "default", "metadata", model="m")

    def turn(
        self, session: SessionFacts | None = None, *, first: bool = False, **options: Any
    ) -> Request:
        """A request that begins a turn; with `first`, its session too."""
        turn = ids.mint("turn")
        session_id = session.id if session else None
        scope = Scope("default", session_id, turn, ids.mint("run"), ids.trace_id_of(turn))
        request = Request(self, scope)
        facts = TurnFacts(
            scope,
            request.started,
            "chat.completions",
            options.pop("said", "Hello"),
            None,
            owner=options.pop("owner", self.recorder.owner),
        )
        said = (message("user", "Hello"),)
        options = {"messages": said, "turn": facts} | options
        request.begin(session=session if first else None, **options)
        return request

    def again(self, request: Request, **options: Any) -> Request:
        """Another request of the same turn: reopened, resumed, or beside it."""
        other = Request(self, request.scope)
        other.begin(**options)
        return other


class Request:
    """One request on its way through the recorder; each method waits for its commit."""

    def __init__(self, recorded: Recorded, scope: Scope) -> None:
        self._recorded, self._recorder = recorded, recorded.recorder
        self.scope = scope
        self.started = clock.now()
        self.attempt = attempt(self.started)

    @property
    def step(self) -> str:
        return self.attempt.step_id

    def begin(self, **options: Any) -> None:
        opening = Opening(self.scope, self.started, attempt=self.attempt, **options)
        _written(self._recorder.begin(opening, ()))

    def retry(self, next: str = "retry", **end: Any) -> None:
        """The attempt failed, and another one begins."""
        failed = ended("error", error_type="upstream_error", error_message="no", **end)
        retry = Retry(next, 250, "other/model" if next == "fallback" else None)
        _written(self._recorder.fail_attempt(self.scope, self.attempt, failed, retry, ()))
        number = self.attempt.attempt + 1
        self.attempt = attempt(clock.now(), attempt=number, reason=next)
        _written(self._recorder.next_attempt(self.scope, self.attempt, ()))

    def succeed(self, text: str = "Hi", *, usage: Usage = KNOWN, **options: Any) -> None:
        """The answer came whole, and the turn with it to its end."""
        turn = TurnEnd("finished", clock.now(), 5, finish_reason="stop", final_output=text)
        said = (message("assistant", text),)
        options = {"turn": turn, "messages": said} | options
        self.end(ended("success", usage=usage, answered=True, finish_reason="stop"), **options)

    def ask_for_tools(self, *tools: ToolStart, **options: Any) -> None:
        """The answer asks for tools, whose results are awaited."""
        calls = [
            {"tool_call_id": t.tool_call_id, "name": t.name, "arguments": t.arguments}
            | {"arguments_json_valid": True, "incomplete": False}
            for t in tools
        ]
        end = ended("success", usage=KNOWN, answered=True, tool_calls=calls)
        turn = TurnEnd("finished", clock.now(), 5, finish_reason="tool_calls")
        said = (message("assistant", None, tool_calls=calls),)
        self.end(end, messages=said, tools=tools, waits=True, turn=turn, **options)

    def fail(self, ended_by: str = "provider") -> None:
        """The last attempt failed, and the turn with it."""
        end = ended("error", error_type="upstream_timeout", error_message="too slow")
        turn = TurnEnd(
            ended_by,
            clock.now(),
            5,
            error_type="upstream_timeout",
            error_message="too slow",
        )
        self.end(end, failure=Retry("give_up"), turn=turn)

    def end(self, end: AttemptEnd, **options: Any) -> None:
        _written(self._recorder.finish(Ending(self.scope, self.attempt, end, **options), ()))


@contextmanager
def recorded(path: Path, **options: Any) -> Iterator[Recorded]:
    """A recorder for the block, on a store of its own."""
    one = Recorded(path, **options)
    try:
        yield one
    finally:
        one.close()


def _written(ticket: Ticket) -> None:
    assert ticket.wait(DEADLINE)
    assert ticket.error is None, ticket.error


def attempt(started: datetime.datetime, **options: Any) -> AttemptFacts:
    """A first try, unless told otherwise."""
    request = RequestFacts(
        ids.mint("req"),
        "/v1/chat/completions",
        "POST",
        "http://up/v1/chat/completions",
        [["authorization", "[masked]"]],
        None,
        100,
        True,
        {"user_agent": "test"},
    )
    common: dict[str, Any] = {"attempt": 1, "reason": "initial", "input_tokens": 7}
    return AttemptFacts(
        ids.mint("step"),
        provider_name="up",
        model="served",
        model_requested="asked",
        started_at=started,
        request=request,
        context_window=99,
        **common | options,
    )


def ended(status: str, **options: Any) -> AttemptEnd:
    """The end of a try, 1 ms after its start."""
    return AttemptEnd(status, clock.now(), 1, **options)


def message(role: str, content: str | None, **options: Any) -> MessageFacts:
    """An item of the history."""
    return MessageFacts(ids.mint("msg"), options.pop("kind", "message"), role, content, **options)


def tool(number: int) -> ToolStart:
    """A tool call of the model."""
    return ToolStart(ids.mint("step"), f"call_{number}", "look_up", f'{{"n": {number}}}')


def result(start: ToolStart, content: str = "42", **options: Any) -> Arrived:
    """The result of a tool call."""
    options = {"status": "success", "output": content} | options
    end = ToolEnd(
        start.step_id,
        start.tool_call_id,
        output_payload=None,
        latency_ms=3,
        ended_at=clock.now(),
        **options,
    )
    said = message("tool", content, kind="tool_result", tool_call_id=start.tool_call_id)
    return Arrived(end, said)
