"""The blocks of a report, whatever it is written in."""

from __future__ import annotations

from xgw.frozen import frozen


@frozen
class Heading:
    """The begin of a part; `state` is how what it tells of ended, `anchor` its id."""

    level: int
    text: str
    state: str = ""
    aside: str = ""
    anchor: str = ""


@frozen
class Facts:
    """Figures by name; those that are unknown are left out."""

    pairs: tuple[tuple[str, str], ...]


@frozen
class Overview:
    """A table; the first column's words lead to the anchors of `rows`, which stand before them."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]


@frozen
class Said:
    """What somebody said, or what went in or came out, as it was."""

    who: str
    text: str
    kind: str
    aside: str = ""


@frozen
class Left:
    """What was said is not in the document, and why."""

    who: str
    why: str


Block = Heading | Facts | Overview | Said | Left
