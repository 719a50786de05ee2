"""Working memory: what an agent notes for the rest of its session, by the names that it gives.

It is part of every following call, so it is small; the history is not kept in it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import orjson

MOST_BYTES = 16_384
MOST_KEY = 100

_HEAD = "Your working memory: what you noted with the tools remember and forget."


class Memory:
    """The working memory of one session, for the turn that is under way.

    `mask` takes secrets out of what is noted. `changing` is held from a change until that is on its
    way to the record: agents that work on tasks at the same time have one memory.
    """

    def __init__(self, held: Any = None, mask: Callable[[str], str] = str) -> None:
        self.changing = threading.Lock()
        self._held: dict[str, Any] = dict(held) if isinstance(held, dict) else {}
        self._mask = mask

    @property
    def held(self) -> dict[str, Any]:
        """Everything in it, as a session keeps it."""
        return dict(self._held)

    def remember(self, key: str, value: str) -> str:
        """Note something in the working memory, which you see for the rest of the conversation.

        Args:
            key: What it is called; a note that is called the same is replaced.
            value: What to remember, briefly: the memory is small.
        """
        key, value = self._mask(_checked(key)), self._mask(value)
        after = {**self._held, key: value}
        size = len(orjson.dumps(after))
        if size > MOST_BYTES:
            raise ValueError(
                f"the working memory is full: with this it would have {size} of the {MOST_BYTES} "
                "bytes that are allowed; forget something first, or note less"
            )
        was = "replaced" if key in self._held else "noted"
        self._held = after
        return f"{was}: {key}"

    def forget(self, key: str) -> str:
        """Take a note out of the working memory.

        Args:
            key: What it is called.
        """
        key = self._mask(_checked(key))
        if key not in self._held:
            known = ", ".join(self._held) or "nothing"
            raise ValueError(f"there is no note {key!r}; there is: {known}")
        self._held = {name: value for name, value in self._held.items() if name != key}
        return f"forgotten: {key}"

    def text(self) -> str | None:
        """What the model is told of it; None while it is empty."""
        if not self._held:
            return None
        return f"{_HEAD}\n{orjson.dumps(self._held, option=orjson.OPT_INDENT_2).decode()}"


def _checked(key: str) -> str:
    key = key.strip()
    if not 1 <= len(key) <= MOST_KEY or not key.isprintable():
        raise ValueError(f"key must be 1 to {MOST_KEY} printable characters")
    return key
