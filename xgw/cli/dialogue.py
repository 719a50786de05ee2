"""A conversation on a terminal: a line to write messages in, and what begins with a slash."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from xgw import spelling
from xgw.cli import texts
from xgw.cli.asking import Refusal
from xgw.cli.chat import Spell, tell_outcome
from xgw.cli.conversation import Conversation
from xgw.cli.going_on import Answer, spell_arguments, spell_call
from xgw.cli.terminal import note, write
from xgw.errors import WorkError
from xgw.queries.wording import counted, joined

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import History

UNPROCESSABLE = 422
HISTORY_SUFFIX = ".chat-history"

Act = Callable[["Dialogue", str], None]
Export = Callable[[str, str | None], None]
"""Writes all that was recorded of a session, by its id, into a file; None: one of its name."""


class Dialogue:
    """Reads messages and commands until Ctrl-D or /quit; what was written is kept for next time."""

    def __init__(
        self,
        conversation: Conversation,
        spell: Spell,
        export: Export,
        store_path: Path,
        *,
        details: bool,
    ) -> None:
        self._conversation = conversation
        self._spell = spell
        self._export = export
        self._history = store_path.with_name(f"{store_path.name}{HISTORY_SUFFIX}")
        self._details = details
        self._over = False

    def run(self) -> None:
        """Goes on until the person ends it."""
        note(f"{self._standing()}. /help tells more, Ctrl-D ends.")
        prompt = _prompt(self._history)
        while not self._over:
            try:
                text = prompt.prompt(f"{self._conversation.agent}> ")
            except KeyboardInterrupt:  # what was being written is dropped, as in a shell
                continue
            except EOFError:
                return
            if text.strip():
                self._take(text)

    def _take(self, text: str) -> None:
        word, _, rest = text.strip().partition(" ")
        try:
            if not word.startswith("/"):
                self._say(text)
            elif word in COMMANDS:
                COMMANDS[word][1](self, rest.strip())
            else:
                note(f"there is no {word}: /help lists what there is")
        except WorkError as error:
            note(f"xgw: {error}")

    def _say(self, text: str) -> None:
        self._decide_all(self._conversation.say(text, self._told, quiet=False))

    @property
    def _told(self) -> Spell | None:
        return self._spell if self._details else None

    def _decide_all(self, answer: Answer) -> None:
        """Ask about each call that waits, and tell how the turn ended."""
        while answer.get("pendingApprovals"):
            decision = self._decide(answer["pendingApprovals"][0])
            if decision is None:
                break  # it goes on waiting, and how to decide is told
            try:
                answer = self._conversation.decide(answer, decision, self._told)
            except Refusal as refusal:
                note(f"xgw: {refusal}")
                if refusal.status != UNPROCESSABLE:
                    return
        tell_outcome(answer)

    def _decide(self, call: Mapping[str, Any]) -> dict[str, Any] | None:
        """What the person decides about a call; None to leave it waiting."""
        named = {"tool_call_id": call["id"], "step_id": call["stepId"]}
        try:
            word = self._ask(f"run {spell_call(call)}? [y]es, [n]o, [e]dit, [l]ater: ").lower()
            if word in ("y", "yes"):
                return {**named, "decision": "approve"}
            if word in ("n", "no"):
                reason = self._ask("why not (the model is told; may be empty): ")
                return {**named, "decision": "deny", **({"reason": reason} if reason else {})}
            if word in ("e", "edit"):
                edited = self._ask("arguments: ", default=spell_arguments(call))
                return {**named, "decision": "approve", "arguments": orjson.loads(edited)}
        except orjson.JSONDecodeError as error:
            note(f"xgw: the arguments must be JSON: {error}")
            return self._decide(call)
        except (KeyboardInterrupt, EOFError):
            return None
        return None if word in ("l", "later") else self._decide(call)

    def _ask(self, question: str, default: str = "") -> str:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.output import create_output

        session: PromptSession[str] = PromptSession(output=create_output(always_prefer_tty=True))
        return session.prompt(question, default=default).strip()

    def _standing(self) -> str:
        talk = self._conversation
        model = f"model {talk.model}" if talk.model else None
        return joined(f"agent {talk.agent}", model, f"session {talk.session or 'new'}")

    def _session(self) -> Any:
        """The session as it stands; WorkError where it has not begun."""
        named = self._conversation.session
        found = None if named is None else self._conversation.find_session(named)
        if found is None:
            raise WorkError("the session begins with the first message")
        return found

    # -- what begins with a slash ------------------------------------------------------------------

    def help(self, _: str) -> None:
        """/help"""
        lines = [f"{word:<10} {text}" for word, (text, _act) in COMMANDS.items()]
        write([*lines, "Enter sends, Esc and then Enter begins a new line, Ctrl-C cancels a turn."])

    def tools(self, _: str) -> None:
        """/tools"""
        told = self._conversation.tell_agent(self._conversation.agent)["tools"]
        lines = [f"{tool['name']}  {tool['description'] or ''}" for tool in told]
        write(texts.one_line(line) for line in lines or ["no tools"])

    def context(self, _: str) -> None:
        """/context"""
        context = self._conversation.find_context(self._session()["id"])
        used, window = context["used"], context["window"]
        of = f" of {spelling.count(window)}" if window else ""
        compacted = f", compacted above {context['threshold']:,}" if context["threshold"] else ""
        write(
            [
                f"context: {spelling.count(used, context['source'])}{of} tokens{compacted}",
                *map(_part_line, context["parts"]),
            ]
        )

    def compact(self, _: str) -> None:
        """/compact"""
        session = self._conversation.compact(self._session()["id"])
        used = spelling.count(session["context"]["used"], session["context"]["source"])
        write([f"context: {used} tokens", texts.one_line(session["session_summary"] or "")])

    def retry(self, _: str) -> None:
        """/retry"""
        self._decide_all(self._conversation.say_again(self._told))

    def cancel(self, _: str) -> None:
        """/cancel"""
        write([f"{self._conversation.cancel()} is cancelled"])

    def usage(self, _: str) -> None:
        """/usage"""
        session = self._session()
        usage = session["usage"]
        sent, received, cached = (
            spelling.count(usage[f"{name}_tokens"]) for name in ("input", "output", "cached")
        )
        cost = None if usage["cost_usd"] is None else spelling.usd(usage["cost_usd"])
        turns = counted(session["turn_count"], "turn")
        write([joined(turns, f"{sent} ({cached} cached) → {received} tokens", cost)])

    def export(self, file: str) -> None:
        """/export [FILE]"""
        self._export(self._session()["id"], os.path.expanduser(file) or None)

    def session(self, name: str) -> None:
        """/session [new | ID]"""
        talk = self._conversation
        if name:
            found = None if name == "new" else talk.find_session(name)
            if found is not None and found["agent_name"] != talk.agent:
                raise WorkError(f"{name} is a session of {found['agent_name'] or 'no agent'}")
            talk.session = found["id"] if found else None if name == "new" else name
        write([self._standing()])

    def agent(self, name: str) -> None:
        """/agent [NAME]"""
        talk = self._conversation
        if not name:
            write([f"agents: {', '.join(talk.list_agents()) or 'none'}", self._standing()])
            return
        talk.tell_agent(name)
        talk.agent, talk.session, talk.model = name, None, None
        write([self._standing()])

    def details(self, _: str) -> None:
        """/details"""
        self._details = not self._details
        write([f"details are {'shown' if self._details else 'left out'}"])

    def quit(self, _: str) -> None:
        """/quit"""
        self._over = True


COMMANDS: dict[str, tuple[str, Act]] = {
    "/help": ("this list", Dialogue.help),
    "/agent": (
        "who answers and who else could; /agent NAME begins anew with that one",
        Dialogue.agent,
    ),
    "/session": ("the session; /session new begins one, /session ID goes on", Dialogue.session),
    "/tools": ("the tools that the agent has", Dialogue.tools),
    "/context": (
        "what the next call would send, by part, and how much of the window that is",
        Dialogue.context,
    ),
    "/retry": ("run the newest turn once more; its tools' results are taken over", Dialogue.retry),
    "/cancel": ("cancel the turn that runs or waits; Ctrl-C while it is said", Dialogue.cancel),
    "/compact": ("have the older turns summarised now", Dialogue.compact),
    "/usage": ("turns, tokens and cost of the session", Dialogue.usage),
    "/export": (
        "write a bug report of the session, into a file of its name or /export FILE",
        Dialogue.export,
    ),
    "/details": ("tell what happens in a turn, or stop telling", Dialogue.details),
    "/quit": ("end; Ctrl-D does too", Dialogue.quit),
}
"""What each command does, in words and in code."""


def _part_line(part: Any) -> str:
    noun = "tool" if part["part"] == "tools" else "message"
    name = part["part"].replace("_", " ")
    tokens = spelling.count(part["tokens"], "estimated")
    return f"  {name:<15} {tokens:>9} tokens  {counted(part['count'], noun)}"


def _prompt(history: Path) -> PromptSession[str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from prompt_toolkit.output import create_output

    keys = KeyBindings()

    @keys.add("enter")
    def send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def begin_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return PromptSession(
        multiline=True,
        key_bindings=keys,
        history=_history(history),
        output=create_output(always_prefer_tty=True),
    )


def _history(path: Path) -> History:
    """What was written before; nobody else may read it. Where it cannot be kept, it is not."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError:
        return InMemoryHistory()
    return FileHistory(path)
