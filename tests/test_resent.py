"""Bodies that come block by block, and the text that their known messages share."""

from __future__ import annotations

import itertools
import os
import threading
from hashlib import blake2b

import orjson
import pytest

from scripted_model import Row, said, user
from xgw.gateway.conversation import read_conversation
from xgw.gateway.resending import Resending, Taken, Taking
from xgw.masking import Masker
from xgw.resent import LATEST, Body, Hashes, Text
from xgw.store.payloads import Shelf

MASKER = Masker([])
PROSE = " ".join(f"word{n}" for n in range(600))


def turn(number: int) -> list[Row]:
    return [user(f"question {number} {PROSE}"), said(f"answer {number} {PROSE} ü🙂")]


def body_of(messages: list[Row], **more: object) -> bytes:
    return orjson.dumps({"model": "m", "messages": messages, **more})


HISTORY = list(itertools.chain(*map(turn, range(9))))
ASKED = [*HISTORY, user("and then?")]
LATER = [*ASKED, said("then"), user("and now?")]


def sent_before(*bodies: list[Row]) -> Resending:
    """What is known once these conversations were sent."""
    resending, shelf = Resending(), Shelf()
    for messages in bodies:
        taken = resending.find("p", body_of(messages), MASKER)
        stored = shelf.request(taken.body)
        count = len(taken.known.run) if taken.known else 0
        run, roles = (taken.known.run, taken.known.roles) if taken.known else (None, None)
        conversation = read_conversation(messages[count:], stored.elements, run, roles)
        resending.remember("p", MASKER, conversation, taken.known, [stored])
    return resending


def taken_from(resending: Resending, body: bytes, first: int, size: int) -> Taken | None:
    """The body in blocks of one buffer; None where there is nothing to compare it with."""
    taking = Taking(resending, "p", MASKER)
    block = bytearray(os.urandom(max(first, size)))
    block[: len(body[:first])] = body[:first]
    if not taking.begin(block, len(body[:first])):
        return None
    for at in range(first, len(body), size):
        piece = body[at : at + size]
        block[: len(piece)] = piece
        taking.feed(block, len(piece))
    return taking.end()


BODIES = {
    "goes on": body_of(LATER),
    "the same again": body_of(ASKED),
    "with more behind": body_of(LATER, stream=True),
    "the last one anew": body_of([*HISTORY, user("on second thoughts")]),
    "two fewer": body_of(HISTORY[:-1]),
    "one in the middle": body_of([*HISTORY[:12], user("changed"), *HISTORY[13:], user("x")]),
    "breaks off": body_of(ASKED)[:-40],
    "breaks off in the middle": body_of(ASKED)[:50_000],
    "ends behind the known": body_of(ASKED)[:-2],
    "not JSON": body_of(ASKED) + b"}",
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("size", [997, 4096, 40_000, 1 << 20])
@pytest.mark.parametrize("first", [33_000, 40_000, 70_000])
def test_a_body_in_blocks_is_the_same_as_in_one(name: str, first: int, size: int) -> None:
    resending, body = sent_before(ASKED), BODIES[name]
    taken = taken_from(resending, body, first, size)
    if taken is None:
        assert name == "one in the middle"  # it differs in the first block already
        return
    assert taken.body.whole == body
    assert b"".join(taken.body.pieces) == body
    assert taken.body.size == len(body)
    at_once = resending.find("p", body, MASKER)
    assert at_once.body.whole == body
    assert (taken.known is None) == (at_once.known is None)
    if taken.known is not None and at_once.known is not None:
        assert len(taken.known.run) == len(at_once.known.run)
        assert taken.body.folded == at_once.body.folded
        assert len(taken.body.folded) < 20_000


def test_what_nobody_sent_before_is_not_compared() -> None:
    resending = sent_before(ASKED)
    assert taken_from(resending, body_of([user("another"), *ASKED]), 40_000, 4096) is None
    assert taken_from(resending, b"x" * 60_000, 40_000, 4096) is None
    other = Taking(resending, "another project", MASKER)
    assert not other.begin(bytearray(body_of(ASKED)), 40_000)
    masked = Taking(resending, "p", Masker(["a secret of this client's own"]))
    assert not masked.begin(bytearray(body_of(ASKED)), 40_000)


def test_a_long_conversation_is_there_once() -> None:
    """Each turn adds its own to the memory that the turns before share."""
    resending, texts, messages = sent_before(ASKED), [], list(ASKED)
    for number in range(20):
        asked = [*messages, said(f"answer {number} {PROSE}"), user(f"next {number}")]
        taken = taken_from(resending, body_of(asked), 40_000, 4096)
        assert taken is not None
        assert taken.known is not None
        stored = Shelf().request(taken.body)
        assert stored.run is not None
        assert bytes(stored.run.content()) == orjson.dumps(asked)[1:-1]
        assert [stored.run.element(n) for n in range(len(asked))] == [*map(orjson.dumps, asked)]
        assert stored.hash == blake2b(body_of(asked), digest_size=16).hexdigest()
        texts.append(stored.run.text)
        count, run = len(taken.known.run), taken.known.run
        conversation = read_conversation(asked[count:], stored.elements, run, taken.known.roles)
        resending.remember("p", MASKER, conversation, taken.known, [stored])
        messages = asked
    assert len(set(map(id, texts))) < len(texts) / 2


def test_a_text_that_went_on_otherwise_is_another_one() -> None:
    text = Text(b"abc", b"def")
    first = text.extended(6, b"ghi")
    second = text.extended(6, b"GHI")
    third = text.extended(4, memoryview(b"EFG"))
    assert first is text
    assert [bytes(t[: t.size]) for t in (first, second, third)] == [
        b"abcdefghi",
        b"abcdefGHI",
        b"abcdEFG",
    ]


def test_many_may_go_on_from_one_text_at_once() -> None:
    text, size = Text(b"x" * 5000), 5000
    found: dict[int, Text] = {}

    def go_on(number: int) -> None:
        found[number] = text.extended(size, bytes([number]) * 3000)

    threads = [threading.Thread(target=go_on, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, grown in found.items():
        assert bytes(grown[: size + 3000]) == b"x" * size + bytes([number]) * 3000
    assert sum(grown is text for grown in found.values()) == 1


def test_folds_are_those_of_all_hashes_however_they_came() -> None:
    pieces = [os.urandom(16 * n) for n in (3, 1, 2, 2, 5, 1)]
    hashes, joined = Hashes(), b""
    for piece in pieces:
        hashes, joined = hashes.then(piece), joined + piece
        for count in {len(hashes), len(hashes) - 1, max(0, len(hashes) - LATEST), 0}:
            expected = blake2b(joined[: 16 * count], digest_size=16).digest()
            assert hashes[:count].fold == expected
        assert hashes[1:].fold == blake2b(joined[16:], digest_size=16).digest()
        assert hashes.fold == blake2b(joined, digest_size=16).digest()
        other = hashes[:-1].then(b"o" * 32)
        expected = blake2b(joined[:-16] + b"o" * 32, digest_size=16).digest()
        assert (other.fold, other[:-1].then(b"o" * 16).fold) == (expected, expected)


def test_a_body_of_which_nothing_is_known_is_one_piece() -> None:
    assert Body.plain(b"{}").pieces == (b"{}",)
    assert Body.plain(b"").size == 0
