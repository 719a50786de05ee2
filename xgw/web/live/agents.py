"""The open list of agents, and the open page of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from xgw import errors
from xgw.events import Envelope
from xgw.queries.agents import find_use, names_in
from xgw.queries.snapshot import snapshot
from xgw.web.agentrows import AgentRow, list_agents, sessions_of
from xgw.web.api.feed import Wanted
from xgw.web.live import lists
from xgw.web.live.board import SESSIONS
from xgw.web.live.lists import ListScreen
from xgw.web.live.screen import Swap
from xgw.web.templating import render

if TYPE_CHECKING:
    from xgw.web.app import Services

_USES = frozenset({"session.created", "session.deleted", "turn.queued", "turn.started"})
"""What changes how much an agent is used."""


class Used:
    """Which agents were used, as far as events tell: they name sessions."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._sessions: set[str] = set()
        self._is_any = False

    def note(self, envelope: Envelope) -> None:
        """A session that is gone may have been anyone's."""
        if envelope.type == "session.deleted":
            self._is_any = True
        elif envelope.type in _USES and envelope.session_id is not None:
            self._sessions.add(envelope.session_id)

    def take(self, name: str | None = None) -> bool:
        """Whether an agent (this one) was used since the last time: one statement at most."""
        sessions, self._sessions = self._sessions, set()
        is_any, self._is_any = self._is_any, False
        if is_any or not sessions:
            return is_any
        found = names_in(self._services.store, sessions)
        return bool(found) if name is None else name in found


class AgentsScreen:
    """The list of agents."""

    pause = lists.PAUSE

    def __init__(self, services: Services, _: Mapping[str, str]) -> None:
        self.wanted = Wanted(types=_USES)
        self._services = services
        self._used = Used(services)
        self._shown: dict[str, AgentRow] = {}

    def note(self, envelope: Envelope) -> None:
        """Of any session."""
        self._used.note(envelope)

    def draw(self) -> list[Swap]:
        """Every row whose figures have changed."""
        with snapshot(self._services.store):
            rows = list_agents(self._services) if self._used.take() else []
        changed = [row for row in rows if self._shown.get(row.agent.name) != row]
        self._shown |= {row.agent.name: row for row in changed}
        return [
            Swap(f"agent-{row.agent.name}", render("agents/_row.html", row=row).strip())
            for row in changed
        ]


class AgentScreen(ListScreen):
    """One agent: how much it is used, and the list of its sessions."""

    def __init__(self, services: Services, query: Mapping[str, str]) -> None:
        self._name = query.get("name", "")
        if self._name not in services.agents:
            raise errors.unprocessable("name must be that of an agent", param="name")
        super().__init__(services, SESSIONS, sessions_of(self._name), grows=True)
        self._used = Used(services)

    def note(self, envelope: Envelope) -> None:
        """Of a session, which may be one of the agent's."""
        super().note(envelope)
        self._used.note(envelope)

    def draw(self) -> list[Swap]:
        """The use and the rows, at one moment."""
        store = self._services.store
        with snapshot(store):
            rows = super().draw()
            if not self._used.take(self._name):
                return rows
            use, _ = find_use(store, self._name)
        return [Swap("use", render("agents/_use.html", use=use)), *rows]
