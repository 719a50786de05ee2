"""A conversation with an agent: whom it is with, in which session, and one turn after another."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from xgw.agents import plain
from xgw.cli.asking import Refusal
from xgw.cli.doors import Door
from xgw.cli.going_on import Answer, answer_of, events_in, follow, tell_waiting
from xgw.cli.speaking import Event, Speaker
from xgw.cli.terminal import note
from xgw.errors import UsageError, WorkError
from xgw.queries import events
from xgw.store.database import Store

WAIT_SECONDS = 3600
CANCEL_SECONDS = 5.0
"""For the answer to a cancellation of a turn that has ended."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person asked for: names, each None where it is left to xgw."""

    agent: str | None = None
    session: str | None = None
    goes_on: bool = False
    model: str | None = None
    mode: str | None = None


class Conversation:
    """Messages to one agent in one session; None is a new session, begun by the first message."""

    def __init__(self, door: Door, store: Store, asked: Asked) -> None:
        """UsageError where the agent has to be named, WorkError where something is not there.

        `store` is the one behind the door.
        """
        self.door = door
        self._store = store
        self.model = asked.model
        self.mode = asked.mode
        self.session = asked.session
        self.agent = self._choose(asked)
        self._heard = 0

    # -- whom it is with ---------------------------------------------------------------------------

    def _choose(self, asked: Asked) -> str:
        known = self._known(asked)
        if known is not None:
            self.session = known["id"]
            if asked.agent is None and known["agent_name"]:
                if known["agent_name"] == plain.NAME:
                    self.model = self.model or self._last_model(known["id"])
                return str(known["agent_name"])
        if asked.agent is not None:
            self.tell_agent(asked.agent)
            return asked.agent
        return plain.NAME if self.model else self._usual()

    def _known(self, asked: Asked) -> Any:
        if asked.goes_on:
            named = {"agent": asked.agent} if asked.agent else {}
            query = urlencode({"kind": "agent", "limit": 1, **named})
            found = self.door.ask("GET", f"/sessions?{query}")["data"]
            if not found:
                raise WorkError("there is no session with an agent yet that could go on")
            return found[0]
        return None if asked.session is None else self.find_session(asked.session)

    def _last_model(self, session_id: str) -> str | None:
        """The model that the newest turn asked for, as it was named there; None without one."""
        newest = self._newest_turn(session_id)
        if newest is None:
            return None
        runs = self.door.ask("GET", f"/turns/{newest['id']}")["runs"]
        model: str | None = (runs[-1]["overrides"] or {}).get("model")
        return model

    def _usual(self) -> str:
        """The only agent, else the model of the first route."""
        names = self.list_agents()
        if len(names) == 1:
            return names[0]
        if self.tell_agent(plain.NAME)["model"] != plain.ANY_MODEL:
            return plain.NAME
        there_are = f" (there are {', '.join(names)})" if names else ""
        raise UsageError(f"name an agent with -a{there_are}, or a model with -m")

    def list_agents(self) -> list[str]:
        """The names of the agents that are defined."""
        return [agent["name"] for agent in self.door.ask("GET", "/agents")["data"]]

    def tell_agent(self, name: str) -> Any:
        """An agent's whole configuration; WorkError with those there are if it is none."""
        try:
            return self.door.ask("GET", f"/agents/{quote(name, safe='')}")
        except Refusal as refusal:
            if refusal.status != 404:
                raise
            names = ", ".join(self.list_agents()) or "none"
            raise WorkError(f"there is no agent {name!r} (there are: {names})") from None

    def find_session(self, ref: str) -> Any:
        """A session by its id or key, None where there is none."""
        try:
            return self.door.ask("GET", f"/sessions/{quote(ref, safe='')}")
        except Refusal as refusal:
            if refusal.status == 404:
                return None
            raise

    def find_context(self, session_id: str) -> Any:
        """What the next call of a session would send, by part."""
        return self.door.ask("GET", f"/sessions/{session_id}/context")

    def compact(self, session_id: str) -> Any:
        """Have the context of a session compacted; the session as it is then."""
        return self.door.ask("POST", f"/sessions/{session_id}/compact", {})

    # -- its turns ---------------------------------------------------------------------------------

    def say(self, message: str, spell: Callable[[Event], str] | None, *, quiet: bool) -> Answer:
        """Send a message and say its turn as it runs; `quiet` leaves the text out.

        Ctrl-C cancels the turn; a second one is a KeyboardInterrupt. WorkError without an answer.
        """
        speaker = Speaker(spell, quiet=quiet)
        with Interrupts(self.door) as interrupts:
            answer = self._turn(message, speaker, interrupts)
        waits = bool(answer.get("pendingApprovals"))
        speaker.finish(None if waits else answer["message"]["content"])
        self.session = answer["sessionId"]
        if "runStatus" in answer and not waits:
            turn_id = answer["turnId"]
            raise WorkError(f"{turn_id} is still {answer['status']}: follow it with xgw tail")
        return answer

    def decide(
        self, answer: Answer, decision: Mapping[str, Any], spell: Callable[[Event], str] | None
    ) -> Answer:
        """Decide about a call of a turn that waits, and say the turn as it goes on; as it is then.

        WorkError if the decision is refused.
        """
        run = self.door.ask("POST", f"/runs/{answer['runId']}/approvals", decision)
        return self._follow(run, spell)

    def say_again(self, spell: Callable[[Event], str] | None) -> Answer:
        """Run the newest turn of the session once more, and say it as `say` does."""
        newest = None if self.session is None else self._newest_turn(self.session)
        if newest is None:
            raise WorkError("there is nothing to retry: nothing was said in this session yet")
        self._heard = events.newest(self._store)
        return self._follow(self.door.ask("POST", f"/turns/{newest['id']}/runs", {}), spell)

    def cancel(self) -> str:
        """Cancel the turn of the session that is under way, else the next that waits; its id."""
        turn_id = None if self.session is None else self._open_turn(self.session)
        if turn_id is None:
            raise WorkError("there is nothing to cancel: no turn of this session runs or waits")
        self.door.ask("POST", f"/turns/{turn_id}/cancel", {})
        return turn_id

    def _open_turn(self, session: str) -> str | None:
        found = self.find_session(session)
        if found is None or found["active_turn_id"] is not None:
            return None if found is None else str(found["active_turn_id"])
        query = urlencode({"session_id": found["id"], "status": "queued", "order": "asc"})
        waiting = self.door.ask("GET", f"/turns?{query}&limit=1")["data"]
        return str(waiting[0]["id"]) if waiting else None

    def _newest_turn(self, session: str) -> Any:
        if self.find_session(session) is None:
            return None
        path = f"/sessions/{quote(session, safe='')}/turns?limit=1&order=desc"
        turns = self.door.ask("GET", path)["data"]
        return turns[0] if turns else None

    def _follow(self, run: Mapping[str, Any], spell: Callable[[Event], str] | None) -> Answer:
        """Say the turn of a run as it goes on, until it is over or waits; as it is then."""
        if run["status"] == "waiting_tool":
            return answer_of(self.door.ask("GET", f"/turns/{run['turn_id']}"))
        with Interrupts(self.door) as interrupts:
            interrupts.turn_id = run["turn_id"]
            speaker = Speaker(spell, quiet=False)
            answer, self._heard = follow(self.door, run, self._heard, speaker)
        return answer

    def _turn(self, message: str, speaker: Speaker, interrupts: Interrupts) -> Answer:
        body = {
            "message": message,
            "sessionId": self.session,
            "model": self.model,
            "mode": self.mode,
            "wait": WAIT_SECONDS,
        }
        given = {name: value for name, value in body.items() if value is not None}
        path = f"/agents/{quote(self.agent, safe='')}/chat/stream"
        with contextlib.closing(self.door.stream(path, given)) as blocks:  # type: ignore[type-var]
            for name, told in events_in(blocks):
                if name == "chat.response":
                    return dict(told)
                if name == "error":
                    raise WorkError(told["error"]["message"])
                interrupts.turn_id = told["turn_id"] or interrupts.turn_id
                if told["type"] == "turn.queued":
                    self._tell_line(told)
                self._heard = told["seq"] or self._heard
                speaker.hear(told)
        where = interrupts.turn_id or "the turn"
        raise WorkError(f"the answer broke off; look at {where} with xgw show")

    def _tell_line(self, queued: Event) -> None:
        """Say that a turn waits in line, and what the one before it waits for."""
        note(f"xgw: {queued['turn_id']} waits for another turn of the session to end")
        active = self._open_turn(queued["session_id"])
        if active is not None:
            first = answer_of(self.door.ask("GET", f"/turns/{active}"))
            if first.get("pendingApprovals"):
                tell_waiting(first)


class Interrupts:
    """While it is entered Ctrl-C cancels the turn, whose end is then told as any other."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._turn_id: str | None = None
        self._pressed = False
        self._asking: threading.Thread | None = None
        self._before: Any = None

    def __enter__(self) -> Interrupts:
        self._before = signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)
        # Python may crash if a thread still works while it shuts down.
        if self._asking is not None:
            self._asking.join(CANCEL_SECONDS)

    @property
    def turn_id(self) -> str | None:
        """The turn to cancel, once it is known."""
        return self._turn_id

    @turn_id.setter
    def turn_id(self, id: str | None) -> None:
        is_new = self._turn_id is None and id is not None
        self._turn_id = id
        if is_new and self._pressed:
            self._cancel()

    def _press(self, *_: object) -> None:
        if self._pressed:
            raise KeyboardInterrupt
        self._pressed = True
        if self._turn_id is not None:
            self._cancel()

    def _cancel(self) -> None:
        # The main thread reads the turn's events, and may be anywhere in that.
        self._asking = threading.Thread(target=self._ask, name="cancel", daemon=True)
        self._asking.start()

    def _ask(self) -> None:
        # A turn that has just ended by itself cannot be cancelled any more.
        with contextlib.suppress(WorkError):
            self._door.ask("POST", f"/turns/{self._turn_id}/cancel", {})
