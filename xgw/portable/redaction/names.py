"""Names of fields, headers and variables that hold secrets, and which of their values are none."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from xgw.config.credentials import is_credential_name, words_of
from xgw.portable.redaction.finds import Kind
from xgw.portable.redaction.shapes import has_digit, looks_random

_LONGEST_NAME = 128

Sureness = Literal["sure", "maybe"]

_SURE = re.compile(
    r"\b(?:\w*(?:passwords?|passwd|passphrase|apikeys?|secretkey|clientsecret|accesstoken|authtoken"
    r"|privatekey|refreshtoken|bearertoken)|passcode|pwd|secrets?|authorization|cookies?|cookie2"
    r"|(?:api|private|access|secret|signing|encryption|account|master|subscription|storage|ssh"
    r"|shared access|service account|license|activation|admin|deploy|webhook|hmac|openai|anthropic"
    r"|azure|google|gemini|groq|mistral|cohere|xgw|client) keys?"
    r"|(?:access|auth|api|refresh|id|bearer|session|security|secret|csrf|xsrf|oauth|oauth2|private"
    r"|personal|deploy|bot|webhook|github|gitlab|slack|npm|pypi|hf|xgw|device|reset|admin) tokens?"
    r"|cvv2?|cvc2?|ssn|pass phrase|pass word|(?:[a-z0-9]+) pass)\b"
)
_NO_PASS = re.compile(
    r"(?:first|second|third|last|single|one|two|multi|render|next|forward|by|did|test)$"
)

_ABOUT = frozenset(
    {"age", "algorithm", "arn", "at", "banner", "button", "changed", "consent", "count"}
    | {"days", "description", "detection", "disabled", "domain", "emoji", "enabled", "encoder"}
    | {"endpoint", "env", "error", "errors", "expiration", "expired", "expires", "expiry"}
    | {"field", "fields", "file", "files", "format", "generator", "has", "hasher", "header"}
    | {"headers", "hint", "icon", "id", "ids", "input", "is", "jar", "jars", "kind", "label"}
    | {"len", "length", "location", "manager", "max", "message", "messages", "method", "min"}
    | {"mode", "ms", "name", "names", "output", "path", "paths", "pattern", "placeholder"}
    | {"policies", "policy", "prefix", "present", "prompt", "provider", "re", "ref", "reference"}
    | {"regex", "required", "reset", "rule", "rules", "scanner", "scanning", "schema", "scope"}
    | {"scopes", "seconds", "set", "source", "status", "store", "strength", "suffix", "title"}
    | {"tokens", "ttl", "type", "types", "uri", "url", "urls", "usage", "used", "valid"}
    | {"validator", "var", "variable", "variables", "version", "versions"}
)
"""Last words of names that tell something about a secret, not the secret."""

_PHONE = re.compile(r"(?:\w+ )*(?:phone|telephone|mobile|fax|cellphone|tel)(?: (?:number|no|nr))?")
_CARD = re.compile(
    r"(?:\w+ )*(?:card|pan|cc|credit card|creditcard)(?: ?(?:number|no|nr))|cardnumber"
)

_NOTHING = re.compile(
    r"\s*|true|false|null|none|nil|undefined|required|optional|str(?:ing)?|number|int(?:eger)?\d*"
    r"|u?int\d+|bool(?:ean)?|object|array|any|text|bytes|passthrough|password|secret|token|api[_-]?key"
    r"|\$\{?[A-Za-z_]\w*\}?|\$\{\{.*\}\}|\{\{?[\w .-]*\}?\}|%[A-Za-z_]\w*%|%\(\w+\)s|%s|<[^<>]*>"
    r"|(?:your|my|the)[-_ ](?:[a-z]+[-_ ])*(?:key|token|password|secret|value)(?:[-_ ]here)?"
    r"|[*•.x…-]+|(?:bearer|basic|token|digest|negotiate|apikey|hmac|oauth2?)"
    r"|unused|dummy|placeholder|changeme|include|omit|same-origin|enabled|disabled|yes|no|on|off",
    re.IGNORECASE,
)
PLACEHOLDER = re.compile(
    r"\[(?:(?:key|secret|cookie|email|phone|card|user|pattern|private-key)-\d+|masked)\]"
)
"""What stands for something that was masked already: in a store, or in a bundle before."""

_SCHEME = re.compile(
    r"(?:Bearer|Basic|Token|ApiKey|Digest|Negotiate|AWS4-HMAC-SHA256|GoogleLogin|Bot)[ \t]+",
    re.IGNORECASE,
)
HEADERS = frozenset(
    {"authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "api-key"}
    | {"x-auth-token", "x-goog-api-key", "x-amz-security-token", "x-xgw-key", "x-gitlab-token"}
    | {"x-csrf-token", "x-xsrf-token", "ocp-apim-subscription-key", "xi-api-key"}
)
"""Headers that carry credentials, known where a name and its value stand side by side."""


@lru_cache(maxsize=8192)
def sureness(name: str) -> Sureness | None:
    """Whether what goes by this name is a secret: surely, if it looks like one, or not at all."""
    if len(name) > _LONGEST_NAME:
        return None
    words = words_of(name)
    if not words or words[-1] in _ABOUT:
        return None
    spaced = " ".join(words)
    if found := _SURE.search(spaced):
        if found[0].endswith(" pass"):
            return None if _NO_PASS.search(found[0][:-5]) or found.end() < len(spaced) else "sure"
        return "sure"
    return "maybe" if is_credential_name(name) else None


@lru_cache(maxsize=8192)
def names_person(name: str) -> Kind | None:
    """`phone` or `card` where a field of this name holds such a number."""
    spaced = " ".join(words_of(name[:_LONGEST_NAME]))
    if _PHONE.fullmatch(spaced):
        return "phone"
    return "card" if _CARD.fullmatch(spaced) else None


def names_header(name: str) -> bool:
    """Whether a header of this name carries a credential."""
    low = name.lower()
    return low in HEADERS or low.endswith(("-cookie", "-authorization")) or low.startswith("x-")


def kind_of(name: str) -> Kind:
    """What kind of secret goes by this name."""
    low = name.lower()
    if "cookie" in low:
        return "cookie"
    return "key" if low.endswith(("key", "token", "authorization")) else "secret"


def is_secret(value: str, how: Sureness) -> bool:
    """Whether the value of a field that is named so is a secret itself."""
    if how == "maybe":
        return looks_random(value) and not is_nothing(value)
    return not is_nothing(value)


def is_nothing(value: str) -> bool:
    """Whether a value is none: empty, a type's name, a variable, or masked already."""
    return _NOTHING.fullmatch(value.strip()) is not None or is_masked(value)


def is_masked(value: str) -> bool:
    """Whether nothing is left of a value but placeholders."""
    if not value or value.isspace():
        return True
    return "[" in value and not any(
        map(str.isalnum, PLACEHOLDER.sub("", value[scheme_end(value) :]))
    )


def is_credential(value: str) -> bool:
    """Whether a header's value looks like a credential, not like words about one."""
    start = scheme_end(value)
    rest = value[start:]
    if is_nothing(rest) or (" " in rest.strip() and "=" not in rest):
        return False
    return looks_random(rest) or (has_digit(rest) and (start > 0 or "=" in rest))


def scheme_end(value: str) -> int:
    """Where the credential begins in an Authorization header's value."""
    found = _SCHEME.match(value)
    return found.end() if found else 0
