"""Whether a page fits its window: nothing makes it scroll sideways, nor on into nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

_STICK_OUT = """() => [...document.body.querySelectorAll("*")].filter(one => {
  if (one.getBoundingClientRect().right <= innerWidth + 1) return false
  for (let out = one.parentElement; out; out = out.parentElement)
    if (getComputedStyle(out).overflowX !== "visible") return false
  return true
}).slice(0, 5).map(one => `${one.tagName} ${one.id} ${one.className.baseVal ?? one.className}`)"""

_HEIGHTS = """() => {
  const ends = [...document.querySelectorAll("body, main, main > *")]
    .map(one => one.getBoundingClientRect().bottom + scrollY)
  return [document.scrollingElement.scrollHeight, Math.max(innerHeight, ...ends)]
}"""


def assert_fits(page: Page) -> None:
    """AssertionError that names what sticks out."""
    width, window = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width <= window, f"{page.url}: {width} > {window}: {page.evaluate(_STICK_OUT)}"
    height, end = page.evaluate(_HEIGHTS)
    assert height <= end + 1, f"{page.url}: the page is {height} high, what is shown ends at {end}"
