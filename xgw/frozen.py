"""Frozen values: msgspec's structs, which C makes and guards.

A request makes dozens of values with hundreds of fields. Made by a dataclass's Python they take
three times as long, and the class itself fifteen times.
"""

from __future__ import annotations

import types
from typing import Any, TypeVar, dataclass_transform

import msgspec
from msgspec import field

__all__ = ["changed", "field", "fields_of", "frozen", "frozen_thing"]

Value = TypeVar("Value")

_OF_EACH_CLASS = frozenset({"__dict__", "__weakref__"})


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[Value]) -> type[Value]:
    """A class of values: equal where their fields are, hashable where these are."""
    return _struct(cls, frozen=True)


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def frozen_thing(cls: type[Value]) -> type[Value]:
    """The same for what equals itself alone, and may be referred to weakly."""
    return _struct(cls, frozen=True, eq=False, weakref=True)


def changed(value: Value, **new: Any) -> Value:
    """The same with these fields."""
    struct: Any = value
    made: Value = msgspec.structs.replace(struct, **new)
    return made


def fields_of(value: object) -> dict[str, Any]:
    """The fields of a value by their names."""
    struct: Any = value
    return msgspec.structs.asdict(struct)


def _struct(cls: type[Value], **options: bool) -> type[Value]:
    members = {name: member for name, member in vars(cls).items() if name not in _OF_EACH_CLASS}
    made: Any = types.new_class(
        cls.__name__, (msgspec.Struct,), options, lambda namespace: namespace.update(members)
    )
    return made  # type: ignore[no-any-return]
