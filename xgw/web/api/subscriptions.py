"""What one socket is told: several sessions and a list, from one mailbox."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xgw.errors import conflict
from xgw.hub import Batch
from xgw.web.api import frames
from xgw.web.api.feed import View, Wanted, Watch, lagged, take
from xgw.web.api.rows import Rows
from xgw.web.sockets import SERVICE_RESTART, TRY_AGAIN_LATER, Outcome

if TYPE_CHECKING:
    from xgw.web.app import Services

MOST = 100
"""Sessions that one socket can follow at once."""


@dataclass(slots=True)
class Followed:
    """A session that is followed. `key` names it too, also once it is deleted; None if none does.

    `pages` is what is still to be read of its history, None once it is told of what happens;
    everything up to `position` was sent.
    """

    view: View
    pages: Iterator[list[Batch]] | None
    position: int
    key: str | None

    @property
    def wanted(self) -> Wanted:
        return self.view.watch.wanted


class Subscriptions:
    """All subscriptions of one socket; for the one thread that sends to it.

    `send` takes whole frames. A `with` block opens and closes the mailbox.
    """

    def __init__(self, services: Services, send: Callable[[bytes], None]) -> None:
        self._services = services
        self._hub = services.hub
        self._send = send
        self._mailbox = services.hub.open()
        self._followed: dict[str, Followed] = {}
        self._rows: Rows | None = None

    def __enter__(self) -> Subscriptions:
        return self

    def __exit__(self, *_: object) -> None:
        self._mailbox.close()

    def nudge(self) -> None:
        """Have `deliver` return soon; any thread may call it."""
        self._mailbox.nudge()

    def follow(self, session_id: str, key: str | None, watch: Watch) -> None:
        """Tell of a session from now on, anew if it was followed already; ApiError 409 if full."""
        self.leave(session_id)
        if len(self._followed) >= MOST:
            message = f"a socket can follow {MOST} sessions at once"
            raise conflict(message, code="too_many_subscriptions")
        view = View(self._services.store, self._services.recorder.live, watch)
        self._followed[session_id] = Followed(view, view.pages(), watch.after or 0, key)

    def named(self, ref: str) -> list[str]:
        """The ids of the sessions told of that an id or a key names, be they there any more or not.

        Of one key there may be several: a session that was deleted, and one that came after it.
        """
        if ref in self._followed:
            return [ref]
        return [id for id, one in self._followed.items() if one.key == ref]

    def leave(self, session_id: str) -> None:
        """Tell no more of a session."""
        followed = self._followed.pop(session_id, None)
        if followed is not None:
            self._hub.remove(self._mailbox, followed.wanted)

    def list_rows(self, rows: Rows) -> None:
        """Tell of a list's rows, in the place of the list before."""
        if self._rows is not None:
            self._hub.remove(self._mailbox, self._rows.wanted)
        self._rows = rows
        self._hub.add(self._mailbox, rows.wanted)

    def deliver(self, idle_seconds: float) -> Outcome | None:
        """Send what there is, or wait for something; how to close, once that is to be."""
        joining = [one for one in self._followed.values() if one.pages is not None]
        for one in joining:
            self._read_on(one)
        arrived, told_upto = take(self._hub, self._mailbox, self._wait(joining, idle_seconds))
        self._dispatch(arrived, told_upto)
        self._tell_rows()
        if arrived:
            return None
        if self._mailbox.closed:
            return SERVICE_RESTART, "the server ends"
        if self._mailbox.lagged is not None:
            self._tell_lagged()
            return TRY_AGAIN_LATER, "too slow: subscribe again with after"
        return None

    def _wait(self, joining: list[Followed], idle_seconds: float) -> float:
        if joining:
            return 0
        due = None if self._rows is None else self._rows.due_in()
        return idle_seconds if due is None else min(due, idle_seconds)

    # -- sessions ------------------------------------------------------------------------------

    def _read_on(self, one: Followed) -> None:
        """A page of its history; the others' events come in between."""
        page = next(one.pages, None) if one.pages is not None else None
        if page is not None:
            self._tell(one, page)
        else:
            self._join(one)

    def _join(self, one: Followed) -> None:
        """The rest of its history and what is under way; from here on what happens."""
        # What an earlier subscription to the same session left in the mailbox goes first.
        self._dispatch(*take(self._hub, self._mailbox, 0))
        self._hub.add(self._mailbox, one.wanted, session_id=one.wanted.session_id)
        for page in one.view.pages():
            self._tell(one, page)
        whole = one.view.whole()
        arrived, told_upto = take(self._hub, self._mailbox, 0)
        own = [batch for batch in arrived if batch.wants == one.wanted]
        self._tell(one, one.view.first(whole, own, told_upto))
        one.pages = None
        self._dispatch([batch for batch in arrived if batch.wants != one.wanted], told_upto)

    def _dispatch(self, arrived: list[Batch], told_upto: int) -> None:
        """Each of them to whom it was put in for."""
        by_wants: dict[object, list[Batch]] = {}
        for batch in arrived:
            by_wants.setdefault(batch.wants, []).append(batch)
        starved = self._mailbox.take_starved()
        for one in self._followed.values():
            if one.pages is None:
                fresh = one.view.fresh(by_wants.get(one.wanted, []), told_upto, starved)
                self._tell(one, fresh + one.view.again(starved))
        if self._rows is not None:
            for batch in by_wants.get(self._rows.wanted, ()):
                self._rows.note(batch.envelopes)

    def _tell(self, one: Followed, batches: list[Batch]) -> None:
        if not batches:
            return
        self._send(b"".join([batch.encoded(frames.event) for batch in batches]))
        one.position = max(one.position, *(batch.last_seq or 0 for batch in batches))

    # -- the list, and the end -----------------------------------------------------------------

    def _tell_rows(self) -> None:
        if self._rows is not None and self._rows.due_in() == 0:
            told = [frames.notification("sessions.row", row) for row in self._rows.read()]
            if told:
                self._send(b"".join(told))

    def _tell_lagged(self) -> None:
        """Each session has a position of its own: all of it up to there was sent."""
        told = [lagged(one.position, id) for id, one in self._followed.items()]
        if self._rows is not None:
            told.append(lagged(self._mailbox.lagged or 0))
        self._send(b"".join(map(frames.event, told)))
