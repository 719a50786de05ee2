"""The one place to change: call your app here.

`run` is to make the app do what it did when `bundle.json` was recorded. `base_url` is the address
of the provider that plays it; OPENAI_BASE_URL and OPENAI_API_KEY are set, too. As it stands it
sends the recorded requests itself.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

REQUESTS = Path(__file__).with_name("requests.json")


def run(base_url):
    """Replace this by a call of your app."""
    for recorded in json.loads(REQUESTS.read_text("utf-8")):
        send(base_url + recorded["path"], recorded["body"])


def send(url, body):
    """One request, to the end of its answer; that it may fail is part of the record."""
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            answer.read()
    except urllib.error.HTTPError as error:
        error.close()
