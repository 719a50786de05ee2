"""Pruning: what is old goes, nothing that is needed does, whatever happens meanwhile."""

from __future__ import annotations

import random
import shutil
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from filled_store import FilledStore
from gateway_fixtures import Gate, Reading, Reply, a_test_of, gate_and_model, gateway
from scripted_model import Model, Row, asks_for, chat, named, said, says, user
from servers import DEADLINE, XGW, eventually, installed
from xgw import clock, ids
from xgw.cli import main
from xgw.config import ClientKey, Retention, Server
from xgw.errors import WorkError
from xgw.recording.edits import count_deletion
from xgw.store import migrations, payloads
from xgw.store.database import Store
from xgw.store.models import Event, Payload, RequestLog, Session, Step, Turn
from xgw.store.payloads import Shelf, Stored
from xgw.store.transaction import Transaction
from xgw.store.writer import Bodies, Writer
from xgw.upkeep.marks import Marks
from xgw.upkeep.sweep import Aged, Sweep

TEXT = "a text that is long enough to stand in a row of its own: " + "words " * 60


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    with gate_and_model(tmp_path) as gate, a_test_of(gate):
        yield gate


def prune(gate: Gate, **wanted: Any) -> Any:
    """What the server answers."""
    reply = gate.post(wanted, "/prune")
    assert reply.status == 200, reply.body
    return reply.json


def now() -> str:
    return clock.to_rfc3339(clock.now())


def whole(gate: Gate, turn: Row) -> list[bytes]:
    """Every body of a turn; LookupError where one is gone."""
    keys = [turn["input_payload"], turn["config_snapshot"]]
    for step in gate.steps(turn):
        keys += [step["input_payload"], step["output_payload"]]
    for log in gate.requests(turn):
        keys += [log["request_payload"], log["response_body"]]
    return [gate.payload(key) for key in keys if key is not None]


def pruned(store: Store) -> set[str]:
    return {row["hash"] for row in store.fetch(Payload.select().where(Payload.codec == "pruned"))}


# -- bodies ----------------------------------------------------------------------------------------


def test_old_bodies_are_emptied_and_what_was_said_stays(gate: Gate) -> None:
    gate.model.always(says("an answer, " + TEXT))
    question = chat(TEXT, **named("old"))
    gate.post(question)
    turn = gate.turns("old")[0]
    (step,), (log,) = gate.steps(turn), gate.requests(turn)
    before = (gate.messages(turn), gate.events(turn), gate.session("old"))
    sizes = {name: len(gate.payload(step[name])) for name in ("input_payload", "output_payload")}
    done = prune(gate, bodies_before=now())
    assert done["sessions"] == 0
    assert done["bodies"]["count"] >= 3
    assert (gate.messages(turn), gate.events(turn), gate.session("old")) == before
    for name, size in sizes.items():
        with pytest.raises(LookupError):
            gate.payload(step[name])
        shown = gate.get(f"/steps/{step['id']}?expand=payloads").json[name]
        assert shown == {"hash": step[name], "size": size, "pruned": True}
    page = gate.get(f"/ui/steps/{step['id']}").body.decode()
    assert "Body pruned: sent" in page
    assert step["input_payload"] in page
    for path in ("sent", "received", "sent/1"):
        reply = gate.get(f"/ui/steps/{step['id']}/{path}")
        assert (reply.status, "body pruned" in reply.body.decode().lower()) == (404, True)
    assert gate.get(f"/ui/requests/{log['id']}").body.decode().count("Body pruned: ") == 2
    assert gate.get(f"/ui/requests/{log['id']}/request").status == 404
    assert gate.get(f"/requests/{log['id']}/curl").error["code"] == "body_pruned"
    for page in (
        f"turns/{turn['id']}",
        f"steps/{step['id']}?tab=raw",
        "sessions/" + before[2]["id"],
    ):
        assert gate.get(f"/ui/{page}").status == 200
    # Again: nothing more goes.
    assert prune(gate, bodies_before=now())["bodies"]["count"] == 0


def test_a_body_that_is_sent_again_is_whole_again(gate: Gate) -> None:
    gate.model.always(says("ok"))
    gate.post(chat(TEXT), x_session_id="old")
    first = gate.turns("old")[0]
    prune(gate, bodies_before=now())
    assert first["input_payload"] in pruned(gate.store)
    gate.post(chat(TEXT), x_session_id="later")
    second = gate.turns("later")[0]
    assert second["input_payload"] == first["input_payload"]
    assert gate.payload(first["input_payload"]) == orjson.dumps(chat(TEXT))
    assert whole(gate, second)


def test_a_body_shared_by_an_old_and_a_new_session_stays(gate: Gate) -> None:
    gate.model.always(says("ok"))
    history = [user(f"{n} {TEXT}") if n % 2 == 0 else said(f"{n}") for n in range(41)]
    gate.post(chat(*history), x_session_id="old")
    gate.post(chat("only here, " + TEXT), x_session_id="old")
    moment = now()
    gate.post(chat(*history), x_session_id="later")
    gate.post(chat(*history, said("ok"), user("more")), x_session_id="later")
    bodies = [whole(gate, turn) for turn in gate.turns("later")]
    done = prune(gate, bodies_before=moment)
    assert done["bodies"]["count"] > 0
    assert [whole(gate, turn) for turn in gate.turns("later")] == bodies
    shared, alone = gate.turns("old")
    assert gate.payload(shared["input_payload"]) == orjson.dumps(chat(*history))
    assert alone["input_payload"] in pruned(gate.store)
    prune(gate, before=moment)  # "old" is gone, what it shared is not
    assert gate.turns("old") == []
    assert [whole(gate, turn) for turn in gate.turns("later")] == bodies
    assert pruned(gate.store) == set()


def test_what_is_under_way_keeps_its_bodies(gate: Gate) -> None:
    gate.model.will(asks_for("c1"))
    gate.post(chat("use a tool", **named("waits")))
    done = prune(gate, bodies_before=now(), before=now())
    assert (done["sessions"], done["busy_sessions"], done["bodies"]["count"]) == (0, 1, 0)
    (turn,) = gate.turns("waits")
    assert (turn["status"], bool(whole(gate, turn))) == ("running", True)


def test_bodies_of_the_sessions_that_fit_alone(gate: Gate) -> None:
    gate.model.always(says("ok"))
    for name in ("one", "other"):
        gate.post(chat(f"{name} {TEXT}", **named(name)))
    gate.post(chat(f"none {TEXT}"))
    prune(gate, bodies_before=now(), filters={"session_key": ["one"]})
    assert whole(gate, gate.turns("other")[0])
    assert gate.turns("one")[0]["input_payload"] in pruned(gate.store)
    assert whole(gate, gate.all(Turn, Turn.session_id.is_null())[0])


# -- sessions, and turns without one ---------------------------------------------------------------


def test_sessions_and_turns_without_activity_go_with_everything_in_them(gate: Gate) -> None:
    gate.model.always(says("ok"))
    gate.post(chat(TEXT, **named("old")))
    gate.post(chat("alone " + TEXT))
    moment = now()
    gate.post(chat("new", **named("later")))
    gate.post(chat("new and alone"))
    done = prune(gate, before=moment)
    assert (done["sessions"], done["turns"], done["busy_sessions"]) == (1, 1, 0)
    assert [session["session_key"] for session in gate.sessions()] == ["later"]
    assert len(gate.all(Turn)) == 2
    assert all(step["turn_id"] in {t["id"] for t in gate.all(Turn)} for step in gate.all(Step))
    told = {row["turn_id"] for row in gate.all(Event) if row["turn_id"]}
    assert told == {turn["id"] for turn in gate.all(Turn)}
    assert all(whole(gate, turn) for turn in gate.all(Turn))
    # Its key begins a new session.
    gate.post(chat("again", **named("old")))
    assert gate.session("old")["turn_count"] == 1
    # What is told of sessions that are gone goes once it is old itself.
    prune(gate, before=now())
    gate.post(chat("last", **named("last")))
    assert "session.deleted" in {row["type"] for row in gate.all(Event)}
    prune(gate, before=now())
    assert [row["type"] for row in gate.all(Event)] == ["session.deleted"]


def test_a_filter_alone_names_the_sessions_that_go(gate: Gate) -> None:
    gate.model.always(says("ok"))
    for name in ("keep", "drop-1", "drop-2"):
        gate.post(chat("hello", **named(name)))
    gate.post(chat("without a session"))
    done = prune(gate, filters={"q": "drop"})
    assert (done["sessions"], done["turns"]) == (2, 0)
    assert [session["session_key"] for session in gate.sessions()] == ["keep"]


def test_archived_sessions_go_by_their_age_too(gate: Gate) -> None:
    gate.model.always(says("ok"))
    gate.post(chat("hello", **named("shelved")))
    Reading(gate.send({"status": "archived"}, "/sessions/shelved", "PATCH")).rest()
    assert prune(gate, before=now())["sessions"] == 1


@pytest.mark.parametrize(
    ("wanted", "param"),
    [
        ({}, "before"),
        ({"before": "yesterday"}, "before"),
        ({"bodies_before": 7}, "bodies_before"),
        ({"filters": {"colour": "red"}}, "colour"),
        ({"filters": ["x"]}, "filters"),
        ({"filters": {"model": [1]}}, "filters"),
        ({"filters": {}}, "filters"),
        ({"filters": {"model": []}}, "filters"),
        ({"filters": {"model": ["gpt-4o"], "q": []}}, "filters"),
        ({"everything": True}, "everything"),
    ],
)
def test_what_cannot_be_meant_is_refused(gate: Gate, wanted: Any, param: str) -> None:
    gate.model.always(says("ok"))
    gate.post(chat("hello", **named("stays")))
    reply = gate.post(wanted, "/prune")
    assert (reply.status, reply.error["param"]) == (422, param)
    assert [session["session_key"] for session in gate.sessions()] == ["stays"]


def test_a_client_key_does_not_prune(tmp_path: Path) -> None:
    keys = {"server": Server(token="the-token-1234"), "keys": (ClientKey(key="a-key-of-a-team"),)}
    with gate_and_model(tmp_path, **keys) as gate:
        by_key = gate.post({"before": now()}, "/prune", authorization="Bearer a-key-of-a-team")
        by_token = gate.post({"before": now()}, "/prune", authorization="Bearer the-token-1234")
    assert (by_key.status, by_key.error["code"]) == (403, "token_needed")
    assert by_token.status == 200


# -- retention -------------------------------------------------------------------------------------


def age(store: Path, session: str, days: int) -> None:
    """Have everything of a session happen that many days earlier."""
    columns = {
        "sessions": ("created_at", "updated_at", "last_turn_at"),
        "turns": ("created_at", "updated_at", "started_at", "ended_at"),
        "steps": ("started_at", "ended_at"),
    }
    with sqlite3.connect(store) as database:
        (id,) = database.execute(
            "SELECT id FROM sessions WHERE session_key = ?", (session,)
        ).fetchone()
        for table, names in columns.items():
            key = "id" if table == "sessions" else "session_id"
            for name in names:
                rows = database.execute(
                    f"SELECT rowid, {name} FROM {table} WHERE {key} = ? AND {name} IS NOT NULL",
                    (id,),
                ).fetchall()
                for rowid, text in rows:
                    earlier = clock.from_db(text) - timedelta(days=days)
                    database.execute(
                        f"UPDATE {table} SET {name} = ? WHERE rowid = ?",
                        (clock.to_db(earlier), rowid),
                    )


def test_what_is_older_than_is_kept_goes_when_the_server_starts(tmp_path: Path) -> None:
    with gate_and_model(tmp_path) as gate:
        gate.model.always(says("ok"))
        for name in ("days", "weeks", "years"):
            gate.post(chat(f"{name} {TEXT}", **named(name)))
    age(tmp_path / "xgw.db", "weeks", 20)
    age(tmp_path / "xgw.db", "years", 800)
    kept = Retention(bodies_days=10, metadata_days=365)
    with gate_and_model(tmp_path, retention=kept) as gate:
        eventually(lambda: gate.turns("weeks")[0]["input_payload"] in pruned(gate.store))
        assert [row["session_key"] for row in gate.all(Session, by=Session.created_at.desc())] == [
            "days",
            "weeks",
        ]
        assert whole(gate, gate.turns("days")[0])


# -- the tables of an older program ----------------------------------------------------------------


def older_tables(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE legacy_conversations (id INTEGER PRIMARY KEY, title TEXT)")
        database.execute(
            "CREATE TABLE legacy_messages (id INTEGER PRIMARY KEY, conversation_id INTEGER "
            "REFERENCES legacy_conversations (id), content TEXT)"
        )
        database.execute('CREATE TABLE "legacy_odd ""name""" (x)')
        database.executemany(
            "INSERT INTO legacy_conversations VALUES (?, 't')", [(n,) for n in range(5000)]
        )
        database.executemany(
            "INSERT INTO legacy_messages VALUES (?, ?, 'hello')", [(n, n) for n in range(5000)]
        )


def test_the_tables_of_an_older_program_go_on_request_alone(gate: Gate) -> None:
    older_tables(gate.store.path)
    prune(gate, before=now())
    names = "SELECT name FROM sqlite_master WHERE name GLOB 'legacy_*'"
    assert len(gate.store.sql(names)) == 3
    refused = gate.post({"legacy": True, "before": now()}, "/prune")
    assert (refused.status, refused.error["code"]) == (409, "not_taken_over")
    assert len(gate.store.sql(names)) == 3
    with sqlite3.connect(gate.store.path) as database:
        database.execute(
            "INSERT INTO takeovers (source, state, started_at, finished_at) VALUES (?, '', ?, ?)",
            (migrations.IN_PLACE, now(), now()),
        )
    done = prune(gate, legacy=True)
    assert gate.store.sql(names) == []
    assert {one["table"]: one["rows"] for one in done["legacy"]} == {
        "legacy_conversations": 5000,
        "legacy_messages": 5000,
        'legacy_odd "name"': 0,
    }


# -- while others record ---------------------------------------------------------------------------


def check_all_there(store: Store, gone: set[str] = frozenset()) -> int:
    """Whatever a row refers to can be put together, or is known to be pruned; how many can."""
    columns = (
        (Turn.input_payload, Turn.config_snapshot),
        (Step.input_payload, Step.output_payload),
        (RequestLog.request_payload, RequestLog.response_body),
    )
    found = 0
    for some in columns:
        for row in store.fetch(some[0].model.select(*some)):
            for key in filter(None, row.values()):
                if key not in gone:
                    assert payloads.load(store, key)
                    found += 1
    return found


def test_nothing_that_is_referred_to_goes_while_a_server_records(gate: Gate) -> None:
    gate.model.always(says("the same answer"))
    done, failed = threading.Event(), list[Reply]()

    def talk(number: int) -> None:
        history: list[Row] = []
        while not done.is_set():
            history.append(user(f"question {len(history)} {TEXT}"))
            # Bodies of all talkers are the same: what one needs no more another begins to need.
            reply = gate.post(chat(*history), x_session_id=f"talk-{number}")
            if reply.status != 200:
                failed.append(reply)
            history.append(said("the same answer"))
            if len(history) > 60:
                history = []

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(gate.all(Turn)) > 20)
    emptied, last = 0, now()
    for number in range(8):
        last = now()
        emptied += prune(gate, bodies_before=last)["bodies"]["count"]
        if number % 3 == 2:
            prune(gate, filters={"session_key": [f"talk-{number % 2}"]})
    done.set()
    for thread in threads:
        thread.join(DEADLINE)
    assert (failed, emptied > 0) == ([], True)
    eventually(lambda: not gate.all(Turn, Turn.status == "running"))
    for turn in gate.all(Turn, Turn.ended_at > clock.parse_time(last)):
        assert whole(gate, turn)
    check_all_there(gate.store, pruned(gate.store))


class Recorder:
    """A process of its own, in all but name: its own writer and shelf on the store."""

    def __init__(self, path: Path, *, others_delete: bool) -> None:
        self.store = Store(path)
        migrations.migrate(self.store)
        self.writer = Writer(self.store, lambda events: None)
        self.shelf = Shelf(others_delete=others_delete)
        self.sweep = Sweep(self.store, self.writer, self.shelf, rests=False)
        self.writer.start()

    def close(self) -> None:
        self.sweep.stop()
        self.writer.stop()
        self.store.close()

    def keep(self, stored: Stored, ended_at: datetime) -> str:
        """A request that refers to the body, committed; its id."""
        row = {
            "id": ids.mint("req"),
            "project_id": "default",
            "request_payload": stored.hash,
            "started_at": ended_at,
            "ended_at": ended_at,
        }
        rows = list(stored.rows)

        def work(tx: Transaction) -> None:
            tx.insert("request_logs", row)
            tx.after_commit.append(lambda: self.shelf.committed(rows))

        assert self.writer.submit(work, bodies=Bodies(rows)).wait(DEADLINE)
        return str(row["id"])

    def drop(self, name: str) -> None:
        def work(tx: Transaction) -> None:
            tx.execute("DELETE FROM request_logs WHERE id = ?", (name,))
            count_deletion(tx)

        assert self.writer.submit(work).wait(DEADLINE)


def body(*texts: str) -> bytes:
    return orjson.dumps(chat(*texts))


def test_what_another_process_writes_meanwhile_stays(tmp_path: Path) -> None:
    server = Recorder(tmp_path / "xgw.db", others_delete=False)
    other = Recorder(tmp_path / "xgw.db", others_delete=True)
    done = threading.Event()
    long_ago = clock.now() - timedelta(days=30)

    def come_and_go(recorder: Recorder, seed: int) -> None:
        dice, mine = random.Random(seed), list[str]()
        while not done.is_set():
            texts = [f"message {n}" for n in range(dice.choice((3, 20, 100)))]
            stored = recorder.shelf.request(body(*texts, dice.choice("abc")))
            mine.append(recorder.keep(stored, dice.choice((clock.now(), long_ago))))
            if len(mine) > 4:
                recorder.drop(mine.pop(dice.randrange(len(mine))))

    threads = [
        threading.Thread(target=come_and_go, args=(recorder, seed))
        for recorder, seed in ((server, 1), (other, 2), (other, 3))
    ]
    for thread in threads:
        thread.start()
    for _ in range(12):
        server.sweep.sweep(Aged(clock.now() - timedelta(days=1)))
    done.set()
    for thread in threads:
        thread.join(DEADLINE)
    recent = server.store.fetch(RequestLog.select().where(RequestLog.ended_at > long_ago))
    for row in recent:
        assert payloads.load(server.store, row["request_payload"])
    assert recent
    check_all_there(server.store, pruned(server.store))
    other.close()
    server.close()


def test_a_row_that_has_the_number_of_a_deleted_one_is_new(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "xgw.db", others_delete=True)

    def keep(text: str) -> tuple[str, str]:
        stored = recorder.shelf.request(body(text))
        return recorder.keep(stored, clock.now()), stored.hash

    keep("stays")
    last = [keep(f"goes {number}")[0] for number in range(3)]
    with Marks(recorder.store, lambda: None) as marks:
        marks.mark_referenced()
        for name in last:
            recorder.drop(name)
        new = [keep(f"new {number}")[1] for number in range(4)]
        assert not any(map(marks.has, new))
        marks.catch_up()
        assert all(map(marks.has, new))
        recorder.drop(keep("gone at once")[0])
        newest = keep("in its place")[1]
        marks.catch_up()
        assert marks.has(newest)
    recorder.close()


# -- the command -----------------------------------------------------------------------------------


def run(path: Path, *arguments: str, stdin: int = subprocess.DEVNULL) -> Any:
    return subprocess.run(
        [*XGW, "prune", *arguments, "--db", str(path)],
        cwd=path.parent,
        stdin=stdin,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 1,500 requests long ago, and some that share what they sent today."""
    path = tmp_path_factory.mktemp("many") / "xgw.db"
    recorder = Recorder(path, others_delete=False)
    long_ago = clock.now() - timedelta(days=30)
    tickets = []
    for number in range(1500):
        stored = recorder.shelf.request(body(f"a question {number} {TEXT}", "the same"))
        row = {
            "id": ids.mint("req"),
            "project_id": "default",
            "request_payload": stored.hash,
            "started_at": clock.now() if number % 100 == 0 else long_ago,
            "ended_at": clock.now() if number % 100 == 0 else long_ago,
        }
        tickets.append(
            recorder.writer.submit(
                lambda tx, row=row: tx.insert("request_logs", row), bodies=Bodies(list(stored.rows))
            )
        )
    assert all(ticket.wait(DEADLINE) for ticket in tickets)
    recorder.close()
    return path


def state(path: Path) -> Any:
    """What a prune leaves: the payloads with their codecs, and that the file is sound."""
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("PRAGMA user_version").fetchone() == (0,)
        return set(database.execute("SELECT hash, codec FROM payloads"))


def copied(path: Path, folder: Path) -> Path:
    return Path(shutil.copy(path, folder / "xgw.db"))


@pytest.mark.slow
def test_killed_in_the_middle_it_leaves_a_sound_store_and_goes_on(
    many: Path, tmp_path: Path
) -> None:
    (tmp_path / "whole").mkdir()
    expected = copied(many, tmp_path / "whole")
    assert run(expected, "--bodies-older-than", "7d").returncode == 0
    path = copied(many, tmp_path)
    command = [*XGW, "prune", "--bodies-older-than", "7d", "--db", str(path)]
    watcher = sqlite3.connect(path, isolation_level=None, timeout=DEADLINE)
    for statement in (
        "SELECT COUNT(*) > 0 FROM payloads WHERE codec = 'pruned'",
        "SELECT COUNT(*) < 4000 FROM payloads WHERE codec <> 'pruned'",
    ):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while process.poll() is None and not watcher.execute(statement).fetchone()[0]:
            pass
        process.send_signal(signal.SIGKILL)
        process.wait(DEADLINE)
        store = Store(path)
        assert check_all_there(store, pruned(store)) >= 15
        store.close()
    watcher.close()
    again = run(path, "--bodies-older-than", "7d", "--json")
    assert (again.returncode, again.stderr) == (0, "")
    assert state(path) == state(expected)


@pytest.mark.slow
def test_a_dry_run_says_what_goes_and_how_large_it_is(many: Path, tmp_path: Path) -> None:
    path = copied(many, tmp_path)
    before = path.read_bytes()
    told = orjson.loads(run(path, "--bodies-older-than", "7d", "--dry-run", "--json").stdout)
    assert path.read_bytes() == before
    done = orjson.loads(run(path, "--bodies-older-than", "7d", "--json").stdout)
    assert (told["bodies"], told["payloads"]) == (done["bodies"], done["payloads"])
    assert done["bodies"]["count"] == 1485
    assert (told["dry_run"], done["dry_run"]) == (True, False)
    freed = orjson.loads(run(path, "--older-than", "7d", "--vacuum", "--json").stdout)
    assert freed["requests"] == 1485
    assert freed["vacuum"]["after"] < freed["vacuum"]["before"]
    assert path.stat().st_size < len(before) / 4
    shown = run(path, "--older-than", "0s", "--dry-run").stdout
    assert "would go:" in shown
    assert "15  requests without a turn" in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--bodies-older-than", "0s"), "nothing was deleted: deleting writes before it frees"),
        (("--vacuum",), "the store was not compacted: to be written anew it needs"),
    ],
)
def test_a_disk_that_is_nearly_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
) -> None:
    filled = FilledStore(tmp_path)
    filled.call(input_payload=filled.body({"messages": [TEXT]}))
    before = filled.store.sql("SELECT * FROM payloads")
    filled.close()
    disk = shutil.disk_usage(tmp_path)._replace(free=100_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: disk)
    command = ["prune", "--yes", *arguments, "--db", str(filled.store.path)]
    with pytest.raises(WorkError, match=words):
        main(command, standalone_mode=False)
    assert filled.store.sql("SELECT * FROM payloads") == before


@pytest.mark.slow
def test_the_command_has_a_running_server_do_it(tmp_path: Path) -> None:
    with installed(tmp_path) as installation:
        server = installation.serve("--demo")
        asked = installation.run("chat", "-m", "demo", "-s", "mine", "hello")
        assert asked.returncode == 0, asked.stderr
        done = installation.run("prune", "mine", "--json")
        assert (done.returncode, orjson.loads(done.stdout)["sessions"]) == (0, 1)
        assert server.popen.poll() is None
        assert orjson.loads(installation.run("sessions", "--json").stdout)["data"] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "say what is to go"),
        (("--older-than", "soon"), "--older-than"),
        (("--agent", ""), "--agent"),
    ],
)
def test_a_command_that_says_nothing_to_be_done(
    many: Path, arguments: tuple[str, ...], words: str
) -> None:
    refused = run(many, *arguments)
    assert (refused.returncode, words in refused.stderr, refused.stdout) == (2, True, "")


def test_a_cursor_outlives_the_events_that_it_stands_for_and_a_restart(tmp_path: Path) -> None:
    model = Model()
    model.always(says())
    with gateway(tmp_path, model) as gate:
        gate.ended(gate.post(chat("alone")))
        last = gate.all(Event)[-1]["seq"]
        prune(gate, before=now())
        assert not gate.all(Event)
    with gateway(tmp_path, model) as gate:
        reading = Reading(gate.send(None, "/events", "GET", Last_Event_ID=str(last)))
        assert reading.status == 200
        gate.post(chat("and another"))
        assert f"id: {last + 1}\nevent: turn.started".encode() in reading.until(b"turn.started")
        reading.leave()
    model.close()
