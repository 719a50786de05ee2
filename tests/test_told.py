"""What events take in the store: packed, and read back as it was told."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from filled_store import FilledStore
from test_migrations import OURS
from xgw import clock, ids
from xgw.errors import UsageError
from xgw.queries.events import list_events
from xgw.store import migrations, payloads
from xgw.store.database import Store
from xgw.store.digits import packed_id, whole_id
from xgw.store.emitted import shortened
from xgw.store.layouts import LAYOUTS, laid_out
from xgw.store.payloads import Shelf
from xgw.store.rows import digest
from xgw.store.told import WORDS, packed, packed_at_once, unpacked

TURN = "turn_" + "0" * 12 + "7" + "a" * 19
ODD = [
    None,
    True,
    False,
    0,
    -1,
    2**62,
    1.5,
    "",
    "success",
    "no word of ours",
    "2026-01-02T03:04:05.000006Z",
    "1969-12-31T23:59:59.999999Z",
    "9999-12-31T23:59:59.999999Z",
    "2026-01-02T03:04:05.00000 Z",
    "2026-01-02t03:04:05.000006Z",
    "2026-13-02T03:04:05.000006Z",
    "0001-01-01T00:00:00+010000Z",
    "9999-12-31T23:59:59-010000Z",
    TURN,
    TURN.upper(),
    TURN[:-1],
    TURN[:-1] + "g",
    TURN[:-2] + " a",
    "none_" + "a" * 32,
    "key_" + "0" * 32,
    "a" * 32,
    {"payload": "b" * 32},
    {"payload": "B" * 32},
    {"payload": "b" * 31},
    {"payload": "b" * 32, "size": 3},
    {"payload": 1},
    {},
    [],
    ["success", TURN, {"payload": "b" * 32}],
    {"a": [1, {"b": "ü\u2028"}]},
]


@pytest.mark.parametrize("value", ODD)
def test_every_value_comes_back(value: Any) -> None:
    kept = packed([1, value, value])
    assert isinstance(kept, bytes)
    assert unpacked(kept) == [1, value, value]
    assert [type(v) for v in unpacked(kept)] == [int, type(value), type(value)]


def test_what_has_no_layout_stays_readable() -> None:
    assert packed({"a": TURN}) == f'{{"a":"{TURN}"}}'
    assert unpacked('[4,0,"first"]') == [4, 0, "first"]


LONG_TEXTS = ["a" * 511, "a" * 512, "a" * 4096, "ä" * 1024]


@pytest.mark.parametrize("number", [2, 6, 13])
@pytest.mark.parametrize("value", [*ODD, *LONG_TEXTS])
def test_what_is_packed_at_once_is_the_same(number: int, value: Any) -> None:
    payload: dict[str, Any] = dict.fromkeys(LAYOUTS[number], value)
    cut, texts = shortened(payload)
    kept = {name: {"payload": _hash(text)} for name, text in texts.items()}
    step_by_step = packed(laid_out(cut | kept, TURN, None))
    at_once = packed_at_once(number, payload, TURN, None, _hash)
    assert at_once == (None if isinstance(value, dict | list) else step_by_step)


@pytest.mark.parametrize("text", ["a" * 4097, "ä" * 1025])
def test_what_is_perhaps_to_be_cut_is_not_packed_at_once(text: str) -> None:
    payload: dict[str, Any] = {**dict.fromkeys(LAYOUTS[13]), "text": text}
    assert packed_at_once(13, payload, TURN, None, _hash) is None


def _hash(text: str) -> str:
    return digest(text.encode()).hex()


def test_words_keep_their_numbers() -> None:
    """A store that was written has them: only what is new may be added, at the end."""
    assert WORDS[:6] == ("success", "error", "cancelled", "running", "finished", "provider")
    assert (WORDS[22], WORDS[28], WORDS[33]) == ("rerun", "waiting_tool", "openai")
    assert len(set(WORDS)) == len(WORDS)


@pytest.mark.parametrize(
    "id", ["sess_0192f8a1b2c37d4e8f90a1b2c3d4e5f6", "s", "", "sess_", "sess_" + "A" * 32, TURN]
)
def test_an_id_comes_back(id: str) -> None:
    kept = packed_id(id, "sess")
    assert whole_id(kept, "sess") == id
    assert isinstance(kept, bytes) is (ids.is_id(id, "sess"))


# -- stores from before ----------------------------------------------------------------------------

BEFORE = "INSERT INTO events (type, at, project_id, session_id, turn_id, run_id, step_id, payload)"


def _store_from_before(folder: Path, scripts: Path) -> Store:
    """A store as it was while events held text."""
    scripts.mkdir()
    for name in OURS[:2]:
        text = (migrations.DIRECTORY / f"{name}.py").read_text(encoding="utf-8")
        (scripts / f"{name}.py").write_text(text, encoding="utf-8")
    store = Store(folder / "xgw.db")
    migrations.migrate(store, directory=scripts)
    return store


def test_events_from_before_are_read_as_they_were_told(tmp_path: Path) -> None:
    store = _store_from_before(tmp_path, tmp_path / "scripts")
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, 6)
    session, turn, run, step = (ids.mint(kind) for kind in ("sess", "turn", "run", "step"))
    told = [
        ("turn.started", session, turn, None, None, [1, True, True, None, 0, "hi"]),
        ("run.started", session, turn, run, None, [4, 0, "first", None, "running"]),
        ("step.started", session, turn, run, step, [5, "llm_call", "m"]),
        ("session.deleted", "an older one's", None, None, None, {}),
        ("step.completed", session, turn, run, step, [6, "success"]),
    ]
    connection = store.open_writer()
    for type, *columns, payload in told:
        row = (type, clock.to_db(moment), "default", *columns, orjson.dumps(payload).decode())
        connection.execute(f"{BEFORE} VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    connection.execute("DELETE FROM events WHERE seq = 5")
    connection.close()

    assert migrations.migrate(store, backup=False).applied == OURS[2:]
    found = list_events(store, 0)
    assert [(e.type, e.session_id, e.turn_id, e.run_id, e.step_id) for e in found] == [
        row[:5] for row in told[:4]
    ]
    assert [e.seq for e in found] == [1, 2, 3, 4]
    assert {e.at for e in found} == {moment}
    assert found[0].payload["turn_id"] == turn
    assert found[0].payload["user_input"] == "hi"
    assert found[1].payload["status"] == "running"
    assert [e.seq for e in list_events(store, 0, session_id=session)] == [1, 2, 3]
    assert [e.seq for e in list_events(store, 2, turn_id=turn)] == [3]
    assert store.sql("PRAGMA integrity_check") == [("ok",)]
    store.close()

    filled = FilledStore(tmp_path)  # the fifth was deleted: its number is never used again
    assert filled.event("turn.started", session) == 6
    filled.close()


def test_a_migration_that_breaks_off_leaves_the_events_as_they_were(tmp_path: Path) -> None:
    store = _store_from_before(tmp_path, tmp_path / "scripts")
    connection = store.open_writer()
    broken = ("turn.started", "no time", "default", None, TURN, None, None, "{}")
    connection.execute(f"{BEFORE} VALUES (?, ?, ?, ?, ?, ?, ?, ?)", broken)
    before = list(connection.iterdump())
    with pytest.raises(UsageError):
        migrations.migrate(store, backup=False)
    assert list(connection.iterdump()) == before
    connection.close()


def test_bodies_from_before_are_found_by_their_hash(tmp_path: Path) -> None:
    store = _store_from_before(tmp_path, tmp_path / "scripts")
    shelf, long = Shelf(), "a long text " * 100
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": f"{n} {long}"} for n in range(9)],
    }
    kept = [shelf.request(orjson.dumps(body)), shelf.whole(b"short"), shelf.text(long)]
    connection = store.open_writer()
    for row in (row for stored in kept for row in stored.rows):
        connection.execute("INSERT OR IGNORE INTO payloads VALUES (?, ?, ?, ?)", row)
    connection.close()

    migrations.migrate(store, backup=False)
    hashes = [stored.hash for stored in kept]
    loaded = payloads.load_many(store, hashes)
    assert [loaded[hash] for hash in hashes] == [orjson.dumps(body), b"short", long.encode()]
    assert payloads.sizes(store, hashes) == {s.hash: s.size for s in kept}
    assert store.sql("SELECT DISTINCT typeof(hash), length(hash) FROM payloads") == [("blob", 16)]
    store.close()
