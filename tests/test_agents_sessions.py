"""Sessions with agents: one turn at a time, the others in order, each ended by whoever may."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agent_gates import GATES, wait_for
from agents_fixtures import (
    AgentGate,
    a_test_with,
    agent,
    agents,
    asks,
    requested,
    told,
)
from api_socket import ApiSocket
from gateway_fixtures import Reading
from scripted_model import DONE, HANG, Row, delta, finish, says, stream, streams, user
from servers import eventually
from xgw import clock, ids
from xgw.agents.turns import Wanted
from xgw.config import ClientKey, Server
from xgw.errors import ApiError
from xgw.queries.sessions import find_session
from xgw.recording import owner
from xgw.recording.facts import Scope, TurnFacts
from xgw.recording.turns import open_turn, queue_turn
from xgw.store.models import Event, Message, Run, Session
from xgw.store.transaction import Transaction

STUCK = ("c1", "stuck", "{}")
GONE = "00000000-0000:1:1"
"""An owner that is no process any more."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentGate]:
    named = {"a": agent(), "b": agent(context={"window": 9000})}
    with agents(tmp_path_factory.mktemp("sessions"), agents=named) as gate:
        yield gate


@pytest.fixture
def gate(served: AgentGate) -> Iterator[AgentGate]:
    with a_test_with(served):
        yield served


@contextlib.contextmanager
def under_way(gate: AgentGate, session: str, **more: Any) -> Iterator[Row]:
    """A turn whose tool runs until `free` is opened."""
    gate.model.will(asks(STUCK))
    answer = gate.say("first", session, wait=0, **more)
    wait_for("stuck runs")
    yield answer
    GATES["free"].set()


def turns_of(gate: AgentGate, session: str) -> list[Row]:
    return gate.gate.turns(session)


def statuses(gate: AgentGate, session: str) -> list[tuple[str, str | None]]:
    return [(turn["status"], turn["ended_by"]) for turn in turns_of(gate, session)]


# -- opening ---------------------------------------------------------------------------------------


def test_a_session_shows_all_that_is_to_be_seen_before_the_first_message(gate: AgentGate) -> None:
    reply = gate.post("/sessions", {"agent": "b", "mode": "task", "session_key": "before"})
    session = reply.json
    assert reply.status == 201
    own = (session["kind"], session["agent_name"], session["mode"], session["model"])
    assert own == ("agent", "b", "task", "m")
    assert session["context"]["window"] == 9000
    assert [tool["name"] for tool in session["tools"]][:2] == ["look", "note"]
    assert session["tools"][0]["approval"] == "never"
    (event,) = gate.gate.all(Event, Event.session_id == session["id"])
    told_of = event["payload"]
    assert (told_of["agent"], told_of["mode"], told_of["context_window"]) == ("b", "task", 9000)
    assert gate.post("/sessions", {"agent": "b", "session_key": "before"}).status == 200


def test_a_name_that_nobody_has_becomes_the_sessions_key(gate: AgentGate) -> None:
    gate.model.will(says(), says())
    answer = gate.say("hi", "mine/1")
    assert gate.gate.session("mine/1")["id"] == answer["sessionId"]
    assert gate.say("hi", "mine/1")["sessionId"] == answer["sessionId"]


def test_an_id_that_nobody_has_is_404(gate: AgentGate) -> None:
    reply = gate.chat("hi", ids.mint("sess"))
    assert (reply.status, reply.error["code"]) == (404, "session_not_found")


def test_another_agents_session_and_one_of_none_are_refused(gate: AgentGate) -> None:
    gate.post("/sessions", {"agent": "b", "session_key": "bs"})
    gate.post("/sessions", {"session_key": "plain"})
    for key, words in (("bs", "ask 'b'"), ("plain", "one of clients of /v1")):
        reply = gate.chat("hi", key)
        assert (reply.status, reply.error["code"]) == (409, "agent_mismatch")
        assert words in reply.error["message"]
    again = gate.post("/sessions", {"agent": "a", "session_key": "bs"})
    assert (again.status, again.error["code"]) == (409, "agent_mismatch")


def test_a_closed_session_takes_no_message(gate: AgentGate) -> None:
    session = gate.post("/sessions", {"agent": "a"}).json
    gate.gate.send({"status": "closed"}, f"/sessions/{session['id']}", "PATCH").getresponse()
    reply = gate.chat("hi", session["id"])
    assert (reply.status, reply.error["code"]) == (409, "session_closed")


@pytest.mark.parametrize(
    ("body", "param"), [({"mode": "chat"}, "mode"), ({"agent": "a", "model": "x"}, "model")]
)
def test_what_is_only_an_agents_needs_one(gate: AgentGate, body: Row, param: str) -> None:
    reply = gate.post("/sessions", body)
    assert (reply.status, reply.error["param"]) == (422, param)


def test_what_came_through_the_gateway_is_not_in_the_agents_context(gate: AgentGate) -> None:
    gate.model.will(says("one"), says("aside"), says("two"))
    gate.say("hi", "both")
    gate.gate.post({"model": "m", "messages": [user("psst")]}, X_Session_Id="both")
    gate.say("again", "both")
    assert [m["content"] for m in gate.sent(2)] == ["Be brief.", "hi", "one", "again"]
    assert len(turns_of(gate, "both")) == 3


# -- one after the other ---------------------------------------------------------------------------


def test_later_messages_wait_their_turn(gate: AgentGate) -> None:
    with under_way(gate, "queue") as first:
        gate.model.will(says("1"), says("2"), says("3"))
        second, third = (gate.say(text, "queue", wait=0) for text in ("second", "third"))
        assert (second["status"], second["runStatus"], second["queuePosition"]) == (
            *("queued", "queued", 1),
        )
        assert third["queuePosition"] == 2
        assert (second["message"]["content"], second["pendingApprovals"]) == (None, [])
        assert gate.gate.all(Message, Message.turn_id == second["turnId"]) == []
    for answer in (first, second, third):
        gate.ended(answer)
    assert [t["user_input"] for t in turns_of(gate, "queue")] == ["first", "second", "third"]
    assert gate.story(second) == [
        *("session.created", "turn.queued", "turn.started", "run.started", "message.added user"),
        *("step.started llm_call", "step.completed success", "message.added assistant"),
        *("run.completed success", "turn.completed success finished"),
    ]
    assert [m["content"] for m in gate.sent(3) if m["role"] == "user"] == [
        *("first", "second", "third")
    ]


def test_a_message_may_rather_be_refused(gate: AgentGate) -> None:
    with under_way(gate, "busy") as first:
        reply = gate.chat("second", "busy", ifBusy="reject")
        assert (reply.status, reply.error["code"]) == (409, "session_busy")
        gate.model.will(says())
    gate.ended(first)
    assert len(turns_of(gate, "busy")) == 1


def test_a_message_may_take_the_place_of_what_runs_and_waits(gate: AgentGate) -> None:
    with under_way(gate, "over"):
        gate.say("second", "over", wait=0)
        gate.model.will(says("new"))
        answer = gate.say("third", "over", ifBusy="supersede")
    assert answer["message"]["content"] == "new"
    cancelled = ("cancelled", "superseded")
    assert statuses(gate, "over") == [cancelled, cancelled, ("success", "finished")]


def test_whoever_waits_for_an_answer_hears_that_its_turn_gave_way(gate: AgentGate) -> None:
    with ThreadPoolExecutor(1) as pool, under_way(gate, "gives"):
        waiting = pool.submit(gate.say, "second", "gives")
        eventually(lambda: len(turns_of(gate, "gives")) == 2)
        gate.model.will(says("new"))
        gate.say("third", "gives", ifBusy="supersede")
        answer = waiting.result(30)
        assert (answer["status"], answer["message"]["content"]) == ("cancelled", None)


def test_the_database_itself_refuses_a_second_turn_under_way(gate: AgentGate) -> None:
    with under_way(gate, "only") as first:
        session = gate.gate.session("only")
        turn_id = ids.mint("turn")
        scope = Scope("default", session["id"], turn_id, ids.mint("run"), ids.trace_id_of(turn_id))
        facts = TurnFacts(scope, clock.now(), None, "x", None, is_exclusive=True)
        ticket = gate.gate.services.writer.submit(lambda tx: open_turn(tx, facts))
        assert ticket.wait(30)
        assert "UNIQUE" in str(ticket.error)
        gate.model.will(says())
    gate.ended(first)
    assert len(turns_of(gate, "only")) == 1


def test_many_sessions_at_once_do_not_touch_each_other(gate: AgentGate) -> None:
    together = threading.Barrier(20, timeout=60)

    def answer(peer: Any, asked: Any) -> None:
        together.wait()
        said = asked.json["messages"][-1]["content"]
        streams(f"you said {said}")(peer, asked)

    gate.model.always(answer)
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda n: gate.say(f"hello {n}", f"many-{n}"), range(20)))
    for number, one in enumerate(answers):
        assert one["message"]["content"] == f"you said hello {number}"
        assert gate.story(one)[-1] == "turn.completed success finished"
        assert one["tokenUsage"]["sessionTotal"] == 10


# -- cancelling ------------------------------------------------------------------------------------


def test_cancelled_in_a_tool_every_call_has_a_result(gate: AgentGate) -> None:
    gate.model.will(asks(("c1", "stuck", "{}"), ("c2", "note", '{"text": "z"}')))
    answer = gate.say("go", "mid-tool", wait=0)
    wait_for("stuck runs")
    eventually(lambda: any(s["status"] == "success" for s in gate.steps(answer, "tool_call")))
    reply = gate.cancel(answer["turnId"])
    assert (reply.status, reply.json["status"], reply.json["ended_by"]) == (
        *(200, "cancelled", "user_cancel"),
    )
    steps = {s["tool_call_id"]: s for s in gate.steps(answer, "tool_call")}
    assert (steps["c1"]["status"], steps["c1"]["error_type"]) == ("cancelled", "no_result")
    assert steps["c2"]["status"] == "success"
    gate.model.will(says("fresh"))
    assert gate.say("next", "mid-tool")["message"]["content"] == "fresh"
    roles = [(m["role"], m.get("tool_call_id")) for m in gate.sent(1)[2:]]
    assert roles == [("assistant", None), ("tool", "c1"), ("tool", "c2"), ("user", None)]
    GATES["free"].set()
    late = gate.gate.all(Message, Message.turn_id == answer["turnId"], Message.role == "tool")
    assert [m["content"] for m in late] == ["Error: no result: it was cancelled", "kept: z"]


def test_cancelled_in_a_model_call_the_upstream_is_hung_up_on(gate: AgentGate) -> None:
    gone = threading.Event()

    def answer(peer: Any, asked: Any) -> None:
        stream(delta("so f"), GATES["begun"].set, HANG)(peer, asked)
        gone.set()

    gate.model.will(answer)
    first = gate.say("go", "mid-call", wait=0)
    wait_for("begun")
    reading = gate.gate.services.recorder.live
    eventually(lambda: any(reading.texts(step["id"]) for step in gate.steps(first)))
    assert gate.cancel(first["turnId"]).json["final_output"] == "so f"
    assert gone.wait(30)
    assert gate.story(first)[-4:] == [
        *("step.completed cancelled", "message.added assistant"),
        *("run.completed cancelled", "turn.completed cancelled user_cancel"),
    ]


def test_a_turn_that_waits_can_be_cancelled(gate: AgentGate) -> None:
    with under_way(gate, "waits") as first:
        second = gate.say("second", "waits", wait=0)
        assert gate.cancel(second["turnId"]).json["status"] == "cancelled"
        assert gate.cancel(second["turnId"]).status == 409
        gate.model.will(says())
    gate.ended(first)
    assert statuses(gate, "waits") == [("success", "finished"), ("cancelled", "user_cancel")]
    assert gate.story(second)[-3:] == [
        *("turn.queued", "run.completed cancelled", "turn.completed cancelled user_cancel"),
    ]


def test_whoever_waits_in_a_session_that_is_deleted_is_told_so(gate: AgentGate) -> None:
    with under_way(gate, "leaving") as first, ThreadPoolExecutor() as pool:
        waiting = pool.submit(gate.chat, "second", "leaving")
        eventually(lambda: len(turns_of(gate, "leaving")) == 2)
        client = gate.gate.send(None, f"/sessions/{first['sessionId']}", "DELETE")
        assert client.getresponse().status == 204
        client.close()
        # It may have been cancelled first, and looked up before the session went.
        reply = waiting.result()
        told = reply.error["code"] if reply.status == 404 else reply.json["status"]
        assert told in ("session_not_found", "cancelled")
    gone = gate.chat("third", first["sessionId"])
    assert (gone.status, gone.error["code"]) == (404, "session_not_found")


def test_a_turn_of_a_session_that_is_just_deleted_is_refused(
    gate: AgentGate, caplog: pytest.LogCaptureFixture
) -> None:
    """The session goes between the look at it and the start of the turn."""
    session = gate.post("/sessions", {"agent": "a"}).json
    scheduler = gate.gate.services.scheduler
    row = find_session(gate.gate.store, session["id"], "default")
    assert row is not None
    gate.gate.services.control.delete_session(row)
    with pytest.raises(ApiError) as refused:
        scheduler.submit(scheduler.agents["a"], row, Wanted("hi", "chat"), "queue")
    assert (refused.value.status, refused.value.code) == (404, "session_not_found")
    assert caplog.records == []


def test_messages_to_a_session_that_is_deleted_meanwhile_make_no_noise(
    gate: AgentGate, caplog: pytest.LogCaptureFixture
) -> None:
    """What belongs to rows that are gone is told as that, once a turn, not in SQLite's words."""
    gate.model.always(says("ok"))
    for number in range(20):
        key = f"crowded-{number}"
        session = gate.say("first", key)["sessionId"]
        with ThreadPoolExecutor() as pool:
            chats = [pool.submit(gate.chat, f"{n}", key) for n in range(6)]
            deleted = Reading(gate.gate.send(None, f"/sessions/{session}", "DELETE")).rest()
        assert deleted.status == 204
        assert {chat.result().status for chat in chats} <= {200, 404}
    assert "could not be recorded" not in caplog.text
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == len(set(told))
    assert all(words.endswith("deleted") for words in told)


def test_deleting_a_session_ends_what_is_under_way_in_it(gate: AgentGate) -> None:
    with under_way(gate, "doomed") as first:
        gate.say("second", "doomed", wait=0)
        connection = gate.gate.send(None, f"/sessions/{first['sessionId']}", "DELETE")
        assert connection.getresponse().status == 204
        connection.close()
    assert gate.gate.all(Session, Session.session_key == "doomed") == []
    gate.model.will(says("anew"))
    assert gate.say("hi", "doomed")["message"]["content"] == "anew"


# -- clients ---------------------------------------------------------------------------------------


def test_a_client_that_leaves_does_not_end_the_turn(gate: AgentGate) -> None:
    gate.model.will(asks(STUCK), says("done"))
    connection = gate.gate.send({"message": "go", "sessionId": "left"}, "/agents/a/chat")
    wait_for("stuck runs")
    connection.close()
    eventually(lambda: gate.gate.services.watchers.count == 0)
    stream_of = gate.gate.open({"message": "too", "sessionId": "left"}, "/agents/a/chat/stream")
    gate.model.will(says("also done"))
    stream_of.until(b"turn.queued")
    stream_of.leave()
    eventually(lambda: gate.gate.services.watchers.count == 0)
    GATES["free"].set()
    eventually(lambda: statuses(gate, "left") == [("success", "finished")] * 2)


def test_a_stream_tells_the_turn_as_it_happens_and_last_the_answer(gate: AgentGate) -> None:
    more = threading.Event()
    gate.model.will(stream(delta("one"), more, delta(" two"), finish(), DONE))
    reading = gate.gate.open({"message": "go"}, "/agents/a/chat/stream")
    assert reading.headers["content-type"].startswith("text/event-stream")
    reading.until(b"step.delta")
    more.set()
    events = told(reading.rest().body)
    stored = [data for _, data in events if data.get("seq")]
    turn_id = stored[0]["turn_id"]
    recorded = gate.gate.all(Event, Event.turn_id == turn_id)
    assert [data["seq"] for data in stored] == [event["seq"] for event in recorded]
    name, answer = events[-1]
    assert (name, answer["turnId"]) == ("chat.response", turn_id)
    assert answer["message"]["content"] == "one two"
    deltas = [d["payload"]["text"] for kind, d in events if kind == "step.delta"]
    assert "".join(deltas) == "one two"


def test_a_stream_that_cannot_begin_is_refused_as_any_request(gate: AgentGate) -> None:
    reply = gate.post("/agents/a/chat/stream", {"message": ""})
    assert (reply.status, reply.error["param"]) == (422, "message")
    eventually(lambda: gate.gate.services.watchers.count == 0)


def test_too_many_calls_are_told_to_come_back(tmp_path: Path) -> None:
    with agents(tmp_path, server=Server(max_calls=1)) as gate:
        with under_way(gate, "one") as first:
            reply = gate.chat("hi", "two")
            assert (reply.status, reply.headers["retry-after"]) == (503, "1")
            gate.model.will(says())
        gate.ended(first)
        gate.model.check()


def test_a_client_key_reaches_its_own_projects_sessions_alone(tmp_path: Path) -> None:
    token, team = "token-of-all", "key-of-the-team"
    tables: dict[str, Any] = {
        "server": Server(token=token),
        "keys": (ClientKey(key=team, project="team"),),
    }
    with agents(tmp_path, **tables) as gate:
        gate.model.will(says("for all"), says("for the team"))
        message = {"message": f"my key is {team}", "sessionId": "same"}
        path, all_of_it, own = "/agents/a/chat", f"Bearer {token}", f"Bearer {team}"
        theirs = gate.post(path, message, authorization=all_of_it).json
        answer = gate.post(path, message, authorization=own).json
        assert answer["sessionId"] != theirs["sessionId"]
        assert gate.gate.session("same", "team")["id"] == answer["sessionId"]
        for path_of_others in (
            f"/turns/{theirs['turnId']}/runs",
            f"/runs/{theirs['runId']}/resume",
        ):
            assert gate.post(path_of_others, {}, authorization=own).status == 404
        decided = {"tool_call_id": "c", "decision": "deny"}
        others = f"/runs/{theirs['runId']}/approvals"
        assert gate.post(others, decided, authorization=own).status == 404
        assert gate.post(others, decided, authorization=all_of_it).status == 409
        other = {"message": "hi", "sessionId": theirs["sessionId"]}
        assert gate.post(path, other, authorization=own).status == 404
        assert gate.post(path, message).status == 401
        assert gate.sent(1)[-1]["content"] == "my key is [masked]"
        gate.model.check()


# -- processes that are gone -----------------------------------------------------------------------


def crashed(gate: AgentGate, key: str, *, queued: bool, owned_by: str = GONE) -> Row:
    """A turn that a process left which is gone, or has if it is not."""
    session = gate.post("/sessions", {"agent": "a", "session_key": key}).json
    turn_id = ids.mint("turn")
    scope = Scope("default", session["id"], turn_id, ids.mint("run"), ids.trace_id_of(turn_id))
    facts = TurnFacts(
        *(scope, clock.now(), None, "left", None),
        agent_name="a",
        owner=owned_by,
        is_exclusive=True,
        overrides={"mode": "chat", "parameters": {"top_p": 0.5}},
    )

    def work(tx: Transaction) -> None:
        (queue_turn if queued else open_turn)(tx, facts)

    assert not owner.is_alive(GONE)
    assert gate.gate.services.writer.submit(work).wait(30)
    return {"turnId": turn_id}


def test_a_run_whose_process_is_gone_holds_the_session_until_it_gives_way(
    gate: AgentGate,
) -> None:
    left = crashed(gate, "crash", queued=False)
    for ticket in gate.gate.services.recovery.reconcile():
        assert ticket.wait(30)
    turn, run = gate.turn(left), gate.gate.run(gate.turn(left))
    assert (turn["status"], run["status"]) == ("running", "paused")
    for busy in ("queue", "reject"):
        reply = gate.chat("next", "crash", ifBusy=busy)
        assert (reply.status, reply.error["code"]) == (409, "turn_paused")
        assert reply.error["actions"] == ["resume", "cancel"]
        assert (reply.error["turn_id"], reply.error["run_id"]) == (turn["id"], run["id"])
    gate.model.will(says("on"))
    assert gate.say("next", "crash", ifBusy="supersede")["message"]["content"] == "on"
    assert (gate.turn(left)["status"], gate.turn(left)["ended_by"]) == ("cancelled", "superseded")


def test_of_two_who_resume_a_run_at_once_exactly_one_does(gate: AgentGate) -> None:
    left = crashed(gate, "both resume", queued=False)
    for ticket in gate.gate.services.recovery.reconcile():
        assert ticket.wait(30)
    run = gate.gate.run(gate.turn(left))
    gate.model.will(says("on"))
    together = threading.Barrier(2)

    def resume(_: int) -> int:
        together.wait(30)
        return gate.post(f"/runs/{run['id']}/resume", {}).status

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(resume, range(2))) == [201, 409]
    turn = gate.ended(left)
    assert (turn["status"], turn["final_output"]) == ("success", "on")
    runs = gate.gate.all(Run, Run.turn_id == turn["id"], by=Run.run_index)
    assert [(one["kind"], one["ended_by"]) for one in runs] == [
        *(("first", "resumed"), ("resume", "finished")),
    ]
    assert gate.model.asked[0].json["top_p"] == 0.5


def test_a_run_is_resumed_over_the_websocket(gate: AgentGate) -> None:
    left = crashed(gate, "by socket", queued=False)
    for ticket in gate.gate.services.recovery.reconcile():
        assert ticket.wait(30)
    paused = gate.gate.run(gate.turn(left))
    gate.model.will(says("on"))
    with ApiSocket(gate.gate) as client:
        client.ask("session.subscribe", session_id=gate.turn(left)["session_id"])
        run = client.ask("run.resume", run_id=paused["id"])
        assert (run["object"], run["kind"], run["from_run_id"]) == ("run", "resume", paused["id"])
        done = client.until("session.turn.completed")
        assert done["payload"]["final_output"] == "on"
        assert client.refused("run.resume", run_id="run_0")[0] == "run_not_found"
        message = {"agent": "a", "session_id": "by socket 2", "message": "hi"}
        crashed(gate, "by socket 2", queued=False)
        for ticket in gate.gate.services.recovery.reconcile():
            assert ticket.wait(30)
        assert client.refused("session.message.send", **message)[0] == "turn_paused"


@pytest.mark.parametrize("queued", [False, True])
def test_a_turn_whose_process_is_gone_can_be_cancelled(gate: AgentGate, queued: bool) -> None:
    left = crashed(gate, f"gone-{queued}", queued=queued)
    reply = gate.cancel(left["turnId"])
    assert (reply.status, reply.json["status"]) == (200, "cancelled")
    assert gate.turn(left)["exclusive_key"] is None


def test_what_waited_in_a_process_that_is_gone_is_taken_up(gate: AgentGate) -> None:
    gate.model.will(says("taken up"))
    left = crashed(gate, "taken", queued=True)
    gate.gate.services.scheduler.take_up()
    turn = gate.ended(left)
    assert (turn["final_output"], turn["status"]) == ("taken up", "success")
    assert gate.model.asked[0].json["top_p"] == 0.5
    assert gate.gate.all(Run, Run.turn_id == turn["id"])[0]["owner"] == owner.own()


@contextlib.contextmanager
def another_process() -> Iterator[str]:
    """One that lives as long as the block; its name as an owner."""
    code = "from xgw.recording import owner; print(owner.own(), flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def test_whoever_waits_in_another_process_comes_first(gate: AgentGate) -> None:
    gate.model.will(says("left, taken up"), says("next"))
    with another_process() as theirs:
        left = crashed(gate, "two processes", queued=True, owned_by=theirs)
        answer = gate.say("next", "two processes", wait=0)
        assert (answer["runStatus"], answer["queuePosition"]) == ("queued", 1)
        gate.gate.services.scheduler.take_up()
        assert statuses(gate, "two processes") == [("queued", None)] * 2
    assert gate.ended(answer)["final_output"] == "next"
    assert gate.turn(left)["final_output"] == "left, taken up"
    assert [one["content"] for one in gate.sent(1)[1:]] == ["left", "left, taken up", "next"]


def test_a_turn_that_another_process_got_ahead_of_goes_on_waiting(gate: AgentGate) -> None:
    """It begins there in the moment in which the one before ends here."""
    with another_process() as theirs:
        with under_way(gate, "ahead") as first:
            gate.model.will(says("done"), says("second"))
            second = gate.say("second", "ahead", wait=0)
            left = crashed(gate, "ahead", queued=True, owned_by=theirs)
            begins = (
                "CREATE TRIGGER gets_ahead AFTER UPDATE OF status ON turns "
                f"WHEN NEW.id = '{first['turnId']}' AND NEW.status = 'success' BEGIN "
                f"UPDATE turns SET status = 'running', exclusive_key = session_id "
                f"WHERE id = '{left['turnId']}'; "
                f"UPDATE runs SET status = 'running' WHERE turn_id = '{left['turnId']}'; END"
            )
            run_sql(gate, begins)
        gate.ended(first)
        eventually(lambda: gate.turn(left)["status"] == "running")
        assert gate.turn(second)["status"] == "queued"
        run_sql(gate, "DROP TRIGGER gets_ahead")
    for ticket in gate.gate.services.recovery.reconcile():
        assert ticket.wait(30)
    gate.cancel(left["turnId"])
    assert gate.ended(second)["final_output"] == "second"


def test_a_message_that_another_process_got_ahead_of_waits(gate: AgentGate) -> None:
    """A turn begins there between the look at the session and the start here."""
    gate.model.will(says("earlier"), says("second"))
    left = gate.say("first", "overtaken")
    with another_process() as theirs:
        begins = (
            "CREATE TRIGGER gets_ahead BEFORE INSERT ON turns BEGIN "
            "UPDATE turns SET status = 'running', exclusive_key = session_id "
            f"WHERE id = '{left['turnId']}'; UPDATE runs SET status = 'running', "
            f"owner = '{theirs}' WHERE turn_id = '{left['turnId']}'; END"
        )
        run_sql(gate, begins)
        answer = gate.say("second", "overtaken", wait=0)
        run_sql(gate, "DROP TRIGGER gets_ahead")
        assert (answer["runStatus"], answer["queuePosition"]) == ("queued", 1)
    for ticket in gate.gate.services.recovery.reconcile():
        assert ticket.wait(30)
    gate.cancel(left["turnId"])
    assert gate.ended(answer)["final_output"] == "second"


def run_sql(gate: AgentGate, text: str) -> None:
    def work(tx: Transaction) -> None:
        tx.execute(text)

    assert gate.gate.services.writer.submit(work).wait(30)


def test_calls_without_a_recorded_result_get_one_when_the_history_is_sent(
    gate: AgentGate,
) -> None:
    """The process ended between the answer and the results."""
    call = ("c9", "note", '{"text": "x"}')
    gate.model.will(asks(call), says("ok"), says("on"))
    answer = gate.say("go", "lost")

    def work(tx: Transaction) -> None:
        tx.execute("DELETE FROM messages WHERE role = 'tool' AND turn_id = ?", (answer["turnId"],))

    assert gate.gate.services.writer.submit(work).wait(30)
    gate.say("next", "lost")
    assert gate.sent(2)[2] == requested(call)
    assert gate.sent(2)[3]["tool_call_id"] == "c9"
    assert "no result" in gate.sent(2)[3]["content"]


def test_a_server_that_stops_says_so_in_the_record(tmp_path: Path) -> None:
    with agents(tmp_path) as gate:
        gate.model.will(stream(delta("so f"), GATES["begun"].set, HANG))
        answer = gate.say("go", wait=0)
        wait_for("begun")
        gate.gate.services.calls.cancel_all()
        turn = gate.ended(answer)
        assert (turn["status"], turn["ended_by"], turn["error_type"]) == (
            *("error", "shutdown", "interrupted"),
        )
        gate.model.check()
