"""What an export masks, wherever it hides, and what it leaves as it was, to the byte."""

from __future__ import annotations

import base64
import json
import random
import uuid
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from planted import BASIC, HOMES, KEYS, NAMED, PASSWORD, PEOPLE
from xgw.portable.redaction import Redactor, shapes

ROOT = Path(__file__).parent.parent
AT = ("messages", "msg_1", "content")
HEX = "0123456789abcdef" * 4
RESTS = (
    *(HEX[:size] for size in (20, 32, 35, 40, 64)),
    *(HEX[:size].upper() for size in (16, 27, 64)),
    *("pt_" + HEX, "b-" + HEX, "1-" + HEX, f"{HEX[:20]}.{HEX[:20]}", f"{HEX[:24]}-{HEX[:34]}"),
    *(f"services/{HEX}", f"{'1234567890' * 2}/{HEX}", f"12345678:{HEX}", f"{HEX}.{HEX}.{HEX}"),
)
"""What may follow on the first letters of a key."""


def masked(text: str, *patterns: str) -> str:
    return Redactor(patterns).text(text, AT)


def masked_body(raw: bytes | str) -> str:
    given = raw.encode() if isinstance(raw, str) else raw
    return Redactor().body(given, AT)[0].decode()


def escaped(text: str) -> str:
    return "".join(f"\\u{ord(character):04x}" for character in text)


class TestText:
    @pytest.mark.parametrize("kind", KEYS)
    def test_keys_are_known_by_their_shape(self, kind: str) -> None:
        placeholder = "[private-key-1]" if kind == "pem" else "[key-1]"
        for around in ("it is {} there", "({})", '"{}"', "x={}", "key:{}", "{}."):
            assert masked(around.format(KEYS[kind])) == around.format(placeholder)

    def test_keys_of_every_shape(self) -> None:
        for begin, rest in shapes._KNOWN:
            key = begin + next(one for one in RESTS if rest.fullmatch(one))
            assert key not in masked(f"it is {key}, there"), begin
            assert key not in masked_body(json.dumps({"content": f"\n{key}\n"})), begin

    @pytest.mark.parametrize("kind", PEOPLE)
    def test_people(self, kind: str) -> None:
        placeholder = f"[{kind.split()[0]}-1]"
        for around in ("reach {} today", "<{}>", "{}, or", '"{}"'):
            assert masked(around.format(PEOPLE[kind])) == around.format(placeholder)

    @pytest.mark.parametrize("kind", HOMES)
    def test_names_of_home_folders(self, kind: str) -> None:
        path, name = HOMES[kind]
        assert masked(f"open {path} now") == f"open {path} now".replace(name, "[user-1]")

    @pytest.mark.parametrize("kind", NAMED)
    def test_what_the_text_names(self, kind: str) -> None:
        told = masked(NAMED[kind])
        assert PASSWORD not in told
        assert "-1]" in told

    def test_the_secret_of_an_access_key(self) -> None:
        secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
        assert masked(f"{KEYS['aws id']} {secret}") == "[key-1] [secret-1]"

    def test_basic_authentication(self) -> None:
        assert masked(f"Basic {BASIC}") == "Basic [secret-1]"
        assert masked("Basic functions of basic authentication") == (
            "Basic functions of basic authentication"
        )

    def test_escapes_hide_nothing(self) -> None:
        assert masked("write to ada%40example.com") == "write to [email-1]"
        assert masked(r"say ada\u0040example.com") == "say [email-1]"
        assert masked("a &#64; b ada&#64;example.com") == "a &#64; b [email-1]"
        assert masked("open file:%2F%2F%2Fhome%2Fadalove%2Fx") == (
            "open file:%2F%2F%2Fhome%2F[user-1]%2Fx"
        )

    def test_the_same_value_is_the_same_placeholder(self) -> None:
        redactor = Redactor()
        first = redactor.text("ada@example.com and bob@example.com", AT)
        second = redactor.value({"to": "bob@example.com", "cc": ["ada%40example.com"]}, AT)
        assert first == "[email-1] and [email-2]"
        assert second == {"to": "[email-2]", "cc": ["[email-1]"]}

    def test_a_password_is_known_without_its_name_from_then_on(self) -> None:
        told = masked(f'{{"password": "{PASSWORD}", "note": "I typed {PASSWORD}."}}')
        assert told == '{"password": "[secret-1]", "note": "I typed [secret-1]."}'

    def test_configured_patterns(self) -> None:
        assert masked("ACME-12, ACME-7", r"ACME-\d+") == "[pattern-1], [pattern-2]"
        assert (
            masked("half \ud83d an emoji ACME-1", r"ACME-\d+") == "half \ud83d an emoji [pattern-1]"
        )

    def test_a_pattern_cannot_take_long(self) -> None:
        text = "a" * 20_000 + "!"
        assert masked(text, r"(a+)+$") == text

    def test_masking_twice_is_masking_once(self) -> None:
        texts = [
            *KEYS.values(),
            *PEOPLE.values(),
            *NAMED.values(),
            *(path for path, _ in HOMES.values()),
        ]
        for text in texts:
            once = masked(f"see {text} there")
            assert masked(once) == once
        assert masked("[email-1]", r"\w+-\d+") == "[email-1]"

    def test_placeholders_of_an_earlier_masking_are_not_given_again(self) -> None:
        redactor = Redactor(taken=["[email-1]"])
        assert redactor.text("[email-1] ada@example.com", AT) == "[email-1] [email-2]"

    def test_a_placeholder_that_a_text_has_by_itself_stands_for_nothing_else(self) -> None:
        redactor = Redactor()
        text = "[email-1] is [email-3], not ann@example.com nor ada@example.com"
        redactor.text(text, AT)
        assert redactor.is_outdated
        again = redactor.renewed()
        told = again.text(text, AT)
        assert told == "[email-1] is [email-3], not [email-2] nor [email-4]"
        assert not again.is_outdated

    def test_thousands_of_placeholders_in_texts(self) -> None:
        redactor = Redactor()
        text = " ".join(f"[key-{number}]" for number in range(1, 20_000, 2))
        redactor.text(f"{text} {KEYS['openai']} {KEYS['github']}", AT)
        assert redactor.is_outdated
        again = redactor.renewed()
        told = again.text(f"{text} {KEYS['openai']} {KEYS['github']}", AT)
        assert told == f"{text} [key-20000] [key-20001]"
        assert not again.is_outdated

    def test_masking_is_done_again_for_what_stood_before_its_name_alone(self) -> None:
        for first, then, outdated in (
            (f"it was {PASSWORD}", f"password={PASSWORD}", True),
            (f"password={PASSWORD}", f"it was {PASSWORD}", False),
            (f"{escaped(PASSWORD)}", f"password={PASSWORD}", True),
            ("nothing", f"{PASSWORD} password={PASSWORD}", False),
        ):
            redactor = Redactor()
            with redactor.listening():
                redactor.text(first, AT)
                redactor.text(then, AT)
            assert redactor.is_outdated is outdated, (first, then)

    def test_off(self) -> None:
        redactor = Redactor(on=False)
        assert redactor.text(KEYS["openai"], AT) == KEYS["openai"]
        assert redactor.body(b"ada@example.com", AT) == (b"ada@example.com", [])
        assert redactor.report() == []


@pytest.mark.parametrize(
    "part",
    [
        *("sk-", "-eyJ", "eyJaaaaaaaa.", "authorization:", "a_key=", 'key="', "a@", "@a.b", "+1"),
        *("4111 ", "-----BEGIN PRIVATE KEY-----", "AKIA ", "/home/", "<a>", "://a:", "tel "),
        *('{"a":', "\\u0040", "Bearer ", "[email-1] a@b.co ", "cookie: a=b; "),
    ],
)
def test_no_text_takes_long(part: str) -> None:
    """What took the square of its length would take minutes."""
    text = part * (60_000 // len(part))
    assert len(masked(text)) == len(masked_body(text))


class TestJson:
    @pytest.mark.parametrize("text", [*KEYS.values(), *PEOPLE.values(), *NAMED.values()])
    def test_in_strings_in_strings(self, text: str) -> None:
        inner = json.dumps({"text": f"see {text}", "n": 1})
        body = json.dumps({"tool_calls": [{"function": {"arguments": inner}}]}, indent=2)
        told = masked_body(body)
        inside = json.loads(json.loads(told)["tool_calls"][0]["function"]["arguments"])
        assert inside == {"text": Redactor().text(f"see {text}", AT), "n": 1}
        assert inside["text"] != f"see {text}"

    @pytest.mark.parametrize("text", [KEYS["openai"], PEOPLE["email"], KEYS["github"]])
    def test_escaped_whole(self, text: str) -> None:
        told = masked_body(f'{{"a": "x {escaped(text)} \\n y", "b": 1.50}}')
        assert json.loads(told)["a"].startswith("x [")
        assert told.endswith(' \\n y", "b": 1.50}')

    @pytest.mark.parametrize(
        "name",
        ["password", "Password", "db_password", "dbPassword", "client-secret", "apiKey", "API_KEY"],
    )
    def test_names_of_fields(self, name: str) -> None:
        assert "swordfish" not in masked_body(json.dumps({"a": {name: "sword swordfish"}}))
        assert Redactor().value({name: "swordfish"}, AT)[name].endswith("-1]")
        assert "swordfish" not in masked_body(json.dumps({"args": json.dumps({name: "swordfish"})}))

    @pytest.mark.parametrize(
        "name",
        ["x-api-key", "secret", "secretAccessKey", "access_token", "authorization", "passphrase"],
    )
    def test_more_names_of_fields(self, name: str) -> None:
        assert Redactor().value({"a": [{name: "swordfish"}]}, AT)["a"][0][name].endswith("-1]")

    def test_numbers_and_lists_by_their_names(self) -> None:
        body = (
            '{"password": 12345, "card_number":4111111111111111, "secrets": ["ab", "cd"], "n": 7}'
        )
        told = (
            '{"password": "[secret-1]", "card_number":"[card-1]",'
            ' "secrets": ["[secret-2]", "[secret-3]"], "n": 7}'
        )
        assert masked_body(body) == told
        inner = json.dumps({"arguments": body})
        assert json.loads(json.loads(masked_body(inner))["arguments"]) == json.loads(told)

    def test_pairs_of_headers(self) -> None:
        body = (
            '[["authorization","Bearer abc12345"],["accept","*/*"],{"name":"Cookie","value":"%s"}]'
        )
        told = masked_body(body % "a=1b")
        assert told == body.replace("abc12345", "[key-1]") % "[cookie-1]"

    def test_the_rest_keeps_its_spelling(self) -> None:
        body = b'{ "b":1.0e5,\t"a" : "\\u00e9 \\/ ada@example.com \\ud83d","b":1.0E+5 }\r\n'
        told = b'{ "b":1.0e5,\t"a" : "\\u00e9 \\/ [email-1] \\ud83d","b":1.0E+5 }\r\n'
        assert Redactor().body(body, AT)[0] == told

    def test_what_is_cut_off_is_masked_too(self) -> None:
        assert masked_body('{"a": {"password": "swordfi') == '{"a": {"password": "[secret-1]'
        assert masked_body('[INFO] mail "x" to ada@example.com') == '[INFO] mail "x" to [email-1]'

    def test_bytes_that_are_no_text(self) -> None:
        raw = b"\xff\xfe ada@example.com \xed\xa0\x80"
        assert Redactor().body(raw, AT)[0] == b"\xff\xfe [email-1] \xed\xa0\x80"


class TestHeadersAndUrls:
    def test_headers(self) -> None:
        given = [
            ["Authorization", "Bearer abc"],
            ["Cookie", "a=b"],
            ["X-Api-Key", "[masked]"],
            ["Location", "https://u:pw@h.example/?token=x&n=1"],
            ["x-request-id", "req_0123"],
        ]
        told = Redactor().headers(given, AT)
        assert told == [
            ["Authorization", "Bearer [key-1]"],
            ["Cookie", "[cookie-1]"],
            ["X-Api-Key", "[masked]"],
            ["Location", "https://[user-1]:[secret-1]@h.example/?token=[key-2]&n=1"],
            ["x-request-id", "req_0123"],
        ]
        assert Redactor().headers({"Api-Key": "k"}, AT) == {"Api-Key": "[key-1]"}

    def test_urls(self) -> None:
        assert Redactor().url("/v1/x?key=abc&alt=sse", AT) == "/v1/x?key=[key-1]&alt=sse"


def chunk(delta: dict[str, Any], index: int = 0) -> str:
    choice = {"index": index, "delta": delta, "finish_reason": None}
    return f"data: {json.dumps({'id': 'chatcmpl-1', 'choices': [choice]})}\n\n"


def deltas(stream: str, index: int = 0) -> list[dict[str, Any]]:
    events = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: {")]
    choices = [choice for event in events for choice in event["choices"]]
    return [choice["delta"] for choice in choices if choice["index"] == index]


class TestStreams:
    def test_a_text_in_pieces(self) -> None:
        pieces = ["Write to ad", "a@exam", "ple", ".com or use sk-pro", "j-abcdEF123456", " now"]
        stream = "".join(chunk({"content": piece}) for piece in pieces) + "data: [DONE]\n\n"
        told = deltas(masked_body(stream))
        assert [delta["content"] for delta in told] == [
            "Write to [email-1]",
            "",
            "",
            " or use [key-1]",
            "",
            " now",
        ]

    def test_arguments_in_pieces(self) -> None:
        arguments = json.dumps({"url": "x", "password": 'sw"ord\\fish', "n": 1})
        first = {
            "tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "f"}}]
        }
        stream = chunk(first) + "".join(
            chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
            for piece in arguments
        )
        told = deltas(masked_body(stream))[1:]
        parts = [delta["tool_calls"][0]["function"]["arguments"] for delta in told]
        assert json.loads("".join(parts)) == {"url": "x", "password": "[secret-1]", "n": 1}

    def test_chunks_that_look_alike_and_others_between_them(self) -> None:
        """Each is read as it is, whatever was read before it."""
        plain, named = {"content": "it "}, {"content": "is ", "password": PASSWORD}
        deltas = [plain, plain, plain, named, named, named, plain, {"content": PEOPLE["email"]}]
        for delta in (*deltas, {**plain, "note": "x"}, {**plain, "note": PEOPLE["email"]}):
            assert PASSWORD not in masked_body(chunk(plain) * 3 + chunk(delta) * 3)
        told = masked_body("".join(map(chunk, deltas)))
        assert told.count("[secret-1]") == 3
        assert told.count('"it "') == 4
        assert told.count("[email-1]") == 1
        cut = chunk(plain) * 3 + chunk(plain)[:-9] + PEOPLE["email"] + "\n\n" + chunk(plain)
        assert PEOPLE["email"] not in masked_body(cut)
        clean = chunk({"content": "\n@app.route\n@cache.it"})
        for end in range(len(clean) - 2):
            assert masked_body(clean + clean[:end]) == clean + clean[:end]

    def test_texts_of_several_choices_and_calls_do_not_mix(self) -> None:
        stream = chunk({"content": "ada@"}) + chunk({"content": "bob@"}, 1)
        stream += chunk({"content": "example.com"}) + chunk({"content": "example.org"}, 1)
        told = masked_body(stream)
        assert [delta["content"] for delta in deltas(told)] == ["[email-1]", ""]
        assert [delta["content"] for delta in deltas(told, 1)] == ["[email-2]", ""]

    def test_other_dialects(self) -> None:
        events = [
            {"type": "response.output_text.delta", "item_id": "a", "delta": "ada@exa"},
            {"type": "response.output_text.delta", "item_id": "b", "delta": "mple.com"},
            {"type": "response.output_text.delta", "item_id": "a", "delta": "mple.com"},
            {"type": "response.output_text.done", "item_id": "a", "text": "ada@example.com"},
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"partial_json": '{"password":"sw'},
            },
            {"type": "content_block_delta", "index": 0, "delta": {"partial_json": 'ordfish"}'}},
        ]
        stream = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events)
        told = masked_body(stream)
        lines = [json.loads(line[6:]) for line in told.splitlines() if line.startswith("data: ")]
        assert [e.get("delta", e.get("text")) for e in lines] == [
            "[email-1]",
            "mple.com",
            "",
            "[email-1]",
            {"partial_json": '{"password":"[secret-1]'},
            {"partial_json": '"}'},
        ]

    def test_frames_move_with_what_was_changed(self) -> None:
        events = [chunk({"content": piece}) for piece in ("é ada@", "example.com", " and more")]
        raw = [event.encode() for event in events]
        frames = [[0, 5], [len(raw[0]), 9], [len(raw[0]) + len(raw[1]), 12]]
        redactor = Redactor()
        told, edits = redactor.body(b"".join(raw), AT)
        after = redactor.moved(frames, edits)
        starts = [place for place, _ in after]
        assert [told[start : start + 6] for start in starts] == [b"data: "] * 3
        assert [at for _, at in after] == [5, 9, 12]


class TestReport:
    def test_what_how_often_and_where(self) -> None:
        redactor = Redactor()
        for number in range(25):
            redactor.text(
                "ada@example.com, ada@example.com", ("messages", f"msg_{number}", "content")
            )
        redactor.headers(
            [["authorization", "Bearer abc"]], ("request_logs", "req_1", "request_headers")
        )
        email, key = redactor.report()
        assert (email["kind"], email["placeholder"], email["count"]) == ("email", "[email-1]", 50)
        assert len(email["places"]) == 20
        assert email["more"] == 5
        assert email["places"][0] == {"table": "messages", "id": "msg_0", "field": "content"}
        assert key == {
            "kind": "key",
            "placeholder": "[key-1]",
            "count": 1,
            "places": [{"table": "request_logs", "id": "req_1", "field": "request_headers"}],
        }


def clean_texts() -> list[str]:
    """Code, prose and figures of which nothing is secret."""
    rng = random.Random(7)
    image = base64.b64encode(rng.randbytes(60_000)).decode()
    ids = [str(uuid.UUID(int=rng.getrandbits(128))) for _ in range(300)]
    hashes = [
        sha256(str(n).encode()).hexdigest()[: rng.choice([7, 32, 40, 64])] for n in range(300)
    ]
    numbers = [[rng.random(), rng.getrandbits(60), 1718000000 + n, 256.512] for n in range(300)]
    usage = {
        "prompt_tokens": 12,
        "total_tokens": 20,
        "max_tokens": 4096,
        "token_source": "provider",
    }
    logprobs = [
        {"token": " international", "logprob": -0.1, "bytes": [1]},
        {"token": "2024x-11-30ab", "logprob": -1},
    ]
    schema = {
        "properties": {"password": {"type": "string"}, "api_key": {"type": "string"}},
        "required": ["password", "token"],
    }
    keys = {"session_key": "user-42-chat", "prompt_cache_key": "a-12-b-34", "next_token": "abc"}
    return [
        json.dumps({"image_url": {"url": f"data:image/png;base64,{image}"}}),
        json.dumps(ids, indent=1),
        json.dumps(hashes),
        json.dumps(numbers),
        json.dumps({"usage": usage, "logprobs": {"content": logprobs}, "schema": schema}),
        json.dumps(keys),
        "2024-11-30T12:00:00.123456Z 2024-11-30 12:00:00 +0200 10.0.0.1 192.168.100.200:80 v1.23.4",
        "sk-circle-fade-dot, task-force-something-long, risk-averse-investors, logo@2x.png",
        "git clone git@github.com:owner/repo.git && npm i react@18.2.0 @types/node",
        "if password == expected: raise ValueError('a password must have 8 characters or more')",
        "def login(user: str, password: str, token: str | None = None) -> Token: ...",
        "api_key=os.environ['OPENAI_API_KEY'], token=self._token, secret=config.secret)",
        "const { password, apiKey } = props; fetch(url, { credentials: 'include', token: token })",
        'OPENAI_API_KEY=$OPENAI_API_KEY TOKEN=${TOKEN} api_key = "<your key>" PASSWORD=',
        "authorization_alg_values: array(string2()).optional(), x_secret: string2().optional(),",
        "return this.flowKey=!0,yield*this.parseQuotedScalar();case`:`:{let e=this.char",
        "\n_cookie_no_quote = re.compile(r'[\\w!#$%&]')\nOPENAI_API_KEY=unused python app.py",
        "Bearer tokens and basic authentication: the Authorization header has them. Cookie: yes.",
        "1 234 567 890 people, +1 234 567 more, 128 256 512 1024 2048, call_0123456789",
        "order 4111111111111112, id 4111111111111111222, x4111111111111111, 4111-1111-1111-1111-22",
        "sess_0193f1c2a4b5c6d7e8f90a1b2c3d4e5f https://example.com/home/products?page=2&sort_key=n",
        '{"token": 5, "secret": "", "password": null, "api_key": "[masked]", "pin": 13}',
    ]


class TestCleanText:
    @pytest.mark.parametrize("text", clean_texts())
    def test_is_changed_nowhere(self, text: str) -> None:
        redactor = Redactor()
        assert redactor.text(text, AT) == text
        assert redactor.body(text.encode(), AT) == (text.encode(), [])
        wrapped = json.dumps({"content": text, "arguments": json.dumps({"x": text})})
        assert redactor.body(wrapped.encode(), AT) == (wrapped.encode(), [])
        stream = "".join(
            chunk({"content": text[at : at + 9]}) for at in range(0, len(text[:3000]), 9)
        )
        assert redactor.body(stream.encode(), AT) == (stream.encode(), [])
        assert redactor.report() == []

    @pytest.mark.parametrize("folder", ["xgw/gateway", "xgw/recording", "xgw/queries", "xgw/hub"])
    def test_programs(self, folder: str) -> None:
        for path in sorted((ROOT / folder).glob("*.py")):
            text = path.read_text()
            assert masked(text) == text, path.name
            assert masked_body(json.dumps({"content": text})) == json.dumps({"content": text})

    def test_pages(self) -> None:
        for path in sorted((ROOT / "static").glob("*.css")):
            text = path.read_text()
            assert masked(text) == text, path.name
