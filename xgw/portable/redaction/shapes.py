"""Keys and tokens that are known by their shape, whatever they are called."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from functools import cache

from xgw.portable.redaction import sieve
from xgw.portable.redaction.finds import Find

_LONGEST_PEM = 100_000

_WORD, _TEXT, _HEX = "[A-Za-z0-9]", "[A-Za-z0-9_-]", "[0-9a-f]"
_SHAPES: dict[str, str] = {
    "sk-": rf"(?:proj|ant|svcacct|admin|or|lf|test|live)-{_TEXT}{{8,}}|{_TEXT}{{16,}}",
    "xk-": rf"{_TEXT}{{32}}",
    "pk-lf-": rf"{_TEXT}{{16,}}",
    "AIza": rf"{_TEXT}{{35}}(?![A-Za-z0-9_])",
    "AQ.Ab": rf"{_TEXT}{{20,}}",
    "ya29.": rf"{_TEXT}{{20,}}",
    "GOCSPX-": rf"{_TEXT}{{20,}}",
    "AKIA": r"[A-Z0-9]{16}(?![A-Za-z0-9_])",
    "ASIA": r"[A-Z0-9]{16}(?![A-Za-z0-9_])",
    **dict.fromkeys(("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), rf"{_WORD}{{20,}}"),
    "github_pat_": r"\w{22,}",
    **dict.fromkeys(
        ("glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glsoat-", "glagent-"),
        rf"{_TEXT}{{16,}}(?:\.{_TEXT}+)*",
    ),
    "xox": r"[abcdeoprs]-(?:\d-)?[A-Za-z0-9-]{10,}",
    "xapp-": r"\d-[A-Za-z0-9-]{10,}",
    **dict.fromkeys(
        ("sk_live_", "rk_live_", "pk_live_", "sk_test_", "rk_test_", "pk_test_"),
        rf"{_WORD}{{10,}}",
    ),
    "whsec_": r"[A-Za-z0-9+/=]{20,}",
    "hf_": rf"{_WORD}{{20,}}",
    "npm_": rf"{_WORD}{{30,}}",
    "pypi-": rf"{_TEXT}{{30,}}",
    "SG.": rf"{_TEXT}{{16,64}}\.{_TEXT}{{16,}}",
    "key-": rf"{_HEX}{{32}}(?![A-Za-z0-9_])",
    "SK": rf"{_HEX}{{32}}(?![A-Za-z0-9_])",
    "gsk_": rf"{_WORD}{{20,}}",
    "xai-": rf"{_WORD}{{20,}}",
    "pplx-": rf"{_WORD}{{20,}}",
    "r8_": rf"{_WORD}{{20,}}",
    "tvly-": rf"{_TEXT}{{16,}}",
    "pcsk_": r"\w{20,}",
    "lsv2_": r"(?:pt|sk)_[0-9a-f_]{30,}",
    **dict.fromkeys(("dop_v1_", "doo_v1_", "dor_v1_"), rf"{_HEX}{{64}}"),
    "dapi": rf"{_HEX}{{32}}(?![A-Za-z0-9_])",
    **dict.fromkeys(("shpat_", "shpca_", "shppa_", "shpss_"), r"[0-9a-fA-F]{32}"),
    "lin_api_": rf"{_WORD}{{20,}}",
    "ntn_": rf"{_WORD}{{30,}}",
    "secret_": rf"{_WORD}{{40,}}",
    "PMAK-": rf"{_HEX}{{24}}-{_HEX}{{34}}",
    "ATATT3": r"[A-Za-z0-9_=-]{20,}",
    "dckr_pat_": rf"{_TEXT}{{20,}}",
    "hvs.": rf"{_TEXT}{{20,}}",
    "NRAK-": r"[A-Z0-9]{27}",
    "glsa_": r"\w{32,}",
    "sbp_": rf"{_HEX}{{40}}",
    "AGE-SECRET-KEY-1": r"[0-9A-Z]{50,}",
    "hooks.slack.com/": r"(?:services|workflows)/[A-Za-z0-9_/]{20,}",
    "/api/webhooks/": rf"\d{{15,}}/{_TEXT}{{50,}}",
    "api.telegram.org/bot": rf"\d{{8,10}}:{_TEXT}{{30,}}",
    "eyJ": rf"{_TEXT}{{8,16384}}+(?:\.{_TEXT}{{0,16384}}+){{1,3}}\.{_TEXT}{{8,}}",
}
"""How each kind of key begins, and how it goes on."""

_KNOWN = tuple((anchor, re.compile(rest, re.ASCII)) for anchor, rest in _SHAPES.items())

_MOST_TRIES = 10_000
"""Begins that lead to no key; a text with more of them was made to take long."""

_WORDLIKE = frozenset({"sk-", "hf_", "npm_", "pypi-", "xai-", "tvly-"})
"""What begins so may be words: it is a key if it has more than these."""

_OWN_WORDS = ("proj-", "ant-", "svcacct-")
_AFTER_ADDRESS = ("hooks.slack.com/", "/api/webhooks/", "api.telegram.org/bot")
"""The key stands behind these, which stay."""

_BEGINS = tuple(anchor for anchor in _SHAPES if anchor not in _AFTER_ADDRESS)

_PLAIN = re.compile(r"[a-z]+(?:[-_][a-z]+)*[-_]?")
"""Words with dashes between them: a class of a style sheet, a package's name."""

_BEARER = re.compile(r"[Bb](?<![A-Za-z][Bb])(?i:earer)(?:\s|%20|\+)+([A-Za-z0-9._~+/-]{8,}=*)")
_BASIC = re.compile(r"[Bb](?<![A-Za-z][Bb])(?i:asic)(?:\s|%20|\+)+([A-Za-z0-9+/_-]{6,}={0,2})")
_AWS_SECRET = re.compile(r"(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/]{40}(?![A-Za-z0-9+/=_-])")
_NEAR = 400
_BEGIN = re.compile(r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(r"-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----")
_PEM_TEXT = re.compile(r"(?:[A-Za-z0-9+/=:,.\s-]|\\[nrt])*+")


def key_finds(text: str) -> Iterator[Find]:
    """Every key and token in `text` that a shape tells."""
    if _sieve().lets_through(text):
        for anchor, rest in _KNOWN:
            if anchor in text:
                yield from _keys(text, anchor, rest)
    if "AKIA" in text or "ASIA" in text:
        yield from _aws_secrets(text)
    if "-----BEGIN " in text:
        yield from _private_keys(text)
    if "earer" in text or "EARER" in text:
        for found in _BEARER.finditer(text):
            if has_digit(found[1]) or looks_random(found[1]):
                yield Find(found.start(1), found.end(1), "key", found[1])
    if "asic" in text or "ASIC" in text:
        for found in _BASIC.finditer(text):
            if _is_user_and_password(found[1]):
                yield Find(found.start(1), found.end(1), "secret", found[1])


@cache
def _sieve() -> sieve.Sieve:
    return sieve.of_keys(_BEGINS, _AFTER_ADDRESS)


def places(text: str, part: str) -> Iterator[int]:
    """Where `part` stands in `text`."""
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + len(part))


def lowered(text: str) -> str:
    """`text` in lower case, each character where it was."""
    return text.lower() if text.isascii() else text.replace("\u0130", "i").lower()


def _keys(text: str, anchor: str, rest: re.Pattern[str]) -> Iterator[Find]:
    behind = anchor in _AFTER_ADDRESS
    at = text.find(anchor)
    tries = 0
    while at >= 0 and tries < _MOST_TRIES:
        within = at > 0 and text[at - 1].isalnum() and not behind
        found = None if within else rest.match(text, at + len(anchor))
        stop = found.end() if found else at + len(anchor)
        if found and not (anchor in _WORDLIKE and _is_words(found[0])):
            start = found.start() if behind else at
            yield Find(start, stop, "key", text[start:stop])
        else:
            tries += not within
        at = text.find(anchor, stop)


def _is_words(rest: str) -> bool:
    return _PLAIN.fullmatch(rest) is not None and not rest.startswith(_OWN_WORDS)


def looks_random(value: str) -> bool:
    """Whether a text looks like a token: no word, name with a number, uuid, id or date."""
    begin = value[:_ENOUGH]
    if len(begin) < 12 or _SPACE.search(begin) or not has_digit(begin) or begin.isdigit():
        return False
    if _ORDINARY.fullmatch(begin):
        return False
    return any(has_digit(part) and _LETTER.search(part) for part in re.split(r"[-_.:/]", begin))


def has_digit(value: str) -> bool:
    """Whether there is a digit in a text, as in hardly any word."""
    return _DIGIT.search(value) is not None


_ENOUGH = 256
_SPACE = re.compile(r"\s")
_DIGIT, _LETTER = re.compile("[0-9]"), re.compile("[A-Za-z]")
_ORDINARY = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"|(?:sess|turn|run|step|msg|req|key|call|chatcmpl|resp|item|rs|fc|toolu)_\w+|call-\S+"
    r"|\d{4}-\d\d-\d\d\S*|[\d.,:+-]+|[a-z][a-z0-9+.-]*://.*|/.*",
    re.IGNORECASE,
)


def _aws_secrets(text: str) -> Iterator[Find]:
    """The secret access keys that stand near an access key's id."""
    for anchor in ("AKIA", "ASIA"):
        at = text.find(anchor)
        while at >= 0:
            for found in _AWS_SECRET.finditer(text, max(0, at - _NEAR), at + _NEAR):
                if not re.fullmatch("[0-9a-f]+|[A-Za-z]+|[A-Z0-9]+", found[0]):
                    yield Find(found.start(), found.end(), "secret", found[0])
            at = text.find(anchor, at + _NEAR)


def _private_keys(text: str) -> Iterator[Find]:
    at = 0
    while begin := _BEGIN.search(text, at):
        end = _END.search(text, begin.end(), begin.end() + _LONGEST_PEM)
        within = _PEM_TEXT.match(text, begin.end(), begin.end() + _LONGEST_PEM)
        at = end.end() if end else within.end() if within else begin.end()
        yield Find(begin.start(), at, "private-key", text[begin.start() : at])


def _is_user_and_password(encoded: str) -> bool:
    """Whether this is base64 of `user:password`, as Basic authentication has it."""
    padded = encoded.rstrip("=")
    padded += "=" * (-len(padded) % 4)
    try:
        decoded = base64.b64decode(padded, altchars=b"-_" if set("-_") & set(encoded) else None)
        return ":" in decoded.decode() and decoded.decode().isprintable()
    except (binascii.Error, ValueError):
        return False
