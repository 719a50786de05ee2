"""What happens in the pictures of the documentation: a support agent's day, played to xgw.

Two upstreams are scripted, `openai` and `backup`; the third is xgw's own demo.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

from actors import OVERLOADED, RATE_LIMIT, Stage, Talk, asks_for, begins, use, writes
from faults import Running
from scripted_model import Model, user
from servers import eventually, installed

CONFIG = """
[[providers]]
name = "openai"
base_url = "{openai}"
api_key = "sk-of-the-pictures-1"
[[providers]]
name = "backup"
base_url = "{backup}"
api_key = "sk-of-the-pictures-2"
[[providers]]
name = "demo"
kind = "demo"
[[routes]]
model = "gpt-4o*"
targets = ["openai/gpt-4o", "backup/gpt-4o"]
retry = {{ max_attempts = 2, base_delay_ms = 300 }}
[[routes]]
model = "demo"
targets = ["demo/demo"]
retry = {{ max_attempts = 2 }}
"""

SYSTEM = (Path(__file__).parent / "screenplay.txt").read_text("utf-8")
"""What the shop tells its agent: long, as such texts are, so that a provider would cache it."""

_TOOLS = {
    "order_status": ("Where an order is and when it will arrive.", {"order": "integer"}),
    "search_docs": ("Passages of the shop's policies.", {"query": "string"}),
    "refund": ("Give money back for an order.", {"order": "integer", "amount": "number"}),
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {field: {"type": kind} for field, kind in fields.items()},
                "required": list(fields),
            },
        },
    }
    for name, (description, fields) in _TOOLS.items()
]


# -- the day ---------------------------------------------------------------------------------------


def _shipping(stage: Stage) -> None:
    talk = Talk(stage, "cust-51230")
    talk.says("Eres el agente de soporte de una tienda pequeña.")
    talk.asks(
        "¿Cuál es el estado del envío?",
        writes("Con mucho gusto. ¿Me da el número de su pedido?"),
    )
    talk.asks(
        "Es el 2087.",
        writes("El pedido **2087** salió ayer y llega el jueves, antes de las 14:00."),
    )


def _report(stage: Stage) -> None:
    talk = Talk(stage, "job-9921")
    talk.says("Summarise for people who have one minute.")
    talk.asks("Summarise the quarterly report", *[OVERLOADED] * 2, backup=(OVERLOADED,) * 2)


def _duplicate(stage: Stage) -> None:
    talk = Talk(stage, "cust-70011", tools=TOOLS)
    talk.says(SYSTEM)
    talk.asks(
        "I was charged twice for order 998.",
        asks_for(use("order_status", order=998)),
    )
    talk.ran(0.3, {"order": 998, "charges": [42.0, 42.0]})
    talk.goes_on(asks_for(use("refund", order=998, amount=42.0)))


def _demo(stage: Stage) -> None:
    talk = Talk(stage, "hello", model="demo")
    talk.says("Answer briefly.")
    talk.asks("What can I see here?")
    talk.asks("And when something fails? demo:flaky")


def _gift(stage: Stage) -> None:
    talk = Talk(stage, "cust-60418", tools=TOOLS)
    talk.says(SYSTEM)
    talk.asks(
        "Can I return a birthday gift without the receipt?",
        asks_for(use("search_docs", query="return without receipt")),
    )
    talk.ran(0.1, [{"source": "policy.md", "section": 4, "text": "The order number will do."}])
    talk.goes_on(RATE_LIMIT, writes("Yes: the **order number** is enough (policy §4)."))


ORDER = "cust-88213"
"""The session whose last turn is under way."""


def _order(stage: Stage) -> None:
    talk = Talk(stage, ORDER, tools=TOOLS)
    talk.says(SYSTEM)
    talk.asks("I have a question about an order", writes("Gladly! Which one is it?"))
    talk.asks(
        "What can you do?",
        writes(
            "I can\n\n- look up where an **order** is,\n- find what our **policies** say,\n"
            "- and give money back where they allow it.",
        ),
    )
    talk.asks(
        "Check my invoice, please",
        RATE_LIMIT,
        OVERLOADED,
        backup=(writes("Invoice 311 is paid in full; nothing is open."),),
    )
    talk.asks(
        "Where is my order 1042? And is it covered by the refund policy?",
        asks_for(
            use("order_status", order=1042),
            use("search_docs", query="refund policy in transit"),
        ),
    )
    talk.ran(
        0.4,
        {"order": 1042, "state": "in transit", "eta": "2 December", "carrier": "DHL"},
        [
            {"source": "policy.md", "section": 2, "text": "Until delivery an order can be …"},
            {"source": "faq.md", "section": 7, "text": "The money is back within 5 days."},
        ],
    )
    answer = (
        "Your order **1042** is in transit and should arrive on 2 December. DHL has it.\n\n"
        "Since it has not been delivered yet, the refund policy (§2) lets you"
    )
    talk.waits(RATE_LIMIT, begins(answer, stage.held), seen=b"lets ")


_PROGRAMMER = "You are a careful programmer. Change little, test everything. The module:\n\n"


def _parser(stage: Stage) -> None:
    talk = Talk(stage, "5b1c9ee2")
    talk.says(_PROGRAMMER + Path(argparse.__file__).read_text("utf-8"))
    talk.asks(
        "Refactor the parser module",
        writes("I would begin with the tokenizer: it mixes reading and deciding."),
    )
    talk.says("Go ahead, and keep the public names")
    talk.waits(
        OVERLOADED, begins("The tokenizer now yields frozen tokens; ", stage.held), seen=b"frozen"
    )


def _alone(stage: Stage) -> None:
    """Traffic that names no session."""
    for text in ("Translate 'in transit' to Spanish", "One word for being out of stock"):
        stage.openai.will(writes("En tránsito." if "transit" in text else "Unavailable."))
        stage.gate.post({"model": "gpt-4o", "stream": True, "messages": [user(text)]})


def _port() -> str:
    """xgw's own port, which pages show; any other where somebody has it already."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", 8787))
        except OSError:
            return "0"
    return "8787"


@contextlib.contextmanager
def played(folder: Path) -> Iterator[Stage]:
    """A gateway for a `with` block on which all of it has happened; two turns are under way."""
    openai, backup = Model(), Model()
    tables = CONFIG.format(openai=openai.url, backup=backup.url)
    with contextlib.closing(openai), contextlib.closing(backup), installed(folder, tables) as one:
        gate = Running(one.serve("--port", _port()), openai, one.store)
        stage = Stage(gate, openai, backup)
        try:
            for scene in (_shipping, _report, _duplicate, _demo, _gift, _alone, _parser, _order):
                scene(stage)
            eventually(lambda: gate.turns(ORDER)[-1]["ended_at"] is None)
            yield stage
        finally:
            stage.held.set()
            for reading in stage.under_way:
                reading.close()
            gate.store.close()
