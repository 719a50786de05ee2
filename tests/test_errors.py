"""The tree of errors and the error shape."""

from __future__ import annotations

import pytest

from xgw import errors


def test_every_error_is_an_xgw_error() -> None:
    raised = (errors.UsageError("a"), errors.WorkError("b"), errors.internal())
    assert all(isinstance(error, errors.XgwError) for error in raised)


def test_bad_usage_keeps_each_mistake_as_a_line() -> None:
    error = errors.UsageError("first mistake", "second mistake")
    assert error.lines == ("first mistake", "second mistake")
    assert str(error) == "first mistake\nsecond mistake"


def test_the_error_shape_has_exactly_four_keys() -> None:
    assert errors.error_body("text", "internal") == {
        "error": {"message": "text", "type": "internal", "param": None, "code": None}
    }
    assert errors.error_body("text", "tool_error", "p", "c") == {
        "error": {"message": "text", "type": "tool_error", "param": "p", "code": "c"}
    }


@pytest.mark.parametrize(
    ("error", "status", "type", "code", "param"),
    [
        (errors.bad_request("m"), 400, "invalid_request_error", "bad_request", None),
        (
            errors.bad_request("m", code="invalid_session_id", param="metadata"),
            400,
            "invalid_request_error",
            "invalid_session_id",
            "metadata",
        ),
        (errors.unauthorized(), 401, "invalid_request_error", "invalid_api_key", None),
        (errors.forbidden("m"), 403, "invalid_request_error", "forbidden", None),
        (errors.not_found("m"), 404, "invalid_request_error", "not_found", None),
        (
            errors.not_found("m", code="model_not_found", param="model"),
            404,
            "invalid_request_error",
            "model_not_found",
            "model",
        ),
        (
            errors.conflict("m", code="session_busy"),
            409,
            "invalid_request_error",
            "session_busy",
            None,
        ),
        (errors.too_large("m"), 413, "invalid_request_error", "request_too_large", None),
        (
            errors.unprocessable("m", param="limit"),
            422,
            "invalid_request_error",
            "invalid_value",
            "limit",
        ),
        (errors.overloaded("m", 7), 503, "overloaded", "overloaded", None),
        (errors.internal(), 500, "internal", "internal", None),
    ],
)
def test_each_refusal_has_its_status_type_code_and_param(
    error: errors.ApiError, status: int, type: str, code: str, param: str | None
) -> None:
    assert error.status == status
    assert error.body() == errors.error_body(error.message, type, param, code)
    assert type in errors.ERROR_TYPES
    assert str(error) == error.message != ""


def test_an_overloaded_server_says_when_to_come_back() -> None:
    assert errors.overloaded("m", 7).headers == (("Retry-After", "7"),)


def test_who_is_not_known_is_told_how_to_say_so() -> None:
    assert errors.unauthorized().headers == (("WWW-Authenticate", "Bearer"),)


def test_error_types_are_all_different() -> None:
    assert len(set(errors.ERROR_TYPES)) == len(errors.ERROR_TYPES)
