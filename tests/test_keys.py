"""Client keys that the store knows: made, shown once, listed, revoked while a server runs."""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import socket
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from api_socket import ApiSocket
from api_socket import key as shows
from filled_store import selects
from gateway_fixtures import Client, Gate, Reading, Reply, gate_and_model, gateway
from live_pages import PageSocket, open_page, socket_path
from scripted_model import Model, Row, chat, named, says
from servers import Installation, eventually, installed
from xgw.cli import main
from xgw.cli.server import find_server
from xgw.config import ClientKey, Server
from xgw.errors import UsageError, WorkError
from xgw.recording.keys import NewKey, issue_key, make_key, revoke_key
from xgw.store import migrations
from xgw.store.database import Store
from xgw.store.models import ApiKey
from xgw.store.transaction import Transaction
from xgw.web.keys import IssuedKeys
from xgw.web.sockets import NORMAL, POLICY_VIOLATION


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Installation]:
    with installed(tmp_path, '[[providers]]\nname = "demo"\nkind = "demo"\n') as place:
        yield place


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    with gate_and_model(tmp_path) as gate:
        yield gate


def command(place: Installation, *arguments: str) -> tuple[str, str]:
    """What a command prints, run in this process: stdout and stderr."""
    files = ["--config", str(place.config), "--db", str(place.store)]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        main(["keys", *arguments, *files], standalone_mode=False)
    return out.getvalue(), err.getvalue()


def created(place: Installation, *arguments: str) -> str:
    return command(place, "create", *arguments)[0].strip()


def listed(place: Installation) -> list[Row]:
    rows: list[Row] = orjson.loads(command(place, "list", "--json")[0])["data"]
    return rows


def issued(gate: Gate, name: str = "laptop", project: str = "team") -> NewKey:
    key = make_key(name, project, "acme")
    assert gate.services.writer.submit(lambda tx: issue_key(tx, key)).wait(30)
    return key


def shown(gate: Client, key: str | None, path: str = "/sessions") -> Reply:
    return gate.get(path, **({} if key is None else {"authorization": f"Bearer {key}"}))


# -- the command line ------------------------------------------------------------------------------


def test_a_key_is_shown_once_and_kept_as_a_digest(place: Installation) -> None:
    done = place.run("keys", "create", "laptop")
    assert done.returncode == 0
    key = done.stdout.strip()
    assert re.fullmatch(r"xk-[A-Za-z0-9_-]{32}", key)
    assert key not in done.stderr
    assert "this once" in done.stderr
    assert key.encode() not in place.store.read_bytes()
    (row,) = listed(place)
    assert (row["name"], row["prefix"], row["project_id"]) == ("laptop", key[:11], "default")
    assert (row["org_id"], row["revoked_at"]) == (None, None)
    assert row["id"].startswith("key_")
    assert "hash" not in row
    with sqlite3.connect(place.store) as connection:
        (digest,) = connection.execute("SELECT hash FROM api_keys").fetchone()
    connection.close()
    assert digest == hashlib.sha256(key.encode()).hexdigest()


def test_the_list_for_people(place: Installation) -> None:
    first = created(place, "ci", "--project", "team-a", "--org", "acme")
    second = created(place, "old one")
    command(place, "revoke", second[:11])
    table, _ = command(place, "list")
    assert [line for line in table.splitlines() if "ci" in line and "team-a" in line]
    assert "acme" in table
    assert f"{first[:11]}…" in table
    assert [line for line in table.splitlines() if "old one" in line and "revoked" in line]
    assert first not in table


def test_a_key_as_json(place: Installation) -> None:
    made = orjson.loads(created(place, "ci", "--json"))
    assert made["key"].startswith(made["prefix"])
    assert (made["name"], made["project_id"]) == ("ci", "default")


@pytest.mark.parametrize(
    "arguments",
    [("",), ("two\nlines",), ("x" * 101,), ("a", "--project", ""), ("a", "--org", "\x1b[1m")],
)
def test_names_that_cannot_be(place: Installation, arguments: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="printable"):
        created(place, *arguments)
    assert not place.store.exists()


def test_what_names_a_key_to_be_revoked(place: Installation) -> None:
    by_id, by_prefix, by_key, _ = (created(place, name) for name in "abcd")
    ids = [row["id"] for row in listed(place)]
    for ref in (ids[0], by_prefix[:9], by_key):
        command(place, "revoke", ref)
    assert [row["revoked_at"] is None for row in listed(place)] == [False, False, False, True]
    again = orjson.loads(command(place, "revoke", ids[0], "--json")[0])
    assert again["revoked_at"] == listed(place)[0]["revoked_at"]
    for ref in ("key_" + "0" * 32, "xk-", "nothing", by_id.replace("xk-", "xx-")):
        with pytest.raises(WorkError, match="there is no key"):
            command(place, "revoke", ref)
    with pytest.raises(WorkError, match=ids[0]):
        command(place, "revoke", ids[0][:8])


def test_there_is_nothing_to_list_without_a_store(place: Installation) -> None:
    with pytest.raises(UsageError, match="there is no store"):
        command(place, "list")
    created(place, "a")
    command(place, "revoke", listed(place)[0]["id"])
    assert len(listed(place)) == 1


# -- a server that runs ----------------------------------------------------------------------------


def test_keys_come_and_go_while_the_server_runs(place: Installation) -> None:
    server = place.serve()
    client = Client(server.url)
    assert shown(client, None).status == 200
    first, second = created(place, "first"), created(place, "second")
    eventually(lambda: shown(client, None).status == 401)
    assert (shown(client, first).status, shown(client, second).status) == (200, 200)
    assert client.get("/sessions", x_xgw_key=first).status == 200
    assert client.get("/sessions", x_api_key=first).status == 200
    command(place, "revoke", first[:11])
    eventually(lambda: shown(client, first).status == 401)
    assert shown(client, second).status == 200
    command(place, "revoke", second[:11])
    eventually(lambda: shown(client, second).status == 401)
    # A store that has had keys is never open again without one.
    assert shown(client, None).status == 401
    assert client.get("/health").status == 200
    assert first.encode() not in place.store.read_bytes()


def test_bound_elsewhere_a_key_of_the_store_will_do(place: Installation) -> None:
    elsewhere = ("--host", "0.0.0.0")
    names = {"XGW_ALLOWED_HOSTS": socket.gethostname().lower()}
    refused = place.run("serve", *elsewhere, env=names)
    assert refused.returncode == 2
    assert "xgw keys create" in refused.stderr
    assert not place.store.exists()
    config = {"XGW_HOST": "0.0.0.0", **names}
    key = place.run("keys", "create", "phone", env=config).stdout.strip()
    client = Client(place.serve(*elsewhere, env=names).url)
    assert (shown(client, key).status, shown(client, None).status) == (200, 401)
    assert place.run("keys", "revoke", key[:11], env=config).returncode == 0
    eventually(lambda: shown(client, key).status == 401)
    assert shown(client, None).status == 401
    again = place.run("serve", *elsewhere, env=names)
    assert (again.returncode, "is needed" in again.stderr) == (2, True)


def test_only_its_own_user_can_read_the_servers_key(place: Installation) -> None:
    server = place.serve()
    (announcement,) = place.store.parent.glob("*.server.json")
    assert stat.S_IMODE(announcement.stat().st_mode) == 0o600
    found = find_server(place.store)
    assert found is not None
    assert found.key not in repr(found)
    created(place, "someone")
    client = Client(server.url)
    eventually(lambda: shown(client, None).status == 401)
    assert shown(client, found.key).status == 200
    server.stop()
    server = place.serve()
    assert shown(Client(server.url), found.key).status == 401


# -- what a key opens ------------------------------------------------------------------------------


def test_traffic_with_a_key_is_recorded_under_its_project_and_name(gate: Gate) -> None:
    key = issued(gate)
    gate.model.will(says())
    reply = gate.post(chat(**named("s")), authorization=f"Bearer {key.key}")
    turn = gate.turn(reply)
    assert turn["project_id"] == "team"
    session = gate.session("s", "team")
    assert (session["org_id"], session["api_key_id"]) == ("acme", key.id)
    (log,) = gate.requests(turn)
    assert log["client"]["key"] == "laptop"
    assert key.key not in str(log)
    assert key.key.encode() not in gate.model.asked[0].head
    assert shown(gate, key.key, "/sessions/s").status == 200
    other = issued(gate, "other", "default")
    eventually(lambda: shown(gate, other.key).status == 200)
    assert shown(gate, other.key, "/sessions/s").status == 404


def test_a_key_in_a_text_is_masked(gate: Gate) -> None:
    key, other = make_key("a", "default").key, "xk-no-key-of-ours"
    gate.model.will(says(f"your key is {key}"))
    turn = gate.turn(gate.post(chat(f"is {key} a key, and {other}?")))
    assert key in gate.model.asked[0].body.decode()
    assert turn["user_input"] == f"is [masked] a key, and {other}?"
    for row in (*gate.steps(turn), *gate.messages(turn), *gate.requests(turn), *gate.events(turn)):
        assert key not in str(row)
    (log,) = gate.requests(turn)
    for body in (log["request_payload"], log["response_body"], turn["input_payload"]):
        assert key.encode() not in gate.payload(body)


def test_configured_and_issued_keys_open_side_by_side(tmp_path: Path) -> None:
    keys = (ClientKey(key="configured-key", project="a"),)
    with gate_and_model(tmp_path, server=Server(token="the-token"), keys=keys) as gate:
        key = issued(gate)
        for opening in ("configured-key", "the-token", key.key):
            eventually(lambda opening=opening: shown(gate, opening).status == 200)
        assert shown(gate, key.key + "x").status == 401
        gate.services.writer.submit(lambda tx: revoke_key(tx, key.id))
        eventually(lambda: shown(gate, key.key).status == 401)
        assert shown(gate, "configured-key").status == 200


def test_requests_cost_no_query(gate: Gate) -> None:
    """The table is read once a second, however many ask."""
    issued(gate)
    known = IssuedKeys(gate.store)
    assert len(known()) == 1
    with selects() as asked:
        for _ in range(1000):
            known()
    assert len(asked) < 100
    with sqlite3.connect(gate.store.path) as connection:
        connection.execute("DELETE FROM api_keys")
    connection.close()
    eventually(lambda: known() == ())


def test_nobody_gets_in_while_keys_cannot_be_read(tmp_path: Path) -> None:
    model = Model()
    with gateway(tmp_path, model) as gate:
        store = Store(tmp_path / "xgw.db")
        broken = Store(tmp_path / "no.db")
        (tmp_path / "no.db").write_bytes(b"no database at all" * 100)
        with pytest.raises(Exception, match="no key can be checked"):
            IssuedKeys(broken)()
        known = IssuedKeys(store)
        key = issued(gate)
        eventually(lambda: len(known()) == 1)
        gate.services.writer.submit(lambda tx: _rename(tx, "api_keys", "gone")).wait(30)
        assert [caller.api_key_id for _, caller in known() if caller] == [key.id]
        store.close()
        broken.close()
    model.close()


def _rename(tx: Transaction, old: str, new: str) -> None:
    tx.execute(f"ALTER TABLE {old} RENAME TO {new}")


def test_digests_are_unique(tmp_path: Path) -> None:
    store = Store(tmp_path / "xgw.db")
    migrations.migrate(store)
    assert len({make_key("same", "p").key for _ in range(100)}) == 100
    assert store.fetch(ApiKey.select()) == []
    store.close()


# -- who watches -----------------------------------------------------------------------------------


def watching(gate: Gate, key: str | None) -> Reading:
    """A reader of all events that has been let in."""
    headers = {} if key is None else shows(key)
    reading = Reading(gate.send(None, "/events", "GET", **headers))
    reading.until(b": connected")
    return reading


def revoked(gate: Gate, key: NewKey) -> None:
    """From here on the key opens nothing."""
    assert gate.services.writer.submit(lambda tx: revoke_key(tx, key.id)).wait(30)
    eventually(lambda: shown(gate, key.key).status == 401)


def test_who_watches_with_a_revoked_key_is_told_nothing_more(tmp_path: Path) -> None:
    with gate_and_model(tmp_path, server=Server(heartbeat_seconds=0.1)) as gate:
        old, new = issued(gate, "old"), issued(gate, "new")
        eventually(lambda: shown(gate, old.key).status == 200)
        reading, staying = watching(gate, old.key), watching(gate, new.key)
        with (
            ApiSocket(gate, **shows(old.key)) as client,
            ApiSocket(gate, **shows(old.key)) as listing,
        ):
            gate.post({"session_key": "s"}, path="/sessions", **shows(old.key))
            client.ask("session.subscribe", session_id="s")
            listing.ask("sessions.subscribe")
            revoked(gate, old)
            assert [client.end(), listing.end()] == [POLICY_VIOLATION] * 2
        reading.until_end()
        gate.model.will(says("secret"))
        gate.ended(gate.post(chat(**named("s")), **shows(new.key)))
        assert b"secret" in staying.until(b"event: turn.completed")
        assert b"secret" not in reading.body
        reading.close()
        staying.close()


def test_a_first_key_shuts_out_who_watches_without_one(tmp_path: Path) -> None:
    with gate_and_model(tmp_path, server=Server(heartbeat_seconds=0.1)) as gate:
        reading = watching(gate, None)
        page = PageSocket(gate, socket_path(open_page(gate, "/ui/")))
        with ApiSocket(gate) as client:
            key = issued(gate)
            eventually(lambda: shown(gate, None).status == 401)
            assert client.end() == POLICY_VIOLATION
        reading.until_end()
        assert page.end() == NORMAL
        assert page.messages[-1] == {"reload": True}
        page.close()
        assert shown(gate, key.key).status == 200
        reading.close()
