"""Reading: pages of lists and of one session, in a large store beside a small one."""

from __future__ import annotations

from pathlib import Path

from bench.asking import Reads
from bench.figures import Figure, Limit, Rounds
from bench.fill import fill
from bench.server import Server
from bench.setting import Setting, median

LIMIT = Limit(50, 20)
LARGEST_PAGE = 500


def measure(setting: Setting) -> list[Figure]:
    """The median time of each page; first pages, pages far down, and filtered ones."""
    scale = setting.scale
    small = _filled(setting, scale.few_turns, scale.few_sessions)
    large = _filled(setting, scale.pages_turns, scale.pages_sessions)
    with setting.serving(store=small) as few, setting.serving(store=large) as many:
        pages = [_pages(server, scale.deep_pages) for server in (few, many)]
        found = {name: Rounds() for name in pages[1]}
        for _ in range(setting.rounds):
            times = [
                setting.loader.read(Reads(server.port, list(paths.values()), scale.page_reads))
                for server, paths in zip((few, many), pages, strict=True)
            ]
            for rounds, beside, through in zip(found.values(), *times, strict=True):
                rounds.add(median(beside), median(through))
    return [
        Figure(
            f"{scale.pages_turns:,} turns: {name}",
            rounds.through,
            "ms",
            LIMIT,
            f"{rounds.words('ms')[0]} at {scale.few_turns:,}",
            rounds.words("ms")[1],
        )
        for name, rounds in found.items()
    ]


def _filled(setting: Setting, turns: int, sessions: int) -> Path:
    path = setting.folder / f"filled-{turns}.db"
    fill(path, turns=turns, sessions=sessions)
    return path


def _pages(server: Server, deep: int) -> dict[str, str]:
    """Paths by what the table calls them."""
    session = _far_down(server, "/sessions", deep)
    turn = _far_down(server, "/turns", deep)
    id, turn_id = session["data"][0]["id"], turn["data"][0]["id"]
    return {
        "/sessions": "/sessions",
        "/sessions far down": f"/sessions?cursor={session['next_cursor']}",
        "/sessions?has_error": "/sessions?has_error=true",
        "/sessions?model": "/sessions?model=gpt-4.1",
        "/turns": "/turns",
        "/turns far down": f"/turns?cursor={turn['next_cursor']}",
        "/turns?status=error": "/turns?status=error",
        "/turns?model": "/turns?model=gpt-4.1",
        "/requests": "/requests",
        "/requests?status_code=5xx": "/requests?status_code=5xx",
        "session": f"/sessions/{id}",
        "session: turns": f"/sessions/{id}/turns",
        "session: messages": f"/sessions/{id}/messages",
        "session: steps with bodies": f"/sessions/{id}/steps?expand=payloads",
        "turn": f"/turns/{turn_id}",
    }


def _far_down(server: Server, path: str, pages: int) -> dict[str, list[dict[str, str]]]:
    """The last of so many of the largest pages, or of as many as there are but one."""
    page = server.get(f"{path}?limit=2")
    for _ in range(pages):
        more = server.get(f"{path}?limit={LARGEST_PAGE}&cursor={page['next_cursor']}")
        if not more["has_more"]:
            break
        page = more
    found: dict[str, list[dict[str, str]]] = page
    return found
