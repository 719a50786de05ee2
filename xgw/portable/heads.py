"""A bundle's head: what stands before and behind its rows, as whoever reads it relies on it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from xgw import clock
from xgw.portable.arriving import YEARS
from xgw.portable.refusal import BadBundle

Json = dict[str, Any]


class _Told(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Software(_Told):
    version: str
    python: str
    platform: str
    sqlite: str
    libraries: dict[str, str]


class _Place(_Told):
    table: str
    id: str | int
    field: str


class _Masked(_Told):
    kind: str
    placeholder: str
    count: int
    places: list[_Place]
    more: int = 0


class _Redaction(_Told):
    on: bool
    bodies: bool
    masked: list[_Masked]


class _Filter(_Told):
    of: Literal["sessions", "turns", "requests"] = "sessions"
    q: str = ""
    where: dict[str, list[str]] = {}
    project: str = ""

    @model_validator(mode="after")
    def _narrows(self) -> _Filter:
        if not self.model_fields_set:
            raise ValueError("tells nothing")
        return self


class _Head(_Told):
    exported_at: str
    xgw: _Software
    asked_for: list[str] = []
    filter: _Filter | None = None
    redaction: _Redaction


_MISSED = {
    "exported_at": "when it was exported",
    "xgw": "by which xgw it was exported",
    "asked_for": "what was asked for",
    "filter": "what was asked for",
    "redaction": "what was masked in it",
}


def checked_head(head: Json) -> Json:
    """The head, whole; BadBundle if it does not say what every head says.

    What it says of an earlier import is not looked at: this one takes its place.
    """
    told = {name: head[name] for name in _MISSED if name in head}
    try:
        _Head.model_validate(told)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise BadBundle(_missed(first["loc"], is_there=first["type"] != "missing")) from None
    if not _is_a_time(head["exported_at"]):
        raise BadBundle(_missed(("exported_at",), is_there=True))
    return {"asked_for": [], "filter": None, **head}


def _is_a_time(text: str) -> bool:
    try:
        return clock.parse_time(text).year in YEARS
    except ValueError:
        return False


def _missed(place: tuple[int | str, ...], *, is_there: bool) -> str:
    """What a bundle does not say, where it should."""
    where = "".join(f"[{at}]" if isinstance(at, int) else f".{at[:64]}" for at in place)[1:]
    wrong = "is of the wrong kind" if is_there else "is missing"
    return f"the bundle does not say {_MISSED[str(place[0])]}: {where} {wrong}"
