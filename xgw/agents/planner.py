"""The plan of a task: items that are pending, in progress or done, kept with the run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any, Literal, get_args

import orjson
from pydantic import BaseModel, ConfigDict, Field

from xgw.agents.functions import BadArguments, read_function

MOST_ITEMS = 50
MOST_TEXT = 500

State = Literal["pending", "in_progress", "done"]
STATES: tuple[str, ...] = get_args(State)

_HEAD = "The plan of this task as it stood here; the results of later calls of plan replace it:"


class Item(BaseModel):
    """One item of a plan that is set."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(description="What is to be done.")
    state: State = Field("pending", description="How far it is.")


class Plan:
    """The plan of one run; `mask` takes secrets out of it.

    `is_told`: the model sees it as the result of a call. Telling it anew in front of the history
    would cost the provider's cache of all that comes after.
    """

    def __init__(self, kept: Any = None, mask: Callable[[str], str] = str) -> None:
        self._items = _read(kept)
        self._mask = mask
        self.is_told = False

    @property
    def kept(self) -> dict[str, Any]:
        """As a run keeps it."""
        return {"items": [dict(item) for item in self._items]}

    def plan(
        self,
        action: Literal["set", "update"],
        items: list[Item] | None = None,
        number: int | None = None,
        state: State | None = None,
    ) -> str:
        """Keep a plan of the task: make it first, then say of each item when it is begun and done.

        Args:
            action: "set" makes the plan, or makes it anew, of `items`; "update" changes the state
                of one item.
            items: With "set": all items of the plan, in order.
            number: With "update": which item, from 1.
            state: With "update": its state from now on.
        """
        if action == "set":
            self._items = self._checked(items)
        else:
            self._items = self._updated(number, state)
        self.is_told = True
        return self._listed()

    def text(self) -> str | None:
        """What the model is told of it beside the history; None where that is not needed."""
        return f"{_HEAD}\n{self._listed()}" if self._items and not self.is_told else None

    def _checked(self, items: list[Item] | None) -> list[dict[str, str]]:
        if not items or len(items) > MOST_ITEMS:
            raise ValueError(f'items: "set" takes 1 to {MOST_ITEMS} items')
        for item in items:
            if not 1 <= len(item.text.strip()) <= MOST_TEXT:
                raise ValueError(f"items: the text of each must be 1 to {MOST_TEXT} characters")
        return [{"text": self._mask(item.text.strip()), "state": item.state} for item in items]

    def _updated(self, number: int | None, state: State | None) -> list[dict[str, str]]:
        if not self._items:
            raise ValueError('there is no plan yet: make one with "set"')
        if number is None or state is None:
            raise ValueError('"update" takes number and state')
        if not 1 <= number <= len(self._items):
            raise ValueError(f"number: there are the items 1 to {len(self._items)}")
        changed = {**self._items[number - 1], "state": state}
        return [*self._items[: number - 1], changed, *self._items[number:]]

    def _listed(self) -> str:
        numbered = enumerate(self._items, 1)
        return "\n".join(f"{number}. [{one['state']}] {one['text']}" for number, one in numbered)


def replay(calls: Iterable[str]) -> dict[str, Any] | None:
    """The plan that calls of `plan` led to, of their arguments as text; None without one."""
    plan = Plan()
    function = read_function(plan.plan)
    for arguments in calls:
        # What was an error then is one now.
        with contextlib.suppress(ValueError, BadArguments):
            function.call(function.check(orjson.loads(arguments)))
    return plan.kept if plan.kept["items"] else None


def _read(kept: Any) -> list[dict[str, str]]:
    """The items of a plan that a run kept; [] where there is none."""
    items = kept.get("items") if isinstance(kept, dict) else None
    return [
        {"text": str(item.get("text") or ""), "state": str(item["state"])}
        for item in (items if isinstance(items, list) else [])
        if isinstance(item, dict) and item.get("state") in STATES
    ]
