"""Full-text search over a folder: what is found, what is never read, how it is recorded."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from agents_fixtures import agents, asks
from scripted_model import says
from servers import installed
from xgw.agents.functions import ToolFailed, read_function
from xgw.agents.retrieval import Searching
from xgw.agents.retrieval.files import MAX_FILE_BYTES
from xgw.agents.retrieval.passages import MOST, cut

TEXTS = {
    "refunds.md": "# Refunds\n\nA refund takes five days.\n",
    "shipping/europe.md": "# Shipping\n\nParcels to Norway need a customs form.\n",
    "shipping/times.txt": "Monday to Friday, also at Christmas. Opening hours: 9–17.\n",
    "ja.md": "返金は五日かかります。\n",
    "fr.md": "Les délais de livraison à l'étranger.\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in TEXTS.items():
        path = tmp_path / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return tmp_path / "docs"


def search(folder: Path, query: str, top_k: int = 5, most: int = 65_536) -> list[dict[str, Any]]:
    hits: list[dict[str, Any]] = json.loads(Searching(str(folder), top_k, most).search(query))[
        "hits"
    ]
    return hits


def paths(folder: Path, query: str) -> list[str]:
    return [hit["path"] for hit in search(folder, query)]


# -- finding ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("how long does a refund take?", "refunds.md"),
        ("REFUNDS", "refunds.md"),
        ("customs", "shipping/europe.md"),
        ("delais etranger", "fr.md"),
        ("返金", "ja.md"),
        ("五日", "ja.md"),
        ("open hour", "shipping/times.txt"),
    ],
)
def test_the_passage_that_fits_best_comes_first(folder: Path, query: str, path: str) -> None:
    assert paths(folder, query)[0] == path


def test_a_hit_tells_where_it_stands_and_how_well_it_fits(folder: Path) -> None:
    (folder / "long.md").write_text("filler words here\n" * 60 + "\n\nthe needle is here\n")
    (hit,) = search(folder, "needle")
    assert (hit["path"], hit["line"]) == ("long.md", 63)
    assert hit["text"] == "the needle is here"
    assert hit["score"] > 0


STRANGE = (
    *('"', "a AND", "NEAR(", "path:x", "*", "-", "^", "'; DROP TABLE passages;--", "\0", "{}", "("),
    *("", 'refund" OR "', "refund*", "+refund", "\ud800", "𝔯𝔢𝔣", "\n\t", "a" * 100_000),
)


@pytest.mark.parametrize("query", STRANGE, ids=range(len(STRANGE)))
def test_a_query_may_hold_any_characters(folder: Path, query: str) -> None:
    searching = Searching(str(folder), 5, 65_536)
    json.loads(searching.search(query))
    assert json.loads(searching.search("refund"))["hits"][0]["path"] == "refunds.md"


def test_words_that_nothing_holds_find_nothing(folder: Path) -> None:
    assert search(folder, "zebra") == []


def test_no_more_passages_than_asked_for_and_none_that_make_the_answer_too_large(
    folder: Path,
) -> None:
    for number in range(9):
        (folder / f"same{number}.md").write_text("identical words")
    assert len(search(folder, "identical", top_k=3)) == 3
    assert len(search(folder, "identical", top_k=9, most=250)) == 3


def test_what_changed_is_found_as_it_is_now(folder: Path) -> None:
    searching = Searching(str(folder), 5, 65_536)

    def found(query: str) -> list[str]:
        return [hit["path"] for hit in json.loads(searching.search(query))["hits"]]

    assert found("refund") == ["refunds.md"]
    (folder / "refunds.md").write_text("Nothing is paid back.")
    os.utime(folder / "refunds.md", (1, 1))
    (folder / "new.md").write_text("A refund is a gift.")
    assert (found("refund"), found("paid")) == (["new.md", "refunds.md"], ["refunds.md"])
    (folder / "new.md").unlink()
    (folder / "refunds.md").rename(folder / "money.md")
    assert (found("gift"), found("paid")) == ([], ["money.md"])


# -- what is never read ----------------------------------------------------------------------------


def test_links_and_hidden_files_and_what_is_no_text_are_left_out(folder: Path) -> None:
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("the treasure is here")
    (folder / "link.md").symlink_to(outside / "secret.md")
    (folder / "folder").symlink_to(outside)
    (folder / "round").symlink_to(folder)
    (folder / ".env").write_text("treasure")
    (folder / "picture.png").write_bytes(b"\x89PNG\0treasure")
    (folder / "latin.txt").write_bytes(b"tr\xe9sor treasure")
    (folder / "large.txt").write_text("treasure " * (MAX_FILE_BYTES // 9 + 1))
    if hasattr(os, "mkfifo"):
        os.mkfifo(folder / "pipe.md")
    assert paths(folder, "treasure") == []


@pytest.mark.skipif(sys.platform == "win32", reason="names are text there")
def test_names_may_be_anything(folder: Path) -> None:
    name = os.fsencode(folder) + b"/\xff\n'; --.md"
    with open(name, "w") as file:
        file.write("a strange name")
    (hit,) = search(folder, "strange")
    assert hit["path"] == "?�'; --.md"


def test_a_text_is_cut_into_passages_that_are_not_too_long() -> None:
    text = "x" * 4000 + "\n\n" + ("word " * 30 + "\n") * 40
    passages = list(cut(text))
    assert max(len(passage.text) for passage in passages) <= MOST
    assert "".join(p.text for p in passages).count("word") == 1200
    assert [passage.line for passage in passages][:3] == [1, 1, 1]


def test_a_folder_that_is_gone_is_an_error_of_the_call(folder: Path) -> None:
    searching = Searching(str(folder / "nowhere"), 5, 65_536)
    with pytest.raises(ToolFailed, match="the documents cannot be read: No such file"):
        searching.search("refund")


# -- as a tool -------------------------------------------------------------------------------------


def test_the_model_is_told_what_it_searches(folder: Path) -> None:
    told = read_function(Searching(str(folder), 5, 65_536).function())
    assert told.description.startswith("Search the documents in docs ")
    assert (list(told.parameters["properties"]), told.parameters["required"]) == (
        ["query"],
        ["query"],
    )


def test_it_is_a_step_of_its_own_kind(folder: Path, tmp_path: Path) -> None:
    docs = {"docs": {"retrieval": {"path": str(folder), "top_k": 1}}}
    named = {"a": {"model": "m", "tools": ("docs",)}}
    with agents(tmp_path, tools=docs, agents=named) as gate:
        gate.model.will(asks(("c1", "docs", '{"query": "refund"}')), says("five days"))
        answer = gate.say("how long?")
        (step,) = gate.steps(answer, "retrieval")
        told = gate.sent(-1)[-1]
        assert "step.started retrieval" in gate.story(answer)
        shown = gate.gate.get(f"/steps/{step['id']}").json
        assert gate.gate.get("/ui/steps/" + step["id"]).status == 200
    assert (step["name"], step["status"], step["tool_call_id"]) == ("docs", "success", "c1")
    assert (told["role"], told["tool_call_id"]) == ("tool", "c1")
    (hit,) = orjson.loads(told["content"])["hits"]
    assert (hit["path"], hit["line"]) == ("refunds.md", 1)
    assert shown["metadata"]["arguments"] == '{"query": "refund"}'
    (call,) = answer["toolCalls"]
    assert (call["name"], call["arguments"], call["success"]) == ("docs", {"query": "refund"}, True)


def test_a_folder_that_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    text = '[tools.docs]\nretrieval = { path = "nowhere/" }\n'
    with installed(tmp_path, text) as one:
        done = one.run("check")
    assert done.returncode == 2
    where = tmp_path / "nowhere"
    line = f"xgw.toml:2: [tools.docs.retrieval] path must name a folder: there is no {where}"
    assert line in done.stderr
