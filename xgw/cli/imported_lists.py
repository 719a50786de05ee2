"""Lists of what was imported, in place of the store's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from xgw.cli import reading
from xgw.cli.terminal import Screen, note, stdout, write, write_json
from xgw.errors import UsageError

if TYPE_CHECKING:
    from xgw.config import Loaded
    from xgw.queries.pages import Page, Row, Slice
    from xgw.store.database import Store
    from xgw.web.serialize import Json


@dataclass(frozen=True, slots=True)
class Listing:
    """How the rows of one noun are found in a store, and shown."""

    find: Callable[[Store, Page], Slice]
    show: Callable[[Loaded, Store, Slice], Callable[[Row], Json]]
    table: Callable[[Screen, Store, list[Row], frozenset[str]], list[str]]


def list_imported(loaded: Loaded, listing: Listing, page: Page, as_json: bool) -> None:
    """Import after import, the newest first, until there are as many rows as a page has."""
    from xgw.cli.places import words_of
    from xgw.cli.refs import NothingThere
    from xgw.portable import imports

    if page.cursor is not None:
        raise UsageError("--cursor goes on in the store's own list alone: leave --imported out")
    left, shown, has_more = page.limit, [], False
    for one in imports.Imports(loaded.config.storage.path).list():
        if not left:
            has_more = True
            break
        with imports.opened(one.path) as store:
            try:
                with reading.refused_as_usage():
                    found = listing.find(store, replace(page, limit=left))
            except NothingThere:
                continue
            left, has_more = left - len(found.rows), has_more or found.has_more
            if as_json:
                show = listing.show(loaded, store, found)
                shown += [{**show(row), "import_id": one.id} for row in found.rows]
            elif found.rows:
                write([f"{words_of(one)} · {one.id}"])
                write(listing.table(stdout(), store, found.rows, reading.demos(loaded.config)))
    if as_json:
        write_json({"object": "list", "data": shown, "has_more": has_more, "next_cursor": None})
    elif left == page.limit:
        note("Nothing that was imported fits. `xgw import --list` lists the imports.")
    elif has_more:
        note(f"There are more than these {page.limit}: --limit 500")
