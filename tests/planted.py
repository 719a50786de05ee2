"""Secrets of every kind that an export knows, as they turn up; none of them opens anything."""

from __future__ import annotations

import base64

_HEX = "0123456789abcdef" * 4
_WORD = "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zA"

KEYS: dict[str, str] = {
    "openai": f"sk-{_WORD}",
    "openai project": f"sk-proj-{_WORD}_-{_WORD}",
    "anthropic": f"sk-ant-api03-{_WORD}-AA",
    "openrouter": f"sk-or-v1-{_HEX}",
    "google": "AIzaSyB1c2D3e4F5g6H7i8J9k0L1m2N3o4P5q6R",
    "aws id": "AKIAIOSFODNN7EXAMPLE",
    "github": f"ghp_{_WORD}abcd",
    "github fine": f"github_pat_{_WORD}_{_WORD}",
    "gitlab": f"glpat-{_WORD[:20]}",
    "slack": f"xoxb-123456789012-{_WORD}",
    "stripe": f"sk_live_{_WORD}",
    "stripe restricted": f"rk_live_{_WORD}",
    "hugging face": f"hf_{_WORD}",
    "npm": f"npm_{_WORD}abcd",
    "pypi": f"pypi-AgEIcHlwaS5vcmc{_WORD}{_WORD}",
    "groq": f"gsk_{_WORD}",
    "sendgrid": f"SG.{_WORD}.{_WORD}",
    "databricks": f"dapi{_HEX[:32]}",
    "xgw": f"xk-{_WORD}",
    "jwt": f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.{_WORD}",
    "pem": "-----BEGIN RSA PRIVATE KEY-----\nMIIEow" + _WORD + "\n-----END RSA PRIVATE KEY-----",
}
"""Known by their shape."""

PEOPLE: dict[str, str] = {
    "email": "ada.lovelace+llm@analytical.example.co.uk",
    "email of umlauts": "jörg@müller.example",
    "phone": "+44 20 7946 0958",
    "phone of america": "(415) 555-0132",
    "phone dashed": "415-555-0187",
    "card": "4111 1111 1111 1111",
    "card dashed": "5500-0000-0000-0004",
    "card plain": "378282246310005",
}

HOMES: dict[str, tuple[str, str]] = {
    "linux": ("/home/adalove/notes.txt", "adalove"),
    "mac": ("/Users/ada.love/notes.txt", "ada.love"),
    "windows": ("C:\\Users\\Ada Love\\notes.txt", "Ada Love"),
    "windows in a program": ("C:\\\\Users\\\\adalovelace\\\\notes.txt", "adalovelace"),
}
"""A path, and the name in it that goes."""

PASSWORD = "corr3ct-h0rse"

NAMED: dict[str, str] = {
    "json in prose": f'it says {{"password": "{PASSWORD}"}} there',
    "python": f"connect(user='x', password='{PASSWORD}')",
    "camel case": f'{{clientSecret: "{PASSWORD}"}}',
    "dotenv": f"HOST=x\nDB_PASSWORD={PASSWORD}\nPORT=1",
    "dotenv quoted": f'export SMTP_PASS="{PASSWORD}"',
    "yaml": f"db:\n  password: {PASSWORD}\n",
    "form": f"user=x&password={PASSWORD}&go=1",
    "query": f"https://h.example/a?x=1&api_key={PASSWORD}",
    "signature": f"https://h.example/a?X-Amz-Signature={_HEX}".replace(_HEX, f"{PASSWORD}9{_HEX}"),
    "url": f"postgres://app:{PASSWORD}@db.example/x",
    "flag": f"mysql --password={PASSWORD} -u root",
    "header": f'curl -H "X-Api-Key: {PASSWORD}" https://h.example',
    "bearer": f"Authorization: Bearer {PASSWORD}",
    "cookie": f"Cookie: sid={PASSWORD}; theme=dark",
    "xml": f"<password>{PASSWORD}</password>",
    "connection string": f"Server=db;Password={PASSWORD};Encrypt=yes",
}
"""Known by the name that the text gives it."""

BASIC = base64.b64encode(f"app:{PASSWORD}".encode()).decode()
