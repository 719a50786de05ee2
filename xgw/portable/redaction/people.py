"""What tells who somebody is: e-mail addresses, phone and card numbers, names of home folders."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from xgw.portable.redaction import sieve
from xgw.portable.redaction.finds import Find
from xgw.portable.redaction.shapes import lowered, places

_LOCAL = re.compile(r"[\w.+%'-]*+")
_DOMAIN = re.compile(r"(?:[^\W_](?:[\w-]{0,62}\.))+([^\W\d_]{2,24}|xn--[a-z0-9-]{2,30})(?![\w-])")
_LONGEST_LOCAL = 64
_AUTHORITY = re.compile(r"://[^\s/?#@]*:[^\s/?#@]*\Z")
"""The user and password before a host are no address."""

_PICTURE = re.compile(r"[1-9](?:\.\d)?x\.")
"""`logo@2x.png` is no address."""

_INTERNATIONAL = re.compile(
    r"\+(?<![\w+/=.)\]*^-]\+)[1-9](?:(?:[ .\u00a0/-]|\)[ -]?|[ -]?\()?\d){6,15}"
    r"(?![\w]|[.,]\d|[-/+=]\w)"
)
_AMERICAN = (
    re.compile(r"\((?<![\w(]\()[2-9]\d\d\)[ .-]?[2-9]\d\d[ .-]\d{4}(?![\w]|[.-]\d|[+/=]\w)"),
    re.compile(r"[2-9](?<![\w.+/=-][2-9])\d\d([.-])[2-9]\d\d\1\d{4}(?![\w]|[.-]\d|[+/=]\w)"),
    re.compile(
        r"1(?<![\w.+/=-]1)[-. ](?:\([2-9]\d\d\) ?|[2-9]\d\d[-. ])[2-9]\d\d[-. ]\d{4}(?![\w]|[.-]\d)"
    ),
)
_CALL_WORDS = ("phone", "tel", "mobile", "cell", "fax", "whatsapp", "handy")
_CALLED = re.compile(
    r"(?: ?(?:number|no|nr|#|is|at|on|:|=|\.|-)){0,3}[ ]{0,2}(\(?0?[\d](?:[ ./()-]{0,2}\d){5,14})"
    r"(?![\w]|[.-]\d)",
    re.IGNORECASE,
)
_DATE = re.compile(r"(?:19|20)\d\d[-./]\d\d[-./]\d\d.*|\d{1,3}(?:\.\d{1,3}){3}")
_CODES = re.compile(
    "1|7|2(?:0|7|[1234569]\\d)|3(?:[0123469]|[578]\\d)|4(?:[013456789]|2\\d)|5(?:[1-8]|[09]\\d)"
    "|6(?:[0-6]|[789]\\d)|8(?:[1246]|[0578]\\d)|9(?:[0-58]|[679]\\d)"
)

_CARD = re.compile(
    r"[2-6](?<![\w.+/=-][2-6])(?<!\d{4}[ -][2-6])"
    r"(?:\d{3}([ -]?)\d{4}\1\d{4}\1(?:\d{4}(?:\1\d{3})?|\d(?!\d))|\d{3}([ -]?)\d{6}\2\d{4,5})"
    r"(?![\w+/=]|[.-]\d|[ -]\d{4}(?!\d))"
)
_BRANDS = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|(?:5[1-5]\d\d|222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d{12}"
    r"|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}|35\d{14}|(?:6011|65\d\d|64[4-9]\d)\d{12}|62\d{14}(?:\d{3})?"
    r"|(?:50|5[6-8]|6[0-9])\d{14}"
)

_HOME_NAME = re.compile(r"[^\W_][\w.@-]{0,63}")
_BEFORE_HOME = re.compile(r"(?:\A|[^\w.~)}\]-]|/[a-z]|%2[Ff])\Z")
_WINDOWS_NAME = re.compile(
    r"[\\/]+([^\W_][\w.@-]{0,63}(?: [\w.@-]{1,40}){0,3}(?=[\\/])|[^\W_][\w.@-]{0,63})"
)
_BEFORE_USERS = re.compile(r"[A-Za-z]:[\\/]{1,8}\Z")
_NOBODY = frozenset(
    {"user", "username", "you", "name", "your_name", "yourname", "public", "shared", "default"}
    | {"all users", "default user", "user_name", "me", "index.html"}
)


def people_finds(text: str) -> Iterator[Find]:
    """Everything in `text` that tells who somebody is."""
    if "@" in text:
        yield from _emails(text)
    if "/" in text or "\\" in text:
        yield from _homes(text)
    if _sieve().lets_through(text):
        yield from _cards(text)
        yield from _phones(text)


@cache
def _sieve() -> sieve.Sieve:
    return sieve.of_numbers()


def is_phone(text: str) -> bool:
    """Whether what stands in a field for phone numbers is one."""
    return 6 <= sum(map(str.isdigit, text)) <= 16


def is_card(digits: str) -> bool:
    """Whether these digits are a card's number: of a brand, and right by Luhn."""
    if _BRANDS.fullmatch(digits) is None:
        return False
    doubled = (int(digit) * 2 for digit in digits[-2::-2])
    total = sum(map(int, digits[-1::-2])) + sum(n - 9 if n > 9 else n for n in doubled)
    return total % 10 == 0 and len(set(digits)) > 1


def _emails(text: str) -> Iterator[Find]:
    at = text.find("@")
    while at >= 0:
        domain = _DOMAIN.match(text, at + 1)
        if domain and not _PICTURE.match(text, at + 1):
            before = text[max(0, at - 4 * _LONGEST_LOCAL) : at]
            local = _local_part(before)
            if (
                local
                and not _AUTHORITY.search(before)
                and not (local == "git" and text[domain.end() : domain.end() + 1] in ":/")
            ):
                start = at - len(local)
                yield Find(start, domain.end(), "email", text[start : domain.end()])
        at = text.find("@", at + 1)


def _local_part(before: str) -> str:
    """What stands before the `@` of an address; `before` is read from its end."""
    turned = _LOCAL.match(before[: -_LONGEST_LOCAL - 1 : -1])
    local = turned[0][::-1] if turned else ""
    return local.lstrip(".'%-+")


def _homes(text: str) -> Iterator[Find]:
    for folder in ("/home/", "/Users/"):
        for at in places(text, folder):
            name = _HOME_NAME.match(text, at + len(folder))
            if name and _BEFORE_HOME.search(text[max(0, at - 3) : at]):
                yield from _home(name[0], name.start())
    for folder in ("Users", "users", "USERS", "Documents and Settings"):
        for at in places(text, folder):
            name = _WINDOWS_NAME.match(text, at + len(folder))
            if name and _BEFORE_USERS.search(text[max(0, at - 10) : at]):
                yield from _home(name[1], name.start(1))


def _home(name: str, at: int) -> Iterator[Find]:
    name = name.rstrip(".")
    if name.lower() not in _NOBODY:
        yield Find(at, at + len(name), "user", name)


def _cards(text: str) -> Iterator[Find]:
    for found in _CARD.finditer(text):
        digits = re.sub(r"\D", "", found[0])
        if is_card(digits):
            yield Find(found.start(), found.end(), "card", digits)


def _phones(text: str) -> Iterator[Find]:
    if "+" in text:
        for found in _INTERNATIONAL.finditer(text):
            if _is_international(found[0]):
                yield _phone(found.start(), found.end(), found[0])
    for pattern in _AMERICAN:
        for found in pattern.finditer(text):
            yield _phone(found.start(), found.end(), found[0])
    low = lowered(text)
    for word in _CALL_WORDS:
        for at in places(low, word):
            called = _CALLED.match(text, at + len(word))
            if called and not _DATE.fullmatch(called[1]):
                yield _phone(called.start(1), called.end(1), called[1])


def _phone(start: int, stop: int, spelled: str) -> Find:
    return Find(start, stop, "phone", re.sub(r"[^\d+]", "", spelled))


def _is_international(spelled: str) -> bool:
    """Whether a number with a `+` has a country's code and as many digits as people dial there."""
    groups = re.findall(r"\d+", spelled)
    digits = "".join(groups)
    if digits[0] in "17":
        return len(digits) == 11 and digits[1] not in "01"
    if _CODES.match(digits) is None or min(map(len, groups[1:]), default=2) < 2:
        return False
    return 10 <= len(digits) <= 15 or (len(digits) == 9 and len(groups) > 2)
