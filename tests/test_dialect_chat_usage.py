"""What answers say about themselves: token counts in everyone's words, and how they ended."""

from __future__ import annotations

from typing import Any

import pytest

from xgw.providers.dialects.chat import normalise_finish_reason, parse_usage

USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
COUNTS = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens")


# usage → input, output, cached, written, reasoning, total
USAGES: list[tuple[dict[str, Any], tuple[int | None, ...]]] = [
    (USAGE, (3, 2, None, None, None, 5)),
    ({"prompt_tokens": 3, "completion_tokens": 2}, (3, 2, None, None, None, 5)),
    ({"input_tokens": 3, "output_tokens": 2}, (3, 2, None, None, None, 5)),
    ({"prompt_tokens": 11, "total_tokens": 11}, (11, None, None, None, None, 11)),
    ({"total_tokens": 7}, (None, None, None, None, None, 7)),
    (
        USAGE | {"prompt_tokens_details": None, "completion_tokens_details": {"x": 1}},
        (3, 2, None, None, None, 5),
    ),
    (
        USAGE
        | {
            "prompt_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 2},
            "completion_tokens_details": {"reasoning_tokens": 2},
        },
        (3, 2, 1, 2, 2, 5),
    ),
    (USAGE | {"prompt_tokens_details": {"cached_tokens": 0}}, (3, 2, 0, None, None, 5)),
    (USAGE | {"prompt_cache_hit_tokens": 2}, (3, 2, 2, None, None, 5)),
    (
        USAGE | {"prompt_tokens_details": {"cached_tokens": None}, "cached_tokens": 2},
        (3, 2, 2, None, None, 5),
    ),
    # cached tokens beside the input: the total tells, or Anthropic's names do
    (
        {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "total_tokens": 40,
            "prompt_tokens_details": {"cached_tokens": 25},
        },
        (35, 5, 25, None, None, 40),
    ),
    (
        {
            "input_tokens": 10,
            "output_tokens": 5,
            "cache_read_input_tokens": 3,
            "cache_creation_input_tokens": 4,
        },
        (17, 5, 3, 4, None, 22),
    ),
    (USAGE | {"cache_read_input_tokens": 1}, (3, 2, 1, None, None, 5)),
    # reasoning beside the output
    (
        {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "total_tokens": 35,
            "completion_tokens_details": {"reasoning_tokens": 20},
        },
        (10, 25, None, None, 20, 35),
    ),
    (
        {"prompt_tokens": 10, "completion_tokens": 5, "reasoning_tokens": 20},
        (10, 25, None, None, 20, 35),
    ),
    # parts larger than their whole, counts that are none
    (USAGE | {"prompt_tokens_details": {"cached_tokens": 25}}, (3, 2, None, None, None, 5)),
    (USAGE | {"reasoning_tokens": 25}, (3, 2, None, None, None, 5)),
    (
        {
            "prompt_tokens": 10,
            "completion_tokens": -1,
            "total_tokens": 9,
            "prompt_tokens_details": {"cached_tokens": 25},
        },
        (10, None, None, None, None, None),
    ),
    (
        {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": -1},
        (10, 5) + (None,) * 3 + (15,),
    ),
    ({"prompt_tokens": "3", "completion_tokens": True, "total_tokens": 9}, (None,) * 5 + (9,)),
    ({"prompt_tokens": 3.0, "completion_tokens": 1.5}, (3, None, None, None, None, None)),
    ({"prompt_tokens": 2**40, "completion_tokens": 2**63}, (2**40, None, None, None, None, None)),
]


@pytest.mark.parametrize(("sent", "counts"), USAGES)
def test_counts(sent: dict[str, Any], counts: tuple[int | None, ...]) -> None:
    usage = parse_usage(sent)
    assert usage is not None
    got = (*(getattr(usage, name) for name in COUNTS), usage.reasoning_tokens, usage.total_tokens)
    assert got == counts
    assert usage.source == "provider"
    assert usage.raw == sent


@pytest.mark.parametrize("sent", [None, 7, [], {}, {"prompt_tokens": None}, {"prompt_tokens": -1}])
def test_no_counts(sent: Any) -> None:
    assert parse_usage(sent) is None


def test_the_raw_usage_can_be_stored() -> None:
    usage = parse_usage({"total_tokens": 1, "x": {"y": float("nan"), "z": "\ud83d", "n": 2**70}})
    assert usage is not None
    assert usage.raw == {"total_tokens": 1, "x": {"y": None, "z": "\ufffd", "n": float(2**70)}}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (None, None),
        ("", None),
        ("stop", "stop"),
        ("eos_token", "stop"),
        ("end_turn", "stop"),
        ("STOP", "stop"),
        ("max_tokens", "length"),
        ("MAX_TOKENS", "length"),
        ("tool_use", "tool_calls"),
        ("function_call", "function_call"),
        ("SAFETY", "content_filter"),
        ("network_error", "network_error"),
        ("Weird One", "Weird One"),
    ],
)
def test_finish_reasons(raw: str | None, expected: str | None) -> None:
    assert normalise_finish_reason(raw) == expected
