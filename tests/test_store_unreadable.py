"""A store whose file was damaged while in use: told as that, and calls go on."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

import pytest

from api_socket import ApiSocket
from dashboard import Browser
from gateway_fixtures import Gate, gate_and_model
from scripted_model import chat, named, says

PAGE = 4096


def damage(gate: Gate) -> None:
    """All of the file but its first page is zeros."""
    with contextlib.closing(gate.store.open_writer(busy_ms=5000)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path = gate.store.path
    with path.open("r+b") as file:
        file.seek(PAGE)
        file.write(bytes(path.stat().st_size - PAGE))


def test_what_cannot_be_read_is_told_as_that(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with gate_and_model(tmp_path) as gate, caplog.at_level(logging.WARNING):
        gate.model.always(says("all the same"))
        gate.ended(gate.post(chat(**named("damaged"))))
        damage(gate)
        refused = gate.get("/requests?model=m")
        assert (refused.status, refused.error["type"]) == (503, "overloaded")
        assert refused.error["message"].startswith("the store cannot be read: ")
        assert "retry-after" in refused.headers
        page = Browser(gate.url).open("/ui/requests?q=m")
        assert page.status == 503
        assert "The store cannot be read" in page.text
        with ApiSocket(gate) as api:
            code, _ = api.refused("session.subscribe", session_id="damaged")
            assert code == "overloaded"
        assert gate.post(chat()).text == "all the same"
    assert "the store cannot be read" in caplog.text
    assert not [record for record in caplog.records if record.exc_info and record.name == "xgw"]
