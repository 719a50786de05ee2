"""Errors that an upstream puts into an answer of status 200, as failures."""

from __future__ import annotations

from typing import Any

from xgw.providers.dialects.loose_json import json_text, storable
from xgw.providers.errors import failure_of_body
from xgw.values import UpstreamFailure


def find_failure(answer: Any, body: bytes, *, event: str | None = None) -> UpstreamFailure | None:
    """The failure that the JSON `answer` is instead of an answer; None if it is none.

    Beside the shapes of `failure_of_body`: an error that is neither object nor text, a list of one
    error, one in each of its choices, and whatever an event of type "error" holds.
    """
    if isinstance(answer, list) and len(answer) == 1:
        answer = answer[0]
    error = answer.get("error") if isinstance(answer, dict) else None
    if not error and (of_choices := _error_of_choices(answer)):
        answer = {"error": of_choices}
        error, body = of_choices, json_text(answer).encode()
    if error and not isinstance(error, (dict, str)):
        beside = {key: value for key, value in answer.items() if key != "error"}
        answer = {"error": beside or str(error)}
    elif event == "error" and not error:
        answer = {"error": answer if answer and isinstance(answer, (dict, str)) else str(answer)}
    failure = failure_of_body(answer, body=body)
    if failure is not None:
        failure.message = storable(failure.message)
    return failure


def _error_of_choices(answer: Any) -> Any:
    """The first choice's error, where every choice has one instead of an answer."""
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if not choices or not isinstance(choices, list):
        return None
    errors = [choice.get("error") if isinstance(choice, dict) else None for choice in choices]
    return errors[0] if all(errors) else None


def build_protocol_failure(
    message: str, body: bytes, *, status: int | None = None
) -> UpstreamFailure:
    """The failure of an answer that cannot be understood."""
    return UpstreamFailure("upstream_protocol_error", message, http_status=status, body=body)
