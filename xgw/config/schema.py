"""The configuration as frozen values: what each table of xgw.toml may hold, and its defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from xgw.config import rules
from xgw.config.agents import Agent, Tool
from xgw.config.credentials import PASSTHROUGH, is_credential_name
from xgw.config.patterns import check_pattern
from xgw.config.table import Bytes, Count, Seconds, Table

DEMO_LABEL = "demo (scripted, no model)"

Days = Annotated[int, Field(ge=0, le=36_500)]
Port = Annotated[int, Field(ge=0, le=65535)]
Milliseconds = Annotated[int, Field(ge=0, le=3_600_000)]
Pause = Annotated[float, Field(ge=0, le=2_592_000, allow_inf_nan=False)]
UsdPerMillion = Annotated[float, Field(ge=0, allow_inf_nan=False)]

Kind = Literal["openai", "anthropic", "demo"]
Endpoint = Literal["chat.completions", "responses", "embeddings", "models", "messages"]
ASKED: frozenset[Endpoint] = frozenset({"chat.completions", "embeddings", "models"})
"""The endpoints that xgw asks by now: the others may be named already."""

FallbackCause = Literal["connection", "timeout", "429", "5xx"]
SourceSpec = Annotated[str, AfterValidator(rules.check_source_spec)]


DEFAULT_BASE_URLS: dict[Kind, str] = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com/v1",
    "demo": "",
}
DEFAULT_ENDPOINTS: dict[Kind, tuple[Endpoint, ...]] = {
    "openai": ("chat.completions", "responses", "embeddings", "models"),
    "anthropic": ("messages",),
    "demo": ("chat.completions", "embeddings", "models"),
}


class Server(Table):
    """`[server]`: where xgw listens and whom it lets in."""

    host: Annotated[str, AfterValidator(rules.check_host)] = "127.0.0.1"
    port: Port = 8787
    token: Annotated[str, AfterValidator(rules.check_optional_secret), Field(repr=False)] = ""
    allowed_hosts: tuple[Annotated[str, AfterValidator(rules.check_allowed_host)], ...] = ()
    max_body_bytes: Bytes = 33_554_432
    heartbeat_seconds: Seconds = 15
    max_calls: Count = 256
    max_watchers: Count = 600
    allowed_origins: tuple[Annotated[str, AfterValidator(rules.check_origin)], ...] = ()


class Storage(Table):
    """`[storage]`: the one file of data; `url` is "" for the user's data folder."""

    url: Annotated[str, AfterValidator(rules.check_storage_url)] = ""
    durability: Literal["normal", "full"] = "normal"

    @property
    def path(self) -> Path:
        """The SQLite file, absolute."""
        return rules.storage_path(self.url)


class Timeouts(Table):
    """`[gateway.timeouts]`, in seconds."""

    connect: Seconds = 5
    first_byte: Seconds = 120
    idle: Seconds = 120


class Retry(Table):
    """`[gateway.retry]`: tries at one target, the first included."""

    max_attempts: Annotated[int, Field(ge=1, le=100)] = 1
    base_delay_ms: Milliseconds = 500
    max_retry_after_seconds: Pause = 30
    timeouts: bool = False


class Gateway(Table):
    """`[gateway]`: how proxied requests are treated."""

    managed_sessions: bool = False
    on_disconnect: Literal["abort", "drain"] = "abort"
    tool_wait_seconds: Seconds = 900
    session_sources: tuple[SourceSpec, ...] = (
        "header:x-claude-code-session-id",
        "header:session-id",
        "body:client_metadata.session_id",
        "header:x-litellm-session-id",
        "header:helicone-session-id",
        "header:x-bf-session-id",
        "header:x-thread-id",
        "body:conversation",
    )
    turn_sources: tuple[SourceSpec, ...] = (
        "header:x-claude-code-prompt-id",
        "body:client_metadata.turn_id",
        "header-json:x-codex-turn-metadata:turn_id",
    )
    max_event_bytes: Bytes = 8_388_608
    max_response_bytes: Bytes = 67_108_864
    timeouts: Timeouts = Timeouts()
    retry: Retry = Retry()


class Provider(Table):
    """`[[providers]]`: an upstream. `api_key` is None where none is needed, or "passthrough"."""

    name: Annotated[str, AfterValidator(rules.check_provider_name)]
    kind: Kind = "openai"
    base_url: Annotated[str, AfterValidator(rules.check_base_url)] = Field(
        default_factory=lambda given: DEFAULT_BASE_URLS[given.get("kind", "openai")]
    )
    api_key: Annotated[str | None, AfterValidator(rules.check_api_key), Field(repr=False)] = None
    endpoints: tuple[Endpoint, ...] = Field(
        default_factory=lambda given: DEFAULT_ENDPOINTS[given.get("kind", "openai")]
    )
    usage_in_stream: bool = True
    headers: Annotated[dict[str, str], AfterValidator(rules.check_headers)] = Field(
        default_factory=dict, repr=False
    )

    @property
    def label(self) -> str:
        """How people see this provider."""
        return DEMO_LABEL if self.kind == "demo" else self.name

    @property
    def is_asked(self) -> bool:
        """Whether xgw asks it for anything yet."""
        return not ASKED.isdisjoint(self.endpoints)

    @property
    def passthrough(self) -> bool:
        """Whether the client's own credential goes to the upstream."""
        return self.api_key == PASSTHROUGH


class Route(Table):
    """`[[routes]]`: what clients ask for (`*` is a glob), and the targets, "provider/model" each.

    `retry` is None where `[gateway.retry]` applies as it is.
    """

    model: Annotated[str, Field(min_length=1)]
    targets: Annotated[
        tuple[Annotated[str, AfterValidator(rules.check_target)], ...],
        AfterValidator(rules.check_targets),
    ]
    retry: Retry | None = None
    fallback_on: tuple[FallbackCause, ...] = ("connection", "timeout", "429", "5xx")


class Price(Table):
    """`[prices."MODEL"]`: USD per million tokens; None is the price of ordinary input."""

    input: UsdPerMillion
    cached_input: UsdPerMillion | None = None
    cache_write: UsdPerMillion | None = None
    output: UsdPerMillion


class ClientKey(Table):
    """`[[keys]]`: a key that clients of xgw show, and the project it opens."""

    key: Annotated[str, AfterValidator(rules.check_secret), Field(repr=False)]
    project: Annotated[str, AfterValidator(rules.check_name)] = "default"
    org: Annotated[str, AfterValidator(rules.check_name)] | None = None


class Retention(Table):
    """`[retention]`: after how many days recorded bodies, and whole sessions, go; 0 keeps them."""

    bodies_days: Days = 0
    metadata_days: Days = 0


class Redact(Table):
    """`[redact]`: what an export masks besides what it knows by itself."""

    patterns: tuple[Annotated[str, AfterValidator(check_pattern)], ...] = ()


class Config(Table):
    """The whole configuration in force."""

    server: Server = Server()
    storage: Storage = Storage()
    gateway: Gateway = Gateway()
    providers: tuple[Provider, ...] = ()
    routes: tuple[Route, ...] = ()
    prices: dict[str, Price] = Field(default_factory=dict)
    keys: tuple[ClientKey, ...] = ()
    retention: Retention = Retention()
    agents: dict[str, Agent] = Field(default_factory=dict)
    tools: dict[str, Tool] = Field(default_factory=dict)
    redact: Redact = Redact()

    def secrets(self) -> tuple[str, ...]:
        """Every configured key and token, longest first: none of them may be stored or shown."""
        found = {self.server.token, *(client.key for client in self.keys)}
        for provider in self.providers:
            found.update(_secrets_of(provider))
        for tool in self.tools.values():
            found.update(tool.mcp.secrets() if tool.mcp else ())
        return tuple(sorted(found - {"", PASSTHROUGH}, key=lambda secret: (-len(secret), secret)))


def _secrets_of(provider: Provider) -> set[str]:
    found = {provider.api_key or ""}
    for name, value in provider.headers.items():
        if is_credential_name(name):
            found.update({value, value.split(" ", 1)[-1].strip()})
    return found
