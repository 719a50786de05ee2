"""What was taken over leaves by `xgw export`, whether it has turns or not."""

from __future__ import annotations

import json
from pathlib import Path

from older_stores import GATEWAY
from test_older_cases import AT, CALL, CONVERSATION, done, made, said


def test_chat_jsonl_has_the_conversations_with_and_without_turns(tmp_path: Path) -> None:
    new = tmp_path / "new.db"
    orphans = [
        ("messages", (number, owner, role, f"{role} {owner}", None, None, AT))
        for number, role in enumerate(("user", "assistant"), 1)
        for number, owner in ((10 * number, "gone"), (10 * number + 1, "away"))
    ]
    old = made(
        tmp_path / "old.db",
        GATEWAY,
        CONVERSATION,
        said(1, "user", "first"),
        said(2, "assistant", None, calls=[CALL]),
        said(3, "tool", "found", answers="call_1"),
        said(4, "assistant", "done"),
        said(5, "user", "second"),
        said(6, "assistant", "again"),
        *orphans,
    )
    done("migrate", "--db", new, "--from-legacy", old)
    whole = {
        "first": [None, "found", "done", "second", "again"],
        "user gone": ["assistant gone"],
        "user away": ["assistant away"],
    }
    assert exported(new) == whole
    done("backfill-turns", "--db", new)
    assert exported(new) == whole


def exported(store: Path) -> dict[str, list[str | None]]:
    """Chat JSONL of a store: what its conversations begin with, and what is said behind that."""
    lines = done("export", "--db", store, "--format", "openai", "-o", "-").splitlines()
    told = [[one["content"] for one in json.loads(line)["messages"]] for line in lines]
    assert len({first for first, *_ in told}) == len(told)
    return {first: others for first, *others in told}
