"""The README's table of events is the one in the code."""

from __future__ import annotations

import re

from servers import ROOT
from xgw.events import LIVE_TYPES, TYPES
from xgw.store.layouts import LAYOUTS

LAID_OUT = {
    1: ("turn.queued", "turn.started"),
    3: ("turn.completed",),
    4: ("run.started", "run.updated", "run.completed"),
    5: ("step.started",),
    6: ("step.completed",),
    7: ("message.added",),
    8: ("session.created",),
    9: ("llm.error",),
    10: ("step.completed",),
    11: ("tool.results_sent",),
    12: ("step.started",),
    13: ("message.added",),
}


def test_the_readme_lists_every_type_with_its_payload() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.partition("\n## Events\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z_.]+)` \| (.+) \|$", section, re.MULTILINE)
    assert rows == list(TYPES.items())


def test_live_types_say_so() -> None:
    assert {type for type, payload in TYPES.items() if payload.startswith("live: ")} == LIVE_TYPES


def test_every_field_of_a_usual_payload_is_listed() -> None:
    for number, types in LAID_OUT.items():
        for type in types:
            listed = set(re.findall(r"`([a-z_]+)`", TYPES[type]))
            assert set(LAYOUTS[number]) <= listed, type
