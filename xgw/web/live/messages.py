"""What goes over a page's socket: JSON with the HTML of partials, texts that grew, and the cursor.

`{"seq", "content", "texts", "reload"}`, each left out where there is nothing of it. `content` holds
an `<hx-partial>` for each change, which htmx swaps in; `texts` are appended by the page's script
to what is there already: `{"id", "at", "text"}`, `at` counted in characters from the beginning of
that text, so that a piece that came twice, or a gap, shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson
from markupsafe import escape

from xgw.events import Envelope
from xgw.web.live.screen import Swap

RELOAD = orjson.dumps({"reload": True}).decode()
"""Too much has happened: the page is to be opened anew."""


def stream_id(step_id: str, kind: str, index: int) -> str:
    """The id of the element in which a text of a step grows."""
    return f"stream-{step_id}-{kind}-{index}"


def build_message(seq: int | None, swaps: Sequence[Swap], deltas: Iterable[Envelope]) -> str:
    """One frame for a page: its partials first, then the texts that grow inside of them."""
    message: dict[str, Any] = {}
    if seq is not None:
        message["seq"] = seq
    if swaps:
        message["content"] = "".join(map(_partial, swaps))
    texts = list(_texts(deltas))
    if texts:
        message["texts"] = texts
    return orjson.dumps(message).decode()


def _partial(swap: Swap) -> str:
    target = f'hx-target="[id=&quot;{escape(swap.target)}&quot;]"'
    # White space around a partial would stay on the page, a little more at each redrawing.
    html = swap.html.strip("\n")
    return f'<hx-partial {target} hx-swap="{swap.style}">{html}</hx-partial>'


def _texts(deltas: Iterable[Envelope]) -> Iterable[dict[str, Any]]:
    """Pieces of one text that follow each other become one."""
    joined: dict[str, dict[str, Any]] = {}
    for delta in deltas:
        payload = delta.payload
        id = stream_id(str(delta.step_id), payload["kind"], payload["index"])
        text: str = payload["text"]
        at = payload["text_length"] - len(text)
        known = joined.get(id)
        if known is not None and known["at"] + len(known["text"]) == at:
            known["text"] += text
        else:
            if known is not None and not payload.get("replace"):
                yield known
            joined[id] = {"id": id, "at": at, "text": text}
    yield from joined.values()
