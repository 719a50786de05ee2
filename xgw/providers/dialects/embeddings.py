"""The embeddings dialect: only the model and the usage of an answer are read."""

from __future__ import annotations

import orjson

from xgw.providers.dialects.chat_usage import parse_usage
from xgw.providers.errors import failure_of_body
from xgw.values import Answer, UpstreamFailure


def parse_embeddings(body: bytes) -> Answer:
    """Model and usage of an answer. Raises UpstreamFailure for an error body, or for no JSON."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise UpstreamFailure(
            "upstream_protocol_error", "the answer is not JSON", http_status=502, body=body
        ) from None
    failure = failure_of_body(parsed, body=body)
    if failure is not None:
        raise failure
    if not isinstance(parsed, dict):
        raise UpstreamFailure(
            "upstream_protocol_error", "the answer is no JSON object", http_status=502, body=body
        )
    model = parsed.get("model")
    return Answer(
        usage=parse_usage(parsed.get("usage")), model=model if isinstance(model, str) else None
    )
