"""Clues: what the words of a prompt offer as arguments (places, numbers, sums, quoted texts …)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

MAX_PROMPT = 2_000
MAX_PLACES = 8

_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.]*\w)")
_SUM = re.compile(r"-?[\d(][\d\s.,()]*+(?:(?:\*\*|[-+*/×÷^%])\s*+-?[\d(][\d\s.,()]*+)+")
_QUOTED = re.compile(r"[\"“”«»`]([^\"“”«»`]{1,200})[\"“”«»`]|(?<!\w)'([^']{1,200})'(?!\w)")
_URL = re.compile(r"https?://[^\s\"'<>)]+")
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_DATE = re.compile(r"\b\d{4}-\d{2}-\d{2}\b")
_IDENTIFIER = re.compile(r"\b(?=[\w-]*\d)[\w-]{2,40}\b")
_PATH = re.compile(r"(?<![\w/:])(?:~|\.{1,2})?/?(?:[\w.-]+/)+[\w.-]*|\b[\w-]+\.[a-z]{1,5}\b")
_PLACE = r"((?:(?:new|san|los|las|hong|cape|saint)\s+)?[^\W\d_]{3,})"
_AFTER_PREPOSITION = re.compile(rf"\b(?:in|at|near|for)\s+{_PLACE}(?:\s+and\s+{_PLACE})?")

# Words that begin a sentence or follow "in" and "for" without being a place.
_COMMON_WORDS = """
a about add after all also an and any api are at be before book but by calculate call can celsius
check compare compute convert could create dear demo describe detail did divide do does each english
example explain fahrenheit find first for french from general german get give go hello help here hey
hi how html http i i'd i'll i'm if in is it its json last let let's list look make markdown may me
multiply my name next no not now of ok okay on one open or plan please python read remember remind
repeat run say schedule search send should show sql subtract sum summarise summarize tell thank
thanks that the then there these they this those to today tomorrow tonight total translate turn two
url use utc vs was we weather were what what's when where which who why will with would write xgw
yes yesterday you your
january february march april june july august september october november december
monday tuesday wednesday thursday friday saturday sunday
"""
_NO_PLACES = frozenset(_COMMON_WORDS.split())


class Clues:
    """The clues of one prompt; only its first `MAX_PROMPT` characters are looked at."""

    def __init__(self, prompt: str) -> None:
        self.prompt = prompt[:MAX_PROMPT].strip()

    @cached_property
    def words(self) -> frozenset[str]:
        """All words in lower case, those of identifiers too."""
        text = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", self.prompt)
        return frozenset(word.lower() for word in _WORD.findall(text))

    @cached_property
    def numbers(self) -> tuple[float | int, ...]:
        """The numbers in their order; those of a sum too."""
        text = re.sub(r"(?<=\d)\s*[*/×÷^%+]\s*(?=[\d(])", " ", self.prompt)
        found = _NUMBER.findall(_DATE.sub(" ", text))
        return tuple(float(n) if "." in n else int(n) for n in found if len(n) < 16)

    @cached_property
    def arithmetic(self) -> str | None:
        """The first sum in the prompt, with the operators of a programming language."""
        found = (match.group().strip(" .,") for match in _SUM.finditer(_DATE.sub(" ", self.prompt)))
        text = next(found, None)
        return text.replace("×", "*").replace("÷", "/").replace("^", "**") if text else None

    @cached_property
    def places(self) -> tuple[str, ...]:
        """Names that can be those of places, in their order, without repetitions."""
        runs = list(_capitalised(self.prompt))
        named = [name for name, surely in runs if surely]
        if not named:
            pairs = _AFTER_PREPOSITION.findall(self.prompt)
            said = (word for pair in pairs for word in pair if word)
            named = [word.title() for word in said if word.lower() not in _NO_PLACES]
        found = dict.fromkeys(named or [name for name, _ in runs])
        return tuple(found)[:MAX_PLACES]

    @property
    def quoted(self) -> str | None:
        """The first text in quotation marks."""
        match = _QUOTED.search(self.prompt)
        return next(filter(None, match.groups()), None) if match else None

    @property
    def url(self) -> str | None:
        """The first web address."""
        return _first(_URL, self.prompt)

    @property
    def email(self) -> str | None:
        """The first e-mail address."""
        return _first(_EMAIL, self.prompt)

    @property
    def date(self) -> str | None:
        """The first date, as YYYY-MM-DD."""
        return _first(_DATE, self.prompt)

    @property
    def identifier(self) -> str | None:
        """The first word with a digit in it: an order number, a ticket …"""
        return _first(_IDENTIFIER, self.prompt)

    @property
    def path(self) -> str | None:
        """The first thing that looks like a file or a folder."""
        return _first(_PATH, _URL.sub(" ", self.prompt))

    def mentions(self, text: str) -> bool:
        """Whether the prompt names `text` as a word of its own, in any case."""
        if not text:
            return False
        pattern = rf"(?<!\w){re.escape(text)}(?!\w)"
        return re.search(pattern, self.prompt, re.IGNORECASE) is not None


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return match.group() if match else None


def _capitalised(prompt: str) -> Iterator[tuple[str, bool]]:
    """Runs of capitalised words, and whether they are more than the first word of a sentence.

    A short code after a comma belongs to the name before it ("San Francisco, CA").
    """
    run: list[str] = []
    surely = False
    end = 0
    text = _URL.sub(" ", prompt)
    for match in _WORD.finditer(text):
        word, gap = match.group(), text[end : match.start()]
        begins = end == 0 or bool(re.search(r"[.!?:\n]", gap))
        end = match.end()
        if run and gap.strip() == "," and word.isupper() and len(word) == 2:
            run[-1] += f", {word}"
            continue
        is_name = word[0].isupper() and word.lower() not in _NO_PLACES
        if run and not (is_name and gap == " "):
            yield " ".join(run), surely
            run = []
        if is_name:
            surely = bool(run) or not begins
            run.append(word)
    if run:
        yield " ".join(run), surely
