"""An upstream's error, in the one shape that errors have, and the type it has in the record.

Nothing here raises, whatever the bytes are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import orjson

from xgw.providers.dialects.loose_json import encodable
from xgw.values import UpstreamFailure

# Where the envelopes of this world keep their text, the best first.
_TEXT_KEYS = (
    "message",
    "msg",
    "detail",
    "error_description",
    "error_message",
    "errorMessage",
    "description",
    "reason",
    "error",
    "errors",
    "title",
    "fault",
    "faultstring",
)
_CONTEXT_CODES = ("context_length_exceeded", "context_window_exceeded", "exceed_context_size_error")
_CONTEXT = re.compile(
    r"(?=.*(?:exceed|maximum|longer|larger|too (?:long|large|many)))"
    r".*context[ _-]?(?:length|window|size|limit)"
    r"|.*(?:prompt|input|request) is too long"
    r"|.*too many (?:input )?tokens"
    r"|.*exceeds? the maximum (?:allowed )?(?:number of )?(?:input )?tokens"
    r"|.*reduce the length of"
    r"|.*tokens`? \+ `?max_new_tokens`? must be",
    re.IGNORECASE | re.DOTALL,
)
# A body that is no JSON: it begins with a tag, or has a page in it.
_PAGE = re.compile(r"\s*<[a-z!?]|.*?<(?:!doctype|/?(?:html|head|body)\b)", re.I | re.DOTALL)
# A page within a text, and what only a page has in it.
_PAGE_QUOTED = re.compile(r"<!doctype html|<html\b", re.I)
_PAGE_PART = re.compile(r"<(?:head|title|body)\b", re.I)
_MAX_PLAIN = 300
_MAX_READ = 65536
_MAX_DEPTH = 64

Headers = Iterable[tuple[str, str]]


class Masks(Protocol):
    """What is used of a masker."""

    def text(self, text: str, /) -> str:
        """`text` without the secrets in it."""
        ...


def error_answer(
    status: int, headers: Headers, body: bytes, *, provider_name: str, masker: Masks
) -> tuple[int, dict[str, Any]]:
    """Status and JSON body for the client: `{"error": {message, type, param, code, …}}`.

    `status`, `headers` and `body` (its content encoding undone) are the upstream's. Its text and
    all its fields are kept, with secrets masked; a body that is no JSON gives one short sentence. A
    status that is no error's (a redirect) becomes 502.
    """
    text = body.decode("utf-8-sig", "replace").strip()
    beside, fields = _find_fields(_parse(text))
    message = fields.get("message")
    if not isinstance(message, str) or _is_markup(message):
        plain = masker.text((message or text)[:_MAX_READ])
        fields["message"] = _describe(status, plain, _content_type(headers), provider_name)
    answer = {**beside, "error": _complete(status, fields)}
    return status if 400 <= status <= 599 else 502, _clean(answer, masker, 0)


def classify(status: int, body_fields: Mapping[str, Any] | None) -> str:
    """The `error_type` of an upstream's error; `body_fields` is what its body has in `error`."""
    if status == 429:
        return "upstream_rate_limit"
    fields = body_fields or {}
    if fields.get("code") in _CONTEXT_CODES or fields.get("type") in _CONTEXT_CODES:
        return "context_overflow"
    message = fields.get("message")
    if isinstance(message, str) and _CONTEXT.match(message[:_MAX_READ]):
        return "context_overflow"
    return "upstream_timeout" if status in (408, 504) else "upstream_error"


def type_of(status: int, body: bytes) -> str:
    """The `error_type` of an upstream's error, whatever envelope its body has."""
    text = body.decode("utf-8-sig", "replace").strip()
    _, fields = _find_fields(_parse(text))
    is_told = fields["message"] is not None or _PAGE.match(text[:_MAX_READ])
    return classify(status, fields if is_told else fields | {"message": text})


def failure_of_body(
    answer: object, *, body: bytes | None = None, headers: tuple[tuple[str, str], ...] = ()
) -> UpstreamFailure | None:
    """The failure that a 200 (or an event of its stream) holds instead of an answer; None if none.

    `answer` is the parsed JSON. `http_status` is what it counts as: a numeric `error.code` from 400
    to 599, else 502. The message is the upstream's own, not masked.
    """
    if not isinstance(answer, dict) or answer.get("object") == "response":
        return None  # a Responses object tells of its failure by itself
    error = answer.get("error")
    stated = isinstance(error, dict | str) and bool(error)
    if not stated and "error" not in (answer.get("object"), answer.get("type")):
        return None
    _, fields = _find_fields(answer)
    status = _status_of_code(fields.get("code"))
    message = fields.get("message")
    if not isinstance(message, str) or _is_markup(message):
        message = "the upstream answered 200 with an error instead of an answer"
    error_type = classify(status, fields)
    return UpstreamFailure(error_type, message, http_status=status, body=body, headers=headers)


def _status_of_code(code: object) -> int:
    text = str(code)
    if re.fullmatch(r"[45][0-9][0-9]", text, re.ASCII):
        return int(text)
    return 502


def _parse(text: str) -> object:
    """The JSON in `text`, also as the first event of a stream; None if there is none."""
    if text.startswith(("data:", "event:")):
        lines = (line for line in text.splitlines() if line.startswith("data:"))
        text = next(lines, "").removeprefix("data:").strip()
    try:
        return orjson.loads(text)
    except ValueError:
        pass
    try:
        return json.loads(text)  # lone surrogates, NaN
    except (ValueError, RecursionError):
        return None


def _find_fields(parsed: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """What stands beside the error in its body, and the error's fields with `message` filled in."""
    if isinstance(parsed, list):
        parsed = next((entry for entry in parsed if isinstance(entry, dict)), {"errors": parsed})
    if not isinstance(parsed, dict):
        return {}, {"message": _text_of(parsed, 0)}
    beside: dict[str, Any] = {}
    fields = dict(parsed)
    error = fields.get("error")
    if error is None or isinstance(error, dict | str):
        fields.pop("error", None)
    if isinstance(error, dict):
        beside, fields = fields, dict(error)
        if beside.get("type") == "error":
            del beside["type"]
    elif fields.get("object") == "error":
        del fields["object"]
    message = _text_of(fields, 0) or _text_of(beside, 0)
    if isinstance(error, str) and error.strip():
        message = _join_texts(error.strip(), message, fields)
    fields.setdefault("param", _field_named(fields.get("detail")))
    return beside, fields | {"message": message}


def _join_texts(error: str, message: str | None, fields: dict[str, Any]) -> str:
    """The text of `{"error": "text", …}`; a bare name beside a message is its code."""
    if message is None:
        return error
    if re.fullmatch(r"[\w.-]+", error):
        fields.setdefault("code", error)
        return message
    return message if error in message else f"{error}: {message}"


def _text_of(value: object, depth: int) -> str | None:
    """The first text that a person could read in `value`."""
    if isinstance(value, str):
        return value.strip() or None
    if depth > 8:
        return None
    if isinstance(value, list):
        texts = [text for entry in value[:5] if (text := _text_of(entry, depth + 1))]
        return "; ".join(texts) or None
    if not isinstance(value, dict):
        return None
    texts_of_keys = (_text_of(value[key], depth + 1) for key in _TEXT_KEYS if key in value)
    text = next((text for text in texts_of_keys if text), None)
    field = _field_named([value])
    return f"{field}: {text}" if text and field and field not in text else text


def _field_named(detail: object) -> str | None:
    """The field that a FastAPI `detail` complains about: its `loc` without the leading "body"."""
    first = detail[0] if isinstance(detail, list) and detail else None
    loc = first.get("loc") if isinstance(first, dict) else None
    if not isinstance(loc, list):
        return None
    parts = [str(part) for part in loc if isinstance(part, str | int)]
    return ".".join(parts[1:] if parts[:1] in (["body"], ["query"], ["path"]) else parts) or None


def _describe(status: int, text: str, content_type: str, provider_name: str) -> str:
    """One short sentence for a body without a message; `text` is masked."""
    answered = f"{provider_name} answered {status}"
    if 300 <= status <= 399:
        return f"{answered}, a redirect, which is not followed"
    if text in ("", "{}", "[]", "null", '""'):
        return f"{answered} without a {'message' if text else 'body'}"
    if "html" in content_type or _PAGE.match(text):
        is_xml = text.startswith("<?xml") or re.search(r"^(?!.*html).*xml", content_type)
        return f"{answered} with {'an XML document' if is_xml else 'an HTML page'}"
    line = "".join(c if c.isprintable() else " " for c in text[: 4 * _MAX_PLAIN])
    line = " ".join(line.split())
    if not line or "\0" in text or text.count("\ufffd") * 10 > len(text):
        return f"{answered} with a body that is not text"
    line = line if len(line) <= _MAX_PLAIN else line[: _MAX_PLAIN - 1] + "…"
    return f"{answered}: {line}" if text[0] in "{[" else line


def _is_markup(text: str) -> bool:
    return text[:256].lstrip().lower().startswith(("<!doctype", "<html", "<?xml", "<head", "<body"))


def _without_page(text: str) -> str:
    """`text` with the page that it quotes, as servers do of those behind them, only named."""
    begin = _PAGE_QUOTED.search(text)
    if begin is None or not _PAGE_PART.search(text, begin.end()):
        return text
    end = text.lower().rfind("</html>", begin.end())
    rest = text[end + len("</html>") :] if end >= 0 else ""
    return f"{text[: begin.start()]}(an HTML page){rest}"


def _content_type(headers: Headers) -> str:
    return next((value.lower() for name, value in headers if name.lower() == "content-type"), "")


def _complete(status: int, fields: dict[str, Any]) -> dict[str, Any]:
    """`fields` with message, type, param and code, each text or None."""
    kept = {k: v for k, v in fields.items() if not (isinstance(v, str) and _is_markup(v))}
    by_status = "upstream_rate_limit" if status == 429 else "upstream_error"
    code = _as_text(kept.pop("code", None)) or _as_text(kept.get("error_code"))
    if code is None and status in (401, 403):
        code = "upstream_credential"  # the one that the upstream was given, not the client's own
    named = {
        "message": kept.pop("message"),
        "type": _as_text(kept.pop("type", None)) or _as_text(kept.get("error_type")) or by_status,
        "param": _as_text(kept.pop("param", None)),
        "code": code,
    }
    return named | kept


def _as_text(value: object) -> str | None:
    if isinstance(value, str):
        return value or None
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list) and value and all(isinstance(part, str | int) for part in value):
        return ".".join(map(str, value))  # a path
    return None


def _clean(value: Any, masker: Masks, depth: int) -> Any:
    """`value` with masked texts, and without what JSON or UTF-8 cannot hold."""
    if isinstance(value, str):
        return masker.text(encodable(_without_page(value)))
    if depth > _MAX_DEPTH:
        return None
    if isinstance(value, dict):
        return {_clean(k, masker, depth): _clean(v, masker, depth + 1) for k, v in value.items()}
    if isinstance(value, list):
        return [_clean(entry, masker, depth + 1) for entry in value]
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return str(value)
    return value
