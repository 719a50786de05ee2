"""The app asks as it did when `bundle.json` was recorded."""

from __future__ import annotations

import app


def test_the_app_asks_as_it_was_recorded(provider):
    app.run(provider.base_url)
    provider.check()
