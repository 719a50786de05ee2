"""The README's table of events is the one in the code."""

from __future__ import annotations

import re

from servers import ROOT
from xgw.events import LIVE_TYPES, TYPES


def test_the_readme_lists_every_type_with_its_payload() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.partition("\n## Events\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z_.]+)` \| (.+) \|$", section, re.MULTILINE)
    assert rows == list(TYPES.items())


def test_live_types_say_so() -> None:
    assert {type for type, payload in TYPES.items() if payload.startswith("live: ")} == LIVE_TYPES
