"""The demo's words. Each answer says that it is scripted, so that nobody takes it for a model."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

LOOKED_AT_CHARS = 2_000
QUOTED_CHARS = 300
MAX_COUNT = 300

SCRIPTED = "I am a scripted demo: there is no model behind me."

REFUSAL = "I refuse to answer this, because you asked for a refusal. (Scripted demo, no model.)"

REASONING = (
    "The user asked for reasoning, so the script shows some. First look at the message, then pick"
    " the text that fits. No model thinks here."
)

_GREETING = re.compile(
    r"^\W*(hi|hello|hey|howdy|good (morning|afternoon|evening|day)|hallo|moin|servus|bonjour|hola"
    r"|ciao|ping|test)\b.{0,24}$",
    re.IGNORECASE | re.DOTALL,
)
_ABILITIES = re.compile(
    r"\b(what|how) (can|do|could) (you|i) (do|use|try)|\bwho are you|\bwhat are you|^\W*help\W*$"
    r"|\bare you (a|an|real)\b",
    re.IGNORECASE,
)
_TURNS = re.compile(
    r"\b(how many|count|number of).{0,20}\b(turn|message|question)s?\b", re.IGNORECASE
)
_COUNT = re.compile(r"\bcount\b.{0,20}?\bto (\d+)", re.IGNORECASE | re.DOTALL)
_RECALL = re.compile(
    r"\bwhat (did|was|were|have) (i|my).{0,30}\b(say|said|ask|asked|question|message)", re.I
)
_NAMED = re.compile(r"\b[Mm]y name is ([^\W\d_][\w'’-]*(?: [A-Z][\w'’-]*)?)")
_WHOSE_NAME = re.compile(r"\b(what('s| is)|say|know|remember) my name", re.IGNORECASE)
_CODE = re.compile(r"\b(code|python|javascript|script|snippet|program)\b", re.IGNORECASE)
_TABLE = re.compile(r"\b(table|markdown|compare|comparison)\b", re.IGNORECASE)
_THANKS = re.compile(
    r"^\W*(thanks|thank you|thx|danke|merci|bye|goodbye)\b.{0,24}$", re.I | re.DOTALL
)

_ABILITIES_TEXT = f"""{SCRIPTED} What I can do:

- **Answer in a stream**, at the speed of a person reading along, with usage and cache hits.
- **Ask for a tool**, if you offer one and your message calls for it, and answer from its result.
- **Fill a JSON schema**, if you send one as `response_format`.
- **Remember the conversation**: try "my name is Ada", then "what is my name?".
- **Fail on request**: put `demo:429`, `demo:cut` or `demo:slow` into a message.

Configure a real provider whenever you like; nothing else about your client has to change."""

_CODE_TEXT = f"""{SCRIPTED} So here is the same snippet that everybody gets:

```python
def greet(name: str) -> str:
    \"\"\"Says hello.\"\"\"
    return f"Hello, {{name}}!"


print(greet("world"))
```

It prints `Hello, world!`."""

_TABLE_TEXT = f"""{SCRIPTED} A table I can do, though:

| part | what it is |
|---|---|
| session | one continuous conversation |
| turn | one input and all the work that answers it |
| run | one execution of a turn |
| step | one action of a run: a model call, a tool call |

That is how this conversation is recorded as well."""

_LONG_PARAGRAPH = (
    "This paragraph is part {number} of a long scripted answer. It says nothing of interest, but it"
    " takes its time: enough to watch the tokens arrive, to open a second window beside it, to stop"
    " the client in the middle and to see what was kept of the answer."
)


def find_answer(prompt: str, earlier: Sequence[str], turn: int) -> str | None:
    """The text for a prompt that the script knows; None for all others.

    `earlier` are the user's messages before this one, `turn` is the number of this one.
    """
    rules: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str | None]], ...] = (
        (_GREETING, lambda _: _greet(turn)),
        (_ABILITIES, lambda _: _ABILITIES_TEXT),
        (_COUNT, lambda match: _count_to(int(match.group(1)[:6]))),
        (_TURNS, lambda _: _count_turns(earlier, turn)),
        (_RECALL, lambda _: _recall(earlier)),
        (_WHOSE_NAME, lambda _: _name_of(earlier)),
        (_NAMED, lambda match: f"Nice to meet you, {match.group(1)}. {SCRIPTED} But I can look up"
         " what you said, so ask me for your name in a later message."),
        (_TABLE, lambda _: _TABLE_TEXT),
        (_CODE, lambda _: _CODE_TEXT),
        (_THANKS, lambda _: f"You are welcome. {SCRIPTED} It was a pleasure to play my part."),
    )  # fmt: skip
    matches = ((pattern.search(prompt[:LOOKED_AT_CHARS]), answer) for pattern, answer in rules)
    answers = (answer(match) for match, answer in matches if match)
    return next((text for text in answers if text), None)


def echo(prompt: str, images: int, earlier: Sequence[str], turn: int, seed: int) -> str:
    """The text for any other prompt: it quotes the prompt and counts the turn."""
    if not prompt:
        return f"{SCRIPTED} Your message holds no text for me to quote{_seen(images)}."
    opening = (
        f"{SCRIPTED} I cannot answer that, but I did receive it:",
        f"Good question. {SCRIPTED} All I can do is to repeat it:",
        f"Received. {SCRIPTED} This is what you wrote:",
    )[seed % 3]
    words = len(prompt.split())
    facts = (
        f"That is turn {turn} of this conversation, {words} words long{_seen(images)}.",
        f"Some facts about it:\n\n- turn **{turn}** of this conversation\n- **{words}** words,"
        f" {len(prompt)} characters{_seen(images)}\n- earlier messages: **{len(earlier)}**",
        f"Turn {turn}, {words} words{_seen(images)}. Ask me *what can you do?* for things that I do"
        " know.",
    )[seed // 3 % 3]
    return f"{opening}\n\n{_quote(prompt)}\n\n{facts}"


def from_results(results: Sequence[tuple[str, str, str]]) -> str:
    """The answer after tools have run; `results` are (tool, arguments, result)."""
    many = len(results) > 1
    lines = [
        f"- **{name}**{f' `{arguments}`' if arguments else ''}: {text.strip() or '(nothing)'}"
        for name, arguments, text in results
    ]
    opening = "Here is what the tools returned:" if many else "Here is what the tool returned:"
    return "\n".join(
        [opening, "", *lines, "", f"{SCRIPTED} So I quote the {'results' if many else 'result'}."]
    )


def long_text() -> str:
    """Several hundred tokens."""
    paragraphs = (_LONG_PARAGRAPH.format(number=number) for number in range(1, 9))
    return "\n\n".join([SCRIPTED, *paragraphs])


def _greet(turn: int) -> str:
    again = "Hello again" if turn > 1 else "Hello"
    return (
        f"{again}! {SCRIPTED} I speak the same protocol as a real one, though, so your client works"
        " and everything is recorded. Ask me *what can you do?* to see more."
    )


def _count_to(last: int) -> str:
    shown = min(last, MAX_COUNT)
    ending = "" if shown == last else f" … and so on to {last}"
    return f"{', '.join(map(str, range(1, shown + 1)))}{ending}. (Counted by a script, no model.)"


def _count_turns(earlier: Sequence[str], turn: int) -> str:
    if not earlier:
        return f"This is the first turn of the conversation that you sent me. {SCRIPTED}"
    return f"This is turn {turn}; {len(earlier)} came before it. {SCRIPTED}"


def _recall(earlier: Sequence[str]) -> str | None:
    if not earlier:
        return None
    return (
        f"{SCRIPTED} But the request holds your earlier messages. The last one was:\n\n"
        + _quote(earlier[-1])
    )


def _name_of(earlier: Sequence[str]) -> str:
    named = [
        match.group(1) for text in earlier for match in _NAMED.finditer(text[:LOOKED_AT_CHARS])
    ]
    if not named:
        return f"You have not told me your name yet. {SCRIPTED}"
    return f"Your name is {named[-1]}: you said so earlier. {SCRIPTED}"


def _seen(images: int) -> str:
    if not images:
        return ""
    return f", and {images} image{'s' if images > 1 else ''} that I cannot look at"


def _quote(text: str) -> str:
    cut = text if len(text) <= QUOTED_CHARS else f"{text[:QUOTED_CHARS]} …"
    return "\n".join(f"> {line}" for line in cut.strip().splitlines())
