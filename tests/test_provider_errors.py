"""Errors of upstreams: whatever shape they come in, the client gets one, and the record a type."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from xgw.errors import ERROR_TYPES
from xgw.providers.errors import classify, error_answer, failure_of_body, type_of

HTML = (
    b"<html><head><title>502</title></head><body>Your IP: 198.51.100.7 Ray ID: 9f00aa</body></html>"
)


class Masker:
    """Knows one secret."""

    def text(self, text: str) -> str:
        return text.replace("pk-SECRET-1", "[masked]")


def answer_to(
    body: bytes, *, status: int = 400, content_type: str = "application/json"
) -> dict[str, Any]:
    answered, body_for_client = error_answer(
        status, [("Content-Type", content_type)], body, provider_name="p1", masker=Masker()
    )
    assert answered == status
    return body_for_client


def error_for(
    body: bytes, *, status: int = 400, content_type: str = "application/json"
) -> dict[str, Any]:
    error: dict[str, Any] = answer_to(body, status=status, content_type=content_type)["error"]
    return error


def test_a_complete_error_passes_as_it_is() -> None:
    whole = {
        "error": {"message": "no", "type": "bad_thing", "param": "top_p", "code": "x", "extra": [1]}
    }
    assert answer_to(orjson.dumps(whole)) == whole


def test_missing_fields_are_completed_and_others_kept() -> None:
    body = (
        b'{"error":{"message":"Upstream pool unreachable","code":502,"metadata":{"p":"x"}},'
        b'"user_id":"u"}'
    )
    assert answer_to(body, status=502) == {
        "user_id": "u",
        "error": {
            "message": "Upstream pool unreachable",
            "type": "upstream_error",
            "param": None,
            "code": "502",
            "metadata": {"p": "x"},
        },
    }


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            b'{"detail":[{"loc":["body","top_k"],"msg":"top_k must be >= 1","type":"v"}]}',
            {"message": "top_k must be >= 1", "param": "top_k"},
        ),
        (
            b'{"detail":[{"loc":["body","messages",0,"role"],"msg":"Field required"}]}',
            {"message": "messages.0.role: Field required", "param": "messages.0.role"},
        ),
        (b'{"detail":"Not Found"}', {"message": "Not Found"}),
        (b'{"message":"slow down","type":"busy"}', {"message": "slow down", "type": "busy"}),
        (b'{"error":"model \'m\' not found"}', {"message": "model 'm' not found"}),
        (
            b'{"error":"invalid_token","error_description":"it has expired"}',
            {"message": "it has expired", "code": "invalid_token"},
        ),
        (
            b'{"error":"Bad Request","message":"n must be 1"}',
            {"message": "Bad Request: n must be 1"},
        ),
        (
            b'{"error_code":"BAD_REQUEST","message":"no"}',
            {"message": "no", "code": "BAD_REQUEST"},
        ),
        (
            b'{"object":"error","message":"no","type":"BadRequestError","param":null,"code":400}',
            {"message": "no", "type": "BadRequestError", "code": "400"},
        ),
        (
            b'{"error":"Input validation error","error_type":"validation"}',
            {"message": "Input validation error", "type": "validation"},
        ),
        (
            b'{"error":{"code":400,"message":"bad","status":"INVALID_ARGUMENT"}}',
            {"message": "bad", "code": "400", "status": "INVALID_ARGUMENT"},
        ),
        (b'[{"error":{"code":400,"message":"bad"}}]', {"message": "bad", "code": "400"}),
        (b'{"success":false,"errors":[{"code":7,"message":"denied"}]}', {"message": "denied"}),
        (b'{"error":{"message":{"detail":"deep"}}}', {"message": "deep"}),
        (b'{"error":[{"message":"listed"}]}', {"message": "listed"}),
        (b'{"error":{"code":1},"message":"beside"}', {"message": "beside", "code": "1"}),
        (b'{"error":{"message":"x","param":["messages",0]}}', {"param": "messages.0"}),
        (
            b'{"error":{"message":"x","type":"","code":""}}',
            {"type": "upstream_error", "code": None},
        ),
        (b'"just text"', {"message": "just text"}),
        (b'data: {"error":{"message":"as an event"}}\n\n', {"message": "as an event"}),
        (b'\xef\xbb\xbf{"message":"after a mark"}', {"message": "after a mark"}),
    ],
)
def test_the_text_of_other_envelopes_is_carried_over(body: bytes, expected: dict[str, Any]) -> None:
    error = error_for(body)
    assert {key: error[key] for key in expected} == expected
    assert {"message", "type", "param", "code"} <= error.keys()


def test_anthropics_shape_keeps_its_type_and_request_id() -> None:
    error = b'{"type":"overloaded_error","message":"Overloaded"}'
    body = b'{"type":"error","error":%s,"request_id":"r"}' % error
    assert answer_to(body, status=529) == {
        "request_id": "r",
        "error": {
            "message": "Overloaded",
            "type": "overloaded_error",
            "param": None,
            "code": None,
        },
    }


def test_an_error_without_a_type_gets_the_one_of_its_status() -> None:
    assert error_for(b'{"message":"slow down"}', status=429)["type"] == "upstream_rate_limit"
    assert error_for(b'{"message":"broken"}', status=500)["type"] == "upstream_error"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (HTML, "text/html; charset=UTF-8"),
        (b"\n <!DOCTYPE html>" + HTML, "application/json"),
        (orjson.dumps({"error": {"message": HTML.decode()}}), "application/json"),
        (orjson.dumps({"detail": HTML.decode()}), "application/json"),
        (b"<!-- by edge-7 -->\n" + HTML, "text/plain"),
        (b"<center><h1>502</h1></center> 198.51.100.7", "text/plain"),
        (b"Service down: " + HTML, "text/plain"),
    ],
)
def test_a_page_is_never_passed_on(body: bytes, content_type: str) -> None:
    error = error_for(body, status=502, content_type=content_type)
    assert error["message"] == "p1 answered 502 with an HTML page"
    assert b"198.51.100.7" not in orjson.dumps(error)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "p1 answered 503 without a body"),
        (b" {} ", "p1 answered 503 without a message"),
        (b"upstream connect error\r\n  or reset", "upstream connect error or reset"),
        (b"x" * 5000, "x" * 299 + "…"),
        (b"\x00\x01\xff\xfe binary", "p1 answered 503 with a body that is not text"),
        (b'{"ok": 1}', 'p1 answered 503: {"ok": 1}'),
        (b"<?xml version='1.0'?><Error/>", "p1 answered 503 with an XML document"),
        (b"a < b and <|end|> is no tag", "a < b and <|end|> is no tag"),
    ],
)
def test_what_has_no_message_gets_one_short_sentence(body: bytes, message: str) -> None:
    assert error_for(body, status=503, content_type="text/plain")["message"] == message


@pytest.mark.parametrize("page", [HTML.decode(), "<!DOCTYPE html>\n" + HTML.decode()])
def test_a_page_that_is_quoted_is_only_named(page: str) -> None:
    quoted = {"message": f"Bad gateway: {page} (try later)", "metadata": {"raw": page}}
    error = error_for(orjson.dumps({"error": quoted}), status=502)
    assert error["message"] == "Bad gateway: (an HTML page) (try later)"
    assert error["metadata"] == {"raw": "(an HTML page)"}
    cut = error_for(orjson.dumps({"detail": f"upstream said: {page[:80]}"}), status=502)
    assert cut["message"] == "upstream said: (an HTML page)"


def test_a_tag_that_is_spoken_of_is_no_page() -> None:
    message = "<html> is no tag that a schema may name </html>"
    assert error_for(orjson.dumps({"message": f"no: {message}"}))["message"] == f"no: {message}"


def test_xml_by_its_label() -> None:
    error = error_for(b"<Error><Ip>198.51.100.7</Ip></Error>", content_type="application/xml")
    assert error["message"] == "p1 answered 400 with an XML document"


def test_a_message_keeps_its_tags() -> None:
    assert error_for(b'{"message":"<tool> is unknown"}')["message"] == "<tool> is unknown"


def test_half_a_surrogate_pair_is_no_question_mark() -> None:
    assert error_for(b'{"message":"a\\ud800b \\ud83d\\ude00"}')["message"] == "a\ufffdb 😀"


def test_a_redirect_is_a_bad_gateway() -> None:
    status, body = error_answer(307, [], b"", provider_name="p1", masker=Masker())
    assert status == 502
    assert body["error"]["message"] == "p1 answered 307, a redirect, which is not followed"


@pytest.mark.parametrize(
    "body",
    [
        b'{"error":{"message":"Incorrect key: pk-SECRET-1.","hint":{"keys":["pk-SECRET-1"]}}}',
        b"the key pk-SECRET-1 is unknown",
        b"x" * 292 + b"pk-SECRET-1",
    ],
)
def test_secrets_are_masked_wherever_they_stand(body: bytes) -> None:
    error = error_for(body, status=401)
    assert b"SECRET" not in orjson.dumps(error)
    assert b"pk-" not in orjson.dumps(error)


def test_a_refused_credential_says_whose_it_is() -> None:
    assert error_for(b'{"message":"no"}', status=401)["code"] == "upstream_credential"
    assert error_for(b'{"error":{"message":"no","code":"invalid_api_key"}}', status=401)[
        "code"
    ] == ("invalid_api_key")


@pytest.mark.parametrize(
    "body",
    [
        b'{"error":{"message":"\\ud800 lone","v":NaN,"n":123456789012345678901234567890}}',
        b"[" * 100_000,
        b'{"a":' * 900 + b"1" + b"}" * 900,
        b'{"error":{"message":"x","extra":' + b"[" * 900 + b"]" * 900 + b"}}",
        b'{"error":{"message":{"message":[[[null]]]},"type":[{}],"param":{},"code":1e999}}',
        b'{"detail":[{"loc":[null,{}],"msg":5}]}',
        b"\x07\x08",
        bytes(range(256)),
        b"nan",
    ],
)
def test_no_bytes_are_too_strange(body: bytes) -> None:
    error = error_for(body, status=500, content_type="application/json")
    orjson.dumps(error)
    assert isinstance(error["message"], str)
    assert error["message"]
    assert all(error[name] is None or isinstance(error[name], str) for name in ("param", "code"))
    assert classify(500, error) in ERROR_TYPES


@pytest.mark.parametrize(
    ("status", "fields", "error_type"),
    [
        (429, {"message": "maximum context length exceeded"}, "upstream_rate_limit"),
        (400, {"code": "context_length_exceeded", "message": ""}, "context_overflow"),
        (
            400,
            {"message": "This model's maximum context length is 8192 tokens."},
            "context_overflow",
        ),
        (400, {"message": "prompt is too long: 210000 tokens > 200000"}, "context_overflow"),
        (400, {"message": "exceeds the maximum number of tokens allowed"}, "context_overflow"),
        (400, {"message": "the request exceeds the available\ncontext size"}, "context_overflow"),
        (413, {"message": "Please reduce the length of the messages"}, "context_overflow"),
        (400, {"message": "unknown field context_size"}, "upstream_error"),
        (400, {"message": 5, "code": ["x"]}, "upstream_error"),
        (408, {}, "upstream_timeout"),
        (504, None, "upstream_timeout"),
        (401, {"message": "no"}, "upstream_error"),
        (500, None, "upstream_error"),
    ],
)
def test_the_record_gets_a_type(
    status: int, fields: dict[str, Any] | None, error_type: str
) -> None:
    assert classify(status, fields) == error_type


@pytest.mark.parametrize(
    ("body", "error_type"),
    [
        (b'{"error":{"message":"no","code":"context_length_exceeded"}}', "context_overflow"),
        (b'{"error":"the prompt is too long"}', "context_overflow"),
        (b'{"detail":"prompt is too long: 5000 tokens > 4096 maximum"}', "context_overflow"),
        (b'[{"error":{"message":"maximum context length exceeded"}}]', "context_overflow"),
        (b'{"message":"no","code":"context_length_exceeded"}', "context_overflow"),
        (b"the prompt is too long", "context_overflow"),
        (b"<html>the request is too long</html>", "upstream_error"),
        (b'{"detail":"no such field"}', "upstream_error"),
        (b"", "upstream_error"),
    ],
)
def test_the_type_is_found_in_every_envelope(body: bytes, error_type: str) -> None:
    assert type_of(400, body) == error_type


@pytest.mark.parametrize(
    ("answer", "status", "message", "error_type"),
    [
        ({"error": {"code": 503, "message": "down"}}, 503, "down", "upstream_error"),
        ({"error": {"code": "429", "message": "slow"}}, 429, "slow", "upstream_rate_limit"),
        ({"error": {"code": "server_error", "message": "x"}}, 502, "x", "upstream_error"),
        ({"error": {"code": 200, "message": "x"}}, 502, "x", "upstream_error"),
        ({"error": "text"}, 502, "text", "upstream_error"),
        ({"object": "error", "message": "m", "code": 400}, 400, "m", "upstream_error"),
        ({"type": "error", "error": {"message": "m"}}, 502, "m", "upstream_error"),
        (
            {"error": {"code": 400, "message": "prompt is too long"}, "choices": []},
            400,
            "prompt is too long",
            "context_overflow",
        ),
    ],
)
def test_a_success_that_holds_an_error_is_a_failure(
    answer: dict[str, Any], status: int, message: str, error_type: str
) -> None:
    failure = failure_of_body(answer, body=b"raw")
    assert failure is not None
    assert (failure.http_status, failure.message) == (status, message)
    assert (failure.error_type, failure.body) == (error_type, b"raw")


@pytest.mark.parametrize(
    "answer",
    [
        {"choices": [], "error": None},
        {"choices": [{"message": {"content": "error"}}]},
        {"object": "response", "status": "failed", "error": {"code": "x", "message": "m"}},
        {"error": {}},
        {"data": []},
        [],
        None,
    ],
)
def test_an_answer_is_no_failure(answer: object) -> None:
    assert failure_of_body(answer) is None
