"""What every table of the file is: strict, frozen, without unknown keys."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo

Bytes = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, le=2_592_000, allow_inf_nan=False)]


class Text(str):
    """A value that can only come as text (environment, command line): numbers are read from it."""


class Table(BaseModel):
    """A table of the file: unknown keys and wrong types are mistakes, values never change."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _read_text(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        return {key: _as_declared(cls.model_fields.get(key), value) for key, value in given.items()}


def _as_declared(field: FieldInfo | None, value: Any) -> Any:
    """`value` in the type that its field declares, where text or a TOML array stands for it."""
    declared = _bare_type(field.annotation) if field else None
    if get_origin(declared) is tuple and isinstance(value, Text):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if isinstance(value, list):
        return tuple(_plain(part) for part in value)
    if isinstance(value, dict) and declared == dict[str, str]:
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, Text) and declared in (int, float, bool):
        return _number_or_switch(declared, value.strip())
    return _plain(value)


def _bare_type(annotation: Any) -> Any:
    """What is left of an annotation without its None and its rules."""
    if get_origin(annotation) in (Union, UnionType):
        annotation = next(arg for arg in get_args(annotation) if arg is not NoneType)
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Text) else value


def _number_or_switch(declared: type, text: str) -> Any:
    if declared is bool:
        return {"true": True, "false": False, "1": True, "0": False}.get(text.lower(), str(text))
    try:
        return declared(text)
    except ValueError:
        return str(text)
