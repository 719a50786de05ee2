"""Embeddings of the demo: deterministic unit vectors in which texts that share words are close."""

from __future__ import annotations

import base64
import math
import re
import struct
from collections.abc import Sequence
from hashlib import shake_256
from typing import Any

from xgw.errors import bad_request
from xgw.providers.demo.prompt_cache import TOKEN_BYTES

DIMENSIONS = 256
MAX_DIMENSIONS = 4_096
MAX_INPUTS = 2_048
MAX_WORDS = 512

_WORD = re.compile(r"\w+")


def embed(body: dict[str, Any]) -> dict[str, Any]:
    """The response to an embeddings request; ApiError 400 where it is not one."""
    inputs = _inputs(body.get("input"))
    size = body.get("dimensions", DIMENSIONS)
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= MAX_DIMENSIONS:
        raise bad_request(f"'dimensions' must be 1 to {MAX_DIMENSIONS}.", param="dimensions")
    encoding = body.get("encoding_format") or "float"
    if encoding not in ("float", "base64"):
        raise bad_request("'encoding_format' is float or base64.", param="encoding_format")
    vectors = [_vector(text, size) for text in inputs]
    tokens = sum(max(1, -(-len(text.encode("utf-8", "replace")) // TOKEN_BYTES)) for text in inputs)
    embeddings = [
        {
            "object": "embedding",
            "index": index,
            "embedding": _packed(vector) if encoding == "base64" else vector,
        }
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": embeddings, "model": body["model"], "usage": usage}


def _inputs(given: object) -> list[str]:
    """The texts of an input; a list of token numbers is one text, their lists are several."""
    several = given if isinstance(given, list) else [given]
    if several and all(isinstance(entry, int) for entry in several):
        several = [several]
    if not several or len(several) > MAX_INPUTS:
        raise bad_request(f"'input' must hold 1 to {MAX_INPUTS} texts.", param="input")
    return [_text(entry) for entry in several]


def _text(entry: object) -> str:
    if isinstance(entry, str) and entry:
        return entry
    if isinstance(entry, list) and entry and all(isinstance(token, int) for token in entry):
        return " ".join(map(str, entry))
    raise bad_request("'input' must be a text, or a list of texts or tokens.", param="input")


def _vector(text: str, size: int) -> list[float]:
    """The sum of the vectors of the text's words, of length 1."""
    words = _WORD.findall(text.lower())[:MAX_WORDS] or [text]
    columns = zip(*(_word_vector(word, size) for word in words), strict=True)
    sums = [float(sum(column)) for column in columns]
    length = math.hypot(*sums)
    if length == 0:
        return [1.0] + [0.0] * (size - 1)
    return [_single(value / length) for value in sums]


def _word_vector(word: str, size: int) -> Sequence[int]:
    """Numbers of -127 to 127 from the word's hash."""
    return [(byte or 1) - 128 for byte in shake_256(word.encode("utf-8", "replace")).digest(size)]


def _single(value: float) -> float:
    """The value in the precision that the base64 form has."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def _packed(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
