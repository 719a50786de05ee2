"""An open list: rows that change are drawn where they stand, new ones come in on top."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from xgw.events import Envelope
from xgw.queries import filters
from xgw.queries.filters import Filters
from xgw.web.api.feed import Wanted
from xgw.web.live.screen import Swap
from xgw.web.templating import render

if TYPE_CHECKING:
    from xgw.web.app import Services

PAUSE = 0.5


class Row(Protocol):
    """A row: `id` is its resource's, `key` what events name it by."""

    @property
    def id(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def is_gone(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Noun:
    """What is listed.

    `types` are the events that change a row, `begins` those after which there may be a new one;
    `key_of` tells whose row it is, None for none here; `find` reads the rows of such keys.
    """

    name: str
    types: frozenset[str]
    begins: frozenset[str]
    key_of: Callable[[Envelope], str | None]
    find: Callable[[Services, Iterable[str], Filters], Sequence[Row]]


class ListScreen:
    """One open list, narrowed to `fitting`.

    Rows that begin come in on top if it `grows`: further pages of a list do not.
    """

    pause = PAUSE

    def __init__(self, services: Services, noun: Noun, fitting: Filters, *, grows: bool) -> None:
        self.wanted = Wanted(types=noun.types)
        self._services = services
        self._noun = noun
        self._fitting = fitting
        self._grows = grows
        self._begun: dict[str, bool] = {}

    def note(self, envelope: Envelope) -> None:
        """Remember whose row changes, and whether something begins there."""
        key = self._noun.key_of(envelope)
        if key is not None:
            begins = envelope.type in self._noun.begins
            self._begun[key] = self._begun.get(key, False) or begins

    def draw(self) -> list[Swap]:
        """Every row of which something was noted."""
        begun, self._begun = self._begun, {}
        found = self._noun.find(self._services, begun, self._fitting) if begun else ()
        swaps: list[Swap] = []
        for row in found:
            swaps += self._row(row, comes=begun.pop(row.key))
        return swaps + [Swap(f"{self._noun.name}-{key}", style="delete") for key in begun]

    def _row(self, row: Any, *, comes: bool) -> Iterator[Swap]:
        """The row where it stands, and on top; the page keeps the one that it had already."""
        name, template = self._noun.name, f"{self._noun.name}s/_row.html"
        yield Swap(f"{name}-{row.id}", render(template, row=row).strip())
        if comes and self._grows and not row.is_gone:
            html = render(template, row=replace(row, is_new=True)).strip()
            yield Swap("rows-head", html, "afterend")


def asked(noun: str, query: Mapping[str, str], names: Iterable[str]) -> Filters:
    """The filters that a socket's query asks for, as those of its page."""
    return filters.parse(noun, [(name, query[name]) for name in names if query.get(name)])


def grows(query: Mapping[str, str]) -> bool:
    """Whether the page is the first one of its list."""
    return "older" not in query
