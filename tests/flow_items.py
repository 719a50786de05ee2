"""What has to be seen of the scripted session, item by item: in events, and in the API's JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from flow_script import (
    ANSWER,
    BOOM,
    BUDGET,
    CALLS,
    COMPACTED,
    FIRST,
    INTRODUCTION,
    ITERATIONS,
    LAST,
    LOOK,
    MESSAGES,
    NAME,
    PLAIN,
    SPENT,
    STUCK,
    SUMMARY,
    TASK_ITERATIONS,
    WINDOW,
    Seen,
)
from scripted_model import Row

ITEMS = {
    "1.1": "choose an agent",
    "1.2": "start a session or resume one",
    "1.3": "session id and first metadata: agent, model, mode",
    "2.1": "messages and tokens so far",
    "2.2": "context window and remaining budget",
    "2.3": "the tools of this session",
    "3.1": "the message is sent",
    "3.2": "it was received and is being worked on",
    "3.3": "when it was submitted",
    "4.1": "a call of the model starts",
    "4.2": "which model and provider",
    "4.3": "its input tokens, an estimate that is marked",
    "4.4": "tokens as they stream",
    "4.5": "the call ends",
    "4.6": "its output tokens",
    "4.7": "cache hit and miss",
    "4.8": "latency and first token",
    "5.1": "the model asks for tools",
    "5.2": "their names",
    "5.3": "their arguments as JSON",
    "5.4": "the ids of the calls",
    "6.1": "a tool starts",
    "6.2": "its duration, while it runs and final",
    "6.3": "it ends",
    "6.4": "its output",
    "6.5": "success or failure",
    "6.6": "the error",
    "7.1": "results go back to the model",
    "7.2": "the context's size with them",
    "8.1": "there is a final answer",
    "8.2": "its content",
    "8.3": "when",
    "9.1": "tokens of the turn: in, out, cached",
    "9.2": "tool calls",
    "9.3": "round-trips",
    "9.4": "duration",
    "9.5": "the session's tokens so far",
    "10.1": "the whole history",
    "10.2": "the role of each message",
    "10.3": "its tokens",
    "10.4": "its time",
    "10.5": "which call a tool's message answers",
    "11.1": "when the session was created",
    "11.2": "its last activity",
    "11.3": "its messages",
    "11.4": "its tokens",
    "11.5": "its model",
    "12.1": "a call failed, and why",
    "12.2": "another attempt",
    "12.3": "the token budget is used up",
    "12.4": "the limit of iterations",
    "13.1": "the context was compacted",
    "13.2": "its size before and after",
    "13.3": "what was compacted",
}

Check = Callable[[Seen], None]
CHECKS: dict[str, Check] = {}


def item(*numbers: str) -> Callable[[Check], Check]:
    """The check of these items."""

    def keep(check: Check) -> Check:
        CHECKS.update(dict.fromkeys(numbers, check))
        return check

    return keep


def totals(row: Row) -> tuple[Any, ...]:
    names = ("input_tokens", "output_tokens", "cached_tokens", "total_tokens")
    return tuple(row[name] for name in names)


# -- 1: a session ----------------------------------------------------------------------------------


@item("1.1")
def check_agents(seen: Seen) -> None:
    assert NAME in [agent["name"] for agent in seen.get("/agents")["data"]]
    agent = seen.get(f"/agents/{NAME}")
    assert (agent["model"], agent["provider"]) == ("m", "p1")
    assert agent["instructions"] == "Be brief."
    assert agent["modes"]["task"]["limits"]["max_iterations"] == TASK_ITERATIONS
    assert agent["modes"]["chat"]["tools"] == ["look", "boom", "stuck", "note"]


def created(seen: Seen) -> Row:
    found = [event for event in seen.events if event["type"] == "session.created"]
    assert [event["session_id"] for event in found] == [seen.session_id]
    return found[0]


@item("1.2")
def check_start(seen: Seen) -> None:
    created(seen)  # once: each later message went on in it
    turns = [seen.turn(number) for number in range(len(MESSAGES))]
    assert [turn["session_id"] for turn in turns] == [seen.session_id] * len(MESSAGES)
    assert [turn["turn_index"] for turn in turns] == list(range(len(MESSAGES)))
    assert all(reply["sessionId"] == seen.session_id for reply in seen.replies)


@item("1.3")
def check_metadata(seen: Seen) -> None:
    told = created(seen)["payload"]
    for name, known in (("agent", told), ("agent_name", seen.before)):
        assert (known[name], known["model"], known["mode"]) == (NAME, "m", "chat")
    assert told["tools"] == ["look", "boom", "stuck", "note"]
    assert told["context_window"] == WINDOW
    assert told["budget"]["tokens"] == BUDGET


# -- 2: before the message -------------------------------------------------------------------------


@item("2.1")
def check_state(seen: Seen) -> None:
    assert (seen.before["message_count"], seen.before["turn_count"]) == (0, 0)
    assert not seen.before["usage"]["total_tokens"]
    assert (seen.between["message_count"], seen.between["turn_count"]) == (6, 1)
    assert totals(seen.between["usage"]) == (300, 32, 192, 332)


@item("2.2")
def check_room(seen: Seen) -> None:
    assert seen.before["context"]["window"] == seen.between["context"]["window"] == WINDOW
    assert seen.before["context"]["used"] is None, "nothing was sent yet"
    context = seen.between["context"]
    assert 0 < context["used"] == WINDOW - context["remaining"]
    assert seen.before["budget"]["tokens"]["remaining"] == BUDGET
    assert seen.between["budget"]["tokens"] == {
        "limit": BUDGET,
        "used": 332,
        "remaining": BUDGET - 332,
    }


@item("2.3")
def check_tools(seen: Seen) -> None:
    tools = {tool["name"]: tool for tool in seen.before["tools"]}
    assert list(tools) == ["look", "boom", "stuck", "note"]
    assert tools["look"]["description"].startswith("Look at the weather.")
    assert tools["look"]["parameters"]["properties"]["city"]["type"] == "string"


# -- 3: the message --------------------------------------------------------------------------------


@item("3.1", "3.2", "3.3")
def check_message(seen: Seen) -> None:
    started = seen.one(FIRST, "turn.started")
    message = seen.one(FIRST, "message.added", role="user")
    seen.order(started, message, seen.told(FIRST, "step.started")[0])
    assert started["payload"]["user_input"] == MESSAGES[FIRST].text
    assert message["payload"]["text"] == MESSAGES[FIRST].text
    turn, kept = seen.turn(FIRST), seen.messages()[0]
    assert kept["id"] == message["payload"]["message_id"]
    assert started["payload"]["started_at"] == turn["started_at"]
    assert turn["started_at"] <= kept["created_at"] <= turn["ended_at"]
    for reply in seen.replies[:1]:
        assert reply["timestamp"] == turn["started_at"]


# -- 4: a call of the model ------------------------------------------------------------------------


def served(seen: Seen) -> tuple[Row, Row, Row]:
    """The attempt that asked for tools: how it starts, how it ends, and its step."""
    step = seen.steps(FIRST, "llm_call")[1]
    (started,) = seen.of_step(step["id"], "step.started")
    (completed,) = seen.of_step(step["id"], "step.completed")
    return started, completed, step


@item("4.1", "4.2")
def check_call(seen: Seen) -> None:
    started, _, step = served(seen)
    assert (started["payload"]["step_type"], step["step_type"]) == ("llm_call", "llm_call")
    assert (started["payload"]["provider_name"], step["provider_name"]) == ("p1", "p1")
    assert (started["payload"]["model"], step["model_requested"]) == ("m", "m")
    assert step["model"] == "m-served"


@item("4.3")
def check_input(seen: Seen) -> None:
    started, *_ = served(seen)
    progress = seen.of_step(started["step_id"], "step.progress")
    told = [e["payload"] for e in (started, *progress) if e["payload"]["input_tokens"]]
    assert told
    assert {payload["usage_source"] for payload in told} == {"estimated"}


@item("4.4")
def check_stream(seen: Seen) -> None:
    started, completed, _ = served(seen)
    deltas = seen.of_step(started["step_id"], "step.delta")
    assert spoken(deltas, "text") == {0: INTRODUCTION}
    progress = seen.of_step(started["step_id"], "step.progress")[0]
    seen.order(started, deltas[0], progress, deltas[-1], completed)
    assert progress["payload"]["output_tokens"] > 0
    assert progress["payload"]["ttft_ms"] is not None


def spoken(deltas: list[Row], kind: str) -> dict[int, str]:
    """The texts that deltas make, by index; AssertionError where one is missing."""
    texts: dict[int, str] = {}
    for piece in (event["payload"] for event in deltas):
        if piece["kind"] == kind:
            known = "" if piece.get("replace") else texts.get(piece["index"], "")
            texts[piece["index"]] = known + piece["text"]
            assert len(texts[piece["index"]]) == piece["text_length"]
    return texts


@item("4.5", "4.6", "4.7", "4.8")
def check_end_of_call(seen: Seen) -> None:
    _, completed, step = served(seen)
    for known in (completed["payload"], step):
        assert (known["status"], known["finish_reason"]) == ("success", "tool_calls")
        assert (known["input_tokens"], known["output_tokens"]) == (120, 20)
        assert known["cached_tokens"] == 64
        assert known["usage_source"] == "provider"
        assert known["latency_ms"] >= known["ttft_ms"] >= 0
    assert completed["payload"]["uncached_tokens"] == 56


# -- 5 to 7: tools ---------------------------------------------------------------------------------


@item("5.1", "5.2", "5.3", "5.4")
def check_requests(seen: Seen) -> None:
    _, completed, step = served(seen)
    requested = seen.one(FIRST, "tool.requested")
    seen.order(completed, requested, seen.told(FIRST, "step.started", step_type="tool_call")[0])
    told = requested["payload"]["calls"]
    assert [(c["tool_call_id"], c["name"], c["arguments"]) for c in told] == list(CALLS)
    assert all(call["arguments_json_valid"] for call in told)
    deltas = seen.of_step(step["id"], "step.delta")
    assert list(spoken(deltas, "tool_arguments").values()) == [call[2] for call in CALLS]
    kept = [(c["tool_call_id"], c["name"], c["arguments"]) for c in step["tool_calls"]]
    assert kept == list(CALLS)


def tool(seen: Seen, call: tuple[str, str, str]) -> tuple[Row, Row, Row]:
    """How a tool starts, how it ends, and its step."""
    (step,) = [s for s in seen.steps(FIRST, "tool_call") if s["tool_call_id"] == call[0]]
    (started,) = seen.of_step(step["id"], "step.started")
    (completed,) = seen.of_step(step["id"], "step.completed")
    return started, completed, step


@item("6.1")
def check_tools_start(seen: Seen) -> None:
    *_, (_, last, _) = ends = [tool(seen, call) for call in CALLS]
    for call, (started, _, step) in zip(CALLS, ends, strict=True):
        seen.order(started, last)  # side by side: all had started before the last one ended
        assert (started["payload"]["tool_call_id"], step["name"]) == call[:2]
        assert started["payload"]["arguments"] == call[2]


@item("6.2")
def check_durations(seen: Seen) -> None:
    started, completed, step = tool(seen, STUCK)
    progress = seen.of_step(started["step_id"], "step.progress")
    assert progress[0]["payload"]["elapsed_ms"] > 0
    assert completed["payload"]["latency_ms"] == step["latency_ms"] > 0


@item("6.3", "6.4", "6.5", "6.6")
def check_tools_end(seen: Seen) -> None:
    _, good, step = tool(seen, LOOK)
    assert (good["payload"]["success"], good["payload"]["error"]) == (True, None)
    assert orjson.loads(good["payload"]["output"])["degrees"] == 21
    assert step["status"] == "success"
    _, bad, step = tool(seen, BOOM)
    assert bad["payload"]["success"] is False
    assert "disk on fire" in orjson.dumps(bad["payload"]["error"]).decode()
    assert (step["status"], step["error_type"]) == ("error", "tool_error")
    assert "disk on fire" in step["error_message"]
    results = {m["tool_call_id"]: m["content"] for m in seen.messages() if m["role"] == "tool"}
    assert results[STUCK[0]] == "late"
    for reply in seen.replies[:1]:
        told = {call["id"]: call["success"] for call in reply["toolCalls"]}
        assert told == {LOOK[0]: True, BOOM[0]: False, STUCK[0]: True}


@item("7.1", "7.2")
def check_results(seen: Seen) -> None:
    sent = seen.one(FIRST, "tool.results_sent")
    calls = seen.steps(FIRST, "llm_call")
    (following,) = seen.of_step(calls[2]["id"], "step.started")
    seen.order(seen.told(FIRST, "message.added", role="tool")[-1], sent, following)
    assert sent["payload"]["tool_call_ids"] == [call[0] for call in CALLS]
    assert sent["payload"]["context_tokens"] == following["payload"]["context_tokens"]
    assert sent["payload"]["context_window"] == WINDOW
    before, after = calls[1]["context_tokens"], calls[2]["context_tokens"]
    assert before < after


# -- 8 and 9: the answer, and what it took ---------------------------------------------------------


@item("8.1", "8.2", "8.3")
def check_answer(seen: Seen) -> None:
    done = seen.one(FIRST, "turn.completed")
    message = seen.told(FIRST, "message.added", role="assistant")[-1]
    seen.order(message, done)
    turn = seen.turn(FIRST)
    assert message["payload"]["text"] == ANSWER
    assert done["payload"]["final_output"] == turn["final_output"] == ANSWER
    assert (done["payload"]["status"], done["payload"]["finish_reason"]) == ("success", "stop")
    assert done["payload"]["completed_at"] == turn["ended_at"] == turn["completed_at"]
    for reply in seen.replies[:1]:
        assert reply["message"] == {"role": "assistant", "content": ANSWER}
        assert reply["completedAt"] == turn["ended_at"]


@item("9.1", "9.2", "9.3", "9.4", "9.5")
def check_totals(seen: Seen) -> None:
    done, turn = seen.one(FIRST, "turn.completed")["payload"], seen.turn(FIRST)
    for known in (done, turn):
        assert totals(known) == (300, 32, 192, 332)
        assert (known["tool_calls"], known["llm_calls"], known["attempts"]) == (3, 2, 3)
        assert known["latency_ms"] > 0
    assert done["session_total_tokens"] == 332
    assert seen.one(PLAIN, "turn.completed")["payload"]["session_total_tokens"] == 342
    for reply in seen.replies[:1]:
        used = {"input": 300, "output": 32, "cache": 192, "total": 332, "sessionTotal": 332}
        assert used.items() <= reply["tokenUsage"].items()
        assert (len(reply["toolCalls"]), reply["iterations"], reply["attempts"]) == (3, 2, 3)
        assert reply["durationMs"] == turn["latency_ms"]
    for reply in seen.replies[1:2]:
        assert reply["tokenUsage"]["sessionTotal"] == 342


# -- 10 and 11: looking back -----------------------------------------------------------------------


@item("10.1", "10.2", "10.3", "10.4", "10.5")
def check_history(seen: Seen) -> None:
    messages = seen.messages()
    told = [event for event in seen.events if event["type"] == "message.added"]
    assert [m["id"] for m in messages] == [event["payload"]["message_id"] for event in told]
    names = ("role", "token_count", "token_source", "tool_call_id")
    assert [[m[name] for name in names] for m in messages] == [
        [event["payload"][name] for name in names] for event in told
    ]
    roles = ["user", "assistant", "tool", "tool", "tool", "assistant"]
    assert [m["role"] for m in messages[:6]] == roles
    assert [m["tool_call_id"] for m in messages[2:5]] == [call[0] for call in CALLS]
    assert all(m["token_count"] is not None for m in messages)
    times = [m["created_at"] for m in messages]
    assert times == sorted(times)
    assert {m["turn_id"] for m in messages} == set(seen.turn_ids)


@item("11.1", "11.2", "11.3", "11.4", "11.5")
def check_session(seen: Seen) -> None:
    session, turns = seen.session(), [seen.turn(n) for n in range(len(MESSAGES))]
    assert (
        session["created_at"]
        == seen.before["created_at"]
        == created(seen)["payload"].get("created_at", session["created_at"])
    )
    assert session["created_at"] <= turns[0]["started_at"]
    assert turns[-1]["started_at"] <= session["last_turn_at"] <= turns[-1]["ended_at"]
    assert session["message_count"] == len(seen.messages())
    used = [tuple(turn[name] or 0 for name in TOTALS) for turn in turns]
    assert totals(session["usage"]) == tuple(map(sum, zip(*used, strict=True)))
    assert (session["model"], session["provider_name"]) == ("m-served", "p1")
    updated = [e["payload"] for e in seen.events if e["type"] == "session.updated"]
    assert SUMMARY in [payload.get("session_summary") for payload in updated]


TOTALS = ("input_tokens", "output_tokens", "cached_tokens", "total_tokens")


# -- 12: what goes wrong ---------------------------------------------------------------------------


@item("12.1", "12.2")
def check_errors(seen: Seen) -> None:
    failed, again, *_ = seen.steps(FIRST, "llm_call")
    (error,) = seen.of_step(failed["id"], "llm.error")
    assert error["payload"]["error_type"] == failed["error_type"] == "upstream_rate_limit"
    assert "slow down" in error["payload"]["message"]
    assert (error["payload"]["http_status"], error["payload"]["attempt"]) == (429, 1)
    assert (error["payload"]["will_retry"], error["payload"]["next"]) == (True, "retry")
    assert error["payload"]["wait_ms"] is not None
    (ended,) = seen.of_step(failed["id"], "step.completed")
    (started,) = seen.of_step(again["id"], "step.started")
    seen.order(error, ended, started)
    for known in (started["payload"], again):
        assert (known["attempt"], known["attempt_reason"]) == (2, "retry")


def check_limit(seen: Seen, number: int, limit: str, value: float, most: float) -> None:
    reached, done = seen.one(number, "limit.reached"), seen.one(number, "turn.completed")
    assert reached["payload"] == {"limit": limit, "value": value, "max": most}
    seen.order(reached, done)
    turn = seen.turn(number)
    for known in (done["payload"], turn):
        assert (known["status"], known["ended_by"]) == ("error", "limit")
    assert turn["error_type"] == f"limit_{limit}"
    for reply in seen.replies[number : number + 1]:
        assert reply["limitReached"] == limit


@item("12.3")
def check_budget(seen: Seen) -> None:
    check_limit(seen, SPENT, "session_tokens", 392, BUDGET)
    assert seen.session()["budget"]["tokens"]["remaining"] == 0


@item("12.4")
def check_iterations(seen: Seen) -> None:
    check_limit(seen, ITERATIONS, "iterations", TASK_ITERATIONS, TASK_ITERATIONS)


# -- 13: compaction --------------------------------------------------------------------------------


@item("13.1", "13.2", "13.3")
def check_compaction(seen: Seen) -> None:
    told = seen.one(COMPACTED, "context.compacted")
    (step,) = seen.steps(COMPACTED, "memory_write")
    assert told["step_id"] == step["id"]
    (started,) = seen.of_step(step["id"], "step.started")
    (ended,) = seen.of_step(step["id"], "step.completed")
    seen.order(started, ended, told)
    payload = told["payload"]
    assert (payload["trigger"], payload["strategy"]) == ("threshold", "summary")
    assert payload["before_tokens"] > WINDOW / 2 > payload["after_tokens"] > 0
    assert payload["summary"] == SUMMARY
    gone = [m["id"] for m in seen.messages() if m["compacted_by_step_id"] == step["id"]]
    assert payload["compacted_message_ids"] == gone
    parted = [m["id"] for m in seen.messages() if m["turn_id"] in seen.turn_ids[:2]]
    assert gone == parted
    whole = seen.get(f"/steps/{step['id']}")
    assert SUMMARY in orjson.dumps(whole["output_payload"]).decode()
    assert seen.turn(COMPACTED)["final_output"] == LAST
    assert seen.session()["session_summary"] == SUMMARY
