"""Takes the pictures of the documentation, in Chromium, of xgw as it runs: `make screenshots`.

Without an option those that the documentation shows are taken anew into docs/images; with
`--all FOLDER` every page comes in both widths and both colours, to be looked at.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

import chromium
import screenplay

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
WIDE, NARROW = (1280, 800), (380, 800)

FONT = "Inter"
"""What `system-ui` is in the pictures, on every machine (Debian: fonts-inter)."""
_FONTCONFIG = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig>
<include>/etc/fonts/fonts.conf</include>
{}
</fontconfig>"""
_PREFERRED = """<match>
<test name="family" compare="eq"><string>{}</string></test>
<edit name="family" mode="prepend" binding="strong"><string>{}</string></edit>
</match>"""


@dataclass(frozen=True)
class Picture:
    """A page as it is to be seen."""

    name: str
    path: str
    dark: bool = False
    narrow: bool = False

    @property
    def file(self) -> str:
        marks = (self.name, "narrow" if self.narrow else "", "dark" if self.dark else "")
        return "-".join(mark for mark in marks if mark) + ".png"


def pages(stage: screenplay.Stage) -> dict[str, str]:
    """The pages that there are pictures of, what is under way first: name and path."""
    return {
        "session": stage.session(screenplay.ORDER),
        "turn": stage.turn(screenplay.ORDER),
        "sessions": "/ui/",
        "step": stage.step(screenplay.ORDER, 2),
        "requests": "/ui/requests",
        "health": "/ui/health",
    }


def shown() -> set[str]:
    """The pictures that the documentation shows."""
    texts = (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
    found = (re.findall(r"images/([\w-]+\.png)", text.read_text("utf-8")) for text in texts)
    return {name for names in found for name in names}


def guises(named: dict[str, str]) -> list[Picture]:
    """Every page in both widths and both colours."""
    return [
        Picture(name, path, dark, narrow)
        for name, path in named.items()
        for narrow in (False, True)
        for dark in (False, True)
    ]


def take(browser: Browser, url: str, picture: Picture, folder: Path) -> bool:
    """One picture into the folder; False if there is no such page."""
    width, height = NARROW if picture.narrow else WIDE
    context = browser.new_context(
        viewport={"width": width, "height": height},
        # Narrow ones are shown at their own width, wide ones smaller than they are.
        device_scale_factor=2 if picture.narrow else 1,
        color_scheme="dark" if picture.dark else "light",
        reduced_motion="reduce",
        locale="en-GB",
    )
    with contextlib.closing(context):
        page = context.new_page()
        answer = page.goto(url + picture.path)
        if answer is None or not answer.ok:
            return False
        if page.locator("#connection").count():
            page.locator("#connection:not(:empty)").wait_for()
        shot = page.screenshot(animations="disabled")
    with Image.open(io.BytesIO(shot)) as image:
        # A third of the size; no colour is off by more than a few steps of 255, and those of large
        # surfaces by none.
        small = image.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=2)
        small.save(folder / picture.file, optimize=True)
    return True


@contextlib.contextmanager
def same_font() -> Iterator[None]:
    """Chromium started meanwhile takes `FONT` where a page asks for the system's."""
    found = shutil.which("fc-match") and subprocess.run(
        ["fc-match", FONT], check=True, capture_output=True, text=True
    )
    if not found or FONT not in found.stdout:
        sys.exit(f"the pictures need fontconfig and the font {FONT} (Debian: fonts-inter)")
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        asked = ("system-ui", "sans", "sans-serif")
        file.write(_FONTCONFIG.format("".join(_PREFERRED.format(name, FONT) for name in asked)))
        file.flush()
        os.environ["FONTCONFIG_FILE"] = file.name
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description="Takes the pictures of the documentation.")
    parser.add_argument("--all", metavar="FOLDER", type=Path, help="every page in every guise")
    folder: Path | None = parser.parse_args().all
    if chromium.find() is None:
        sys.exit("there is no Chromium: install it, or name one in XGW_CHROMIUM")
    target = folder or IMAGES
    target.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as work,
        same_font(),
        screenplay.played(Path(work)) as stage,
        chromium.driver() as driver,
        chromium.driven(driver) as browser,
        driver.driving(),
    ):
        possible = {picture.file: picture for picture in guises(pages(stage))}
        wanted = possible.keys() if folder else shown()
        missing = sorted(wanted - possible.keys())
        for file, picture in possible.items():
            if file in wanted and not take(browser, stage.gate.url, picture, target):
                missing.append(file)
    if missing:
        sys.exit(f"no page for {', '.join(missing)}")


if __name__ == "__main__":
    main()
