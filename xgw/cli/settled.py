"""gunicorn's configuration as requests ask it."""

from __future__ import annotations

from typing import Any


class Settled:
    """gunicorn's configuration once nothing changes any more.

    Each request asks it twenty times, and each of its settings answers by two calls.
    """

    def __init__(self, config: Any) -> None:
        self._config = config
        vars(self).update({name: getattr(config, name) for name in config.settings})

    def __getattr__(self, name: str) -> Any:
        """What is worked out of settings."""
        return getattr(self._config, name)
