"""Configuration: where values come from, what they become, and what is said of mistakes."""

from __future__ import annotations

import os
import re
import socket
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from xgw import masking
from xgw.config import (
    ClientKey,
    Config,
    Gateway,
    Loaded,
    Price,
    Provider,
    Retry,
    Route,
    Server,
    Storage,
    Timeouts,
    load,
    show,
)
from xgw.config.discovery import VARIABLES, answers
from xgw.config.positions import KeyPath, find_lines
from xgw.errors import UsageError

UPSTREAM = '[[providers]]\nname = "up"\nbase_url = "http://127.0.0.1:9/v1"\n'


def nothing_answers(host: str, port: int) -> bool:
    return False


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without any folder of their own yet."""
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    return home


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    return folder


@pytest.fixture
def read(cwd: Path) -> Callable[..., Loaded]:
    """Loads `text` as ./xgw.toml, without any environment but what is given."""

    def read(text: str | None = None, env: dict[str, str] | None = None, **options: Any) -> Loaded:
        if text is not None:
            (cwd / "xgw.toml").write_text(text)
        return load(env=env or {}, cwd=cwd, probe=options.pop("probe", nothing_answers), **options)

    return read


@pytest.fixture
def mistakes(read: Callable[..., Loaded]) -> Callable[..., list[str]]:
    """The lines that are said of `text`."""

    def mistakes(text: str, env: dict[str, str] | None = None, **options: Any) -> list[str]:
        with pytest.raises(UsageError) as refused:
            read(text, env, **options)
        return list(refused.value.lines)

    return mistakes


Read = Callable[..., Loaded]
Mistakes = Callable[..., list[str]]


def said(read: Read, text: str) -> tuple[str, ...]:
    """The lines that are said of `text`, none if nothing is wrong with it."""
    try:
        read(text)
    except UsageError as refused:
        return refused.lines
    return ()


class TestWhereTheFileIs:
    def test_none_at_all_is_fine(self, read: Read, home: Path) -> None:
        loaded = read()
        assert loaded.path is None
        assert loaded.config.server.port == 8787
        assert loaded.config.storage.path == home / "data/xgw/xgw.db"
        assert set(loaded.sources.values()) == {"default"}

    def test_each_place_goes_before_the_next(self, cwd: Path, home: Path) -> None:
        places = {
            "given": cwd / "a/given.toml",
            "env": cwd / "b/env.toml",
            "here": cwd / "xgw.toml",
            "user": home / "config/xgw/xgw.toml",
        }
        for port, path in enumerate(places.values(), start=1):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"[server]\nport = {port}\n")

        def found(path: str | None = None, **env: str) -> tuple[int, Path | None, str]:
            given = Path(path) if path else None
            loaded = load(given, env=env, cwd=cwd, probe=nothing_answers)
            return loaded.config.server.port, loaded.path, loaded.sources["server.port"]

        environment = {"XGW_CONFIG": "b/env.toml"}
        assert found("a/given.toml", **environment) == (1, places["given"], "a/given.toml:2")
        assert found(**environment) == (2, places["env"], "b/env.toml:2")
        assert found() == (3, places["here"], "xgw.toml:2")
        places["here"].unlink()
        assert found() == (4, places["user"], f"{places['user']}:2")
        assert found(XGW_CONFIG="") == found()

    def test_a_file_that_cannot_be_read_is_said(self, cwd: Path) -> None:
        (cwd / "folder").mkdir()
        (cwd / "binary.toml").write_bytes(b"[server]\nhost = '\xff'\n")
        for name, line in {
            "gone.toml": "--config gone.toml: there is no such file",
            "folder": "--config folder: is a folder, not a file",
            "binary.toml": "binary.toml:2: not UTF-8 text",
        }.items():
            with pytest.raises(UsageError) as refused:
                load(Path(name), env={}, cwd=cwd)
            assert refused.value.lines == (line,)
        with pytest.raises(UsageError, match="environment XGW_CONFIG, gone"):
            load(env={"XGW_CONFIG": "gone.toml"}, cwd=cwd)

    def test_files_of_windows_editors_are_read(self, read: Read) -> None:
        loaded = read("\ufeff[server]\r\n# note\r\nport = 9\r\n")
        assert loaded.config.server.port == 9
        assert loaded.sources["server.port"] == "xgw.toml:3"


class TestWhereValuesComeFrom:
    def test_flag_then_environment_then_file_then_default(self, read: Read) -> None:
        text = '[server]\nhost = "localhost"\nport = 1\ntoken = "file-token"\n'
        env = {
            "XGW_PORT": "2",
            "XGW_TOKEN": "env-token",
            "XGW_ALLOWED_HOSTS": "a.test, B.test:8443",
        }
        loaded = read(text, env, overrides={"server.port": 3, "server.host": None})
        server = loaded.config.server
        assert (server.host, server.port, server.token) == ("localhost", 3, "env-token")
        assert server.allowed_hosts == ("a.test", "b.test")
        assert loaded.sources["server.host"] == "xgw.toml:2"
        assert loaded.sources["server.port"] == "--port"
        assert loaded.sources["server.token"] == "environment XGW_TOKEN"
        assert loaded.sources["server.allowed_hosts"] == "environment XGW_ALLOWED_HOSTS"
        assert loaded.sources["server.max_calls"] == "default"

    def test_empty_variables_are_none(self, read: Read) -> None:
        loaded = read(env={"XGW_PORT": "", "XGW_TOKEN": "", "XGW_ALLOWED_HOSTS": ""})
        assert set(loaded.sources.values()) == {"default"}

    def test_every_value_has_a_source(self, read: Read) -> None:
        text = (
            f"{UPSTREAM}headers = {{ x-team = 'a' }}\n"
            '[[routes]]\nmodel = "gpt-4.1"\ntargets = ["up/m"]\nretry = { max_attempts = 2 }\n'
            '[prices."gpt-4.1"]\ninput = 1\noutput = 2.5\n'
            '[[keys]]\nkey = "team-key-1"\n[gateway]\nretry.base_delay_ms = 7\n'
        )
        loaded = read(text)
        assert loaded.sources.keys() >= {key for key, _, _ in show(loaded)}
        at = {key: source for key, source in loaded.sources.items() if source != "default"}
        assert at == {
            "gateway.retry.base_delay_ms": "xgw.toml:15",
            "providers.up.name": "xgw.toml:2",
            "providers.up.base_url": "xgw.toml:3",
            "providers.up.headers.x-team": "xgw.toml:4",
            'routes."gpt-4.1".model': "xgw.toml:6",
            'routes."gpt-4.1".targets': "xgw.toml:7",
            'routes."gpt-4.1".retry.max_attempts': "xgw.toml:8",
            'routes."gpt-4.1".retry.base_delay_ms': "xgw.toml:15",
            'prices."gpt-4.1".input': "xgw.toml:10",
            'prices."gpt-4.1".output': "xgw.toml:11",
            "keys.1.key": "xgw.toml:13",
        }

    def test_a_routes_retry_is_completed_from_the_gateways(self, read: Read) -> None:
        text = (
            "[gateway.retry]\nmax_attempts = 5\nbase_delay_ms = 7\n"
            f"{UPSTREAM}"
            '[[routes]]\nmodel = "a"\ntargets = ["up/a"]\nretry = { max_attempts = 2 }\n'
            '[[routes]]\nmodel = "b"\ntargets = ["up/b"]\n'
        )
        first, second = read(text).config.routes
        assert first.retry is not None
        assert (first.retry.max_attempts, first.retry.base_delay_ms) == (2, 7)
        assert second.retry is None


class TestReferences:
    def test_are_read_from_the_environment_anywhere(self, read: Read) -> None:
        text = (
            '[server]\nport = "${PORT}"\nallowed_hosts = "${HOSTS:-a.test,b.test}"\n'
            '[gateway]\nmanaged_sessions = "${MANAGED:-true}"\ntimeouts.idle = "${IDLE:-1.5}"\n'
            '[[providers]]\nname = "${N:-up}"\nbase_url = "http://${HOST:-127.0.0.1}:${P}/v1"\n'
            'headers = { x-auth-token = "tok-${K}" }\nendpoints = ["${E:-models}"]\n'
            '[prices.m]\ninput = "${IN:-0.5}"\ncached_input = "${IN:-0.25}"\noutput = "${OUT:-1}"\n'
        )
        loaded = read(text, {"PORT": "9", "P": "10", "K": "secret-part", "E": ""})
        config = loaded.config
        assert config.server.port == 9
        assert config.server.allowed_hosts == ("a.test", "b.test")
        assert config.gateway.managed_sessions is True
        assert config.gateway.timeouts.idle == 1.5
        (provider,) = config.providers
        assert (provider.name, provider.base_url) == ("up", "http://127.0.0.1:10/v1")
        assert provider.headers == {"x-auth-token": "tok-secret-part"}
        assert provider.endpoints == ("models",)
        assert config.prices["m"].cached_input == 0.25
        assert loaded.sources["server.port"] == "xgw.toml:2, environment PORT"
        assert loaded.sources["providers.up.base_url"] == "xgw.toml:9, environment P"
        assert loaded.sources["prices.m.input"] == "xgw.toml:13"

    def test_what_the_environment_holds_is_not_read_again(self, read: Read) -> None:
        loaded = read('[server]\ntoken = "${A}"\n', {"A": "${B}", "B": "no"})
        assert loaded.config.server.token == "${B}"
        assert read(env={"XGW_TOKEN": "${B}"}).config.server.token == "${B}"

    def test_a_missing_variable_is_said_with_table_and_key(self, mistakes: Mistakes) -> None:
        assert mistakes(
            f'[server]\ntoken = "${{TOKEN}}"\n{UPSTREAM}api_key = "${{UP_KEY}}"\n'
            'headers = { x-a = "${A}${B}" }\nendpoints = ["models", "${ENDPOINT}"]\n'
            '[[keys]]\nproject = "team-a"\nkey = "${TEAM_KEY}"\n'
        ) == [
            "xgw.toml:2: [server] token needs the environment variable TOKEN, which is not set",
            'xgw.toml:6: [[providers]] "up" api_key needs the environment variable UP_KEY, '
            "which is not set",
            'xgw.toml:7: [[providers]] "up" headers.x-a needs the environment variable A, '
            "which is not set",
            'xgw.toml:8: [[providers]] "up" endpoints needs the environment variable ENDPOINT, '
            "which is not set",
            'xgw.toml:11: [[keys]] "team-a" key needs the environment variable TEAM_KEY, '
            "which is not set",
        ]

    @pytest.mark.parametrize("written", ["${", "${A", "${}", "${1A}", "${A-b}", "${A B}"])
    def test_a_malformed_one_is_said(self, mistakes: Mistakes, written: str) -> None:
        assert mistakes(f'[server]\nhost = "x{written}"\n') == [
            f'xgw.toml:2: [server] host holds "{written}": write ${{NAME}} or ${{NAME:-default}}'
        ]

    def test_what_a_flag_replaces_is_not_needed(self, read: Read) -> None:
        loaded = read(
            '[server]\ntoken = "${NO}"\nport = "${NO}"\n',
            {"XGW_TOKEN": "t"},
            overrides={"server.port": 1},
        )
        assert (loaded.config.server.token, loaded.config.server.port) == ("t", 1)


class TestStorage:
    @pytest.mark.parametrize(
        ("url", "path"),
        [
            ("sqlite:///a/b.db", "here/a/b.db"),
            ("sqlite:////abs/b.db", "/abs/b.db"),
            ("plain.db", "here/plain.db"),
            ("/abs/b.db", "/abs/b.db"),
            ("~/b.db", "home/b.db"),
            ("sqlite:///~/b.db", "home/b.db"),
        ],
    )
    def test_urls_and_paths(self, read: Read, tmp_path: Path, url: str, path: str) -> None:
        storage = read(f'[storage]\nurl = "{url}"\n').config.storage
        assert storage.path == tmp_path / path
        assert storage.url == f"sqlite:///{tmp_path / path}"

    def test_a_path_in_the_file_is_relative_to_the_file(self, cwd: Path) -> None:
        (cwd / "sub").mkdir()
        (cwd / "sub/x.toml").write_text('[storage]\nurl = "sqlite:///x.db"\n')

        def stored(env: dict[str, str], **overrides: str) -> Path:
            flags = {key.replace("_", "."): value for key, value in overrides.items()}
            return load(
                Path("sub/x.toml"), env=env, cwd=cwd, overrides=flags, probe=nothing_answers
            ).config.storage.path

        assert stored({}) == cwd / "sub/x.db"
        assert stored({"XGW_STORAGE_URL": "sqlite:///e.db"}) == cwd / "e.db"
        assert stored({"XGW_STORAGE_URL": "e.db"}, storage_url="f.db") == cwd / "f.db"

    def test_its_flag_is_db(self, read: Read) -> None:
        assert read(overrides={"storage.url": Path("x.db")}).sources["storage.url"] == "--db"

    def test_a_folder_is_no_store(self, mistakes: Mistakes, cwd: Path) -> None:
        assert mistakes("", overrides={"storage.url": "."}) == [
            f"--db: [storage] url must name a file: {cwd} is a folder"
        ]

    def test_a_link_to_itself_is_no_store(self, mistakes: Mistakes, cwd: Path) -> None:
        (cwd / "x.db").symlink_to(cwd / "x.db")
        [mistake] = mistakes("", overrides={"storage.url": "x.db"})
        named = f"--db: [storage] url must name a file that can be reached: {cwd / 'x.db'} ("
        assert mistake.startswith(named)

    def test_a_value_made_by_hand_knows_its_path(self, home: Path) -> None:
        assert Storage(url="sqlite:////abs/x.db").path == Path("/abs/x.db")
        assert Config().storage.path == home / "data/xgw/xgw.db"


class TestProviders:
    def test_without_any_the_demo_serves(self, read: Read) -> None:
        (provider,) = read().config.providers
        assert (provider.name, provider.kind) == ("demo", "demo")
        assert provider.label == "demo (scripted, no model)"
        assert provider.api_key is None
        assert "chat.completions" in provider.endpoints

    def test_known_key_variables_add_theirs(self, read: Read) -> None:
        env = {"GROQ_API_KEY": "gsk-1\n", "OPENAI_API_KEY": "sk-1", "XAI_API_KEY": ""}
        loaded = read(env=env)
        assert [(p.name, p.base_url, p.api_key) for p in loaded.config.providers] == [
            ("openai", "https://api.openai.com/v1", "sk-1"),
            ("groq", "https://api.groq.com/openai/v1", "gsk-1"),
        ]
        assert loaded.sources["providers.openai.api_key"] == "environment OPENAI_API_KEY"
        assert loaded.sources["providers.groq.base_url"] == "environment GROQ_API_KEY"

    def test_openai_base_url_is_honoured(self, read: Read) -> None:
        env = {"OPENAI_API_KEY": "sk-1", "OPENAI_BASE_URL": "http://h.test/v1/"}
        loaded = read(env=env)
        assert loaded.config.providers[0].base_url == "http://h.test/v1"
        assert loaded.sources["providers.openai.base_url"] == "environment OPENAI_BASE_URL"
        assert loaded.sources["providers.openai.name"] == "environment OPENAI_API_KEY"

    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
    def test_openai_base_url_of_xgw_itself_is_passed_over(self, read: Read, host: str) -> None:
        env = {"OPENAI_API_KEY": "sk-1", "OPENAI_BASE_URL": f"http://{host}:8787/v1"}
        assert read(env=env).config.providers[0].base_url == "https://api.openai.com/v1"
        env["XGW_PORT"] = "8788"
        assert read(env=env).config.providers[0].base_url == f"http://{host}:8787/v1"

    def test_where_none_of_them_serves_chat_the_demo_joins(self, read: Read) -> None:
        providers = read(env={"ANTHROPIC_API_KEY": "sk-ant-1"}).config.providers
        assert [(p.name, p.kind, p.endpoints[0]) for p in providers] == [
            ("anthropic", "anthropic", "messages"),
            ("demo", "demo", "chat.completions"),
        ]

    @pytest.mark.parametrize(
        ("env", "asked", "base_url"),
        [
            ({}, ("127.0.0.1", 11434), "http://127.0.0.1:11434/v1"),
            ({"OLLAMA_HOST": "0.0.0.0"}, ("127.0.0.1", 11434), "http://127.0.0.1:11434/v1"),
            ({"OLLAMA_HOST": "box:9"}, ("box", 9), "http://box:9/v1"),
            ({"OLLAMA_HOST": ":9"}, ("127.0.0.1", 9), "http://127.0.0.1:9/v1"),
            ({"OLLAMA_HOST": "https://box"}, ("box", 443), "https://box:443/v1"),
            ({"OLLAMA_HOST": "[::1]:9"}, ("::1", 9), "http://[::1]:9/v1"),
        ],
    )
    def test_ollama_is_added_if_it_answers(
        self, read: Read, env: dict[str, str], asked: tuple[str, int], base_url: str
    ) -> None:
        calls = []

        def probe(host: str, port: int) -> bool:
            calls.append((host, port))
            return True

        loaded = read(env=env, probe=probe)
        assert calls == [asked]
        assert [(p.name, p.base_url) for p in loaded.config.providers] == [("ollama", base_url)]
        source = "environment OLLAMA_HOST" if env else "default"
        assert loaded.sources["providers.ollama.base_url"] == source

    @pytest.mark.parametrize("host", ["http://[", "ftp://x", "x:99999"])
    def test_an_ollama_address_that_is_none_is_passed_over(self, read: Read, host: str) -> None:
        providers = read(env={"OLLAMA_HOST": host}, probe=lambda *_: True).config.providers
        assert [p.name for p in providers] == ["demo"]

    def test_what_answers_is_found_by_connecting(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            assert answers("127.0.0.1", port)
        assert not answers("127.0.0.1", port)
        assert not answers("a..b", 1)

    def test_a_file_that_names_providers_is_left_alone(self, read: Read) -> None:
        def probe(host: str, port: int) -> bool:
            raise AssertionError("nobody asked")

        config = read(UPSTREAM, {"OPENAI_API_KEY": "sk-1"}, probe=probe).config
        assert [p.name for p in config.providers] == ["up"]

    def test_demo_serves_alone_if_asked(self, read: Read) -> None:
        text = f'{UPSTREAM}api_key = "${{MISSING}}"\n[[routes]]\nmodel = "m"\ntargets = ["up/m"]\n'
        loaded = read(text, {"OPENAI_API_KEY": "sk-1"}, demo=True)
        assert [p.name for p in loaded.config.providers] == ["demo"]
        assert loaded.config.routes == ()
        assert loaded.sources["providers.demo.kind"] == "--demo"

    def test_defaults_follow_the_kind(self) -> None:
        openai = Provider(name="a")
        anthropic = Provider(name="b", kind="anthropic")
        assert openai.base_url == "https://api.openai.com/v1"
        assert openai.endpoints == ("chat.completions", "responses", "embeddings", "models")
        assert openai.label == "a"
        assert anthropic.base_url == "https://api.anthropic.com/v1"
        assert anthropic.endpoints == ("messages",)
        assert not openai.passthrough

    def test_values_are_kept_in_one_form(self, read: Read) -> None:
        text = (
            '[server]\nhost = "[::1]"\n'
            'allowed_hosts = ["Gate.Example.COM:443", "[2001:DB8::1]:80"]\n'
            'allowed_origins = ["HTTPS://App.test:443/", "http://app.test:3000"]\n'
            '[[providers]]\nname = "up"\nbase_url = "http://h.test/v1//"\napi_key = "passthrough"\n'
            '[[providers]]\nname = "no-key"\nbase_url = "http://h.test"\napi_key = "${K:-}"\n'
        )
        config = read(text).config
        assert config.server.host == "::1"
        assert config.server.allowed_hosts == ("gate.example.com", "2001:db8::1")
        assert config.server.allowed_origins == ("https://app.test", "http://app.test:3000")
        assert config.providers[0].base_url == "http://h.test/v1"
        assert config.providers[0].passthrough
        assert config.providers[1].api_key is None


class TestMistakes:
    @pytest.mark.parametrize(
        ("text", "line"),
        [
            ("[server]\nport = 65536", "2: [server] port must be at most 65535, not 65536"),
            (
                "[redact]\npatterns = ['a', '(?=b)c']",
                '2: [redact] patterns must be an expression in RE2, not "(?=b)c": '
                "invalid perl operator: (?=",
            ),
            (
                "[redact]\npatterns = ['x*']",
                '2: [redact] patterns must not match an empty text, as "x*" does',
            ),
            (
                "[redact]\npatterns = 'x'",
                '2: [redact] patterns must be a list, not "x"',
            ),
            ("[server]\nport = -1", "2: [server] port must be at least 0, not -1"),
            ('[server]\nport = "80"', '2: [server] port must be a whole number, not "80"'),
            ("[server]\nport = true", "2: [server] port must be a whole number, not true"),
            ("[server]\nport = 1.5", "2: [server] port must be a whole number, not 1.5"),
            ("[server]\nport = []", "2: [server] port must be a whole number"),
            ("[server]\nport = 2020-01-01", "2: [server] port must be a whole number"),
            ("[server]\nhost = 5", "2: [server] host must be text, not 5"),
            (
                '[server]\nhost = ""',
                '2: [server] host must be an IP address or a host name, not ""',
            ),
            (
                '[server]\nhost = "http://x"',
                '2: [server] host must be an IP address or a host name, not "http://x"',
            ),
            (
                "[server]\nprot = 1",
                "2: [server] prot is not a known key (did you mean port?)",
            ),
            (
                "[retention]\nbodies_day = 2",
                "2: [retention] bodies_day is not a known key (did you mean bodies_days?)",
            ),
            ("[server]\ntoken = 12345", "2: [server] token must be text"),
            (
                '[server]\ntoken = "my secret"',
                "2: [server] token must be printable ASCII without spaces or line breaks",
            ),
            ('[server]\nallowed_hosts = "a"', '2: [server] allowed_hosts must be a list, not "a"'),
            (
                '[server]\nallowed_hosts = [\n"a",\n"https://b"]',
                "4: [server] allowed_hosts must hold host names alone (no scheme, path or "
                'pattern), not "https://b"',
            ),
            (
                '[server]\nallowed_origins = ["*"]',
                "2: [server] allowed_origins must hold origins such as https://app.example.com, "
                'not "*"',
            ),
            (
                "[server]\nheartbeat_seconds = 0",
                "2: [server] heartbeat_seconds must be greater than 0, not 0",
            ),
            (
                "[server]\nmax_body_bytes = -5",
                "2: [server] max_body_bytes must be at least 1, not -5",
            ),
            ("server = 5", "1: [server] must be a table, not 5"),
            ("port = 5", "1: port is not a known key (it belongs in [server])"),
            (
                '[storage]\nurl = "postgresql://u:pw@h/db"',
                "2: [storage] url must be sqlite:///path: only SQLite is supported, not postgresql",
            ),
            (
                '[storage]\nurl = "sqlite://x.db"',
                "2: [storage] url must be sqlite:///path, with three slashes before the path",
            ),
            ('[storage]\nurl = "sqlite:///"', "2: [storage] url must name a file"),
            ('[storage]\nurl = "sqlite:///:memory:"', "2: [storage] url must name a file"),
            (
                '[storage]\nurl = "sqlite:///x.db?mode=ro"',
                "2: [storage] url must be a path alone: options after ? are not supported",
            ),
            (
                '[storage]\ndurability = "extreme"',
                '2: [storage] durability must be "normal" or "full", not "extreme"',
            ),
            (
                '[gateway]\non_disconnect = "stop"',
                '2: [gateway] on_disconnect must be "abort" or "drain", not "stop"',
            ),
            (
                '[gateway]\nsession_sources = ["header:x-a", "headers:x"]',
                "2: [gateway] session_sources must hold header:NAME, body:PATH or "
                'header-json:NAME:PATH (paths with dots), not "headers:x"',
            ),
            (
                '[gateway]\nturn_sources = ["header-json:x"]',
                "2: [gateway] turn_sources must hold header:NAME, body:PATH or "
                'header-json:NAME:PATH (paths with dots), not "header-json:x"',
            ),
            (
                '[gateway]\ntimeouts = { connect = "a" }',
                '2: [gateway.timeouts] connect must be a number, not "a"',
            ),
            (
                "[gateway.timeouts]\nidle = nan",
                "2: [gateway.timeouts] idle must be a finite number, not NaN",
            ),
            (
                "[gateway.retry]\nmax_attempts = 0",
                "2: [gateway.retry] max_attempts must be at least 1, not 0",
            ),
            (
                "[gateway.retry]\nattempts = 1",
                "2: [gateway.retry] attempts is not a known key (did you mean max_attempts?)",
            ),
            (
                "[gateway.retry]\ntimeouts = 1",
                "2: [gateway.retry] timeouts must be true or false, not 1",
            ),
            ("[prices.m]\ninput = 1", "1: [prices.m] output is missing"),
            ("[prices]\nm = 5", "2: [prices.m] must be a table, not 5"),
            (
                '[prices."gpt-4.1"]\ninput = -1\noutput = 1',
                '2: [prices."gpt-4.1"] input must be at least 0, not -1',
            ),
            (
                "[prices.m]\ninput = 1\noutput = 1\ncache = 1",
                "4: [prices.m] cache is not a known key (known: input, cached_input, cache_write, "
                "output)",
            ),
            ('[[keys]]\nkey = ""', "2: [[keys]] #1 key must not be empty"),
            ('[[keys]]\nproject = "a"', '1: [[keys]] "a" key is missing'),
            ("[[keys]]\nkey = 5", "2: [[keys]] #1 key must be text"),
            (
                '[[keys]]\nkey = "k1-secret"\n[[keys]]\nkey = "k1-secret"\nproject = "b"',
                '4: [[keys]] "b" key is the same as the one at xgw.toml:2',
            ),
            (
                '[server]\ntoken = "t-secret"\n[[keys]]\nkey = "t-secret"',
                "4: [[keys]] #1 key is the same as the one at xgw.toml:2",
            ),
            ("[agents.a]\ntools = []", "1: [agents.a] model is missing"),
            (
                '[agents.a]\nmodel = "m"\nhandoffs = ["b"]',
                "3: [agents.a] handoffs must name other agents that there are (there are none), "
                'not "b"',
            ),
            (
                '[agents.a]\nmodel = "m"\nhandoff = "b"',
                "3: [agents.a] handoff is not a known key (did you mean handoffs?)",
            ),
            (
                '[agents.a]\nmodel = "m"\ntools = ["calculator", "calcular"]',
                "3: [agents.a] tools must name tools that there are (calculator, current_time, "
                'http_get, demo_weather, remember, forget), not "calcular"',
            ),
            (
                '[agents.a]\nmodel = "m"\ntools = ["calculator", "calculator"]',
                '3: [agents.a] tools must name each tool once, and names "calculator" again',
            ),
            (
                '[agents.a]\nmodel = "m"\ninstructions = "x"\ninstructions_file = "y"',
                "4: [agents.a] instructions_file cannot stand beside instructions: "
                "give one of them",
            ),
            (
                '[agents.a]\nmodel = "m"\nparameters = { stream = false }',
                "3: [agents.a] parameters must leave stream to xgw",
            ),
            (
                '[agents.a]\nmodel = "m"\n[agents.a.limits]\nmax_iteration = 3',
                "4: [agents.a.limits] max_iteration is not a known key "
                "(did you mean max_iterations?)",
            ),
            (
                '[agents."a b"]\nmodel = "m"',
                '1: [agents."a b"] must have a name of 1 to 64 letters, digits and . _ -',
            ),
            (
                "[tools.t]\ntimeout_seconds = 5",
                "1: [tools.t] python is missing (or builtin, mcp, retrieval)",
            ),
            (
                '[tools.t]\nbuiltin = "shell"',
                '2: [tools.t] builtin must be "calculator", "current_time", "http_get", '
                '"demo_weather", "remember" or "forget", not "shell"',
            ),
            (
                '[agents.a]\nmodel = "m"\ntools = ["plan"]\n[agents.a.modes.task]\n'
                'planner = true\n[tools.plan]\nbuiltin = "remember"',
                "5: [agents.a.modes.task] planner cannot stand beside a tool of the name 'plan': "
                "the planner is called that",
            ),
            (
                '[agents.a]\nmodel = "m"\n[agents.a.modes.chat]\nplanner = true',
                "4: [agents.a.modes.chat] planner is not a known key "
                "(it belongs in [agents.NAME.modes.task])",
            ),
            (
                '[agents.a]\nmodel = "m"\n[agents.a.context]\ncompact_at = 1.5',
                "4: [agents.a.context] compact_at must be at most 1, not 1.5",
            ),
            (
                '[tools.t]\nbuiltin = "calculator"\nmcp = { command = ["x"] }',
                "3: [tools.t.mcp] cannot stand beside builtin: give one of them",
            ),
            (
                "[tools.t]\nmcp = { cwd = 'x' }",
                "2: [tools.t.mcp] command is missing (or url)",
            ),
            (
                '[tools.t]\nmcp = { command = ["x"], url = "http://h/mcp" }',
                "2: [tools.t.mcp] url cannot stand beside command: give one of them",
            ),
            (
                '[tools.t]\nmcp = { url = "http://h/mcp", env = { A = "b" } }',
                "2: [tools.t.mcp] env has no meaning beside url",
            ),
            (
                '[tools.t]\nmcp = { command = ["x"], headers = { A = "b" } }',
                "2: [tools.t.mcp] headers has no meaning beside command",
            ),
            (
                '[tools.t]\nmcp = { command = [""] }',
                "2: [tools.t.mcp] command must begin with a program",
            ),
            (
                '[tools.t]\nmcp = { command = ["x"], env = { "A=" = "b" } }',
                '2: [tools.t.mcp] env has a variable that no program can be given: "A="',
            ),
            (
                '[tools.t]\nmcp = { url = "http://me:secret@h/mcp" }',
                "2: [tools.t.mcp] url must not hold a user or a password: use headers",
            ),
            (
                '[tools.t]\nmcp = { url = "h/mcp" }',
                "2: [tools.t.mcp] url must be an address such as http://127.0.0.1:9000/mcp, "
                'not "h/mcp"',
            ),
            (
                '[tools.t]\nmcp = { command = ["x"], envs = "y" }',
                "2: [tools.t.mcp] envs is not a known key (did you mean env?)",
            ),
            (
                "[tools.t]\nretrieval = { path = '.', top_k = 0 }",
                "2: [tools.t.retrieval] top_k must be at least 1, not 0",
            ),
            (
                "[tools.t]\nretrieval = { top_k = 1 }",
                "2: [tools.t.retrieval] path is missing",
            ),
            (
                '[tools.t]\nbuiltin = "calculator"\nallow_private = true',
                "3: [tools.t] allow_private has a meaning for builtin http_get alone",
            ),
            (
                '[tools.t]\npython = "orders"',
                '2: [tools.t] python must be of the form path.py:function, not "orders"',
            ),
            (
                '[tools.t]\nbuiltin = "http_get"\napproval = "maybe"',
                '3: [tools.t] approval must be "never" or "always", not "maybe"',
            ),
            (
                "[trace]\ncontent = true",
                "1: [trace] is not a known table (known: server, storage, gateway, providers, "
                "routes, prices, keys, retention, agents, tools, redact)",
            ),
        ],
    )
    def test_each_is_one_clear_line(self, mistakes: Mistakes, text: str, line: str) -> None:
        assert mistakes(text) == [f"xgw.toml:{line}"]

    @pytest.mark.parametrize(
        ("text", "line"),
        [
            (
                "name = 'a b'",
                '2: [[providers]] "a b" name must consist of letters, digits and '
                '. _ - alone, not "a b"',
            ),
            ("kind = 'openai'", "1: [[providers]] #1 name is missing"),
            (
                "name = 'a'\nkind = 'azure'",
                '3: [[providers]] "a" kind must be "openai", "anthropic" or "demo", not "azure"',
            ),
            (
                "name = 'a'\nbase_url = 'api.test/v1'",
                '3: [[providers]] "a" base_url must be an address such as '
                'https://api.openai.com/v1, not "api.test/v1"',
            ),
            (
                "name = 'a'\nbase_url = 'http://h:bad/v1'",
                '3: [[providers]] "a" base_url must be an address such as '
                'https://api.openai.com/v1, not "http://h:bad/v1"',
            ),
            (
                "name = 'a'\nbase_url = 'http://u:pw@h/v1'",
                '3: [[providers]] "a" base_url must not hold a user or a password: use api_key or '
                "headers",
            ),
            (
                "name = 'a'\nbase_url = 'http://h/v1?x=1'",
                '3: [[providers]] "a" base_url must be an address without ? and #, '
                'not "http://h/v1?x=1"',
            ),
            (
                "name = 'a'\nbase_url = 'http://localhost:8787/v1'",
                '3: [[providers]] "a" base_url is the address of xgw itself',
            ),
            ("name = 'a'\napi_key = 5", '3: [[providers]] "a" api_key must be text'),
            (
                "name = 'a'\napi_key = 'sk-1 '",
                '3: [[providers]] "a" api_key must be printable ASCII without spaces or line '
                "breaks",
            ),
            (
                "name = 'a'\nendpoints = ['chat']",
                '3: [[providers]] "a" endpoints must be "chat.completions", "responses", '
                '"embeddings", "models" or "messages", not "chat"',
            ),
            (
                "name = 'a'\nkind = 'anthropic'\nendpoints = ['models']",
                '4: [[providers]] "a" endpoints must hold what kind anthropic serves (messages), '
                "not models",
            ),
            (
                "name = 'a'\nkind = 'demo'\nbase_url = 'http://h'",
                '4: [[providers]] "a" base_url has no meaning for kind demo',
            ),
            (
                "name = 'a'\nusage_in_stream = 'yes'",
                '3: [[providers]] "a" usage_in_stream must be true or false, not "yes"',
            ),
            (
                "name = 'a'\nlabel = 'x'",
                '3: [[providers]] "a" label is not a known key (known: name, '
                "kind, base_url, api_key, endpoints, usage_in_stream, headers)",
            ),
            (
                "name = 'a'\nheaders = { 'x y' = 'v' }",
                '3: [[providers]] "a" headers has the name "x y", which HTTP does not allow',
            ),
            (
                "name = 'a'\nheaders = { Host = 'v' }",
                '3: [[providers]] "a" headers must leave the header Host to xgw',
            ),
            (
                'name = "a"\nheaders = { x-a = "v\\n" }',
                '3: [[providers]] "a" headers must have printable ASCII values, and x-a has not',
            ),
            ("name = 'a'\nheaders = { x-a = 1 }", '3: [[providers]] "a" headers.x-a must be text'),
            (
                "name = 'a'\n[[providers]]\nname = 'a'",
                '4: [[providers]] "a" name stands twice: also at xgw.toml:2',
            ),
        ],
    )
    def test_of_a_provider(self, mistakes: Mistakes, text: str, line: str) -> None:
        assert mistakes(f"[[providers]]\n{text}\n") == [f"xgw.toml:{line}"]

    @pytest.mark.parametrize(
        ("text", "line"),
        [
            ("targets = ['up/a']", "4: [[routes]] #1 model is missing"),
            ("model = 'm'", '4: [[routes]] "m" targets is missing'),
            ("model = ''\ntargets = ['up/a']", "5: [[routes]] #1 model must not be empty"),
            ("model = 'm'\ntargets = []", '6: [[routes]] "m" targets must not be empty'),
            (
                "model = 'm'\ntargets = 'up/a'",
                '6: [[routes]] "m" targets must be a list, not "up/a"',
            ),
            (
                "model = 'm'\ntargets = ['gpt-4o']",
                '6: [[routes]] "m" targets must hold targets of the form provider/model, '
                'not "gpt-4o"',
            ),
            (
                "model = 'm'\ntargets = ['up/']",
                '6: [[routes]] "m" targets must hold targets of the form provider/model, not "up/"',
            ),
            (
                "model = 'm'\ntargets = ['up/a', 'down/a']",
                '6: [[routes]] "m" targets must name a provider before the /, not "down/a"',
            ),
            (
                "model = 'm'\ntargets = ['openai/a']",
                '6: [[routes]] "m" targets must name a provider before the /, not "openai/a"',
            ),
            (
                "model = 'm'\ntargets = ['up/a']\nfallback_on = ['429', '500']",
                '7: [[routes]] "m" fallback_on must be "connection", "timeout", "429" or "5xx", '
                'not "500"',
            ),
            (
                "model = 'm'\ntargets = ['up/a']\nretry = { max_attempts = 0 }",
                '7: [[routes]] "m" retry.max_attempts must be at least 1, not 0',
            ),
            (
                "model = 'm'\ntargets = ['up/a']\n[[routes]]\nmodel = 'm'\ntargets = ['up/b/c']",
                '8: [[routes]] "m" model stands twice: also at xgw.toml:5',
            ),
        ],
    )
    def test_of_a_route(self, mistakes: Mistakes, text: str, line: str) -> None:
        assert mistakes(f"{UPSTREAM}[[routes]]\n{text}\n") == [f"xgw.toml:{line}"]

    def test_a_route_without_the_key_of_its_provider_says_which(self, mistakes: Mistakes) -> None:
        assert mistakes('[[routes]]\nmodel = "m"\ntargets = ["groq/m"]\n') == [
            'xgw.toml:3: [[routes]] "m" targets must name a provider before the /, '
            'not "groq/m" (GROQ_API_KEY is not set)'
        ]

    def test_single_brackets_are_explained(self, mistakes: Mistakes) -> None:
        assert mistakes('[providers]\nname = "a"\napi_key = "sk-hush-hush"\n') == [
            "xgw.toml:1: [[providers]] must be written with double brackets: [[providers]]"
        ]

    @pytest.mark.parametrize(
        ("text", "line"),
        [
            (
                "[server]\nport 5",
                "2: not valid TOML: expected '=' after a key in a key/value pair (column 6)",
            ),
            ("[server]\nhost = 'x", '2: not valid TOML: expected "\'"'),
            ("[server]\n[server]\n", "2: not valid TOML: cannot declare [server] twice (column 8)"),
            ("[server]\nport = 1\nport = 2", "3: not valid TOML: this key or table stands twice"),
            ("port = [1,\n\n", "1: not valid TOML: invalid value"),
        ],
    )
    def test_toml_that_is_none(self, mistakes: Mistakes, text: str, line: str) -> None:
        assert mistakes(text) == [f"xgw.toml:{line}"]

    def test_toml_nested_beyond_reason(self, mistakes: Mistakes) -> None:
        assert mistakes(f"x = {'[' * 5000}{']' * 5000}") == ["xgw.toml: nested too deeply"]

    def test_all_of_them_are_said_at_once_in_the_order_of_the_file(
        self, mistakes: Mistakes
    ) -> None:
        lines = mistakes(
            '[server]\nport = 99999\nhots = 1\n[storage]\nurl = "mysql://h"\n'
            '[[providers]]\nname = "up"\nkind = "x"\napi_key = "${NONE}"\n'
            '[[routes]]\nmodel = "m"\ntargets = ["gone/x"]\n',
            {"XGW_TOKEN": "a b"},
            overrides={"server.max_calls": 0},
        )
        places = [line.partition(" [")[0] for line in lines]
        assert sorted(places[:2]) == ["--max-calls:", "environment XGW_TOKEN:"]
        assert places[2:] == [f"xgw.toml:{n}:" for n in (2, 3, 5, 8, 9, 12)]

    def test_from_environment_and_flags_name_those(self, mistakes: Mistakes) -> None:
        env = {"XGW_PORT": "http", "XGW_STORAGE_URL": "mysql://u:pw@h/d"}
        assert mistakes("", env, overrides={"server.host": "a b"}) == [
            '--host: [server] host must be an IP address or a host name, not "a b"',
            'environment XGW_PORT: [server] port must be a whole number, not "http"',
            "environment XGW_STORAGE_URL: [storage] url must be sqlite:///path: only SQLite is "
            "supported, not mysql",
        ]

    def test_bytes_of_the_environment_that_are_not_utf_8(self, mistakes: Mistakes) -> None:
        odd = os.fsdecode(b"a\xff://b")
        names = ("XGW_HOST", "XGW_ALLOWED_HOSTS", "XGW_STORAGE_URL")
        lines = mistakes("", dict.fromkeys(names, odd))
        assert [line.partition(":")[0] for line in lines] == [f"environment {n}" for n in names]
        assert all("a?" in line for line in lines)

    def test_secrets_are_never_said(self, mistakes: Mistakes) -> None:
        hidden = "hush-hush-1234"
        text = (
            f'[server]\ntoken = "{hidden} x"\nport = "${{API_TOKEN}}"\n'
            f'[[providers]]\nname = "a"\nbase_url = "${{API_TOKEN}}"\napi_key = ["{hidden}"]\n'
            f'headers = "{hidden}"\n[[keys]]\nkey = ["{hidden}"]\n[keys.x]\ny = "{hidden}"\n'
        )
        lines = mistakes(text, {"API_TOKEN": hidden})
        assert len(lines) == 7
        assert hidden not in "\n".join(lines)

    COMPLETE = (
        '[server]\nhost = "127.0.0.1"\nport = 1\ntoken = "t"\nallowed_hosts = ["a"]\n'
        'heartbeat_seconds = 1\nallowed_origins = ["https://a.test"]\n'
        '[storage]\nurl = "x.db"\ndurability = "full"\n'
        '[gateway]\nmanaged_sessions = true\non_disconnect = "drain"\n'
        'session_sources = ["body:a"]\n[gateway.timeouts]\nidle = 1\n'
        "[gateway.retry]\nmax_attempts = 1\n"
        '[[providers]]\nname = "up"\nkind = "openai"\nbase_url = "http://h.test/v1"\n'
        'api_key = "k"\nendpoints = ["models"]\nusage_in_stream = true\nheaders = { a = "b" }\n'
        '[[providers]]\nname = "demo"\nkind = "demo"\n'
        '[[routes]]\nmodel = "m"\ntargets = ["up/m"]\nretry = { timeouts = true }\n'
        'fallback_on = ["429"]\n[prices.m]\ninput = 1\noutput = 1\n'
        '[[keys]]\nkey = "c"\nproject = "p"\norg = "o"\n'
    )

    @pytest.mark.parametrize(
        "odd",
        [
            '""',
            '"a\\nb\\u0000\\u202e"',
            '"${NONE}"',
            '"${X"',
            '"http://["',
            "5",
            "-1e300",
            "inf",
            "9223372036854775808",
            "true",
            "2020-01-01T00:00:00Z",
            "[]",
            "[[1], {}]",
            '[["up/m"], "\\n", ""]',
            "{}",
            '{ a = [1], name = "up" }',
            "[{ }, 5, { key = 5, name = [1], model = {}, kind = [], endpoints = [[]] }]",
            "[{ targets = [[], {}, 5], headers = [], base_url = [] }]",
        ],
    )
    def test_no_odd_value_anywhere_makes_more_than_lines(self, read: Read, odd: str) -> None:
        tree = tomllib.loads(self.COMPLETE)
        lines = find_lines(self.COMPLETE)
        rows = self.COMPLETE.splitlines()
        changed = {
            "\n".join([*rows[: n - 1], f"{rows[n - 1].partition(' = ')[0]} = {odd}", *rows[n:]])
            for path, n in lines.items()
            if " = " in rows[n - 1] and path in leaves(tree)
        }
        changed |= {f"{start}{name} = {odd}\n" for start in ("", "[server]\n") for name in tree}
        lines_said = [line for text in sorted(changed) for line in said(read, text)]
        assert lines_said
        for line in lines_said:
            assert line.startswith("xgw.toml:")
            assert "\n" not in line
            assert "pydantic" not in line
            assert "another value" not in line


class TestOpenDoor:
    def test_bound_elsewhere_xgw_needs_a_token_and_names(self, mistakes: Mistakes) -> None:
        assert mistakes('[server]\nhost = "0.0.0.0"\n') == [
            "xgw.toml:2: [server] token is needed (or [[keys]], XGW_TOKEN, or a key by "
            '`xgw keys create`) because host "0.0.0.0" is open to other machines',
            "xgw.toml:2: [server] allowed_hosts is needed (or XGW_ALLOWED_HOSTS: the names that "
            'clients use) because host "0.0.0.0" is open to other machines',
        ]

    def test_the_flag_that_opens_it_is_named(self, mistakes: Mistakes) -> None:
        lines = mistakes("", {"XGW_TOKEN": "t"}, overrides={"server.host": "::"})
        assert [line.partition(" is needed")[0] for line in lines] == [
            "--host: [server] allowed_hosts"
        ]

    def test_with_both_it_starts(self, read: Read) -> None:
        env = {"XGW_HOST": "0.0.0.0", "XGW_ALLOWED_HOSTS": "gate.test"}
        assert read(env={**env, "XGW_TOKEN": "t"}).config.server.host == "0.0.0.0"
        assert read('[[keys]]\nkey = "k"\n', env).config.keys[0].project == "default"

    @pytest.mark.parametrize(
        "host", ["127.0.0.1", "127.8.8.8", "localhost", "LOCALHOST", "::1", "[::1]"]
    )
    def test_on_this_machine_alone_neither_is_needed(self, read: Read, host: str) -> None:
        assert read(f'[server]\nhost = "{host}"\n')


class TestShowing:
    TEXT = (
        '[server]\ntoken = "admin-token-1"\nport = 1\n'
        '[[providers]]\nname = "up"\nbase_url = "http://h.test/v1"\napi_key = "up-key-1"\n'
        'headers = { Authorization = "Basic dXNlcjpwdw", x-team = "admin-token-1 too" }\n'
        '[[providers]]\nname = "through"\nbase_url = "http://h.test"\napi_key = "passthrough"\n'
        '[[keys]]\nkey = "${TEAM_KEY}"\norg = "acme"\n'
    )

    def test_secrets_are_masked_and_the_rest_is_shown(self, read: Read) -> None:
        rows = show(read(self.TEXT, {"TEAM_KEY": "team-key-1"}))
        shown = {key: (value, source) for key, value, source in rows}
        assert shown["server.token"] == ('"[masked]"', "xgw.toml:2")
        assert shown["server.port"] == ("1", "xgw.toml:3")
        assert shown["server.heartbeat_seconds"] == ("15", "default")
        assert shown["gateway.managed_sessions"] == ("false", "default")
        assert shown["providers.up.api_key"] == ('"[masked]"', "xgw.toml:7")
        assert shown["providers.up.headers.Authorization"] == ('"[masked]"', "xgw.toml:8")
        assert shown["providers.up.headers.x-team"] == ('"[masked] too"', "xgw.toml:8")
        assert shown["providers.through.api_key"] == ('"passthrough"', "xgw.toml:12")
        assert shown["providers.through.endpoints"][0].startswith('["chat.completions", ')
        assert shown["keys.1.key"] == ('"[masked]"', "xgw.toml:14, environment TEAM_KEY")
        assert shown["keys.1.org"] == ('"acme"', "xgw.toml:15")
        assert shown["storage.url"][0].startswith('"sqlite:///')
        everything = str(rows)
        assert not any(
            secret in everything for secret in ("admin-token", "up-key", "team-key", "dXN")
        )

    def test_all_secrets_are_known_for_masking(self, read: Read) -> None:
        secrets = read(self.TEXT, {"TEAM_KEY": "team-key-1"}).config.secrets()
        assert secrets == (
            "Basic dXNlcjpwdw",
            "admin-token-1",
            "dXNlcjpwdw",
            "team-key-1",
            "up-key-1",
        )
        assert masking.Masker(secrets).text("up-key-1 team-key-1") == "[masked] [masked]"

    def test_a_configuration_in_a_log_shows_none(self, read: Read) -> None:
        config = read(self.TEXT, {"TEAM_KEY": "team-key-1"}).config
        assert not any(secret in repr(config) for secret in config.secrets())


class TestAgents:
    def test_where_the_demo_serves_and_no_agent_is_defined_there_is_one(self, read: Read) -> None:
        loaded = read("")
        assert list(loaded.config.agents) == ["demo"]
        agent = loaded.config.agents["demo"]
        assert (agent.model, len(agent.tools)) == ("demo/demo", 3)
        assert loaded.sources["agents.demo.model"] == "default"

    def test_there_is_none_beside_others_nor_where_the_demo_does_not_serve(
        self, read: Read
    ) -> None:
        defined = '[agents.mine]\nmodel = "m"\n'
        assert list(read(defined).config.agents) == ["mine"]
        assert read("", {"OPENAI_API_KEY": "sk-1"}).config.agents == {}

    def test_paths_are_relative_to_the_file(self, read: Read, tmp_path: Path) -> None:
        here = tmp_path / "here"
        (here / "prompts").mkdir(parents=True)
        (here / "prompts" / "a.md").write_text("Be brief.")
        (here / "orders.py").write_text("def status(): ...")
        text = (
            '[agents.a]\nmodel = "m"\ninstructions_file = "prompts/a.md"\ntools = ["orders"]\n'
            '[tools.orders]\npython = "orders.py:status"\n'
        )
        config = read(text).config
        assert config.agents["a"].instructions_file == str(here / "prompts" / "a.md")
        assert config.tools["orders"].python == f"{here / 'orders.py'}:status"

    def test_files_that_are_not_there_are_mistakes(
        self, mistakes: Mistakes, tmp_path: Path
    ) -> None:
        text = (
            '[agents.a]\nmodel = "m"\ninstructions_file = "gone.md"\n'
            '[tools.orders]\npython = "gone.py:status"\n'
        )
        here = tmp_path / "here"
        file, tool = mistakes(text)
        begin = "must name a file: there is no"
        assert file == f"xgw.toml:3: [agents.a] instructions_file {begin} {here / 'gone.md'}"
        assert tool == f"xgw.toml:5: [tools.orders] python {begin} {here / 'gone.py'}"

    def test_a_mode_may_have_iterations_of_its_own(self, read: Read) -> None:
        text = (
            '[agents.a]\nmodel = "m"\n[agents.a.limits]\nmax_iterations = 4\n'
            "[agents.a.modes.task]\nmax_iterations = 9\n"
        )
        agent = read(text).config.agents["a"]
        assert (agent.max_iterations("chat"), agent.max_iterations("task")) == (4, 9)


class TestDocumentation:
    TEXT = (Path(__file__).parent.parent / "docs/configuration.md").read_text("utf-8")

    def test_its_example_is_valid(self, read: Read) -> None:
        example = self.TEXT.rpartition("```toml\n")[2].partition("```")[0]
        names = ("XGW_TOKEN", "OPENAI_API_KEY", "BACKUP_KEY", "TEAM_KEY")
        config = read(example, {name: f"{name}-value" for name in names}).config
        assert config.routes[0].targets == ("openai/gpt-4o", "backup/gpt-4o-mini")

    def test_it_names_every_key_and_variable(self) -> None:
        tables = (Server, Storage, Gateway, Timeouts, Retry, Provider, Route, Price, ClientKey)
        keys = {key for table in tables for key in table.model_fields} - {"timeouts", "retry"}
        assert [key for key in sorted(keys) if f"`{key}`" not in self.TEXT] == []
        assert [name for name in VARIABLES.values() if f"`{name}`" not in self.TEXT] == []

    def test_it_gives_the_defaults_in_force(self, read: Read) -> None:
        for key, value, _ in show(read()):
            last = key.rpartition(".")[2]
            if key.startswith(("server", "gateway")) and not key.endswith("_sources"):
                assert re.search(rf"^\| `{last}` \| `{re.escape(value)}` ", self.TEXT, re.MULTILINE)


def leaves(value: Any, path: KeyPath = ()) -> dict[KeyPath, Any]:
    """Every value of a TOML tree by its path, tables and lists included."""
    parts: Any = ()
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list):
        parts = enumerate(value)
    found = {path: value} if path else {}
    for key, part in parts:
        found |= leaves(part, (*path, key))
    return found


def test_every_value_of_a_toml_file_is_found_at_its_line() -> None:
    text = '''# [no.table]
top = 1  # "x" = 2
"quoted.key" = 'a # b' # c
a.b . "c d" = [ 1, "two, ]", # three
  [ 4, { x = 5, y = [6] } ],
  """
multi ] "quoted" \\""" # line""", 7,
]
many = """
[not.a.table]
key = 1
"""
raw = \'\'\'a\\
'b' = ''\'\'\'
[ table . sub ]   # x
empty = {}
none = []
date = 1979-05-27T07:32:00Z
inline = { a.b = 1, "c" = { d = "}" } }
[[array]]
n = 0
[array.child]
deep = true
[[array.list]]
m = 1
[[array.list]]
m = 2
[[array]]
n = 10
[array.child]
deep = false
[table]
late = 1
'''
    tree = tomllib.loads(text)
    lines = find_lines(text)
    assert lines.keys() == leaves(tree).keys()
    for path, line in {
        ("top",): 2,
        ("quoted.key",): 3,
        ("a", "b", "c d"): 4,
        ("a", "b", "c d", 2, 1, "y", 0): 5,
        ("a", "b", "c d", 3): 6,
        ("a", "b", "c d", 4): 7,
        ("many",): 9,
        ("raw",): 13,
        ("table", "sub"): 15,
        ("table", "sub", "inline", "c", "d"): 19,
        ("array", 0, "n"): 21,
        ("array", 0, "child", "deep"): 23,
        ("array", 0, "list", 1, "m"): 27,
        ("array", 1, "child", "deep"): 31,
        ("table", "late"): 33,
    }.items():
        assert lines[path] == line, path


@pytest.mark.parametrize("table", [n for n, v in Config() if isinstance(v, BaseModel)])
def test_every_table_says_which_key_it_does_not_know(
    read: Callable[..., Loaded], table: str
) -> None:
    with pytest.raises(UsageError) as refused:
        read(f"[{table}]\nthat_is_none = 2\n")
    assert f"xgw.toml:2: [{table}] that_is_none is not a known key (" in str(refused.value)
