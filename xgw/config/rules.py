"""What single values must look like. Each rule returns the value as kept, or says what is wrong.

A rule's ValueError completes the sentence "[table] key …".
"""

from __future__ import annotations

import ipaddress
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import platformdirs

SQLITE = "sqlite:///"

_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?")
_PROVIDER_NAME = re.compile(r"[A-Za-z0-9._-]+")
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OWN_PARAMETERS = frozenset(
    {"model", "messages", "tools", "stream", "stream_options", "n", "metadata", "functions"}
)
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_SOURCE_SPEC = re.compile(
    rf"header:{_HEADER_NAME.pattern}"
    r"|body:[^.\s]+(?:\.[^.\s]+)*"
    rf"|header-json:{_HEADER_NAME.pattern}:[^.\s]+(?:\.[^.\s]+)*"
)
_FORBIDDEN_HEADERS = frozenset(
    {"connection", "content-length", "host", "keep-alive", "te", "trailer", "transfer-encoding"}
    | {"accept-encoding", "expect", "proxy-connection", "upgrade"}
)


def quoted(value: object) -> str:
    """A value as TOML spells it, cut where it is long; bytes that are not UTF-8 as `?`.

    Those come with the environment, and pydantic takes no message that has them.
    """
    text = json.dumps(value, ensure_ascii=False, default=str).encode(errors="replace").decode()
    return text if len(text) <= 80 else f"{text[:76]}…"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server bound to `host`."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_host(host: str) -> str:
    """An address or a host name to bind to, without brackets."""
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not _is_host(bare):
        raise ValueError(f"must be an IP address or a host name, not {quoted(host)}")
    return bare


def check_allowed_host(host: str) -> str:
    """A host name as it stands in `Host`: lower case, without a port; IPv6 without brackets."""
    name, colon, port = host.rpartition(":")
    bare = name if colon and port.isdecimal() and (":" not in name or name.endswith("]")) else host
    if bare.startswith("[") and bare.endswith("]"):
        bare = bare[1:-1]
    if not _is_host(bare):
        raise ValueError(
            f"must hold host names alone (no scheme, path or pattern), not {quoted(host)}"
        )
    return bare.lower().rstrip(".")


def check_origin(origin: str) -> str:
    """A browser's origin, as browsers send it: scheme://host, and the port if it is unusual."""
    refusal = f"must hold origins such as https://app.example.com, not {quoted(origin)}"
    split = _split(origin, refusal)
    extra = split.path.strip("/") or split.query or split.fragment or split.username is not None
    if split.scheme not in ("http", "https") or not _is_host(split.hostname or "") or extra:
        raise ValueError(refusal)
    host = f"[{split.hostname}]" if ":" in (split.hostname or "") else split.hostname
    usual = {"http": 80, "https": 443}[split.scheme]
    return f"{split.scheme}://{host}" + (
        f":{split.port}" if split.port not in (None, usual) else ""
    )


def check_base_url(url: str) -> str:
    """An upstream's address, http or https, without a slash at the end."""
    if "@" in url:
        raise ValueError("must not hold a user or a password: use api_key or headers")
    refusal = f"must be an address such as https://api.openai.com/v1, not {quoted(url)}"
    split = _split(url, refusal)
    if split.scheme not in ("http", "https") or not _is_host(split.hostname or ""):
        raise ValueError(refusal)
    if "?" in url or "#" in url:
        raise ValueError(f"must be an address without ? and #, not {quoted(url)}")
    return url.rstrip("/")


def check_storage_url(url: str) -> str:
    """`sqlite:///path`, a plain path, or "" for the user's data folder."""
    scheme, separator, _ = url.partition("://")
    if separator and scheme != "sqlite":
        named = quoted(scheme).strip('"')
        raise ValueError(f"must be sqlite:///path: only SQLite is supported, not {named}")
    if separator and not url.startswith(SQLITE):
        raise ValueError("must be sqlite:///path, with three slashes before the path")
    path = url.removeprefix(SQLITE)
    if path in ("", ":memory:") and url:
        raise ValueError("must name a file")
    if "\0" in path or (separator and "?" in path):
        raise ValueError("must be a path alone: options after ? are not supported")
    return url


def storage_path(url: str, folder: Path | None = None) -> Path:
    """The file that a storage URL or path names, relative to `folder` (the current one)."""
    named = url.removeprefix(SQLITE)
    if not named:
        return platformdirs.user_data_path("xgw", appauthor=False) / "xgw.db"
    home = Path.home() if named.startswith("~/") else folder or Path.cwd()
    return home.absolute() / named.removeprefix("~/")


def check_provider_name(name: str) -> str:
    """What stands before the / of a route's target."""
    if not _PROVIDER_NAME.fullmatch(name):
        raise ValueError(f"must consist of letters, digits and . _ - alone, not {quoted(name)}")
    return name


def check_name(name: str) -> str:
    """A project or an organisation: printable, at most 256 characters."""
    if not name.isprintable() or not 0 < len(name.strip()) <= 256:
        raise ValueError(f"must be 1 to 256 printable characters, not {quoted(name)}")
    return name


def check_target(target: str) -> str:
    """A route's target, "provider/model", where the model may hold slashes of its own."""
    provider, _, model = target.partition("/")
    if not _PROVIDER_NAME.fullmatch(provider) or not model.strip():
        raise ValueError(f"must hold targets of the form provider/model, not {quoted(target)}")
    return target


def check_targets(targets: tuple[str, ...]) -> tuple[str, ...]:
    """A route's targets: at least one."""
    if not targets:
        raise ValueError("must not be empty")
    return targets


def check_source_spec(spec: str) -> str:
    """Where other tools put an identifier: in a header, in the body, in JSON in a header."""
    if not _SOURCE_SPEC.fullmatch(spec):
        raise ValueError(
            "must hold header:NAME, body:PATH or header-json:NAME:PATH (paths with dots), "
            f"not {quoted(spec)}"
        )
    return spec


def check_secret(secret: str) -> str:
    """A credential, as it can stand in a header; the sentence never quotes it."""
    if not secret:
        raise ValueError("must not be empty")
    if not secret.isascii() or not secret.isprintable() or " " in secret:
        raise ValueError("must be printable ASCII without spaces or line breaks")
    return secret


def check_optional_secret(secret: str) -> str:
    """A credential, or "" for none."""
    return check_secret(secret) if secret else ""


def check_api_key(key: str | None) -> str | None:
    """A provider's credential, or None where none is needed."""
    return check_secret(key) if key else None


def is_agent_name(name: str) -> bool:
    """Whether an agent can be called that: its name stands in URLs."""
    return _PROVIDER_NAME.fullmatch(name) is not None and len(name) <= 64


def check_tool_name(name: str) -> str:
    """What a model calls a tool by."""
    if not _TOOL_NAME.fullmatch(name):
        raise ValueError(f"must be 1 to 64 letters, digits, _ and -, not {quoted(name)}")
    return name


def handoff_name(agent: str) -> str:
    """What a model calls the tool by that hands a task over to this agent."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", f"handoff_to_{agent}")[:64]


def check_python_tool(spec: str | None) -> str | None:
    """Where a tool's function is: "path.py:function"."""
    if spec is None:
        return None
    path, _, function = spec.rpartition(":")
    if not path.endswith(".py") or not function.isidentifier():
        raise ValueError(f"must be of the form path.py:function, not {quoted(spec)}")
    return spec


def check_command(command: tuple[str, ...]) -> tuple[str, ...]:
    """A program and its arguments, as the system takes them."""
    if command and not command[0]:
        raise ValueError("must begin with a program")
    if any("\0" in part for part in command):
        raise ValueError("must not hold NUL characters")
    return command


def check_environment(variables: dict[str, str]) -> dict[str, str]:
    """Variables for a program; the sentence never quotes a value."""
    for name, value in variables.items():
        if not name or "=" in name or "\0" in name + value:
            raise ValueError(f"has a variable that no program can be given: {quoted(name)}")
    return variables


def check_mcp_url(url: str | None) -> str | None:
    """An MCP server's address, http or https."""
    if url is None:
        return None
    if "@" in url:
        raise ValueError("must not hold a user or a password: use headers")
    refusal = f"must be an address such as http://127.0.0.1:9000/mcp, not {quoted(url)}"
    split = _split(url, refusal)
    if split.scheme not in ("http", "https") or not _is_host(split.hostname or ""):
        raise ValueError(refusal)
    return url


def check_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """What a model is asked with besides the conversation: JSON, and nothing of xgw's own."""
    for name in parameters:
        if name in _OWN_PARAMETERS:
            raise ValueError(f"must leave {name} to xgw")
    try:
        json.dumps(parameters, allow_nan=False)
    except (TypeError, ValueError):
        raise ValueError("must hold what JSON can hold: no dates, no nan, no inf") from None
    return parameters


def check_headers(headers: dict[str, str]) -> dict[str, str]:
    """Request headers to add: their names and values can be sent, and are not the transport's."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"has the name {quoted(name)}, which HTTP does not allow")
        if name.lower() in _FORBIDDEN_HEADERS:
            raise ValueError(f"must leave the header {name} to xgw")
        if not value.isascii() or not value.isprintable():
            raise ValueError(f"must have printable ASCII values, and {name} has not")
    return headers


def _is_host(text: str) -> bool:
    if _HOST_NAME.fullmatch(text):
        return ".." not in text
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _split(url: str, refusal: str) -> SplitResult:
    try:
        split = urlsplit(url)
        _ = split.port  # looked at only here: a bad one raises
    except ValueError:
        raise ValueError(refusal) from None
    if not url.isprintable() or " " in url:
        raise ValueError(refusal)
    return split
