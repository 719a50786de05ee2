"""Characters that cannot be seen or turn a text round: which are drawn where, and what is held."""

from __future__ import annotations

import json

import pytest
from markupsafe import Markup

from live_pages import parse
from xgw.web.markdown import markdown
from xgw.web.placing import Place
from xgw.web.unseen import MOST_DRAWN, literal, prose, signs_in, spelled, spelled_json
from xgw.web.words import title

CHARACTERS = (
    "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c\u200b\u200c\u200d"
    "\u2060\ufeff\xad\x01\x0b\x0c\x1b\x7f\x80\x85\x9f\u2028\u2029\U000e0001\U000e0041\U000e007f"
)
FLAG = "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"


def code_of(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def sign(characters: str, held: str | None = None) -> str:
    codes = "".join(map(code_of, characters))
    return f'<i class="unseen" data-code="{codes}">{held or characters}</i>'


@pytest.mark.parametrize("character", CHARACTERS)
def test_each_is_drawn_and_held(character: str) -> None:
    text = f"<a&{character}b>"
    shown = f"&lt;a&amp;{sign(character)}b&gt;"
    assert literal(text) == prose(text) == shown
    assert parse(f"<p>{shown}</p>").one("i").children == [character]
    assert spelled(text) == f"<a&{code_of(character)}b>"


@pytest.mark.parametrize(
    "value",
    ["plain", "<b>\n\tline\n", "Grüße, 世界 😀 שלום", "", 7, None, Markup("<i>\u202e</i>")],
)
def test_others_are_left_alone(value: object) -> None:
    assert literal(value) is prose(value) is spelled(value) is value


def test_what_no_page_can_hold_is_told_all_the_same() -> None:
    assert literal("\0") == sign("\0", "\ufffd")
    assert literal("a\rb\r\nc\u200b") == f"a{sign(chr(13), '&#13;')}b\nc{sign(chr(0x200B))}"


def test_what_a_field_holds_is_told_beside_it() -> None:
    assert signs_in("<i class=\"unseen\" data-code=''>plain</i> 👨\u200d👩") == ""
    assert signs_in("a\u202eb\u200bc\u202e<") == f"{sign(chr(0x202E))} {sign(chr(0x200B))}"


def test_neighbours_share_an_element() -> None:
    both = "\u202e\u2066"
    assert literal(f"a{both}b") == f"a{sign(both)}b"


def test_more_than_can_be_drawn_are_spelled() -> None:
    shown = literal("<\u202e" * 10_000)
    assert shown.count("<i ") == MOST_DRAWN
    assert shown.endswith("&lt;\\u202e&lt;\\u202e")
    assert "\u202e" not in shown.split("</i>")[-1]
    assert markdown("a\u202e\n\n" * 10_000).startswith('<div class="plain">')


@pytest.mark.parametrize(
    "text",
    [
        "👨\u200d👩\u200d👧 ❤\ufe0f\u200d🔥",
        "نمی\u200cخواهم، email\u200cها",
        "क्\u200dष",
        "שלום\u200f! C++\u200e",
        "مرحبا \u061c(1)",
        FLAG,
        "葛\U000e0100城",
    ],
)
def test_prose_keeps_what_writing_needs(text: str) -> None:
    assert prose(text) == text
    assert "<i " in literal(text)
    assert "<i " not in markdown(text)


@pytest.mark.parametrize(
    "text", ["pay\u200dpal", "a\u200eb", "\u200f(x)", "x\U000e0041", "x\U000e0100"]
)
def test_prose_shows_what_it_does_not_need(text: str) -> None:
    assert "<i " in prose(text)
    assert "<i " in markdown(text)


@pytest.mark.parametrize(
    ("text", "drawn"),
    [
        ("**a\u202eb**", 1),
        ("`a\u200by`", 1),
        ("```python\nx = '\u202ey'  # \u200b\n```", 2),
        ("```\nנ\u200cx\n```", 1),
        ("    a\u2066b", 1),
        ("[a\u202eb](http://x/\u202e)", 1),
        ("![a\u202eb](http://x)", 1),
        ("| a\u202e |\n| - |\n| \u2069 |", 2),
        ("**שלום**\u200f", 0),
        ('<i class="unseen" data-code="x">', 0),
    ],
)
def test_markdown_draws_them(text: str, drawn: int) -> None:
    signs = parse(f"<div>{markdown(text)}</div>").all("i", class_="unseen")
    assert len(signs) == drawn
    assert all(one.attributes["data-code"].startswith("\\u") for one in signs)


@pytest.mark.parametrize("character", CHARACTERS)
def test_a_line_loses_none(character: str) -> None:
    assert title(f" \n{character} a\t\xa0 b{character}\r\n") == f"{character} a b{character}"


@pytest.mark.parametrize("character", [c for c in CHARACTERS if c >= " "])
def test_json_says_the_same(character: str) -> None:
    text = json.dumps({f"a{character}": f"b{character}"}, ensure_ascii=False, indent=2)
    assert character not in spelled_json(text)
    assert json.loads(spelled_json(text)) == json.loads(text)


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("", "literal"),
        ("<p>a < b > c</p>", "literal"),
        ('<p title="', "spelled"),
        ('<p title="x" data-copy="', None),
        ('<p title="x', "spelled"),
        ("<p ", None),
        ('<p title="<b>">', "literal"),
        ('<input value="', None),
        ("<title>", "spelled"),
        ("<svg><text>", "spelled"),
        ("<svg></svg>", "literal"),
        ("<select><option>a</option></select>", "literal"),
        ("<textarea>\n", None),
        ("<textarea></textarea>", "literal"),
        ("<!-- <textarea> -->", "literal"),
    ],
)
def test_a_place_says_what_it_can_show(before: str, expected: str | None) -> None:
    place = Place()
    place.go(before)
    assert place.filter() == expected
