"""What every test starts from: no configuration, key, proxy or store of the person who runs it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

FOLDERS = (
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
)


@pytest.fixture(scope="session", autouse=True)
def clean_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Also what child processes inherit; the user's folders are empty ones of this run."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            upper = name.upper()
            if upper.startswith("XGW_") or upper.endswith(("_API_KEY", "_PROXY")):
                patch.delenv(name)
        home = tmp_path_factory.mktemp("home")
        for name in FOLDERS:
            (home / name.lower()).mkdir(mode=0o700)
            patch.setenv(name, str(home / name.lower()))
        yield
