"""Server-sent events: what a body holds, however it is cut into blocks."""

from __future__ import annotations

import itertools
import random
import tracemalloc

import pytest

from xgw.providers.sse import (
    EventSplitter,
    EventTooLarge,
    SseEvent,
    build_event,
    is_comment,
    replace_data,
)

LIMIT = 1 << 20

# body → (raw, data, event type) of each event, the end of the body included
BODIES: dict[str, tuple[bytes, list[tuple[bytes, bytes | None, str | None]]]] = {
    "plain": (
        b"data: a\n\ndata: b\n\n",
        [(b"data: a\n\n", b"a", None), (b"data: b\n\n", b"b", None)],
    ),
    "the space is optional, and only one is taken": (
        b"data:a\n\ndata:  b \n\n",
        [(b"data:a\n\n", b"a", None), (b"data:  b \n\n", b" b ", None)],
    ),
    "CRLF": (
        b"data: a\r\n\r\ndata: b\r\n\r\n",
        [(b"data: a\r\n\r\n", b"a", None), (b"data: b\r\n\r\n", b"b", None)],
    ),
    "CR": (
        b"data: a\r\rdata: b\r\r",
        [(b"data: a\r\r", b"a", None), (b"data: b\r\r", b"b", None)],
    ),
    "mixed line ends": (
        b"event: x\rdata: a\n\r\ndata: b\r\n\ndata: c\n\rdata: d\n\n",
        [
            (b"event: x\rdata: a\n\r\n", b"a", "x"),
            (b"data: b\r\n\n", b"b", None),
            (b"data: c\n\r", b"c", None),
            (b"data: d\n\n", b"d", None),
        ],
    ),
    "a CR event before a stray LF": (
        b"data: a\r\r\ndata: b\n\n",
        [(b"data: a\r\r", b"a", None), (b"data: b\n\n", b"b", None)],
    ),
    "several data lines": (
        b"data: a\ndata:\ndata: b\n\n",
        [(b"data: a\ndata:\ndata: b\n\n", b"a\n\nb", None)],
    ),
    "all fields, comments between them": (
        b": hi\nid: 7\nevent: ping\nretry: 3\n:\ndata: a\nunknown: x\ndata\n\n",
        [
            (
                b": hi\nid: 7\nevent: ping\nretry: 3\n:\ndata: a\nunknown: x\ndata\n\n",
                b"a\n",
                "ping",
            )
        ],
    ),
    "no data": (
        b": QUEUED\n\n:\n\nevent: ping\n\nevent:\ndata:\n\n",
        [
            (b": QUEUED\n\n", None, None),
            (b":\n\n", None, None),
            (b"event: ping\n\n", None, "ping"),
            (b"event:\ndata:\n\n", b"", None),
        ],
    ),
    "blank lines between events belong to none": (
        b"\n\r\n\ndata: a\n\n\n\n\r\rdata: b\n\n\n",
        [(b"data: a\n\n", b"a", None), (b"data: b\n\n", b"b", None)],
    ),
    "a byte order mark": (
        b"\xef\xbb\xbfdata: a\n\ndata: \xef\xbb\xbf\n\n",
        [
            (b"data: a\n\n", b"a", None),
            (b"data: \xef\xbb\xbf\n\n", b"\xef\xbb\xbf", None),
        ],
    ),
    "half a byte order mark": (b"\xef\xbb", [(b"\xef\xbb\n\n", None, None)]),
    "UTF-8 cut anywhere": (
        "event: über\ndata: Zoë 🚲\n\n".encode(),
        [("event: über\ndata: Zoë 🚲\n\n".encode(), "Zoë 🚲".encode(), "über")],
    ),
    "no newline at the end": (
        b"data: a\n\ndata: [DONE]",
        [(b"data: a\n\n", b"a", None), (b"data: [DONE]\n\n", b"[DONE]", None)],
    ),
    "no blank line at the end": (b"data: [DONE]\n", [(b"data: [DONE]\n\n", b"[DONE]", None)]),
    "CRLF cut at the end": (
        b"event: x\r\ndata: a\r\n\r",
        [(b"event: x\r\ndata: a\r\n\r\n", b"a", "x")],
    ),
    "CR, no blank line at the end": (b"data: a\r", [(b"data: a\r\r", b"a", None)]),
    "nothing": (b"", []),
    "only blank lines": (b"\r\n\n\r", []),
}


def split(body: bytes, cuts: list[int]) -> list[SseEvent]:
    splitter = EventSplitter(LIMIT)
    bounds = [0, *cuts, len(body)]
    blocks = [body[a:b] for a, b in itertools.pairwise(bounds)]
    return [event for block in blocks for event in splitter.feed(block)] + splitter.end()


@pytest.mark.parametrize("name", BODIES)
def test_the_events_of_a_body(name: str) -> None:
    body, expected = BODIES[name]
    events = split(body, [])
    assert [(e.raw, e.data, e.event) for e in events] == expected


@pytest.mark.parametrize("name", BODIES)
def test_cutting_a_body_into_blocks_changes_nothing(name: str) -> None:
    body, _ = BODIES[name]
    whole = split(body, [])
    for size in (1, 2, 3, 5, 7):
        assert split(body, list(range(size, len(body), size))) == whole
    dice = random.Random(name)
    for _ in range(50):
        cuts = sorted(dice.choices(range(len(body) + 1), k=dice.randint(1, 8)))
        assert split(body, cuts) == whole


def test_a_long_mixed_stream_is_the_same_however_it_is_cut() -> None:
    dice = random.Random(4)
    fields = [b"data: x", b"data:", b": c", b"event: e", b"id: 1", b"data: " + b"long " * 30]
    ends = [b"\n", b"\r\n", b"\r"]
    body = b""
    for _ in range(300):
        end = dice.choice(ends)
        body += end.join(dice.choices(fields, k=dice.randint(1, 3))) + end * 2
    whole = split(body, [])
    assert len(whole) == 300
    for _ in range(20):
        cuts = sorted(dice.choices(range(len(body) + 1), k=200))
        assert split(body, cuts) == whole


def test_only_the_end_of_the_body_leaves_an_event_incomplete() -> None:
    events = split(b"data: a\n\ndata: b", [])
    assert [event.complete for event in events] == [True, False]


def test_what_has_no_end_yet_is_not_given_out() -> None:
    splitter = EventSplitter(LIMIT)
    assert splitter.feed(b"data: a\n") == []
    assert splitter.feed(b"data: b\r\n") == []
    assert [e.data for e in splitter.feed(b"\r\n")] == [b"a\nb"]
    assert splitter.feed(b"data: c\r") == []
    assert [e.data for e in splitter.feed(b"\r")] == [b"c"]
    assert splitter.end() == []


def test_an_event_above_the_limit() -> None:
    splitter = EventSplitter(20)
    exact = b"data: 0123456789ab\n\n"
    assert [e.raw for e in splitter.feed(exact)] == [exact]
    with pytest.raises(EventTooLarge, match="larger than 20 bytes"):
        splitter.feed(b"data: 0123456789abc\n\n")


def test_an_event_above_the_limit_that_does_not_end() -> None:
    splitter = EventSplitter(20)
    assert splitter.feed(b"data: 0123456789abcd") == []
    with pytest.raises(EventTooLarge):
        splitter.feed(b"e")
    with pytest.raises(EventTooLarge):
        splitter.feed(b"\n\ndata: fine\n\n")
    with pytest.raises(EventTooLarge):
        splitter.end()


def test_events_before_one_that_is_too_large_are_given_out() -> None:
    splitter = EventSplitter(20)
    assert [e.data for e in splitter.feed(b"data: a\n\ndata: b\n\ndata: " + b"x" * 20)] == [
        b"a",
        b"b",
    ]
    with pytest.raises(EventTooLarge):
        splitter.feed(b"x")


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_a_line_of_many_megabytes_takes_a_small_multiple_of_its_size(newline: bytes) -> None:
    line = b"data: " + b"0123456789abcdef" * (1 << 18)
    body = line + newline * 2
    splitter = EventSplitter(8 << 20)
    events: list[SseEvent] = []
    tracemalloc.start()
    for start in range(0, len(body), 16384):
        events += splitter.feed(body[start : start + 16384])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [event.raw for event in events] == [body]
    assert events[0].data == line[6:]
    assert peak < 5 * len(body)


def test_single_bytes_are_not_searched_again_and_again() -> None:
    """Half a million blocks: searching all that waits at each would take minutes."""
    body = b"data: " + b"x" * (1 << 19) + b"\n\n"
    splitter = EventSplitter(LIMIT)
    events = [e for place in range(len(body)) for e in splitter.feed(body[place : place + 1])]
    assert [event.raw for event in events] == [body]


@pytest.mark.parametrize(
    ("raw", "data", "expected"),
    [
        (b"data: a\n\n", b"b", b"data: b\n\n"),
        (b"data:a\r\n\r\n", b"b", b"data: b\r\n\r\n"),
        (
            b": c\nid: 1\ndata: a\nevent: e\ndata: a\n\n",
            b"b",
            b": c\nid: 1\ndata: b\nevent: e\n\n",
        ),
        (b"data: a\ndata: b\n\n", b"c\nd", b"data: c\ndata: d\n\n"),
    ],
)
def test_other_data_in_an_event(raw: bytes, data: bytes, expected: bytes) -> None:
    assert replace_data(raw, data) == expected


def test_comments_are_told_from_fields_without_data() -> None:
    texts = (b": a\n\n", b":\r\n:\r\n\r\n", b"event: ping\n\n", b": a\nid: 1\n\n", b"retry: 1\n\n")
    kinds = [is_comment(event) for text in texts for event in split(text, [])]
    assert kinds == [True, True, False, False, False]


def test_a_built_event_is_read_back() -> None:
    assert [event.data for event in split(build_event(b'{"a":1}'), [])] == [b'{"a":1}']
