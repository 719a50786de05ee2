"""Bundles become stores of their own, or are refused in one sentence with nothing left behind."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

import bundles
import handmade
from cli_stores import FixedStore
from handmade import body, bundle, event, hash_of, id_of, message, request, run, session, step, turn
from xgw.portable import imports
from xgw.portable.imports import Imports
from xgw.portable.parsing import MOST_ROW, read_pieces
from xgw.portable.refusal import BadBundle
from xgw.portable.unpacking import DENSE_FROM, Unpacked
from xgw.portable.versions import VERSIONS, Versions
from xgw.queries import messages, payloads, sessions
from xgw.queries.pages import Page
from xgw.store.database import Store

Json = dict[str, Any]


def files(folder: Path) -> list[str]:
    """What is in the folder of imports."""
    there = folder / "xgw.db.imports"
    return sorted(path.name for path in there.iterdir()) if there.exists() else []


def refusal(folder: Path, content: bytes) -> str:
    """The sentence with which a bundle is refused; nothing may be left of it."""
    with pytest.raises(BadBundle) as raised:
        handmade.add(folder, content)
    assert files(folder) == []
    assert Imports(folder / "xgw.db").list() == []
    sentence = str(raised.value)
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize("spelled", [handmade.spelled, handmade.packed, handmade.lines])
def test_every_spelling_is_read(tmp_path: Path, spelled: Callable[[Json], bytes]) -> None:
    one = handmade.add(tmp_path, spelled(bundle()), "../some/where/bug.json")

    assert one.file == "bug.json"
    assert one.version == "9.8.7"
    assert one.to_json()["exported_at"] == handmade.EXPORTED_AT
    assert one.counts == {
        "sessions": 1,
        "turns": 1,
        "runs": 1,
        "steps": 1,
        "messages": 2,
        "request_logs": 1,
        "events": 1,
    }
    assert files(tmp_path) == [f"{one.id}.db"]
    with imports.opened(one.path) as store:
        found = sessions.find_session(store, "key-1")
        assert found is not None
        assert found["id"] == id_of("sess")
        said = messages.list_messages(store, id_of("sess"), Page(10, None, "asc")).rows
        assert [row["content"] for row in said] == ["Where?", "Here."]
        assert payloads.find_body(store, hash_of(handmade.SENT)) == handmade.SENT.encode()


def test_the_same_bundle_twice_is_one_import(tmp_path: Path) -> None:
    first = handmade.add(tmp_path, handmade.spelled(bundle()))
    again, is_new = Imports(tmp_path / "xgw.db").add(BytesIO(handmade.packed(bundle())), "other.gz")

    assert (again.id, again.file, is_new) == (first.id, "bug.json", False)
    assert len(files(tmp_path)) == 1


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store with tries, tools, and what is to be masked."""
    filled = FixedStore(tmp_path_factory.mktemp("fixed"))
    session = filled.session("mail-1")
    history = [
        {"role": "user", "content": f"Write to person{number}@example.org, please. " * 20}
        for number in range(40)
    ]
    body = filled.body(b'{"model": "m", "messages": ' + json.dumps(history).encode() + b"}")
    turn = filled.turn(session, user_input="Write to person1@example.org", input_payload=body)
    filled.step(filled.run(turn), turn, session_id=session, input_payload=body)
    filled.message(session, turn, 0, content="Write to person1@example.org, please. " * 40)
    image = filled.body(b'"data:image/png;base64,' + b"A" * 900 + b'"')
    filled.message(session, turn, 1, parts={"image": {"payload": image, "size": 925}})
    yield filled.store
    filled.close()


@pytest.mark.parametrize("format", ["json", "jsonl"])
@pytest.mark.parametrize("redact", [True, False])
@pytest.mark.parametrize("has_bodies", [True, False])
def test_an_import_is_exported_again_as_it_was(
    fixed: Store, tmp_path: Path, format: str, redact: bool, has_bodies: bool
) -> None:
    asked = {"format": format, "redact": redact, "bodies": has_bodies}
    first = bundles.export(fixed, **asked)

    one = handmade.add(tmp_path, first)
    with imports.opened(one.path) as store:
        second = bundles.export(store, **asked)

    if format == "jsonl":
        *before, tail = map(json.loads, first.splitlines())
        *after, other_tail = map(json.loads, second.splitlines())
        assert after == before
    else:
        tail, other_tail = bundles.read(first), bundles.read(second)
    assert b"person1@" not in second or not redact
    assert tail.pop("imported") is None
    assert other_tail.pop("imported")["id"] == one.id
    assert other_tail == tail


def test_a_part_of_an_import_says_what_was_asked_for(fixed: Store, tmp_path: Path) -> None:
    one = handmade.add(tmp_path, bundles.export(fixed, redact=True))

    with imports.opened(one.path) as store:
        found = sessions.find_session(store, "mail-1")
        assert found is not None
        part = bundles.read(bundles.export(store, ("session", found["id"]), redact=True))

    assert part["asked_for"] == [found["id"]]
    assert part["exported_at"] == one.head["exported_at"]
    assert len(part["sessions"]) == 1


def test_a_removed_import_is_gone(tmp_path: Path) -> None:
    one = handmade.add(tmp_path, handmade.spelled(bundle()))
    there = Imports(tmp_path / "xgw.db")

    assert there.get(one.id[:12]).id == one.id
    assert there.remove(one.id)
    assert not there.remove(one.id)
    assert not there.remove("../xgw.db")
    assert there.find(one.id) is None
    assert files(tmp_path) == []


def test_what_a_killed_import_left_is_cleared(tmp_path: Path) -> None:
    folder = tmp_path / "xgw.db.imports"
    folder.mkdir()
    (folder / "dead.part").write_bytes(b"half")
    (folder / "dead.part-wal").write_bytes(b"half")
    (folder / "dead.part.owner").write_text("other-boot:1:1")

    one = handmade.add(tmp_path, handmade.spelled(bundle()))

    assert files(tmp_path) == [f"{one.id}.db"]


def test_an_older_version_is_converted_on_the_way_in() -> None:
    def named_anew(piece: tuple[str, Any]) -> Any:
        name, value = piece
        if name == "sessions":
            value = {**value, "title": "converted"}
        yield name, value

    versions = Versions(3, {1: named_anew, 2: lambda piece: iter([piece])})
    file = Unpacked(BytesIO(handmade.spelled(bundle())))

    rows = [value for name, value in read_pieces(file, versions) if name == "sessions"]

    assert [row["title"] for row in rows] == ["converted"]


def test_the_first_version_needs_no_converter() -> None:
    assert (VERSIONS.current, dict(VERSIONS.converters)) == (1, {})


def test_a_body_of_parts_is_put_together(tmp_path: Path) -> None:
    said = json.dumps({"role": "user", "content": "long " * 50})
    sent = f'{{"model": "m", "messages": [{said},{said}]}}'
    pair = f"{said},{said}"
    told = [
        body(said),
        {
            "hash": hash_of(pair),
            "size": len(pair),
            "parts": [{"ref": hash_of(said)}, ",", {"ref": hash_of(said)}],
        },
        {
            "hash": hash_of(sent),
            "size": len(sent),
            "parts": ['{"model": "m", "messages": [', {"ref": hash_of(pair)}, "]}"],
        },
        body(handmade.ANSWERED),
    ]
    whole = bundle(
        steps=[step(input_payload=hash_of(sent))],
        request_logs=[request(request_payload=hash_of(sent))],
        payloads=told,
    )

    one = handmade.add(tmp_path, handmade.spelled(whole))

    with imports.opened(one.path) as store:
        assert payloads.find_body(store, hash_of(sent)) == sent.encode()


def test_a_body_may_be_gone(tmp_path: Path) -> None:
    one = handmade.add(tmp_path, handmade.spelled(bundle(payloads=[body(handmade.SENT)])))

    with imports.opened(one.path) as store:
        assert payloads.find_body(store, hash_of(handmade.ANSWERED)) is None


def test_what_was_left_out_is_told(tmp_path: Path) -> None:
    gap = {"length": 1234, "hash": hash_of("x")}
    whole = bundle(
        messages=[message(content=gap, parts=gap, tool_calls=[{"name": "t", "arguments": gap}])],
        events=[event(payload={"text": gap})],
        payloads=[{"hash": hash_of(handmade.SENT), "size": 99}],
        redaction={"on": True, "bodies": False, "masked": []},
    )

    one = handmade.add(tmp_path, handmade.spelled(whole))

    assert not one.has_bodies
    with imports.opened(one.path) as store:
        (row,) = messages.list_messages(store, id_of("sess"), Page(10, None, "asc")).rows
        words = "(1,234 characters, left out of the bundle)"
        assert (row["content"], row["parts"]) == (words, None)
        assert row["tool_calls"] == [{"name": "t", "arguments": words}]


LONG = 10 << 20


def nested(levels: int) -> Json:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return {"deep": value}


def with_text(text: str, **changes: Any) -> bytes:
    """A bundle with a piece of its text replaced by another."""
    return handmade.spelled(bundle(**changes)).replace(b'"HERE"', text.encode())


def doubling(levels: int) -> list[Json]:
    """Bodies each of which is the one before it twice."""
    text, told = "x" * 1024, [body("x" * 1024)]
    for _ in range(levels):
        part = {"ref": hash_of(text)}
        text += text
        told.append({"hash": hash_of(text), "size": len(text), "parts": [part, part]})
    return told


REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "nothing": (lambda: b"", "not whole"),
    "no JSON": (lambda: b"hello", "no valid JSON"),
    "no object": (lambda: b"[1]", "is no JSON object"),
    "another document": (lambda: b'{"log": {"entries": []}}', "does not begin with 'xgw_bundle'"),
    "a newer one": (
        lambda: handmade.spelled(bundle(xgw_bundle=2)),
        "version 2, and this xgw",
    ),
    "no version": (lambda: handmade.spelled(bundle(xgw_bundle="1")), "no version"),
    "version 0": (lambda: handmade.spelled(bundle(xgw_bundle=0)), "no version"),
    "an unknown field": (lambda: handmade.spelled(bundle(more=1)), "not known: 'more'"),
    "cut off": (lambda: handmade.spelled(bundle())[:-40], "not whole"),
    "lines cut off": (lambda: handmade.lines(bundle())[:-90].rpartition(b"\n")[0], "not whole"),
    "gzip cut off": (lambda: handmade.packed(bundle())[:-20], "not whole"),
    "gzip damaged": (lambda: handmade.packed(bundle())[:60] + b"\0" * 200, "no valid gzip"),
    "more behind it": (lambda: handmade.spelled(bundle()) + b"{]", "no valid JSON"),
    "a field twice": (
        lambda: handmade.spelled(bundle())[:-1] + b', "filter": null}',
        "says 'filter' twice",
    ),
    "a key twice": (
        lambda: with_text('{"a": 1, "a": 2}', sessions=[session(metadata="HERE")]),
        "says 'a' twice",
    ),
    "NaN": (lambda: with_text("NaN", sessions=[session(cost_usd="HERE")]), "no valid JSON"),
    "no number that fits": (
        lambda: with_text("9" * 40, sessions=[session(input_tokens="HERE")]),
        "no valid JSON",
    ),
    "too deep": (
        lambda: handmade.spelled(bundle(sessions=[session(metadata=nested(300))])),
        "deep",
    ),
    "no list": (lambda: handmade.spelled(bundle(turns={})), "turns is no list"),
    "no row": (lambda: handmade.spelled(bundle(turns=[7])), "turns[0] is no row"),
    "an unknown column": (
        lambda: handmade.spelled(bundle(sessions=[session(surprise=1)])),
        "no column 'surprise'",
    ),
    "an unknown table": (
        lambda: handmade.lines(bundle()).replace(b'"table": "runs"', b'"table": "api_keys"'),
        "not known: 'api_keys'",
    ),
    "a path for an id": (
        lambda: handmade.spelled(bundle(sessions=[session(id="../../etc/passwd")])),
        "sessions[0].id is no id",
    ),
    "NUL in an id": (
        lambda: handmade.spelled(bundle(sessions=[session(id="sess_\0")])),
        "sessions[0].id is no id",
    ),
    "an id twice": (
        lambda: handmade.spelled(bundle(sessions=[session(), session(session_key="b")])),
        "two rows with the same sessions.id",
    ),
    "a turn of nothing": (
        lambda: handmade.spelled(bundle(turns=[turn(session_id=id_of("sess", 9))])),
        "turns that stands in none of its sessions",
    ),
    "a state that is none": (
        lambda: handmade.spelled(bundle(turns=[turn(status="great")])),
        "turns[0].status is none of",
    ),
    "a missing state": (
        lambda: handmade.spelled(bundle(turns=[turn(status=None)])),
        "turns[0].status is missing",
    ),
    "a text for a number": (
        lambda: handmade.spelled(bundle(steps=[step(latency_ms="long")])),
        "steps[0].latency_ms is no whole number",
    ),
    "a list for a text": (
        lambda: handmade.spelled(bundle(messages=[message(content=["a"])])),
        "messages[0].content is no text",
    ),
    "a list for metadata": (
        lambda: handmade.spelled(bundle(runs=[run(metadata=[1])])),
        "runs[0].metadata is no object",
    ),
    "a call without a state": (
        lambda: handmade.spelled(bundle(runs=[run(checkpoint={"pending_tool_calls": [{}]})])),
        "runs[0].checkpoint has a call without a state",
    ),
    "a task of nobody": (
        lambda: handmade.spelled(
            bundle(runs=[run(checkpoint={"pending_tool_calls": [{"state": "open", "task": {}}]})])
        ),
        "runs[0].checkpoint has a task without an agent",
    ),
    "odd frames": (
        lambda: handmade.spelled(bundle(request_logs=[request(frames=[[9, 1], [3, 2]])])),
        "request_logs[0].frames is no list of offsets",
    ),
    "no time": (
        lambda: handmade.spelled(bundle(turns=[turn(started_at="yesterday")])),
        "turns[0].started_at not a time",
    ),
    "a time out of range": (
        lambda: handmade.spelled(bundle(turns=[turn(started_at="9999-12-31T23:59:59Z")])),
        "is not in the years 1970 to 2200",
    ),
    "an event that is none": (
        lambda: handmade.spelled(bundle(events=[event(type="boom")])),
        "events[0].type is no type of event",
    ),
    "an event whose type is a list": (
        lambda: handmade.spelled(bundle(events=[event(type=[None])])),
        "events[0].type is no type of event",
    ),
    "a seq that is none": (
        lambda: handmade.spelled(bundle(events=[event(seq=0)])),
        "events[0].seq is no seq",
    ),
    "a reference in an event": (
        lambda: handmade.spelled(bundle(events=[event(payload={"text": {"payload": "x"}})])),
        "events[0].payload has text that is no text",
    ),
    "a wrong hash": (
        lambda: handmade.spelled(bundle(payloads=[{**body("a"), "text": "b"}])),
        "payloads[0] is not what its hash and size say",
    ),
    "a wrong size": (
        lambda: handmade.spelled(bundle(payloads=[{**body("a"), "size": 2}])),
        "payloads[0] is not what its hash and size say",
    ),
    "a reference to nothing": (
        lambda: handmade.spelled(
            bundle(payloads=[{"hash": hash_of("a"), "size": 1, "parts": [{"ref": hash_of("a")}]}])
        ),
        "which is not before it",
    ),
    "a circle": (
        lambda: handmade.spelled(
            bundle(
                payloads=[
                    {"hash": hash_of("a"), "size": 1, "parts": [{"ref": hash_of("b")}]},
                    {"hash": hash_of("b"), "size": 1, "parts": [{"ref": hash_of("a")}]},
                ]
            )
        ),
        "which is not before it",
    ),
    "bodies that double": (lambda: handmade.spelled(bundle(payloads=doubling(14))), "far more"),
    "a body that is too long": (
        lambda: handmade.spelled(
            bundle(payloads=[{"hash": "0" * 32, "size": 1 << 40, "parts": []}])
        ),
        "payloads[0] is over 256 MiB",
    ),
    "rows behind bodies": (
        lambda: handmade.lines(bundle()) + b'{"table": "sessions", "row": {}}\n',
        "sessions behind its payloads",
    ),
    "no base64": (
        lambda: handmade.spelled(bundle(payloads=[{"hash": "0" * 32, "size": 1, "base64": "?"}])),
        "payloads[0] is no base64",
    ),
}


def _masked(**changes: Any) -> Json:
    """What a head tells of one masked value."""
    place = {"table": "turns", "id": "turn_1", "field": "user_input"}
    one = {"kind": "key", "placeholder": "[key-1]", "count": 1, "places": [place]}
    return {"redaction": {"on": True, "bodies": True, "masked": [one | changes]}}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"exported_at": "yesterday"}, "when it was exported: exported_at is of the wrong kind"),
        ({"exported_at": "0001-01-01T00:00:00Z"}, "when it was exported"),
        ({"exported_at": 5}, "when it was exported"),
        ({"xgw": None}, "by which xgw it was exported: xgw is of the wrong kind"),
        ({"xgw": {"version": "1"}}, "by which xgw it was exported: xgw.python is missing"),
        ({"xgw": handmade.SOFTWARE | {"platform": 1}}, "xgw.platform is of the wrong kind"),
        ({"asked_for": [1]}, "what was asked for: asked_for[0] is of the wrong kind"),
        ({"asked_for": None}, "what was asked for"),
        ({"filter": "x"}, "what was asked for: filter is of the wrong kind"),
        ({"filter": {}}, "what was asked for: filter is of the wrong kind"),
        ({"filter": {"where": {"a": "b"}}}, "filter.where.a is of the wrong kind"),
        ({"redaction": {"on": True, "bodies": True}}, "redaction.masked is missing"),
        (_masked(places=[0]), "masked in it: redaction.masked[0].places[0] is of the wrong kind"),
        (_masked(count="1"), "redaction.masked[0].count is of the wrong kind"),
        (_masked(more=None), "redaction.masked[0].more is of the wrong kind"),
    ],
)
def test_a_head_says_what_every_reader_of_it_relies_on(
    tmp_path: Path, changes: Json, words: str
) -> None:
    assert words in refusal(tmp_path, handmade.spelled(bundle(**changes)))


def test_secrets_of_an_import_are_masked_when_it_is_exported(tmp_path: Path) -> None:
    """Those of a bundle that was exported as it is, also in what is no row."""
    definition = {"instructions": "Say that password=hunter2hunter2", "tools": {}}
    agents = [{"name": "boss", "definition": definition}, {"name": "gone", "definition": None}]
    filter = {"q": "mail:ada@corp.example"}
    one = handmade.add(tmp_path, handmade.spelled(bundle(agents=agents, filter=filter)))

    with imports.opened(one.path) as store:
        as_it_is, masked, bodiless = (
            bundles.read(bundles.export(store, redact=redact, bodies=has_bodies))
            for redact, has_bodies in ((False, True), (True, True), (False, False))
        )

    assert (as_it_is["agents"], as_it_is["filter"]) == (agents, filter)
    told = masked["agents"][0]["definition"]["instructions"]
    assert (told, masked["filter"]) == ("Say that password=[secret-1]", {"q": "mail:[email-1]"})
    assert {one["kind"] for one in masked["redaction"]["masked"]} == {"email", "secret"}
    told = bodiless["agents"][0]["definition"]["instructions"]
    assert told.keys() == {"length", "hash"}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_bundle_is_refused_in_a_sentence(tmp_path: Path, case: str) -> None:
    content, words = REFUSED[case]

    assert words in refusal(tmp_path, content())


def test_an_entry_that_is_far_too_long_is_refused(tmp_path: Path) -> None:
    endless = b'{"xgw_bundle": 1, "filter": ' + b" " * (MOST_ROW + (1 << 20))

    assert "one entry of the bundle is over 64 MiB" in refusal(tmp_path, endless)


def test_a_file_that_is_denser_than_any_record_is_refused(tmp_path: Path) -> None:
    lines = handmade.lines(bundle()).splitlines()
    bomb = gzip.compress((b" " * LONG).join(lines[:8]), 6)
    assert LONG * 7 > DENSE_FROM

    assert "more than 400 times its size" in refusal(tmp_path, bomb)


def test_the_largest_numbers_are_taken(tmp_path: Path) -> None:
    whole = bundle(events=[event(seq=10**9), event(seq=(1 << 63) - 1)])

    assert handmade.add(tmp_path, handmade.spelled(whole)).counts["events"] == 2
