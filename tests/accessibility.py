"""Whether a page can be used by everyone, as axe-core sees it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from page_width import assert_fits
from visits import NARROW, WIDE

if TYPE_CHECKING:
    from playwright.sync_api import Page

_AXE = Path(__file__).parent / "vendor" / "axe-core-4.14.1" / "axe.min.js"
_OPTIONS = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]},
    "resultTypes": ["violations"],
}
_CONTRAST = {"runOnly": ["color-contrast"], "resultTypes": ["violations"]}
"""All that the colours of a page can make worse: everything else was looked at already."""

_EXAMPLES = 3
"""Elements that are named of each rule, as rows of a table all have the same faults."""

_GRAVE = frozenset({"serious", "critical"})


Colours = Literal["light", "dark"]
_LOOKS: tuple[tuple[int, Colours, dict[str, Any]], ...] = (
    (WIDE, "light", _OPTIONS),
    (WIDE, "dark", _CONTRAST),
    (NARROW, "dark", _OPTIONS),
    (NARROW, "light", _CONTRAST),
)


def violations(page: Page, options: dict[str, Any] = _OPTIONS) -> list[str]:
    """The grave ones on the page as it stands: impact, rule, element and what is wrong with it.

    The page needs its scripts: axe-core waits for ever where they are off.
    """
    # DevTools may evaluate text where the page's own policy forbids it to the page.
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(_AXE.read_text(encoding="utf-8"))
    result = page.evaluate("options => axe.run(document, options)", options)
    return [
        line
        for violation in result["violations"]
        if violation["impact"] in _GRAVE
        for line in _lines(violation)
    ]


def assert_accessible(page: Page) -> None:
    """AssertionError that names rules and elements that break them."""
    found = violations(page)
    assert found == [], "\n".join(found)


def assert_for_everyone(page: Page) -> None:
    """The same at both widths, in both colours, and that it fits: the page is not loaded anew."""
    for width, colours, options in _LOOKS:
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=colours, reduced_motion="reduce")
        assert_fits(page)
        found = violations(page, options)
        assert found == [], f"{page.url} at {width}, {colours}: " + "\n".join(found)


def _lines(violation: dict[str, Any]) -> list[str]:
    lines = [
        f"{violation['impact']} {violation['id']}: {' '.join(map(str, node['target']))}: "
        + " ".join(str(node["failureSummary"]).split())
        for node in violation["nodes"]
    ]
    more = len(lines) - _EXAMPLES
    return [*lines[:_EXAMPLES], f"and {more} more of these"] if more > 0 else lines
