"""Tables of aligned columns: they fit a terminal, and are whole anywhere else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xgw.cli import texts
from xgw.cli.terminal import Role, Screen

GAP = "  "
LEAST_TAIL = 24
INDENT = "    "
LONGEST = 400


@dataclass(frozen=True, slots=True)
class Column:
    """A column; on a terminal that is too narrow, those with the highest `spare` go first."""

    title: str
    right: bool = False
    spare: int = 0


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell's text, recorded or our own, and its colour."""

    text: str
    role: Role = "plain"


Row = Sequence[Cell]


def render(
    screen: Screen, columns: Sequence[Column], rows: Sequence[Row], *, tail: str = ""
) -> list[str]:
    """The table's lines, and which columns have no room.

    With `tail`, the title of a column that each row has beside `columns` as its last cell: a text
    of any length, which gets the room that is left, or a line of its own where that is too little.
    """
    inner = [[Cell(texts.one_line(cell.text, LONGEST), cell.role) for cell in row] for row in rows]
    kept = _fitting(screen, columns, inner)
    widths = [_width(columns, inner, at) for at in kept]
    used = sum(widths) + len(GAP) * (len(widths) - 1)
    heads = [
        texts.pad(columns[at].title, w, right=columns[at].right) for at, w in _pairs(kept, widths)
    ]
    below = bool(tail) and screen.width is not None and screen.width - used - len(GAP) < LEAST_TAIL
    lines = [
        screen.paint(GAP.join([*heads, *([tail] if tail and not below else [])]).rstrip(), "faint")
    ]
    for row in inner:
        told = GAP.join(_cell(screen, columns[at], row[at], w) for at, w in _pairs(kept, widths))
        lines += _with_tail(screen, told, used, row[-1] if tail else None, below)
    return lines + _left_out(screen, columns, kept)


def _left_out(screen: Screen, columns: Sequence[Column], kept: Sequence[int]) -> list[str]:
    """What is said of columns for which the terminal is too narrow."""
    titles = [column.title for at, column in enumerate(columns) if at not in kept]
    if not titles or screen.width is None:
        return []
    told = texts.wrap(f"The terminal is too narrow for: {', '.join(titles)}", screen.width)
    return [screen.paint(line, "faint") for line in told]


def _with_tail(
    screen: Screen, told: str, used: int, tail: Cell | None, below: bool
) -> Iterator[str]:
    if tail is None or not tail.text:
        yield told.rstrip()
        return
    indent = len(INDENT) if below else used + len(GAP)
    text = texts.cut(tail.text, LONGEST if screen.width is None else screen.width - indent)
    if below:
        yield told.rstrip()
        yield INDENT + screen.paint(text, tail.role)
    else:
        yield told + GAP + screen.paint(text, tail.role)


def _cell(screen: Screen, column: Column, cell: Cell, width: int) -> str:
    padded = texts.pad(cell.text, width, right=column.right)
    return screen.paint(padded, cell.role) if cell.text else padded


def _pairs(kept: Sequence[int], widths: Sequence[int]) -> Iterator[tuple[int, int]]:
    return zip(kept, widths, strict=True)


def _width(columns: Sequence[Column], rows: Sequence[Row], at: int) -> int:
    return max([texts.cells(columns[at].title), *(texts.cells(row[at].text) for row in rows)])


def _fitting(screen: Screen, columns: Sequence[Column], rows: Sequence[Row]) -> list[int]:
    """The columns that have room."""
    kept = list(range(len(columns)))
    while screen.width is not None:
        wide = sum(_width(columns, rows, at) for at in kept) + len(GAP) * (len(kept) - 1)
        spare = max(kept, key=lambda at: columns[at].spare)
        if wide <= screen.width or columns[spare].spare == 0:
            break
        kept.remove(spare)
    return kept
