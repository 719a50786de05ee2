"""A client's chat request: what of it xgw must understand, and the few changes on its way."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import msgspec
import orjson

from xgw.errors import ApiError, bad_request
from xgw.frozen import frozen
from xgw.providers.dialects.loose_json import (
    Members,
    begins_deeper,
    hide_lone_surrogates,
    is_deeper,
    members,
    parse_loose,
    raw,
    show_lone_surrogates,
    storable,
    tell_fault,
)

_NULL = b"null"


@frozen
class ChatRequest:
    """A chat request as far as xgw reads it.

    `body` is as sent; `fields` is its top level, fit to be stored (lone surrogates are U+FFFD). Of
    a name that occurs twice the last value counts, here and after `rewrite`. `strict`: nothing in
    it had to be read leniently.
    """

    model: str
    stream: bool
    include_usage: bool  # the client asked for usage in the stream
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    metadata: dict[str, Any] | None
    user: str | None
    body: bytes
    fields: dict[str, Any]
    strict: bool = True


def parse_request(body: bytes, max_depth: int = 200) -> ChatRequest:
    """Read a chat request. Raises ApiError (400) naming what is wrong with it."""
    fields, strict = _parse_top(body, max_depth)
    model = fields.get("model")
    if not isinstance(model, str) or not model:
        raise _wrong("model", "a string that is not empty", missing=model is None)
    stream = fields.get("stream")
    if stream is not None and not isinstance(stream, bool):
        raise _wrong("stream", "true or false")
    metadata = fields.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise _wrong("metadata", "an object")
    options, tools, user = fields.get("stream_options"), fields.get("tools"), fields.get("user")
    return ChatRequest(
        model=model,
        stream=bool(stream),
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
        messages=_parse_messages(fields.get("messages")),
        tools=tools if _is_object_list(tools) else None,
        metadata=metadata,
        user=user if isinstance(user, str) else None,
        body=body,
        fields=fields,
        strict=strict,
    )


def rewrite(
    body: bytes,
    *,
    model: str | None = None,
    metadata_without: Collection[str] = (),
    include_usage: bool = False,
    drop_stream_options: bool = False,
) -> bytes:
    """A request's body with these changes and no other; the very same bytes if none is needed.

    Values keep number text, escapes and the order of their members. `metadata_without`: keys, in
    any case, taken out of `metadata`, and `metadata` itself if it held nothing else.
    `include_usage`: asks for usage beside the client's other `stream_options`.
    """

    def edit(text: bytes) -> bytes:
        top = members(text)
        changed = [
            model is not None and _set_model(top, model),
            bool(metadata_without) and _drop_metadata(top, metadata_without),
            include_usage and _ask_for_usage(top),
            drop_stream_options and top.pop("stream_options", None) is not None,
        ]
        return msgspec.json.encode(top) if any(changed) else text

    return _edit(body, edit)


def _edit(body: bytes, edit: Callable[[bytes], bytes]) -> bytes:
    try:
        return edit(body)
    except msgspec.DecodeError:
        hidden = hide_lone_surrogates(body)
    try:
        edited = edit(hidden)
    except msgspec.DecodeError as error:
        raise bad_request(f"the body is not valid JSON: {error}", code="invalid_json") from None
    return body if edited is hidden else show_lone_surrogates(edited)


def parse_object(body: bytes, max_depth: int = 200) -> dict[str, Any]:
    """The top level of a JSON request. Raises ApiError (400) for anything else."""
    return _parse_top(body, max_depth)[0]


def _parse_top(body: bytes, max_depth: int) -> tuple[dict[str, Any], bool]:
    """The top level, and whether a strict parser read it."""
    strict = True
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as refusal:
        strict = False
        try:
            fields = parse_loose(body, constants=False)
        except ValueError as error:
            if str(error) == "nested too deeply" or begins_deeper(body, max_depth):
                raise _too_deep(max_depth) from None
            raise bad_request(
                f"the body is not valid JSON: {tell_fault(body, refusal)}", code="invalid_json"
            ) from None
    if is_deeper(body, fields, max_depth):
        raise _too_deep(max_depth)
    if not isinstance(fields, dict):
        raise bad_request("the body must be a JSON object", code="invalid_json")
    if strict:
        return fields, True
    cleaned: dict[str, Any] = storable(fields, max_depth)
    return cleaned, False


def _parse_messages(messages: Any) -> list[dict[str, Any]]:
    if not isinstance(messages, list):
        raise _wrong("messages", "a list", missing=messages is None)
    for place, message in enumerate(messages):
        if not isinstance(message, dict):
            raise _wrong(f"messages[{place}]", "an object")
    return messages


def _is_object_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(element, dict) for element in value)


def _wrong(param: str, wanted: str, *, missing: bool = False) -> ApiError:
    if missing:
        return bad_request(f"{param!r} is missing", code="missing_required_parameter", param=param)
    return bad_request(f"{param!r} must be {wanted}", code="invalid_type", param=param)


def _too_deep(max_depth: int) -> ApiError:
    return bad_request(f"the body is nested deeper than {max_depth} levels", code="invalid_json")


def _set_model(top: Members, model: str) -> bool:
    wanted = raw(model)
    sent = top.get("model")
    if sent is not None and _decoded(sent) == model:
        return False
    top["model"] = wanted
    return True


def _drop_metadata(top: Members, names: Collection[str]) -> bool:
    metadata = _object(top.get("metadata"))
    if metadata is None:
        return False
    unwanted = {name.casefold() for name in names}
    kept = {key: value for key, value in metadata.items() if key.casefold() not in unwanted}
    if len(kept) == len(metadata):
        return False
    if kept:
        top["metadata"] = raw(kept)
    else:
        del top["metadata"]
    return True


def _ask_for_usage(top: Members) -> bool:
    sent = top.get("stream_options")
    options = {} if sent is None or bytes(sent) == _NULL else _object(sent)
    if options is None or bytes(options.get("include_usage", b"")) == b"true":
        return False
    options["include_usage"] = raw(True)
    top["stream_options"] = raw(options)
    return True


def _object(value: msgspec.Raw | None) -> Members | None:
    """The members of a value that is an object, else None."""
    return members(value) if value is not None and bytes(value).startswith(b"{") else None


def _decoded(value: msgspec.Raw) -> Any:
    return msgspec.json.decode(value)
