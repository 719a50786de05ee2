"""What an open page shows, for the socket that keeps it up to date."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from xgw.events import Envelope
from xgw.web.api.feed import Wanted

Style = Literal["outerMorph", "innerHTML", "beforeend", "afterbegin", "afterend", "delete"]


@dataclass(frozen=True, slots=True)
class Swap:
    """One change of a page: `html` goes to the element with the id `target`.

    An element that is not on the page is left out: the page has scrolled on, or never had it.
    """

    target: str
    html: str = ""
    style: Style = "outerMorph"


class Screen(Protocol):
    """One open page; used by one thread, that of its socket.

    `wanted` bounds the events that it is told of, live frames included; a type that is not in its
    `types` costs nothing. `pause` is how many seconds lie between two drawings at least.
    """

    wanted: Wanted
    pause: float

    def note(self, envelope: Envelope) -> None:
        """Remember what this event changes; no reading here, it is called for each of them."""

    def draw(self) -> list[Swap]:
        """Everything noted since the last drawing, read once for all of it, in order.

        Each part is a whole partial, and replaces the one on the page that it morphs: what
        changed twice is drawn once, as it is now.
        """
