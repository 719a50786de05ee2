"""Live text of what is recorded: told in order, kept while it arrives, gone when it is over."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from locking import holder
from recorded import KNOWN, Recorded, Request, ended, message, recorded
from servers import DEADLINE, eventually
from xgw import clock, ids
from xgw.events import Envelope
from xgw.frozen import changed
from xgw.recording.facts import Scope, TurnEnd, TurnFacts
from xgw.recording.requests import Ending, Opening
from xgw.store.backlog import PENDING_LIMIT
from xgw.store.writer import Patience
from xgw.values import Delta


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Recorded]:
    with recorded(tmp_path / "xgw.db") as one:
        yield one


# -- live text -------------------------------------------------------------------------------------


def scope() -> Scope:
    turn = ids.mint("turn")
    return Scope("default", None, turn, ids.mint("run"), ids.trace_id_of(turn))


def say(request: Request, scene: Recorded, *pieces: str) -> None:
    step = scene.recorder.live.start(request.scope, request.step)
    step.add([Delta("text", 0, piece) for piece in pieces])


def test_live_text_goes_out_before_the_step_s_end(scene: Recorded) -> None:
    request = scene.turn()
    say(request, scene, "Hel", "lo")
    request.succeed("Hello")
    shown = [
        (e.type, e.payload.get("text")) for e in scene.publications() if e.step_id == request.step
    ]
    assert shown == [
        ("step.started", None),
        ("step.delta", "Hello"),
        ("step.completed", None),
        ("message.added", "Hello"),
    ]
    assert len(scene.recorder.live) == 0


def test_live_text_never_goes_out_before_the_step_s_start(scene: Recorded) -> None:
    """Start and end of a request may come with one commit, after much was said."""
    scene.recorder.start()
    with holder(scene.store.path) as other:
        other.take()
        request = Request(scene, scope())
        facts = TurnFacts(request.scope, request.started, "chat.completions", "Hello", None)
        opening = Opening(request.scope, request.started, turn=facts, attempt=request.attempt)
        scene.recorder.begin(opening, ())
        say(request, scene, "Hel", "lo")
        eventually(lambda: scene.writer.down_reason is not None)
        end = ended("success", usage=KNOWN, answered=True)
        finished = TurnEnd("finished", clock.now(), 5)
        ending = Ending(request.scope, request.attempt, end, turn=finished)
        ticket = scene.recorder.finish(ending, ())
        assert scene.told.get(0) == []
        other.release()
    assert ticket.wait(DEADLINE)
    types = [e.type for e in scene.publications() if e.step_id == request.step]
    assert types == ["step.started", "step.delta", "step.completed"]


def test_live_text_pauses_while_the_store_is_down_and_nothing_of_it_is_lost(
    scene: Recorded,
) -> None:
    scene.recorder.start()
    request = scene.turn()
    step = scene.recorder.live.start(request.scope, request.step)
    step.add([Delta("text", 0, "before ")])
    seen: list[Envelope] = []
    _read_until(scene, seen, "before ")
    with holder(scene.store.path) as other:
        other.take()
        ticket = scene.writer.submit(lambda _: None)
        assert not scene.writer.wait(ticket, Patience())
        step.add([Delta("text", 0, "meanwhile ")])
        assert _text_of(scene.told.get(0.3)) == ""
        other.release()
    step.add([Delta("text", 0, "after")])
    _read_until(scene, seen, "before meanwhile after")
    request.succeed()


def _read_until(scene: Recorded, seen: list[Envelope], text: str) -> None:
    def is_there() -> bool:
        seen.extend(scene.told.get(0.01))
        return _text_of(seen) == text

    eventually(is_there)


def _text_of(envelopes: list[Envelope]) -> str:
    return "".join(e.payload["text"] for e in envelopes if e.type == "step.delta")


def test_a_turn_that_is_dropped_leaves_no_live_step_behind(scene: Recorded) -> None:
    with holder(scene.store.path) as other:
        other.take()
        session = scene.session()
        requests = []
        for number in range(40):
            where = changed(scope(), session_id=session.id)
            request = Request(scene, where)
            facts = TurnFacts(where, request.started, "chat.completions", "Hello", None)
            first = session if number == 0 else None
            attempt = request.attempt
            opening = Opening(where, request.started, first, turn=facts, attempt=attempt)
            scene.recorder.begin(opening, ())
            scene.recorder.live.start(where, attempt.step_id)
            end = ended("success", usage=KNOWN, answered=True)
            said = (message("assistant", "x" * (PENDING_LIMIT // 30)),)
            over = TurnEnd("finished", clock.now(), 5, final_output=said[0].content)
            scene.recorder.finish(Ending(where, attempt, end, messages=said, turn=over), ())
            requests.append(request)
        dropped = scene.writer.dropped["turns"]
        assert 0 < dropped < 40
        assert len(scene.recorder.live) == 40 - dropped
        other.release()
    last = scene.turn(session)
    last.succeed()
    turns = scene.rows("turns")
    assert [turn["id"] for turn in turns[:-1]] == [r.scope.turn_id for r in requests[dropped:]]
    assert [turn["turn_index"] for turn in turns] == list(range(40 - dropped + 1))
    assert scene.row("sessions", session.id)["turn_count"] == 40 - dropped + 1
    assert len(scene.recorder.live) == 0


# -- partial text ----------------------------------------------------------------------------------


def test_what_has_arrived_is_kept_while_it_arrives(scene: Recorded) -> None:
    scene.recorder.start()
    request = scene.turn()
    step = scene.recorder.live.start(request.scope, request.step)

    def partial() -> Any:
        return scene.row("steps", request.step)["partial_output"]

    step.add([Delta("text", 0, "Hel"), Delta("reasoning", 0, "Hm"), Delta("text", 1, "No")])
    eventually(lambda: partial() == "Hel")
    step.add([Delta("text", 0, "lo \ud83d")])
    eventually(lambda: partial() == "Hello ?")
    assert scene.row("runs", request.scope.run_id)["heartbeat_at"] > clock.to_db(request.started)
    request.succeed("Hello")
    assert partial() is None


def test_what_has_arrived_is_written_four_times_a_second_at_most(scene: Recorded) -> None:
    scene.recorder.start()
    requests = [scene.turn() for _ in range(2)]
    steps = [scene.recorder.live.start(r.scope, r.step) for r in requests]
    beats: dict[str, set[str]] = {r.scope.run_id: set() for r in requests}
    for number in itertools.count():
        for step in steps:
            step.add([Delta("text", 0, f"{number} ")])
        for run, seen in beats.items():
            seen.add(scene.row("runs", run)["heartbeat_at"])
        if all(len(seen) >= 5 for seen in beats.values()):
            break
    for run, seen in beats.items():
        moments = sorted(map(clock.from_db, seen - {clock.to_db(r.started) for r in requests}))
        pauses = [(b - a).total_seconds() for a, b in itertools.pairwise(moments)]
        assert min(pauses) > 0.24, run
    one, two = beats.values()
    assert len(one & two) >= 3, "all changed steps are written together"
    for request in requests:
        request.succeed()


def test_a_late_partial_text_changes_nothing(scene: Recorded) -> None:
    """The step may have ended by the time that its text so far is written."""
    request = scene.turn()
    step = scene.recorder.live.start(request.scope, request.step)
    step.add([Delta("text", 0, "Hello")])
    request.succeed("Hello")
    scene.recorder.live.start(request.scope, request.step).add([Delta("text", 0, "Hello")])
    scene.recorder.start()
    eventually(lambda: scene.recorder.live.unsaved() == [])
    scene.turn().succeed()
    assert scene.row("steps", request.step)["partial_output"] is None
