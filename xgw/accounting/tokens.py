"""Token counts without the network: texts, messages and whole chat requests, by model.

Texts are counted exactly as tiktoken counts them (o200k and cl100k); how messages and tools are
framed is the estimate of `framing`.

The vocabularies take 0.3 s and 65 MB (o200k, the default) and 0.1 s and 45 MB (cl100k). Each is
loaded once, when `wait` or the first text asks for it. That text waits for it, but not for long:
counts are None as long as it takes.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache, partial
from hashlib import blake2b

import orjson

from xgw import clock
from xgw.accounting.framing import PRIMING_TOKENS, Count, message_tokens, tools_tokens
from xgw.resent import Hashes

O200K = "o200k_base"
CL100K = "cl100k_base"

# What the start of a function definition costs, by the published rule.
FUNCTION_TOKENS = {O200K: 7, CL100K: 10}

# Counting a text is linear, at worst 85 ms a megabyte (random letters). Above the bound evenly
# spread samples are counted and the rest is extrapolated: at most 85 ms for any text.
EXACT_CHARS = 1 << 20
SAMPLES = 16
SAMPLE_CHARS = EXACT_CHARS // SAMPLES

PATIENCE_SECONDS = 5.0
"""On a machine that does nothing else it takes a tenth of that."""

MAX_MODEL_NAME = 256
SUMMED_FROM = 32
"""Messages of a request from which their sum is remembered too."""

_CL100K_MODEL = re.compile(r"gpt-4(?![o.\d])|gpt-3\.?5|text-embedding-")

_log = logging.getLogger(__name__)


class TokenCounter:
    """Counts tokens by model; safe to use from any thread, never raises on odd content.

    `cache_size` is the number of messages and tool lists whose counts are remembered, `patience`
    how many seconds counts wait for a vocabulary from when it was asked for first.
    """

    def __init__(self, cache_size: int = 32_768, patience: float = PATIENCE_SECONDS) -> None:
        self._patience = patience
        self._vocabularies: dict[str, Count] = {}
        self._loaded = {encoding: threading.Event() for encoding in (O200K, CL100K)}
        self._wait_until: dict[str, float] = {}
        self._loading = threading.Lock()
        self._cache = _CountCache(cache_size)

    def load(self) -> None:
        """Loads both vocabularies and returns when they are there."""
        self._load(O200K)
        self._load(CL100K)

    def wait(self, model: str | None, seconds: float) -> None:
        """Returns once the model's tokens can be counted, or it is plain that they cannot."""
        encoding = encoding_of(model)
        if not self._loaded[encoding].is_set():
            self._load_beside(encoding)
            self._loaded[encoding].wait(seconds)

    def count_text(self, text: str, model: str | None = None) -> int | None:
        """Tokens of a text; None until loaded. Names of special tokens are ordinary text.

        Above `EXACT_CHARS` characters the count is extrapolated from samples.
        """
        count = self._vocabulary(encoding_of(model))
        return None if count is None else count(text)

    def count_message(
        self, message: object, model: str | None = None, *, digest: Hashable = None
    ) -> int | None:
        """Tokens of one chat message with its framing; None until loaded.

        `digest` identifies the content (the hash of its canonical bytes); computed where not given.
        """
        encoding = encoding_of(model)
        known = self._cache.find((encoding, digest))
        if known is not None:
            return known
        count = self._vocabulary(encoding)
        return None if count is None else self._message(message, encoding, count, digest)

    def estimate_request(
        self,
        messages: Sequence[object],
        tools: Sequence[object] | None = None,
        model: str | None = None,
        *,
        digests: Sequence[Hashable] | None = None,
        known: int = 0,
    ) -> int | None:
        """Tokens of a chat request: messages, tool definitions, priming of the answer.

        `digests` are those of the messages, in their order; `known` is how many of the first ones
        were all that an earlier request had. None until loaded.
        """
        encoding = encoding_of(model)
        count = self._vocabulary(encoding)
        if count is None:
            return None
        if isinstance(digests, Hashes) and len(digests) >= SUMMED_FROM:
            total = self._resent(messages, digests, known, encoding, count)
        else:
            given = (None,) * len(messages) if digests is None else digests
            total = 0
            for said, digest in zip(messages, given, strict=True):
                total += self._message(said, encoding, count, digest)
        return PRIMING_TOKENS + total + self._tools(tools, encoding, count)

    def count_tools(self, tools: Sequence[object], model: str | None = None) -> int | None:
        """Tokens of tool definitions; None until loaded."""
        encoding = encoding_of(model)
        count = self._vocabulary(encoding)
        return None if count is None else self._tools(tools, encoding, count)

    def _resent(
        self, messages: Sequence[object], digests: Hashes, known: int, encoding: str, count: Count
    ) -> int:
        """Tokens of many messages; those of an earlier request as one sum."""
        sum_before = self._cache.find((encoding, digests[:known].fold)) if known else None
        total, first = (0, 0) if sum_before is None else (sum_before, known)
        for position in range(first, len(digests)):
            total += self._cache.get(
                (encoding, digests[position]),
                partial(_tokens_at, messages, position, count),
            )
        self._cache.keep((encoding, digests.fold), total)
        return total

    def _message(self, message: object, encoding: str, count: Count, digest: Hashable) -> int:
        key = encoding, _digest(message) if digest is None else digest
        tokens = self._cache.find(key)
        if tokens is None:
            tokens = message_tokens(message, count)
            self._cache.keep(key, tokens)
        return tokens

    def _tools(self, tools: Sequence[object] | None, encoding: str, count: Count) -> int:
        if not isinstance(tools, (list, tuple)) or not tools:
            return 0
        start = FUNCTION_TOKENS[encoding]
        return self._cache.get(
            (encoding, _digest(tools)), partial(tools_tokens, tools, start, count)
        )

    def _vocabulary(self, encoding: str) -> Count | None:
        count = self._vocabularies.get(encoding)
        if count is None and not self._loaded[encoding].is_set():
            self._loaded[encoding].wait(self._load_beside(encoding) - clock.monotonic())
            count = self._vocabularies.get(encoding)
        return count

    def _load_beside(self, encoding: str) -> float:
        """Load it in a thread of its own, once; returns the moment until which it is waited for."""
        with self._loading:
            if encoding not in self._wait_until:
                self._wait_until[encoding] = clock.monotonic() + self._patience
                name = f"xgw-tokens-{encoding}"
                work = threading.Thread(target=self._load, args=(encoding,), name=name, daemon=True)
                work.start()
            return self._wait_until[encoding]

    def _load(self, encoding: str) -> None:
        try:
            self._vocabularies.setdefault(encoding, _open_vocabulary(encoding))
        except ImportError as missing:
            _log.warning("tokens cannot be counted: %s", missing)
        finally:
            self._loaded[encoding].set()


class _CountCache:
    """A bounded, least-recently-used memory of counts by vocabulary and digest."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._counts: OrderedDict[tuple[str, Hashable], int] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[str, Hashable], count: Callable[[], int]) -> int:
        """The remembered count, else what `count` finds."""
        tokens = self.find(key)
        if tokens is None:
            tokens = count()
            self.keep(key, tokens)
        return tokens

    def find(self, key: tuple[str, Hashable]) -> int | None:
        """The remembered count, if there is one."""
        with self._lock:
            known = self._counts.get(key)
            if known is not None:
                self._counts.move_to_end(key)
            return known

    def keep(self, key: tuple[str, Hashable], tokens: int) -> None:
        """Remember a count; nothing is remembered without digest."""
        if key[1] is None:
            return
        with self._lock:
            self._counts[key] = tokens
            if len(self._counts) > self._size:
                self._counts.popitem(last=False)


def _tokens_at(messages: Sequence[object], position: int, count: Count) -> int:
    return message_tokens(messages[position], count)


def encoding_of(model: str | None) -> str:
    """The vocabulary of a model: cl100k for GPT-4, GPT-3.5 and embeddings, else o200k."""
    return _encoding_of((model or "")[:MAX_MODEL_NAME])


@lru_cache(maxsize=1024)
def _encoding_of(model: str) -> str:
    name = model.lower().rpartition("/")[2].removeprefix("ft:")
    return CL100K if _CL100K_MODEL.match(name) else O200K


def _open_vocabulary(encoding: str) -> Count:
    import toktok

    # Its README's way to the tokenizer itself: batch_count starts a thread pool for each call,
    # 25 µs for a text that takes 0.1.
    exactly: Count = toktok._encoding(encoding).count
    exactly("")
    return partial(_count, exactly=exactly)


def _digest(content: object) -> bytes | None:
    """BLAKE2b-128 of the content's JSON; None where it has none."""
    try:
        return blake2b(orjson.dumps(content), digest_size=16).digest()
    except TypeError:
        return None


def _count(text: str, exactly: Count) -> int:
    if len(text) <= EXACT_CHARS:
        return _count_any(text, exactly) if text else 0
    return _extrapolate(text, exactly)


def _extrapolate(text: str, exactly: Count) -> int:
    step = (len(text) - SAMPLE_CHARS) / (SAMPLES - 1)
    starts = (int(step * number) for number in range(SAMPLES))
    sampled = sum(_count_any(text[start : start + SAMPLE_CHARS], exactly) for start in starts)
    return round(sampled * len(text) / EXACT_CHARS)


def _count_any(text: str, exactly: Count) -> int:
    try:
        return exactly(text)
    except UnicodeEncodeError:
        # A lone surrogate has no UTF-8: counted as a question mark.
        return exactly(text.encode("utf-8", "replace").decode("utf-8"))
