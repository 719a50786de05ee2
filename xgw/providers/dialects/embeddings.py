"""The embeddings dialect: only the model and the usage of an answer are read."""

from __future__ import annotations

from typing import Any

import orjson

from xgw.providers.dialects.chat_errors import build_protocol_failure
from xgw.providers.dialects.chat_usage import parse_usage
from xgw.providers.dialects.loose_json import parse_loose, storable
from xgw.providers.errors import failure_of_body
from xgw.values import Answer


def parse_embeddings(body: bytes, *, status: int = 200) -> Answer:
    """Model and usage of an answer, which came with `status`.

    Raises UpstreamFailure for an error body, or for no JSON.
    """
    parsed, strict = _parse(body, status)
    failure = failure_of_body(parsed, body=body)
    if failure is not None:
        raise failure
    if not isinstance(parsed, dict):
        raise build_protocol_failure("the answer is no JSON object", body, status=status)
    model = parsed.get("model")
    return Answer(
        usage=parse_usage(parsed.get("usage")),
        model=model if isinstance(model, str) else None,
        names=tuple(parsed) if strict else None,
    )


def _parse(body: bytes, status: int) -> tuple[Any, bool]:
    """The answer, and whether a strict parser read it."""
    try:
        return orjson.loads(body), True
    except orjson.JSONDecodeError:
        pass
    try:
        return storable(parse_loose(body)), False
    except ValueError:
        raise build_protocol_failure("the answer is not JSON", body, status=status) from None
