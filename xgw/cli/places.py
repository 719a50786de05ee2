"""Where a thing is: in the store, else in one of the bundles that were imported beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from xgw import spelling
from xgw.cli import reading, refs
from xgw.cli.configuration import load
from xgw.cli.refs import Found, NothingThere
from xgw.cli.terminal import note
from xgw.portable import imports
from xgw.portable.imports import Import, Imports
from xgw.store.database import Store

if TYPE_CHECKING:
    from xgw.config import Loaded


@dataclass(frozen=True, slots=True)
class Place:
    """What was named, the store that has it, and the import that this is; None for the own one."""

    found: Found
    store: Store
    imported: Import | None = None


@contextlib.contextmanager
def holding(config_path: Path | None, db: str | None, ref: str) -> Iterator[tuple[Loaded, Place]]:
    """The configuration, and the place of what `ref` names; WorkError as `refs.get` has it.

    Of something imported stderr says where it came from.
    """
    loaded = load(config_path, db)
    there = Imports(loaded.config.storage.path).list()
    nothing = refs.nothing_there(ref, "what was imported")
    if loaded.config.storage.path.exists() or not there:
        with reading.opened(config_path, db) as (_, store):
            try:
                found = refs.get(store, ref)
            except NothingThere as refusal:
                nothing = refusal
            else:
                yield loaded, Place(found, store)
                return
    for one in there:
        with imports.opened(one.path) as store, contextlib.suppress(NothingThere):
            found = refs.get(store, ref)
            break
    else:
        raise nothing
    with imports.opened(one.path) as store:
        note(words_of(one))
        yield loaded, Place(found, store, one)


def words_of(one: Import) -> str:
    """Where an import came from, in a line."""
    when = spelling.moment(one.exported_at)
    return f"Imported from {one.file}, exported {when} by xgw {one.version}"
