"""Texts and JSON values cut to a size: never larger, still what they were, the whole size told."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from xgw.queries import cuts


@pytest.mark.parametrize(
    ("text", "most", "expected"),
    [
        ("", 4, ("", None)),
        ("abcd", 4, ("abcd", None)),
        ("abcde", 4, ("abcd", 5)),
        ("üü", 4, ("üü", None)),
        ("üüü", 4, ("üü", 6)),
        ("aüü", 4, ("aü", 5)),
        ("\U0001f642" * 2, 5, ("\U0001f642", 8)),
    ],
)
def test_a_text_is_cut_between_characters(
    text: str, most: int, expected: tuple[str, int | None]
) -> None:
    assert cuts.cut_text(text, most) == expected


def nested(depth: int) -> Any:
    value: Any = "x" * 50
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        {"messages": [{"role": "user", "content": "x" * 900}, {"role": "user", "content": "last"}]},
        [{"n": n} for n in range(500)],
        {f"field {n}": n for n in range(500)},
        ["ü" * 10 for _ in range(100)],
        {"a": {"b": {"c": ["x" * 2000, 1, None, True]}}},
        "x" * 1000,
        {"x" * 1000: 1},
        [nested(200), nested(200)],
    ],
)
def test_a_json_value_is_cut_to_a_size(value: Any) -> None:
    whole = len(orjson.dumps(value))
    shown, size = cuts.cut_json(value, 300)
    assert size == whole
    assert len(orjson.dumps(shown)) <= 400
    assert type(shown) is type(value)
    assert cuts.cut_json(value, whole) == (value, None)


def test_what_comes_first_stays() -> None:
    sent = {"model": "gpt", "messages": [{"role": "user", "content": "x" * 500}], "tools": []}
    shown, _ = cuts.cut_json(sent, 300)
    assert shown["model"] == "gpt"
    [message] = shown["messages"]
    assert message["role"] == "user"
    assert 150 < len(message["content"]) < 300
