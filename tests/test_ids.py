"""Minted identifiers, and the ones that clients supply."""

from __future__ import annotations

import re
import threading
import unicodedata

import pytest

from xgw import ids


@pytest.mark.parametrize("prefix", ["sess", "turn", "run", "step", "msg", "req", "key"])
def test_a_minted_id_is_its_prefix_and_the_hex_of_a_uuid7(prefix: str) -> None:
    minted = ids.mint(prefix)
    assert re.fullmatch(rf"{prefix}_[0-9a-f]{{12}}7[0-9a-f]{{3}}[89ab][0-9a-f]{{15}}", minted)
    assert ids.is_id(minted)
    assert ids.is_id(minted, prefix)


def test_ids_of_one_process_sort_in_the_order_of_minting() -> None:
    minted = [ids.mint("step") for _ in range(5000)]
    assert minted == sorted(minted)


def test_ids_minted_in_several_threads_are_all_different() -> None:
    minted: list[list[str]] = []
    threads = [
        threading.Thread(target=lambda: minted.append([ids.mint("turn") for _ in range(2000)]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one for some in minted for one in some}) == 8000


def test_only_known_kinds_are_minted() -> None:
    with pytest.raises(ValueError, match="session"):
        ids.mint("session")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "turn_",
        "turn",
        "turn_" + "0" * 31,
        "turn_" + "0" * 33,
        "turn_" + "G" * 32,
        "turn_" + "A" * 32,
        "other_" + "0" * 32,
        " turn_" + "0" * 32,
        "turn_" + "0" * 32 + "\n",
    ],
)
def test_other_text_is_no_id(text: str) -> None:
    assert not ids.is_id(text)


def test_an_id_is_only_of_its_own_kind() -> None:
    assert not ids.is_id(ids.mint("turn"), "run")


def test_trace_and_observation_ids_are_parts_of_the_row_ids() -> None:
    turn_id, step_id = ids.mint("turn"), ids.mint("step")
    assert f"turn_{ids.trace_id_of(turn_id)}" == turn_id
    assert len(ids.trace_id_of(turn_id)) == 32
    assert step_id.endswith(ids.observation_id_of(step_id))
    assert len(ids.observation_id_of(step_id)) == 16
    with pytest.raises(ValueError, match="turn"):
        ids.trace_id_of(step_id)
    with pytest.raises(ValueError, match="step"):
        ids.observation_id_of(turn_id)


@pytest.mark.parametrize(
    "value",
    [
        "a",
        "x" * 256,
        "user:42/thread#7",
        "with inner spaces",
        "日本語のセッション",
        "全角\u3000空白",
        "جلسه\u200cها",
        "👩\u200d💻 сессия",
        "é" * 256,
    ],
)
def test_printable_text_of_any_script_is_an_identifier(value: str) -> None:
    assert ids.client_identifier(value) == value


def test_an_identifier_is_kept_in_nfc() -> None:
    decomposed = "cafe\u0301"
    assert ids.client_identifier(decomposed) == "caf\u00e9"
    assert ids.client_identifier("e\u0301" * 256) == "\u00e9" * 256
    assert unicodedata.is_normalized("NFC", ids.client_identifier("각".encode().decode()))


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("", "empty"),
        ("x" * 257, "256"),
        ("é" * 257, "256"),
        ("\u0958" * 200, "256"),  # NFC makes two characters of this one
        ("q\u0301" * 400_000, "256"),
        ("a\nb", "U\\+000A"),
        ("a\x00b", "U\\+0000"),
        ("a\x7fb", "U\\+007F"),
        ("a\u0085b", "U\\+0085"),
        ("a\u202eb", "U\\+202E"),
        ("a\u2028b", "U\\+2028"),
        ("a\ud800b", "U\\+D800"),
        ("a\ufffeb", "U\\+FFFE"),
    ],
)
def test_anything_else_is_refused_with_the_reason(value: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ids.client_identifier(value)
