"""Secrets that a text gives a name: `KEY=value`, `"password": "…"`, headers, forms, query strings.

Code that only speaks of passwords stays as it is: an unquoted value has to look like one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from urllib.parse import unquote_plus

from xgw.config.credentials import is_credential_parameter
from xgw.portable.redaction import sieve
from xgw.portable.redaction.finds import Find
from xgw.portable.redaction.names import (
    Sureness,
    is_credential,
    is_masked,
    is_nothing,
    is_secret,
    kind_of,
    names_header,
    names_person,
    scheme_end,
    sureness,
)
from xgw.portable.redaction.shapes import has_digit, looks_random, lowered, places

_WORDS = (
    "pass",
    "pwd",
    "secret",
    "token",
    "key",
    "auth",
    "cookie",
    "cred",
    "jwt",
    "cvv",
    "cvc",
    "ssn",
)
_LONGEST_NAME, _LONGEST_VALUE = 64, 8192
_BACK = re.compile(r"[\w.-]*+")
_ON = re.compile(r"[\w-]*+")
_OPERATOR = re.compile(
    r"(\\*[\"'`])?[ \t]{0,4}(=>|:=|=(?![=~>])|:(?![:=]))[ \t]{0,4}(?:[bruBRU]{1,2}(?=[\"']))?"
    r"(\\*(?:\"\"\"|'''|[\"'`]))?"
)
_BARE = re.compile(r"[^\s\"'`<>]{1,8192}")
_FORM_VALUE = re.compile(r"[^\s\"'`<>&#\\]{1,8192}")
_GOES_ON = re.compile(r"[^\s\"'`<>&#\\]{1,512}&[\w.%-]{1,64}=")
_FLAG = re.compile(r"[ \t]+([^\s\"'`<>-][^\s\"'`<>]{5,8191})")
_LINE = re.compile(r"[^\r\n\"'`\\]{1,8192}")
_CODE = re.compile(
    r"[A-Za-z_$][\w$]*(?:\.[\w$]+)+|[\w.$]+[(\[{].*|[({\[$].*|.*[)\]}]|[\w.]+\|.*|&.*", re.DOTALL
)
_WORD = re.compile(r"[A-Za-z_]*")
_PARAMETER = re.compile(r"[?&;]([\w.%~-]{1,64})=([^&\s\"'`<>#;\\]+)")
_USERINFO = re.compile(r"://([^\s/?#@\"'`<>\\:]{0,256}):([^\s/?#\"'`<>\\]{1,512})@(?=[\w\[%$-])")
_TOKEN_ONLY = re.compile(r"://([^\s/?#@\"'`<>\\:]{12,512})@(?=[\w\[])")
_XML = re.compile(r"<([A-Za-z_][\w.:-]{0,64})(?:\s[^<>]{0,200})?>([^<>\r\n]{1,4096})</\1>")
_MULTIPART = re.compile(r"name=\"([^\"\r\n]{1,64})\"(?:\r?\n[^\r\n]+){0,3}\r?\n\r?\n([^\r\n]+)")


def assignment_finds(text: str) -> Iterator[Find]:
    """Every value in `text` whose name says that it is a secret."""
    if sieve.is_caseless(text) or _sieve().lets_through(text):
        yield from _all_assigned(text)
    if "=" in text and ("?" in text or "&" in text):
        yield from _parameters(text)
    if "://" in text and "@" in text:
        yield from _user_infos(text)
    if "</" in text:
        yield from _named(text, _XML)
    if "orm-data" in text:
        yield from _named(text, _MULTIPART)


@cache
def _sieve() -> sieve.Sieve:
    return sieve.of_names(_WORDS)


def _all_assigned(text: str) -> Iterator[Find]:
    low = lowered(text)
    seen = -1
    for at in sorted({at for word in _WORDS for at in places(low, word)}):
        if at > seen:
            start, stop = _name(text, at)
            seen = stop
            yield from _assigned(text, start, stop)


def _name(text: str, at: int) -> tuple[int, int]:
    """Where the name around a word begins and ends."""
    before = text[max(0, at - _LONGEST_NAME) : at]
    back = _BACK.match(before[::-1])
    on = _ON.match(text, at, at + _LONGEST_NAME)
    return at - (back.end() if back else 0), on.end() if on else at


def _assigned(text: str, start: int, stop: int) -> Iterator[Find]:
    name = text[start:stop]
    how = sureness(name.rpartition(".")[2].lstrip("-") or name)
    if how is None:
        return
    operator = _OPERATOR.match(text, stop)
    if operator is None:
        if name.startswith("--") and how == "sure":
            yield from _flag(text, stop, name)
        return
    closing, sign, opening = operator.groups()
    quoted = _quote_before(text, start)
    if (closing or "") != quoted:
        if (
            sign == ":"
            and not closing
            and (found := _header(text, operator.start(3) if opening else operator.end(), name))
        ):
            yield Find(*found, kind_of(name), text[slice(*found)])
        return
    if opening:
        found = _quoted(text, operator.end(), opening, how)
    elif closing:
        return
    elif sign == ":":
        found = _after_colon(text, start, operator.end(), name, how)
    else:
        found = _after_equals(text, start, operator, how)
    if found:
        at, end = found
        yield Find(at, end, kind_of(name), text[at:end])


def _quote_before(text: str, start: int) -> str:
    """The quotation mark that opens a name, with its backslashes."""
    if start == 0 or text[start - 1] not in "\"'`":
        return ""
    at = start - 1
    while at > 0 and text[at - 1] == "\\":
        at -= 1
    return text[at:start]


def _quoted(text: str, at: int, quote: str, how: Sureness) -> tuple[int, int] | None:
    mark = quote[-1]
    if len(quote) == 1:
        value = re.compile(rf"(?:[^{mark}\\\r\n]|\\.)*+").match(text, at, at + _LONGEST_VALUE)
        end = value.end() if value else at
    else:
        end = text.find(quote, at, at + _LONGEST_VALUE)
        end = end if end >= 0 else min(len(text), at + _LONGEST_VALUE)
    value_text = text[at:end]
    if "cookie" in text[max(0, at - 24) : at].lower() and "=" not in value_text:
        return None
    if not value_text or value_text[0] in ",;)+" or not is_secret(value_text, how):
        return None
    skipped = scheme_end(value_text)
    if skipped and is_nothing(value_text[skipped:]):
        return None
    return at + skipped, end


def _after_colon(
    text: str, start: int, at: int, name: str, how: Sureness
) -> tuple[int, int] | None:
    """A header's value, or one of YAML: on a line of its own and no type's name."""
    if found := _header(text, at, name):
        return found
    value = _BARE.match(text, at)
    if value is None or (how != "sure" and "-" not in name):
        return None
    told = value[0].rstrip(",;.")
    before = text[max(0, start - _LONGEST_NAME) : start].rpartition("\n")[2].strip()
    alone = before in ("", "-", "#", "//", "*", ">", "export") or before.endswith(("-H", "{", ","))
    if not alone or len(told) < 6 or _is_code(told) or not has_digit(told):
        return None
    return (at, at + len(told)) if is_secret(told, how) else None


def _header(text: str, at: int, name: str) -> tuple[int, int] | None:
    line = _LINE.match(text, at) if at >= 0 and names_header(name) else None
    value = line[0].strip() if line else ""
    if line is None or not is_credential(value) or ("(" in value and _is_code(value)):
        return None
    start = at + len(line[0]) - len(line[0].lstrip())
    return start + scheme_end(value), start + len(value)


def _after_equals(
    text: str, start: int, operator: re.Match[str], how: Sureness
) -> tuple[int, int] | None:
    at = operator.end()
    before = text[start - 1 : start] if start else "\n"
    tight = text[operator.end() - 1 : operator.end()] == "="
    in_form = before in "?&" or (before in "\n;" and _GOES_ON.match(text, at) is not None)
    value = (_FORM_VALUE if in_form else _BARE).match(text, at)
    if value is None or not (tight or "\n" in before):
        return None
    told = value[0] if in_form else value[0].rstrip(",;")
    if in_form or before == ";":
        told = told.partition(";")[0]
        return (at, at + len(told)) if is_secret(told, how) else None
    if _is_literal(text[start : operator.start()], before, told, value[0] != told) and is_secret(
        told, how
    ):
        return at, at + len(told)
    return None


def _is_literal(name: str, before: str, value: str, goes_on: bool) -> bool:
    """Whether an unquoted value is one of a shell or a .env file, not a program's expression."""
    if _is_code(value) or before not in "\n\r\t -;" or (value.isdigit() and len(value) < 4):
        return False
    if name.isupper():
        return True
    return (
        not goes_on
        and value[:1] not in "!~+*"
        and _WORD.fullmatch(value) is None
        and has_digit(value)
    )


def _is_code(value: str) -> bool:
    """Whether a value is an expression of a program: a call, an attribute, an index."""
    return _CODE.fullmatch(value[:256]) is not None


def _flag(text: str, stop: int, name: str) -> Iterator[Find]:
    """`--password hunter2`."""
    value = _FLAG.match(text, stop)
    if value and has_digit(value[1]) and not _is_code(value[1]):
        yield Find(value.start(1), value.end(1), kind_of(name), value[1])


def _parameters(text: str) -> Iterator[Find]:
    for found in _PARAMETER.finditer(text):
        name, value = found.groups()
        how = sureness(name) or ("maybe" if is_credential_parameter(name) else None)
        if how and is_secret(value, how) and not _is_code(value):
            yield Find(found.start(2), found.end(2), kind_of(name), value)


def parameter_finds(url: str) -> Iterator[Find]:
    """What the parameters of a URL that go by a credential's name hold, whatever it looks like."""
    for found in _PARAMETER.finditer(url):
        if is_credential_parameter(unquote_plus(found[1])) and not is_masked(found[2]):
            yield Find(found.start(2), found.end(2), kind_of(found[1]), found[2])


def _user_infos(text: str) -> Iterator[Find]:
    """User and password before the host of a URL; a user alone where it is a token."""
    for found in _USERINFO.finditer(text):
        user, password = found.groups()
        if user and not is_nothing(user):
            yield Find(found.start(1), found.end(1), "user", user)
        if not is_nothing(password) or password.isalnum():
            yield Find(found.start(2), found.end(2), "secret", password)
    for found in _TOKEN_ONLY.finditer(text):
        if looks_random(found[1]):
            yield Find(found.start(1), found.end(1), "key", found[1])


def _named(text: str, pattern: re.Pattern[str]) -> Iterator[Find]:
    for found in pattern.finditer(text):
        name, value = found.groups()
        how = sureness(name)
        if how and is_secret(value, how):
            yield Find(found.start(2), found.end(2), kind_of(name), value)
        elif names_person(name) and has_digit(value):
            yield Find(found.start(2), found.end(2), names_person(name) or "phone", value)
