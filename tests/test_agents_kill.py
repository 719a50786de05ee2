"""`kill -9` in each phase of an agent's turn, then its resumption: no effect twice, nothing lost.

A server has a session in each phase when it is killed; each test goes on with one of them.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents_fixtures import asks, requested
from faults import Running
from gateway_fixtures import PROVIDER_KEY, Reply
from scripted_model import HANG, Model, Row, delta, result, says, stream, streams, user
from servers import Installation, eventually, installed
from test_kill import check_payloads, check_sums
from xgw.recording.checkpoints import entries_of
from xgw.store.models import Event, Run, Step

CONFIG = """
[[providers]]
name = "p1"
base_url = "{url}"
api_key = "{key}"
[agents.a]
model = "m"
tools = ["effect", "hang", "again", "guarded"]
handoffs = ["b"]
[agents.b]
model = "m"
tools = ["effect", "hang", "again", "guarded", "guarded_hang"]
handoffs = ["c"]
[agents.c]
model = "m"
tools = ["effect", "hang"]
[tools.effect]
python = "{folder}/mine.py:effect"
[tools.hang]
python = "{folder}/mine.py:hang"
timeout_seconds = 600
[tools.again]
python = "{folder}/mine.py:again"
timeout_seconds = 600
retry_safe = true
[tools.guarded]
python = "{folder}/mine.py:guarded"
approval = "always"
[tools.guarded_hang]
python = "{folder}/mine.py:hang"
timeout_seconds = 600
approval = "always"
"""
TOOLS = '''
from pathlib import Path

HERE = Path("{folder}")


def effect(text: str) -> str:
    """Do something that must not be done twice."""
    with open(HERE / "effects", "a") as effects:
        effects.write(text + "\\n")
    return "did " + text + ("!" * 3000 if text.endswith("too") else "")


def hang(text: str) -> str:
    """Do it, and then wait for ever."""
    effect(text)
    return open(HERE / "pipe").read()


def again(text: str) -> str:
    """Wait for ever the first time, and do it the second."""
    tried = HERE / ("tried " + text)
    if tried.exists():
        return effect(text)
    tried.touch()
    return open(HERE / "pipe").read()


def guarded(text: str) -> str:
    """What a person has to approve."""
    return effect(text)
'''


LONG = "did {} too" + "!" * 3000


def call(name: str, text: str, id: str = "c1") -> tuple[str, str, str]:
    return id, name, f'{{"text": "{text}"}}'


def hand_over(task: str, to: str = "b") -> tuple[str, str, str]:
    return "h1", f"handoff_to_{to}", f'{{"message": "{task}"}}'


class Killed:
    """An installation whose server is killed and started again."""

    def __init__(self, installation: Installation, model: Model, folder: Path) -> None:
        self._installation = installation
        self.model = model
        self.folder = folder
        self.gate = self._start()

    def _start(self) -> Running:
        return Running(self._installation.serve(), self.model, self._installation.store)

    def kill(self) -> None:
        """`kill -9`, with all of its processes, and a new server on the store."""
        self.gate.server.send_all(signal.SIGKILL)
        self.gate.server.wait()
        self.gate.store.close()
        self.gate = self._start()

    def effects(self, of: str) -> list[str]:
        """What the tools have done in a session: it is named in what they do."""
        file = self.folder / "effects"
        done = file.read_text().splitlines() if file.exists() else []
        return [text for text in done if text.startswith(of)]

    # -- turns -------------------------------------------------------------------------------------

    def say(self, message: str, session: str, **more: Any) -> Reply:
        body = {"message": message, "sessionId": session, "wait": 0, **more}
        return self.gate.post(body, "/agents/a/chat")

    def ask(self, session: str, *calls: tuple[str, str, str]) -> None:
        """A turn whose model asks for these; it is this turn's request that gets the answer."""
        before = len(self.model.asked)
        self.model.will(asks(*calls))
        self.say("go", session)
        eventually(lambda: len(self.model.asked) > before)

    def act(self, path: str, **body: Any) -> Row:
        """What a POST answers."""
        reply = self.gate.post(body, path)
        assert reply.status in (200, 201), reply.body
        answer: Row = reply.json
        return answer

    def turn(self, session: str) -> Row:
        """The first turn of a session."""
        return self.gate.turns(session)[0]

    def runs(self, session: str) -> list[Row]:
        """The runs of that turn."""
        return self.gate.all(Run, Run.turn_id == self.turn(session)["id"], by=Run.run_index)

    def steps(self, session: str, kind: str) -> list[Row]:
        """Its steps of a kind, as they began."""
        where = Step.turn_id == self.turn(session)["id"], Step.step_type == kind
        return self.gate.all(Step, *where, by=Step.started_at)

    def resumed(self, session: str) -> Row:
        """The new run in the place of the one that was interrupted."""
        paused = self.runs(session)[-1]
        assert (self.turn(session)["status"], paused["status"]) == ("running", "paused")
        run = self.act(f"/runs/{paused['id']}/resume")
        assert (run["kind"], run["from_run_id"]) == ("resume", paused["id"])
        before = self.runs(session)[-2]
        assert (before["status"], before["ended_by"]) == ("cancelled", "resumed")
        return run

    def unsure(self, session: str) -> Row:
        """Likewise; it waits for a person to say what became of the call."""
        run = self.resumed(session)
        assert run["status"] == "waiting_tool"
        entries = list(entries_of(run["checkpoint"]))
        assert not any("result" in call for call in entries)
        unknown = [one["tool_call_id"] for one in entries if one["state"] == "outcome_unknown"]
        assert unknown == ["hang"]
        return run

    def decide(self, run: Row, call: str, decision: str, **more: Any) -> None:
        named = {"tool_call_id": call, "decision": decision}
        self.act(f"/runs/{run['id']}/approvals", **named, **more)

    def ended(self, session: str) -> Row:
        """The first turn of a session once it is over; the record of all is whole then."""
        eventually(lambda: self.turn(session)["ended_at"])
        check_sums(self.gate.store)
        check_payloads(self.gate.store)
        return self.turn(session)

    def sent(self) -> list[Row]:
        """What the model got last; like all that it ever got, it is a valid history."""
        for asked in self.model.asked:
            check_history(asked.json["messages"])
        messages: list[Row] = self.model.asked[-1].json["messages"]
        return messages


def check_history(messages: list[Row]) -> None:
    """Every call has one result, right behind the message that asked for it."""
    left: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            left.remove(message["tool_call_id"])
            continue
        assert left == []
        left = [call["id"] for call in message.get("tool_calls", ())]
    assert left == []


# -- the phases ------------------------------------------------------------------------------------


def hangs(session: str) -> tuple[str, str, str]:
    return call("hang", session, "hang")


def both(session: str) -> tuple[tuple[str, str, str], tuple[str, str, str]]:
    """Calls that run together, of which the second one ends."""
    return hangs(session), call("effect", f"{session} too", "c2")


def begin_all(killed: Killed) -> None:
    """A session in each phase when this returns; `after` is in the very midst of its own."""
    killed.model.will(stream(HANG))
    killed.say("go", "before")
    eventually(lambda: len(killed.model.asked) == 1)
    killed.model.will(stream(delta("par"), HANG))
    killed.say("go", "streaming")
    eventually(lambda: streamed_so_far(killed) == ["par"])
    for session in ("given", "lost"):
        killed.ask(session, hangs(session))
    for session in ("between", "cancelled"):
        killed.ask(session, *both(session))
    for session in ("given", "lost", "between", "cancelled"):
        eventually(lambda session=session: killed.effects(session))
    for session in ("between", "cancelled"):
        eventually(lambda session=session: "success" in statuses(killed, session))
    killed.ask("safe", call("again", "safe"))
    eventually((killed.folder / "tried safe").exists)
    killed.model.will(asks(call("effect", "rounds")), stream(HANG))
    killed.say("go", "rounds")
    eventually(lambda: len(killed.steps("rounds", "llm_call")) == 2)
    eventually(lambda: len(killed.model.asked) == 9)
    begin_handed_over(killed)
    killed.ask("approval", call("guarded", "approval"))
    eventually(lambda: killed.runs("approval")[0]["status"] == "waiting_tool")
    killed.say("second", "approval")
    killed.model.always(streams("done"))
    killed.ask("after", call("effect", "after"))
    asked = Event.turn_id == killed.turn("after")["id"], Event.type == "tool.requested"
    eventually(lambda: killed.gate.all(Event, *asked))


def begin_handed_over(killed: Killed) -> None:
    """The other agent is asked, is in a tool, has done one and is asked once more, or awaits a
    person before a tool or after another one, or is in the one that a person agreed to."""
    first = asks(call("effect", "others next"))
    for session, more in {
        "other": [stream(HANG)],
        "others tool": [asks(hangs("others tool"))],
        "others safe": [asks(call("again", "others safe"))],
        "others next": [first, stream(HANG)],
        "others approval": [asks(call("effect", "others approval")), asks(guarded("approval"))],
        "others approved": [asks(guarded("approved", "guarded_hang"))],
        "others cancelled": [asks(guarded("cancelled"))],
        "others dropped": [asks(hangs("others dropped"))],
        "others others": [asks(hand_over("all of it", "c")), asks(*both("others others"))],
    }.items():
        count = len(killed.model.asked) + 1 + len(more)
        killed.model.will(asks(hand_over(f"do {session}")), *more)
        killed.say("go", session)
        eventually(lambda count=count: len(killed.model.asked) == count)
    for session in ("others tool", "others dropped"):
        eventually(lambda session=session: killed.effects(session))
    eventually((killed.folder / "tried others safe").exists)
    eventually(lambda: "success" in statuses(killed, "others others"))
    for session in ("others approval", "others approved", "others cancelled"):
        eventually(lambda session=session: killed.runs(session)[0]["status"] == "waiting_tool")
    killed.decide(killed.runs("others approved")[0], "hang", "approve")
    eventually(lambda: killed.effects("others approved"))


def guarded(what: str, name: str = "guarded") -> tuple[str, str, str]:
    return call(name, f"others {what}", "hang")


def streamed_so_far(killed: Killed) -> list[str | None]:
    return [step["partial_output"] for step in killed.steps("streaming", "llm_call")]


def statuses(killed: Killed, session: str) -> list[str]:
    return [step["status"] for step in killed.steps(session, "tool_call")]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    folder, model = tmp_path_factory.mktemp("kill"), Model()
    os.mkfifo(folder / "pipe")
    (folder / "mine.py").write_text(TOOLS.format(folder=folder))
    config = CONFIG.format(url=model.url, key=PROVIDER_KEY, folder=folder)
    with installed(folder, config) as installation:
        killed = Killed(installation, model, folder)
        begin_all(killed)
        killed.kill()
        yield killed
        killed.gate.store.close()
    model.close()


@pytest.fixture
def killed(served: Killed) -> Iterator[Killed]:
    yield served
    served.model.check()


def test_before_the_call_was_answered(killed: Killed) -> None:
    refused = killed.say("hello?", "before")
    assert (refused.status, refused.error["code"]) == (409, "turn_paused")
    killed.resumed("before")
    assert killed.ended("before")["final_output"] == "done"
    assert killed.sent() == killed.model.asked[0].json["messages"] == [user("go")]


def test_while_the_answer_streamed(killed: Killed) -> None:
    killed.model.will(streams("whole"), says("on"))
    killed.resumed("streaming")
    turn = killed.ended("streaming")
    assert turn["final_output"] == "whole"
    cut, made_again = killed.steps("streaming", "llm_call")
    assert (cut["status"], cut["error_type"], cut["partial_output"]) == (
        *("error", "interrupted", "par"),
    )
    assert made_again["status"] == "success"
    assert [m["content"] for m in killed.gate.messages(turn)] == ["go", "par", "whole"]
    killed.say("next", "streaming", wait=60)
    assert killed.sent() == [
        *(user("go"), {"role": "assistant", "content": "whole"}, user("next")),
    ]


def test_after_the_call(killed: Killed) -> None:
    """Wherever the kill hit between answer and end: what was done is not done again."""
    if killed.turn("after")["status"] == "running":
        run = killed.resumed("after")
        if run["status"] == "waiting_tool" and killed.effects("after"):
            killed.decide(run, "c1", "result", result="did after")
        elif run["status"] == "waiting_tool":
            killed.decide(run, "c1", "approve")
    assert killed.ended("after")["final_output"] == "done"
    assert killed.effects("after") == ["after"]
    messages = killed.gate.messages(killed.turn("after"))
    assert [(m["role"], m["content"]) for m in messages] == [
        *(("user", "go"), ("assistant", None), ("tool", "did after"), ("assistant", "done")),
    ]


@pytest.mark.parametrize(
    ("session", "decision", "text"),
    [
        ("given", {"decision": "result", "result": "by hand"}, "by hand"),
        (
            "lost",
            {"decision": "deny", "reason": "gone"},
            "Error: the call was interrupted, and its outcome is not known: gone",
        ),
    ],
)
def test_in_a_tool_a_person_says_what_became_of_it(
    killed: Killed, session: str, decision: Row, text: str
) -> None:
    run = killed.unsure(session)
    killed.decide(run, "hang", **decision)
    assert killed.ended(session)["final_output"] == "done"
    assert killed.effects(session) == [session]
    assert killed.sent() == [user("go"), requested(hangs(session)), result("hang", text)]
    lost, told = killed.steps(session, "tool_call")
    assert (lost["error_type"], lost["run_id"]) == ("interrupted", run["from_run_id"])
    assert (told["run_id"], told["metadata"]["decision"]["was_unknown"]) == (run["id"], True)


def test_in_a_tool_that_may_be_run_again(killed: Killed) -> None:
    assert killed.resumed("safe")["status"] != "waiting_tool"
    assert killed.ended("safe")["final_output"] == "done"
    assert killed.effects("safe") == ["safe"]
    assert killed.sent()[-1] == result("c1", "did safe")


def test_between_tools(killed: Killed) -> None:
    """One of two has ended, and was not told yet because the earlier one has not."""
    killed.decide(killed.unsure("between"), "hang", "result", result="first")
    assert killed.ended("between")["final_output"] == "done"
    assert sorted(killed.effects("between")) == ["between", "between too"]
    results = result("hang", "first"), result("c2", LONG.format("between"))
    assert killed.sent() == [user("go"), requested(*both("between")), *results]


def test_a_paused_turn_can_be_cancelled_and_nothing_of_it_is_lost(killed: Killed) -> None:
    killed.act(f"/turns/{killed.turn('cancelled')['id']}/cancel")
    assert killed.ended("cancelled")["ended_by"] == "user_cancel"
    killed.say("next", "cancelled", wait=60)
    lost = result("hang", "Error: no result: it was cancelled")
    results = lost, result("c2", LONG.format("cancelled"))
    assert killed.sent() == [user("go"), requested(*both("cancelled")), *results, user("next")]


def test_in_the_call_of_another_agent_it_is_made_again(killed: Killed) -> None:
    """The task goes on where it was, in a handoff of the new run."""
    assert killed.resumed("other")["status"] != "waiting_tool"
    assert killed.ended("other")["final_output"] == "done"
    assert killed.model.asked[-2].json["messages"] == [user("do other")]
    assert killed.sent() == [user("go"), requested(hand_over("do other")), result("h1", "done")]
    first, again = killed.steps("other", "handoff")
    assert (first["error_type"], again["status"]) == ("interrupted", "success")
    assert under(killed, first) == [("llm_call", "error", "interrupted")]
    assert under(killed, again) == [("llm_call", "success", None)]


def test_what_another_agent_has_done_is_not_done_again(killed: Killed) -> None:
    """It was asked once more when the process ended: that call is made again."""
    session, called = "others next", call("effect", "others next")
    killed.resumed(session)
    turn = killed.ended(session)
    assert (turn["final_output"], turn["llm_calls"], turn["tool_calls"]) == ("done", 5, 3)
    assert killed.effects(session) == [session]
    task = hand_over(f"do {session}")
    assert killed.sent() == [user("go"), requested(task), result("h1", "done")]
    told = result("c1", f"did {session}")
    assert killed.model.asked[-2].json["messages"] == [
        *(user(f"do {session}"), requested(called), told),
    ]
    first, again = killed.steps(session, "handoff")
    assert under(killed, first) == [
        *(("llm_call", "success", None), ("tool_call", "success", None)),
        ("llm_call", "error", "interrupted"),
    ]
    assert under(killed, again) == [("llm_call", "success", None)]


def test_in_another_agents_tool_that_may_be_run_again(killed: Killed) -> None:
    assert killed.resumed("others safe")["status"] != "waiting_tool"
    assert killed.ended("others safe")["final_output"] == "done"
    assert killed.effects("others safe") == ["others safe"]
    again = killed.steps("others safe", "handoff")[-1]
    assert under(killed, again) == [("tool_call", "success", None), ("llm_call", "success", None)]


@pytest.mark.parametrize(
    ("session", "asked"),
    [
        ("others tool", hangs("others tool")),
        ("others approved", guarded("approved", "guarded_hang")),
    ],
)
def test_in_another_agents_tool_a_person_says_what_became_of_it(
    killed: Killed, session: str, asked: tuple[str, str, str]
) -> None:
    run = killed.unsure(session)
    killed.decide(run, "hang", "result", result="by hand")
    assert killed.ended(session)["final_output"] == "done"
    assert killed.effects(session) == [session]
    task = f"do {session}"
    assert killed.model.asked[-2].json["messages"] == [
        *(user(task), requested(asked), result("hang", "by hand")),
    ]
    assert killed.sent() == [user("go"), requested(hand_over(task)), result("h1", "done")]
    lost, told = killed.steps(session, "handoff")
    assert (lost["error_type"], told["status"]) == ("interrupted", "success")
    assert under(killed, lost) == [
        *(("llm_call", "success", None), ("tool_call", "error", "interrupted")),
    ]
    assert under(killed, told) == [("tool_call", "success", None), ("llm_call", "success", None)]
    said = killed.gate.messages(killed.turn(session))
    steps = [(m["metadata"] or {}).get("handoff") for m in said]
    assert steps == [None, None, lost["id"], told["id"], told["id"], None, None]


def test_while_another_agent_waited_for_an_approval(killed: Killed) -> None:
    (run,) = killed.runs("others approval")
    assert run["status"] == "waiting_tool"
    killed.decide(run, "hang", "approve")
    assert killed.ended("others approval")["final_output"] == "done"
    assert killed.effects("others approval") == ["others approval"] * 2
    assert killed.model.asked[-2].json["messages"] == [
        user("do others approval"),
        *(requested(call("effect", "others approval")), result("c1", "did others approval")),
        *(requested(guarded("approval")), result("hang", "did others approval")),
    ]
    (handoff,) = killed.steps("others approval", "handoff")
    assert [status for _, status, _ in under(killed, handoff)] == ["success"] * 5


def test_a_turn_that_waits_in_a_task_can_be_cancelled(killed: Killed) -> None:
    killed.act(f"/turns/{killed.turn('others cancelled')['id']}/cancel")
    assert killed.ended("others cancelled")["ended_by"] == "user_cancel"
    (handoff,) = killed.steps("others cancelled", "handoff")
    assert under(killed, handoff) == [
        *(("llm_call", "success", None), ("tool_call", "cancelled", "no_result")),
    ]
    assert killed.effects("others cancelled") == []


def test_a_resumed_run_that_waits_in_a_task_can_be_cancelled(killed: Killed) -> None:
    session = "others dropped"
    run = killed.unsure(session)
    killed.act(f"/turns/{killed.turn(session)['id']}/cancel")
    assert killed.ended(session)["ended_by"] == "user_cancel"
    lost, dropped = killed.steps(session, "handoff")
    assert (lost["status"], dropped["status"], dropped["run_id"]) == (
        *("error", "cancelled", run["id"]),
    )
    killed.say("next", session, wait=60)
    task = requested(hand_over(f"do {session}"))
    none = result("h1", "Error: no result: it was cancelled")
    assert killed.sent() == [user("go"), task, none, user("next")]
    assert killed.effects(session) == [session]


def under(killed: Killed, handoff: Row) -> list[tuple[str, str, str | None]]:
    """The steps of the other agent, as they began: each with how it ended."""
    steps = killed.gate.all(Step, Step.run_id == handoff["run_id"], by=Step.started_at)
    own = {handoff["id"]}
    own |= {step["id"] for step in steps if step["parent_step_id"] in own}
    inner = [step for step in steps if step["parent_step_id"] in own]
    return [(step["step_type"], step["status"], step["error_type"]) for step in inner]


def test_while_it_waited_for_an_approval(killed: Killed) -> None:
    (run,) = killed.runs("approval")
    assert run["status"] == "waiting_tool"
    killed.model.will(streams("one"), streams("two"))
    killed.decide(run, "c1", "approve")
    assert killed.ended("approval")["final_output"] == "one"
    assert killed.effects("approval") == ["approval"]
    eventually(lambda: killed.gate.turns("approval")[1]["final_output"] == "two")
    assert len(killed.runs("approval")) == 1


def test_between_rounds_and_killed_once_more(killed: Killed) -> None:
    """A task inside of a task waits for a person by then."""
    inside = killed.unsure("others others")
    asked = len(killed.model.asked)
    killed.model.will(stream(HANG))
    killed.resumed("rounds")
    eventually(lambda: len(killed.model.asked) == asked + 1)
    killed.kill()
    killed.resumed("rounds")
    turn = killed.ended("rounds")
    assert (turn["final_output"], turn["llm_calls"]) == ("done", 4)
    assert killed.effects("rounds") == ["rounds"]
    called = call("effect", "rounds")
    assert killed.sent() == [user("go"), requested(called), result("c1", "did rounds")]
    assert [(run["kind"], run["ended_by"]) for run in killed.runs("rounds")] == [
        *(("first", "resumed"), ("resume", "resumed"), ("resume", "finished")),
    ]
    goes_on_inside(killed, inside)


def goes_on_inside(killed: Killed, run: Row) -> None:
    session = "others others"
    killed.decide(run, "hang", "deny")
    assert killed.ended(session)["final_output"] == "done"
    assert sorted(killed.effects(session)) == [session, f"{session} too"]
    calls = both(session)
    lost = "Error: the call was interrupted, and its outcome is not known"
    *_, deepest, inner, outer = (asked.json["messages"] for asked in killed.model.asked)
    assert deepest == [
        *(user("all of it"), requested(*calls)),
        *(result("hang", lost), result("c2", LONG.format(session))),
    ]
    handed = requested(hand_over("all of it", "c"))
    assert inner == [user(f"do {session}"), handed, result("h1", "done")]
    assert outer == [user("go"), requested(hand_over(f"do {session}")), result("h1", "done")]
    ends = [
        (step["run_id"] == run["id"], step["status"]) for step in killed.steps(session, "handoff")
    ]
    assert ends == [(False, "error")] * 2 + [(True, "success")] * 2
