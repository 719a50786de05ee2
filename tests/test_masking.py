"""What is taken out before anything is stored or shown, and what must stay as it was."""

from __future__ import annotations

import json

import pytest

from xgw.config import is_credential_name
from xgw.credential_fields import USUAL
from xgw.masking import MASK, Masker

KEY = "pk-upstream-SECRET-0001"
OPENAI_KEY = "sk-proj-" + "aB3_dEf7-" * 17 + "wxyz"
ODD_KEY = 'od/d"key\\with+all=of~it'
MASKER = Masker([KEY, OPENAI_KEY, ODD_KEY, "passthrough", "test", "ollama"])


def masked_body(text: str) -> str:
    return MASKER.body(text.encode()).decode()


class TestNames:
    @pytest.mark.parametrize(
        "name",
        [
            "authorization",
            "Authorization",
            "Proxy-Authorization",
            "cf-aig-authorization",
            "x-api-key",
            "X_API_KEY",
            "api-key",
            "api_key",
            "apikey",
            "apiKey",
            "APIKey",
            "OPENAI_API_KEY",
            "x-goog-api-key",
            "Ocp-Apim-Subscription-Key",
            "x-xgw-key",
            "cookie",
            "Cookie2",
            "Set-Cookie",
            "token",
            "access_token",
            "accessToken",
            "accesstoken",
            "refresh_token",
            "x-auth-token",
            "x-amz-security-token",
            "aws_session_token",
            "secret",
            "client_secret",
            "clientSecret",
            "cf-access-client-secret",
            "password",
            "db.password",
            "passwd",
            "helicone-auth",
            "credentials",
        ],
    )
    def test_carry_credentials(self, name: str) -> None:
        assert is_credential_name(name)

    @pytest.mark.parametrize(
        "name",
        [
            "",
            "-",
            "key",
            "keys",
            "content-type",
            "Idempotency-Key",
            "X-Idempotency-Key",
            "prompt_cache_key",
            "session_key",
            "turn-key",
            "Sec-WebSocket-Key",
            "max_tokens",
            "max_completion_tokens",
            "x-ratelimit-remaining-tokens",
            "anthropic-ratelimit-tokens-limit",
            "eos_token",
            "next_page_token",
            "monkey",
            "author",
            "authority",
            "tokenizer",
            "secretary",
            "WWW-Authenticate",
            "x-request-id",
            "user",
            "k" * 1000 + "_token",
        ],
    )
    def test_are_ordinary(self, name: str) -> None:
        assert not is_credential_name(name)

    @pytest.mark.parametrize("name", sorted(USUAL))
    def test_of_most_bodies_are_ordinary(self, name: str) -> None:
        assert not is_credential_name(name)


class TestHeaders:
    def test_credentials_are_masked_whole_and_order_stays(self) -> None:
        given = [
            ("Authorization", "Bearer xk-client-test"),
            ("accept", "text/event-stream"),
            ("X-API-Key", "hk-1"),
            ("set-cookie", "a=1; Path=/"),
            ("Set-Cookie", "b=2"),
            ("Idempotency-Key", "abc"),
            ("x-ratelimit-remaining-tokens", "149984"),
        ]
        assert MASKER.headers(given) == [
            ["Authorization", MASK],
            ["accept", "text/event-stream"],
            ["X-API-Key", MASK],
            ["set-cookie", MASK],
            ["Set-Cookie", MASK],
            ["Idempotency-Key", "abc"],
            ["x-ratelimit-remaining-tokens", "149984"],
        ]

    def test_a_configured_key_is_masked_in_any_header(self) -> None:
        assert MASKER.headers([("x-debug", f"key={KEY}; a"), ("x-other", "b")]) == [
            ["x-debug", f"key={MASK}; a"],
            ["x-other", "b"],
        ]

    def test_addresses_in_headers_lose_their_credentials(self) -> None:
        given = [("Referer", "http://u:p@h/?token=abc&x=1"), ("Location", "/next?key=1")]
        assert MASKER.headers(given) == [
            ["Referer", f"http://h/?token={MASK}&x=1"],
            ["Location", f"/next?key={MASK}"],
        ]

    def test_none_stay_none(self) -> None:
        assert MASKER.headers([]) == []


class TestUrls:
    @pytest.mark.parametrize(
        ("url", "masked"),
        [
            ("https://h/v1/models", "https://h/v1/models"),
            ("https://h/v1?a=b&c=%20d&e", "https://h/v1?a=b&c=%20d&e"),
            ("https://user:pw@h:1/v1", "https://h:1/v1"),
            ("https://us@er:p@ss@h/v1?x=a@b", "https://h/v1?x=a@b"),
            ("//user:pw@h/v1", "//h/v1"),
            ("/v1/x?key=qk-SECRET-2&x=1", f"/v1/x?key={MASK}&x=1"),
            ("/v1/x?x=1;token=a;y=2", f"/v1/x?x=1;token={MASK};y=2"),
            ("/v1?api%5Fkey=a", f"/v1?api%5Fkey={MASK}"),
            ("/v1?API-KEY=a=b", f"/v1?API-KEY={MASK}"),
            ("/v1?key=&token", f"/v1?key={MASK}&token"),
            ("/b?sig=abc&X-Amz-Signature=def", f"/b?sig={MASK}&X-Amz-Signature={MASK}"),
            ("/cb#access_token=abc&state=1", f"/cb#access_token={MASK}&state=1"),
            ("/v1?max_tokens=5&idempotency_key=6", "/v1?max_tokens=5&idempotency_key=6"),
            (f"/v1/{KEY}/x", f"/v1/{MASK}/x"),
            ("/v1?q=od%2Fd%22key%5Cwith%2Ball%3Dof~it", f"/v1?q={MASK}"),
            ("", ""),
            ("/a@b", "/a@b"),
            ("mailto:a@b", "mailto:a@b"),
        ],
    )
    def test_lose_credentials_and_nothing_else(self, url: str, masked: str) -> None:
        assert MASKER.url(url) == masked


class TestBodies:
    def test_credentials_at_the_top_level_are_masked(self) -> None:
        body = '{"model":"m","api_key":"bk-1","x_note":"keep me","clientSecret":"s","token":""}'
        assert masked_body(body) == body.replace('"bk-1"', f'"{MASK}"').replace(
            '"s"', f'"{MASK}"'
        ).replace('"token":""', f'"token":"{MASK}"')

    @pytest.mark.parametrize(
        "body",
        [
            '{"a":{"api_key":"nested stays"},"b":[{"token":"stays"}],"key":"stays"}',
            '{"token":5,"secret":null,"password":["x"],"cookie":{"a":"b"},"api_key":true}',
            '{"max_tokens":1.0,"max_completion_tokens":10,"prompt_cache_key":"pc"}',
            '["api_key","x"]',
            '[{"api_key":"x"}]',
            '"api_key"',
            '{"note":"api_key\\":\\"x"}',
            '{"x":"api_key","y":"z"}',
            "",
            "   ",
            "null",
            "api_key=x",
            '{ "u" : "\\u00e9\\u003c" ,\n "n":1e400, "d":1,"d":2 , "f":-0.00 }\n',
        ],
    )
    def test_everything_else_stays_byte_for_byte(self, body: str) -> None:
        assert masked_body(body) == body

    def test_around_a_mask_everything_stays_byte_for_byte(self) -> None:
        body = (
            '\n{ "b" :1.00 ,"api_key"\t:\r\n "a\\"b\\\\" , "a":[ 1e5,"\\/" ],"z":"é\\u00e9",'
            '"api_key":"twice","A":{"api_key":"stays"}, "api\\u005fkey" : "escaped" } \n'
        )
        assert masked_body(body) == body.replace('"a\\"b\\\\"', f'"{MASK}"').replace(
            '"twice"', f'"{MASK}"'
        ).replace('"escaped"', f'"{MASK}"')

    def test_bytes_that_are_not_utf_8_stay(self) -> None:
        body = b'{"x":"\xff\xfe","api_key":"k"}'
        assert MASKER.body(body) == b'{"x":"\xff\xfe","api_key":"[masked]"}'

    @pytest.mark.parametrize(
        ("body", "masked"),
        [
            ('{"a":NaN,"api_key":"k"}', '{"a":NaN,"api_key":"[masked]"}'),
            ('{"a":1,,"api_key":"k",]', '{"a":1,,"api_key":"[masked]",]'),
            ('{"api_key":"broken o', '{"api_key":"[masked]'),
            ('{"api_key":"k"} trailing', '{"api_key":"[masked]"} trailing'),
            ('\ufeff{"api_key":"k"}', '\ufeff{"api_key":"[masked]"}'),
            ('{"api_key":', '{"api_key":'),
            ('{"api_key', '{"api_key'),
            ("{", "{"),
        ],
    )
    def test_a_broken_body_is_masked_too(self, body: str, masked: str) -> None:
        assert masked_body(body) == masked

    def test_a_body_as_deep_as_any_is_masked_too(self) -> None:
        deep = "[" * 100_000 + "]" * 100_000
        assert masked_body(f'{{"a":{deep},"api_key":"k"}}') == f'{{"a":{deep},"api_key":"{MASK}"}}'

    def test_a_body_without_secrets_is_handed_back_as_it_is(self) -> None:
        body = json.dumps(
            {"messages": [{"content": "a task-list, risk-free ... **bold**"}]}
        ).encode()
        assert MASKER.body(body) is body


class TestConfiguredKeys:
    def test_are_masked_anywhere_in_a_body(self) -> None:
        body = json.dumps({"error": {"message": f"Incorrect: {KEY}.", "a": [KEY, f"x{KEY}y"]}})
        assert masked_body(body) == body.replace(KEY, MASK)

    def test_are_masked_in_text(self) -> None:
        assert MASKER.text(f"Bearer {OPENAI_KEY}, then {KEY}") == f"Bearer {MASK}, then {MASK}"

    @pytest.mark.parametrize("text", ["", "plain", "日本語 \ud83d", "[masked]"])
    def test_other_text_stays(self, text: str) -> None:
        assert MASKER.text(text) == text

    def test_are_masked_beside_text_that_is_no_unicode(self) -> None:
        assert MASKER.text(f"\ud83d{KEY}") == f"\ud83d{MASK}"

    @pytest.mark.parametrize("key", [KEY, ODD_KEY])
    def test_are_masked_in_every_json_spelling(self, key: str) -> None:
        spelled = [
            json.dumps(key)[1:-1],
            json.dumps(key)[1:-1].replace("/", "\\/"),
            "".join(f"\\u{ord(character):04x}" for character in key),
            "".join(f"\\u{ord(character):04X}" for character in key),
            json.dumps(key)[1:-1].replace("-", "\\u002d").replace("/", "\\u002F"),
        ]
        for text in spelled:
            assert json.loads(f'"{text}"') == key
            assert masked_body(f'{{"m":"a {text} b"}}') == f'{{"m":"a {MASK} b"}}'

    @pytest.mark.parametrize("key", [KEY, OPENAI_KEY])
    @pytest.mark.parametrize(
        "quoted",
        [
            "{begin}***{end}",
            "{short_begin}...{end}",
            "{short_begin}**{end}",
            "{begin}***{short_end}",
            "{begin}**{end}",
            "{begin}***********************************{end}",
            "{begin}...{end}",
            "{begin}\u2026{end}",
            "{begin}\\u2026{end}",
            "{begin}\u2022\u2022\u2022\u2022{end}",
            "{begin}xxxxxxxx{end}",
            "{long_begin}****",
            "{long_begin}...",
            "****{end}",
            "***{long_end}",
            "(ending in {end})",
            'that ends with \\"{end}\\"',
        ],
    )
    def test_are_masked_where_they_are_partly_quoted(self, key: str, quoted: str) -> None:
        shown = quoted.format(
            begin=key[:7],
            end=key[-4:],
            long_begin=key[:12],
            long_end=key[-9:],
            short_begin=key[:3],
            short_end=key[-2:],
        )
        masked = masked_body(f'{{"message":"Incorrect API key provided: {shown}, look."}}')
        assert key[-4:] not in masked
        assert key[:7] not in masked
        assert MASK in masked
        assert masked.startswith('{"message":"Incorrect API key provided: ')
        assert masked.endswith(', look."}')
        json.loads(masked)

    @pytest.mark.parametrize(
        "text",
        [
            "sk-... is how keys begin",
            "use sk-proj-... here",
            "a task-*** and a risk-...",
            "**wxyz** is bold",
            "and then...wxyz",
            "see pk-",
            "0001",
            "items 0001...0002",
        ],
    )
    def test_text_that_only_looks_like_a_part_stays(self, text: str) -> None:
        assert MASKER.text(text) == text

    def test_the_longest_one_goes_first(self) -> None:
        masker = Masker(["abcd-1234", "abcd-1234-5678"])
        assert masker.text("abcd-1234-5678 abcd-1234") == f"{MASK} {MASK}"

    def test_short_ones_do_not_tear_up_text(self) -> None:
        body = '{"model":"ollama/llama3","input":"a test, a passthrough, a latest"}'
        assert masked_body(body) == body
        assert MASKER.headers([("authorization", "Bearer test")]) == [["authorization", MASK]]

    def test_none_configured_masks_by_name_alone(self) -> None:
        masker = Masker([])
        assert masker.text(f"x {KEY} \\u0070") == f"x {KEY} \\u0070"
        assert masker.body(b'{"api_key":"k"}') == b'{"api_key":"[masked]"}'

    def test_many_beginnings_of_a_key_do_not_keep_it_busy(self) -> None:
        body = "sk-" * 1_000_000 + KEY
        assert masked_body(body) == "sk-" * 1_000_000 + MASK


class TestPassthrough:
    def test_a_clients_own_credential_is_masked_where_it_is_echoed(self) -> None:
        masker = MASKER.including(
            [("Authorization", "Bearer sk-the-clients-own"), ("X-A", "abcdefgh")]
        )
        echo = b'{"error":"Incorrect API key provided: sk-the-clients-own, sk-the***-own abcdefgh"}'
        assert masker.body(echo) == (
            b'{"error":"Incorrect API key provided: [masked], [masked] abcdefgh"}'
        )
        assert MASKER.body(echo) == echo

    def test_without_one_nothing_changes(self) -> None:
        assert MASKER.including([("accept", "*/*")]) is MASKER
        assert MASKER.including([("authorization", KEY)]) is MASKER
