"""Payloads: every body comes back byte for byte, and a resent history is kept once."""

from __future__ import annotations

import json
import random
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson
import pytest

from xgw.resent import Body
from xgw.store import migrations, payloads
from xgw.store.database import Store
from xgw.store.payloads import KNOWN_LIMIT, Shelf, Stored
from xgw.store.transaction import Transaction
from xgw.store.writer import Bodies, Part, Patience, Writer

COMMON = """
    the of and to in is was that it for as with on be at by this had not are but from or have an
    they which one were all her she there would their we him been has when who will no more if out
    so up said what its about than into them can only other time new some could these two may first
    then do any like my now over such our man me even most made after also did many off
"""
WORDS = COMMON.split()
ODD_TEXTS = ("", "ü", "\u2028", "日本語", "🙂", '"quoted"', "back\\slash", "\x00\x1f", "a" * 300)


class Shelved:
    """A store, and a shelf whose rows go into it."""

    def __init__(self, folder: Path, *, packs: bool = True) -> None:
        self.store = Store(folder / "xgw.db")
        migrations.migrate(self.store)
        self.shelf = Shelf(packs=packs)
        self._connection = self.store.open_writer()

    def keep(self, stored: Stored) -> Stored:
        """Commit a body's rows."""
        self._connection.execute("BEGIN")
        Transaction(self._connection).insert_payloads(stored.rows)
        self._connection.execute("COMMIT")
        self.shelf.committed(stored.rows)
        return stored

    def empty(self) -> None:
        """Delete every row."""
        self._connection.execute("DELETE FROM payloads")
        self.shelf.clear()

    def rebuilt(self, body: bytes | Body) -> bytes:
        """A request body, written and read again."""
        stored = self.keep(self.shelf.request(body))
        assert stored.size == len(body if isinstance(body, bytes) else body.whole)
        return payloads.load(self.store, stored.hash)

    def rows(self) -> int:
        return int(self.store.sql("SELECT count(*) FROM payloads")[0][0])

    def close(self) -> None:
        self._connection.close()
        self.store.close()


@pytest.fixture
def shelved(tmp_path: Path) -> Iterator[Shelved]:
    shelved = Shelved(tmp_path)
    yield shelved
    shelved.close()


# -- exact rebuilding ------------------------------------------------------------------------------


class RandomBodies:
    """Random request bodies, spelled as no two clients spell theirs; the same ones for a seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def next(self) -> bytes:
        chance = self._chance
        messages = [self._value(3) for _ in range(chance.choice((0, 1, 2, 5, 17, 40)))]
        members: list[tuple[str, Any]] = [
            (chance.choice(("messages", "messages", "input")), messages),
            ("model", self._text()),
        ]
        if chance.random() < 0.5:
            members.append(("tools", [self._value(4) for _ in range(chance.randrange(6))]))
        for _ in range(chance.randrange(4)):
            members.append((self._text() or "k", self._value(2)))
        if chance.random() < 0.3:
            members.append(chance.choice(members))
        chance.shuffle(members)
        gaps: Callable[[], str] = chance.choice((lambda: "", lambda: " ", self._gap))
        inner = f"{gaps()},{gaps()}".join(
            f"{self._spell(key, gaps)}{gaps()}:{gaps()}{self._spell(value, gaps)}"
            for key, value in members
        )
        return f"{gaps()}{{{gaps()}{inner}{gaps()}}}{gaps()}".encode()

    def _spell(self, value: Any, gaps: Callable[[], str]) -> str:
        chance = self._chance
        if isinstance(value, list):
            entries = f"{gaps()},{gaps()}".join(self._spell(entry, gaps) for entry in value)
            return f"[{gaps()}{entries}{gaps()}]"
        if isinstance(value, dict):
            pairs = [f"{self._spell(k, gaps)}:{self._spell(v, gaps)}" for k, v in value.items()]
            if pairs and chance.random() < 0.1:
                pairs.append(pairs[0])
            return "{" + f"{gaps()},".join(pairs) + "}"
        return json.dumps(value, ensure_ascii=chance.random() < 0.5)

    def _value(self, depth: int) -> Any:
        chance = self._chance
        kind = chance.randrange(6 if depth else 4)
        if kind == 4:
            return [self._value(depth - 1) for _ in range(chance.randrange(4))]
        if kind == 5:
            return {self._text(): self._value(depth - 1) for _ in range(chance.randrange(4))}
        numbers = (0, -1, 1.5, 1e-9, 2**70, True, False, None)
        return chance.choice(numbers) if kind == 0 else self._text()

    def _text(self) -> str:
        chance = self._chance
        if chance.random() < 0.2:
            return chance.choice(ODD_TEXTS)
        return " ".join(chance.choices(WORDS, k=chance.choice((1, 3, 60, 200))))

    def _gap(self) -> str:
        return "".join(self._chance.choices(" \t\r\n", k=self._chance.randrange(4)))


@pytest.mark.parametrize("seed", range(4))
def test_random_bodies_come_back_byte_for_byte(shelved: Shelved, seed: int) -> None:
    bodies = RandomBodies(seed)
    kept = {}
    for _ in range(150):
        body = bodies.next()
        stored = shelved.keep(shelved.shelf.request(body))
        kept[stored.hash] = body
    assert payloads.load_many(shelved.store, kept) == kept


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"null",
        b"[]",
        b'"text"',
        b"{}",
        b'{"messages": []}',
        b'{"messages":[ ]}',
        b'{"messages": null}',
        b'{"messages": {"a": [1]}}',
        b'{"messages": "[1]"}',
        b'{"messages": [1',
        b'{"messages": [1]',
        b'{"messages": [1]} x',
        b'{"messages": [1],}',
        b'{"messages": [1,]}',
        b'{"messages": [NaN]}',
        b"{\"messages\": ['a']}",
        b"{messages: [1]}",
        b'\xef\xbb\xbf{"messages": [1]}',
        b'{"messages": ["\xff\xfe"]}',
        b'{"messages": ["a"], "x": "\xff"}',
        '{"messages": ["a"]}'.encode("utf-16"),
        b'{"messages": ["\\ud800"]}',
        b'{"messages": ["\\ud83d\\ude42"], "messages": ["b"]}',
        b'{"messages": [1, 2], "messages": [3]}',
        b'{"messages": [3], "messages": {"messages": [3]}}',
        b'{"a": "[1,2]", "messages": [1,2]}',
        b'{"a": [1,2], "messages": [1,2], "b": [1,2]}',
        b'{"a": {"messages": [1,2]}, "messages": [1,2]}',
        b'{"messages": [[[]], [[]]]}',
        b'{"messages": [[],[],[[]]]}',
        b'{"messages": ["]", "[", ",", "],["]}',
        b'{"messages": [1, 1, 1,1]}',
        b'{"messages": [ 1,\n\t2 ,3\r\n]}',
        b'{"messages":[1e400,-0,0.10,100000000000000000000000]}',
        b'{"input": [1], "messages": []}',
        b'{"input": [1], "messages": [2]}',
        b'{"input": "text"}',
        b'{"messages": [1], "tools": [1]}',
        b'{"tools": ["' + b"t" * 300 + b'"], "messages": [1], "x": ["' + b"t" * 300 + b'"]}',
        b'{"messages": ["' + b"t" * 300 + b'"], "tools": ["' + b"t" * 300 + b'"]}',
        b'{"messages": ' + b"[" * 3000 + b"]" * 3000 + b"}",
        b'{"messages": [' + b"[" * 200000 + b"]" * 200000 + b"]}",
        b'{"a":' * 3000 + b"1" + b"}" * 3000,
        b'{"messages": [' + b",".join(b"%d" % n for n in range(5000)) + b"]}",
        b'{"messages": ["x"' + b',"x"' * 5000 + b"]}",
        b'{"messages": [' + b" ,\n".join([b'{"role": "user"}'] * 300) + b", 1]}",
        bytes(range(256)) * 20,
        b"\x00" + b"\x11" * 16,
        b'{"messages": ["' + b"l" * 600 + b'"]}',
        b'{"messages": [{"role": "user" , "content":  "' + b"l" * 600 + b'" }]}',
        b'{"messages": [{"content": "' + b"\\u00e9" * 300 + b'"}]}',
        b'{"messages": [{"content": "' + b"\\u00E9\\/" * 300 + b'"}]}',
        b'{"messages": [{"content": "' + b"\\ud83d\\ude42" * 200 + b'"}]}',
        b'{"messages": [{"content": "' + b"\\ud83d" * 200 + b'"}]}',
        b'{"messages": [{"content": "' + b"\\u003c" * 200 + b'"}]}',
        b'{"messages": [{"content": "' + b'\\"\\\\' * 300 + b'"}]}',
        b'{"messages": [{"content": "' + "日本語".encode() * 100 + b'"}]}',
        b'{"messages": [{"' + b"k" * 600 + b'": "' + b"k" * 600 + b'"}]}',
        b'{"messages": [[' + b",".join(b'"%d%b"' % (n, b"p" * 600) for n in range(70)) + b"]]}",
        b'{"choices": [{"message": {"content": "' + b"c" * 600 + b'"}}]}',
        b'{"choices": "' + b"c" * 600,
        b'{"choices": "' + b"c" * 600 + b"\\",
        b'{"choices": "' + b'\\"' * 20_000,
        b'{"choices": "' + b"c" * 600 + b'", "\xff": 1}',
        b'{"choices": "' + b"\xff" * 600 + b'"}',
        b'"' + b"c" * 600 + b'"',
    ],
)
def test_odd_bodies_come_back_byte_for_byte(shelved: Shelved, body: bytes) -> None:
    assert shelved.rebuilt(body) == body
    again = shelved.shelf.request(body)
    assert again.rows == ()
    shelved.shelf.clear()
    assert shelved.rebuilt(body) == body


def test_a_long_text_is_kept_once_whatever_is_around_it(shelved: Shelved) -> None:
    text = " ".join(random.Random(1).choices(WORDS, k=500)) + '"\\\nü'
    asked = {"messages": [{"role": "user", "content": text}]}
    answered = {"choices": [{"message": {"role": "assistant", "content": text}}], "usage": None}
    bodies = [
        orjson.dumps(asked),
        json.dumps(asked).encode(),
        json.dumps(answered, indent=2).encode(),
        json.dumps(answered, ensure_ascii=False).encode(),
    ]
    for body in bodies:
        assert shelved.rebuilt(body) == body
    kept = shelved.keep(shelved.shelf.text(text))
    assert payloads.load(shelved.store, kept.hash) == text.encode()
    sizes = shelved.store.sql("SELECT length(data) FROM payloads ORDER BY 1 DESC")
    assert sizes[0][0] > 3 * sizes[1][0]
    assert shelved.shelf.text(text).rows == ()


def _chunks(texts: list[str], spelled: Callable[[Any], str]) -> bytes:
    chunks = [{"choices": [{"index": 0, "delta": {"content": text}}]} for text in texts]
    last = {"choices": [], "usage": {"content": ""}}
    return "".join(f"data: {spelled(c)}\n\n" for c in [*chunks, last, "[DONE]"]).encode()


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


@pytest.mark.parametrize("spelled", [json.dumps, _compact])
def test_it_is_the_same_whoever_takes_bodies_apart(
    tmp_path: Path, spelled: Callable[[Any], str]
) -> None:
    said = " ".join(WORDS * 9)
    messages = [{"role": "user", "content": said[at:]} for at in range(40)]
    request = spelled({"model": "m", "messages": messages}).encode()
    answers = [spelled({"said": said, "n": n}).encode() for n in range(3)]
    others = [_chunks(WORDS * 9, spelled), b"short", said.encode(), b"\0" * 1000]
    kept = []
    for name in ("at-once", "later"):
        (tmp_path / name).mkdir()
        shelved = Shelved(tmp_path / name, packs=name == "at-once")
        assert shelved.rebuilt(request) == request
        for body in (*answers, *others):
            stored = shelved.keep(shelved.shelf.whole(body))
            assert payloads.load(shelved.store, stored.hash) == body
        kept.append(shelved.store.sql("SELECT * FROM payloads ORDER BY hash"))
        shelved.close()
    assert kept[0] == kept[1]


@pytest.mark.parametrize("spelled", [json.dumps, _compact])
def test_a_streamed_answer_is_kept_as_its_text_and_the_rest(
    shelved: Shelved, spelled: Callable[[Any], str]
) -> None:
    chance = random.Random(3)
    texts = ["", *chance.choices([*WORDS, *ODD_TEXTS, '"content":""', '"content": "'], k=600)]
    body = _chunks(texts, spelled)
    assert shelved.rebuilt(body) == body
    text = shelved.keep(shelved.shelf.whole(orjson.dumps({"content": "".join(texts)})))
    assert text.rows[0][2] == "parts"
    assert len(text.rows) == 1  # the text is there
    [(size,)] = shelved.store.sql("SELECT length(data) FROM payloads WHERE codec = 'stream'")
    assert size < len(body) / 20


@pytest.mark.parametrize(
    "body",
    [
        b"data: " + b"x" * 900,
        b'data: {"content":"' + b"x" * 900,
        b'data: {"content":"' + b"x" * 900 + b'"}\r\n\r\n',
        b'data: {"content":"' + b"x" * 900 + b'\\"}\n\n',
        b'data: {"content":"' + b"\xff" * 900 + b'"}\n\n',
        b'data: {"content":"' + b"x" * 900 + b'"}\n\ndata: {"content":"\ny',
        b'data: {"content":"' + b"x" * 900 + b'","content":""content":""}',
        b'data: {"content":"\\ud83d"}\n\ndata: {"content":"\\ude42' + b"x" * 900 + b'"}\n\n',
        b': "content":""\n\n' + b'data: {"content":"' + b"x\n" * 900 + b'"}\n\n',
    ],
)
def test_odd_streams_come_back_byte_for_byte(shelved: Shelved, body: bytes) -> None:
    stored = shelved.keep(shelved.shelf.whole(body))
    assert payloads.load(shelved.store, stored.hash) == body
    assert shelved.shelf.whole(body).rows == ()


@pytest.mark.parametrize("text", ["", "short", "{}", '{"a": "' + "b" * 600 + '"}', "\ud800" * 600])
def test_a_text_comes_back(shelved: Shelved, text: str) -> None:
    stored = shelved.keep(shelved.shelf.text(text))
    assert payloads.load(shelved.store, stored.hash) == text.encode("utf-8", "replace")
    assert stored.size == len(text.encode("utf-8", "replace"))


def test_cut_and_spoilt_bodies_come_back_byte_for_byte(shelved: Shelved) -> None:
    chance, bodies = random.Random(7), RandomBodies(7)
    for _ in range(150):
        body = bytearray(bodies.next())
        if chance.random() < 0.5:
            del body[chance.randrange(len(body)) :]
        for _ in range(chance.randrange(3)):
            body.insert(chance.randrange(len(body) + 1), chance.randrange(256))
        assert shelved.rebuilt(bytes(body)) == bytes(body)


def test_a_body_that_is_a_node_of_another_takes_nothing_from_it(shelved: Shelved) -> None:
    request = b'{"messages": [%b]}' % b",".join(b'"element %d"' % n for n in range(16 * 2))
    stored = shelved.shelf.request(request)
    nodes = [row[3] for row in stored.rows if row[2] == "list"]
    assert len(nodes) == 3
    for node in nodes:
        shelved.keep(shelved.shelf.whole(node))
    assert shelved.rebuilt(request) == request
    assert [shelved.rebuilt(node) for node in nodes] == nodes


def test_a_body_kept_whole_first_is_the_same_afterwards(shelved: Shelved) -> None:
    body = orjson.dumps({"messages": [{"role": "user", "content": "Hello"}]})
    whole = shelved.keep(shelved.shelf.whole(body))
    assert shelved.shelf.request(body).hash == whole.hash
    assert shelved.rebuilt(body) == body
    assert payloads.sizes(shelved.store, [whole.hash, "00" * 16]) == {whole.hash: len(body)}


def test_the_hash_is_that_of_the_content(shelved: Shelved) -> None:
    for body in (b"plain", b'{"messages": [1]}'):
        expected = blake2b(body, digest_size=16).hexdigest()
        assert shelved.shelf.request(body).hash == expected
        assert shelved.shelf.whole(body).hash == expected


def test_the_elements_of_a_request(shelved: Shelved) -> None:
    elements = [b'{"n": %d}' % n for n in range(40)]
    for separator in (b",", b" , ", None):
        listed = separator.join(elements) if separator else b",".join(elements[:39]) + b" ,{}"
        stored = shelved.keep(shelved.shelf.request(b'{"messages": [' + listed + b"]}"))
        expected = elements if separator else [*elements[:39], b"{}"]
        found = payloads.parts(shelved.store, [stored.hash])[stored.hash]
        assert found == [element.hex() for element in stored.elements]
        assert [payloads.load(shelved.store, key) for key in found] == expected
    whole = shelved.keep(shelved.shelf.request(b"no JSON"))
    assert payloads.parts(shelved.store, [whole.hash]) == {whole.hash: []}


def test_many_bodies_are_loaded_together(shelved: Shelved) -> None:
    bodies = {}
    for number in range(900):
        stored = shelved.keep(shelved.shelf.request(b'{"input": [%d, "same"]}' % number))
        bodies[stored.hash] = b'{"input": [%d, "same"]}' % number
    assert payloads.load_many(shelved.store, [*bodies, *bodies]) == bodies
    assert payloads.load_many(shelved.store, []) == {}
    assert len(payloads.sizes(shelved.store, bodies)) == 900


def test_a_body_that_is_not_there(shelved: Shelved) -> None:
    stored = shelved.shelf.request(b'{"messages": ["a", "b"]}')
    with pytest.raises(LookupError, match=stored.hash):
        payloads.load(shelved.store, stored.hash)
    [element] = [row for row in stored.rows if row[3] == b'"b"']
    shelved.keep(Stored(stored.hash, stored.size, tuple(r for r in stored.rows if r != element)))
    with pytest.raises(LookupError, match=element[0]):
        payloads.load(shelved.store, stored.hash)


# -- size ------------------------------------------------------------------------------------------


def _conversation(turns: int) -> Iterator[bytes]:
    """Requests that resend everything said before, with tools, as a chat client sends them."""
    chance = random.Random(11)
    tools = [{"name": f"tool_{n}", "description": " ".join(WORDS)} for n in range(6)]
    messages: list[dict[str, str]] = [{"role": "system", "content": " ".join(WORDS)}]
    for _ in range(turns):
        messages.append({"role": "user", "content": " ".join(chance.choices(WORDS, k=60))})
        yield orjson.dumps({"model": "m", "messages": messages, "tools": tools, "stream": True})
        messages.append({"role": "assistant", "content": " ".join(chance.choices(WORDS, k=120))})


def test_a_resent_history_costs_its_distinct_content(shelved: Shelved) -> None:
    distinct: dict[bytes, int] = {}
    sizes = {}
    last = b""
    for turn, body in enumerate(_conversation(400), 1):
        shelved.keep(shelved.shelf.request(body))
        # What the client sent, and what went upstream with another model's name.
        shelved.keep(shelved.shelf.request(body.replace(b'"m"', b'"served"')))
        last = body
        if turn in (100, 200, 400):
            sizes[turn] = shelved.store.sql("SELECT sum(length(data) + 32) FROM payloads")[0][0]
    for message in orjson.loads(last)["messages"]:
        content = orjson.dumps(message)
        distinct[content] = len(content)
    assert sizes[400] < 3 * sum(distinct.values())
    assert sizes[400] < 2.6 * sizes[200] < 2.6 * 2.6 * sizes[100]
    assert shelved.rebuilt(last) == last


def test_a_known_history_makes_few_rows(shelved: Shelved) -> None:
    bodies = list(_conversation(300))
    for body in bodies[:-1]:
        shelved.keep(shelved.shelf.request(body))
    assert len(shelved.shelf.request(bodies[-1]).rows) <= 8
    # A client that begins anew elsewhere, or spells the rest differently, shares the history.
    other = bodies[-2].replace(b'"stream":true', b'"stream": false')
    assert len(shelved.shelf.request(other).rows) == 1


def test_a_large_text_is_kept_compressed(shelved: Shelved) -> None:
    body = orjson.dumps({"messages": [{"role": "user", "content": " ".join(WORDS * 200)}]})
    shelved.keep(shelved.shelf.request(body))
    [(stored,)] = shelved.store.sql("SELECT sum(length(data)) FROM payloads")
    assert stored < len(body) / 4


# -- what is known ---------------------------------------------------------------------------------


def test_only_what_was_committed_is_known(shelved: Shelved) -> None:
    body = b'{"messages": ["a", "b"]}'
    stored = shelved.shelf.request(body)
    assert not shelved.shelf.knows(stored.hash)
    assert shelved.shelf.request(body).rows == stored.rows
    shelved.keep(stored)
    assert shelved.shelf.knows(stored.hash)
    shelved.shelf.clear()
    assert not shelved.shelf.knows(stored.hash)


def test_a_unit_that_fails_leaves_nothing_known(shelved: Shelved) -> None:
    """Its rows are gone with it, so whoever needs them later must bring them again."""
    writer = Writer(shelved.store, lambda _: None)
    writer.start()
    bodies = [b'{"messages": ["shared", %d]}' % n for n in range(3)]

    def keep(stored: Stored, *, fails: bool) -> None:
        held = Bodies(list(stored.rows))

        def work(tx: Transaction) -> None:
            tx.after_commit.append(lambda: shelved.shelf.committed(stored.rows))
            if fails:
                tx.insert("sessions", {"id": "incomplete"})

        ticket = writer.submit(work, bodies=held, part=Part())
        writer.wait(ticket, Patience(30))
        assert isinstance(ticket.error, sqlite3.IntegrityError if fails else type(None))

    first = shelved.shelf.request(bodies[0])
    keep(first, fails=True)
    assert shelved.rows() == 0
    assert not any(shelved.shelf.knows(row[0]) for row in first.rows)
    for body in bodies:
        keep(shelved.shelf.request(body), fails=False)
    writer.stop()
    for body in bodies:
        assert payloads.load(shelved.store, shelved.shelf.request(body).hash) == body


def test_what_is_known_stays_bounded(shelved: Shelved) -> None:
    rows = [(f"{n:032x}", 1, "raw", b"x") for n in range(5 * KNOWN_LIMIT)]
    for at in range(0, len(rows), 1000):
        shelved.shelf.committed(rows[at : at + 1000])
    known = [row[0] for row in rows if shelved.shelf.knows(row[0])]
    assert KNOWN_LIMIT < len(known) < 3 * KNOWN_LIMIT
    assert known == [row[0] for row in rows[-len(known) :]]


def test_a_forgotten_history_is_written_again_and_is_whole(shelved: Shelved) -> None:
    *_, body = _conversation(40)
    shelved.keep(shelved.shelf.request(body))
    before = shelved.rows()
    shelved.shelf.clear()
    stored = shelved.shelf.request(body)
    assert len(stored.rows) > 40
    shelved.keep(stored)
    assert shelved.rows() == before
    assert payloads.load(shelved.store, stored.hash) == body


def test_equal_histories_have_equal_folds(shelved: Shelved) -> None:
    one = shelved.shelf.request(b'{"messages": ["a", "b"]}').elements
    other = shelved.shelf.request(b'{"model": "x", "messages":[ "a","b" ]}').elements
    longer = shelved.shelf.request(b'{"messages": ["a", "b", "c"]}').elements
    assert payloads.fold(one) == payloads.fold(other) == payloads.fold(longer[:2])
    assert payloads.fold(one) != payloads.fold(longer)


@pytest.mark.parametrize("count", [1, 3, 16, 17, 300])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_a_body_that_begins_as_an_earlier_one(
    shelved: Shelved, count: int, separators: tuple[str, str]
) -> None:
    """It is kept as if nothing were known of it, also where the store has lost what is known."""

    def body(messages: list[Any], **more: Any) -> bytes:
        return json.dumps({"messages": messages, **more}, separators=separators).encode()

    messages = [
        {"role": "user", "content": f"{n} {'word ' * (40_000 // count)}"} for n in range(count)
    ]
    earlier = shelved.keep(shelved.shelf.request(body(messages, model="a")))
    assert earlier.run is not None
    later = body([*messages, {"role": "assistant", "content": "ü"}, *messages[:20]], model="b", n=1)
    for known in {count, max(1, count - 1), max(1, count - 3)}:
        run = earlier.run.first(known)
        before = b'{"messages"%b[' % separators[1].encode()
        folded = Body(before, run, later[len(before) + run.size :])
        assert folded.whole == later
        stored, plain = shelved.shelf.request(folded), shelved.shelf.request(later)
        assert (stored.hash, stored.rows) == (plain.hash, plain.rows)
        assert list(stored.elements) == list(plain.elements)
        shelved.empty()
        assert shelved.rebuilt(folded) == later


# -- rows as they are ------------------------------------------------------------------------------


QUESTION = b'{"role":"user","content":"' + b"l" * 600 + b'"}'
LITERAL = QUESTION[25:-1]
TOLD = b"The model is doing what it was asked for, and this is a summary of the following steps: "
LITERAL_HASH = blake2b(LITERAL, digest_size=16).hexdigest()
TEMPLATE = orjson.dumps(['{"role":"user","content":', {"r": LITERAL_HASH}, "}"])
AS_THEY_ARE: dict[str, tuple[bytes, list[tuple[str, bytes]]]] = {
    "zlib": (TOLD, [("zlib", zlib.compress(TOLD, 1))]),
    "a template": (QUESTION, [("parts", TEMPLATE), ("raw", LITERAL)]),
    "a template in zlib": (QUESTION, [("parts", zlib.compress(TEMPLATE)), ("raw", LITERAL)]),
    "packed with words": (
        TOLD + b"because ",
        [("text", bytes.fromhex("0b010600469600853f729600ead281c412b4e0215cf0c38a2600"))],
    ),
    "packed with forms": (
        b'{"role":"user","content":"}"finish_reason":"stop"',
        [
            (
                "parts",
                b"\x01" + bytes.fromhex("43753216bf01b3366e6b956201"),
            )
        ],
    ),
}


@pytest.mark.parametrize("kept", AS_THEY_ARE)
def test_rows_that_earlier_versions_wrote_can_be_read(shelved: Shelved, kept: str) -> None:
    """Packed rows need the very dictionary that they were packed with."""
    body, rows = AS_THEY_ARE[kept]
    hashes = [blake2b(body, digest_size=16).hexdigest(), LITERAL_HASH]
    content = [body, LITERAL]
    stored = [(hashes[n], len(content[n]), *row) for n, row in enumerate(rows)]
    shelved.keep(Stored(hashes[0], len(body), tuple(stored)))
    assert payloads.load(shelved.store, hashes[0]) == body
