"""Starts `xgw replay` on the bundle, and tells afterwards what was another request, or missing."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

BUNDLE = Path(__file__).with_name("bundle.json")
SPEED = os.environ.get("XGW_REPLAY_SPEED", "max")


class Provider:
    """The recorded provider at `base_url`."""

    def __init__(self, base_url):
        self.base_url = base_url

    def status(self):
        """How far it is, as GET /replay says it."""
        with urllib.request.urlopen(f"{self.base_url.removesuffix('/v1')}/replay") as answer:
            return json.load(answer)

    def check(self):
        """Fails with the first request that was another one, or with what was not asked for."""
        status = self.status()
        if status["differences"]:
            pytest.fail(status["differences"][0]["message"], pytrace=False)
        if status["left"]:
            due = ", ".join(f"{one['path']} ({one['request_id']})" for one in status["next"])
            left, total = status["left"], status["total"]
            pytest.fail(f"{left} of {total} recorded requests were not sent: {due}", pytrace=False)


@pytest.fixture
def provider(monkeypatch):
    """The recorded provider; the OpenAI libraries find it by their environment."""
    is_here = importlib.util.find_spec("xgw") is not None
    command = [sys.executable, "-m", "xgw"] if is_here else ["xgw"]
    process = subprocess.Popen(
        [*command, "replay", str(BUNDLE), "--speed", SPEED], stdout=subprocess.PIPE, text=True
    )
    with process:
        try:
            base_url = next((line.strip() for line in process.stdout if "http://" in line), None)
            assert base_url is not None, "xgw replay did not start: what it said is above"
            monkeypatch.setenv("OPENAI_BASE_URL", base_url)
            monkeypatch.setenv("OPENAI_API_KEY", "unused")
            yield Provider(base_url)
        finally:
            process.terminate()
