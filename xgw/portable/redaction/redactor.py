"""The redactor: takes secrets out of what leaves, and tells what it took out."""

from __future__ import annotations

import contextlib
import copy
import re
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from xgw.config.credentials import is_credential_name
from xgw.portable.redaction.assignments import assignment_finds, parameter_finds
from xgw.portable.redaction.clean import Clean
from xgw.portable.redaction.edits import Edit, applied, in_bytes, moved_places
from xgw.portable.redaction.finds import Find, merged
from xgw.portable.redaction.heard import Heard
from xgw.portable.redaction.json_text import (
    field_name,
    is_json,
    json_finds,
    looks_like_json,
    number_find,
    value_finds,
)
from xgw.portable.redaction.known import Known
from xgw.portable.redaction.names import PLACEHOLDER, is_masked, kind_of, scheme_end
from xgw.portable.redaction.patterns import Patterns
from xgw.portable.redaction.people import people_finds
from xgw.portable.redaction.placeholders import Place, Placeholders
from xgw.portable.redaction.shapes import key_finds
from xgw.portable.redaction.spellings import other_spellings
from xgw.portable.redaction.streams import looks_like_stream, stream_finds

_DEEPEST = 6
"""Strings of JSON that hold JSON again, one in the other, as deep as they are taken apart."""

_SUSPECT = re.compile(r"[0-9@=:/\\<%&+_-]")
"""Without one of these nothing in a text can be a secret that xgw knows by itself."""


class Redactor:
    """Masks for one document: the same value has the same placeholder in all of it.

    `patterns` are further expressions (RE2), `secrets` values that are masked wherever they stand,
    `taken` placeholders that stand in the texts from earlier. With `on` False nothing changes.
    """

    def __init__(
        self,
        patterns: Sequence[str] = (),
        on: bool = True,
        *,
        secrets: Iterable[str] = (),
        taken: Iterable[str] = (),
    ) -> None:
        self.on = on
        self._patterns = Patterns(patterns)
        self._known = Known(secrets)
        self._placeholders = Placeholders(taken)
        self._depth = 0
        self._was_cut = False
        self._heard: Heard | None = None
        self._missed = False
        self._clean = Clean()

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Afterwards `is_outdated` tells of all that was masked inside."""
        with tempfile.TemporaryFile() as file:
            self._heard = Heard(file)
            try:
                yield
                self._missed = self._heard.had_any()
            finally:
                self._heard = None

    @property
    def is_outdated(self) -> bool:
        """Whether one that knows what this one has learnt would mask otherwise.

        A secret stood without its name before it was met by it, or a placeholder that was given
        stands in a text by itself.
        """
        return self._missed or self._placeholders.are_ambiguous

    def renewed(self) -> Redactor:
        """One that has masked nothing yet, and knows what this one has met."""
        fresh = copy.copy(self)
        fresh._known = self._known.renewed()
        fresh._placeholders = self._placeholders.renewed()
        fresh._clean = Clean()
        fresh._missed = False
        return fresh

    def take(self, placeholders: Iterable[str]) -> None:
        """These stand in the texts already: they are not given to anything else."""
        self._placeholders.take(placeholders)

    def text(self, text: str, at: Place) -> str:
        """`text` without secrets; the same one if it has none."""
        if not self.on or not text:
            return text
        return applied(text, self._edits(text, lambda: self._scan(text), at))

    def value(self, value: Any, at: Place) -> Any:
        """A JSON value without secrets: names of fields count."""
        return self._value("", value, at) if self.on else value

    def headers(self, headers: Any, at: Place) -> Any:
        """Headers without credentials, in the shape given: pairs, or values by name."""
        if not self.on or not headers:
            return headers
        if isinstance(headers, Mapping):
            return {name: self._header(name, value, at) for name, value in headers.items()}
        return [self._pair(pair, at) for pair in headers]

    def url(self, url: str, at: Place) -> str:
        """A URL, or path and query, without secrets: parameters go by their names."""
        if not self.on or not url:
            return url
        edits = self._edits(url, lambda: (*self._scan(url), *parameter_finds(url)), at)
        return applied(url, edits)

    def body(self, raw: bytes, at: Place) -> tuple[bytes, list[Edit]]:
        """A body without secrets, and what was changed in it, by its bytes."""
        if not self.on or not raw:
            return raw, []
        text = raw.decode("utf-8", "surrogateescape")
        edits = self._edits(text, lambda: self._scan_body(text), at)
        if not edits:
            return raw, []
        masked = applied(text, edits).encode("utf-8", "surrogateescape")
        return masked, in_bytes(text, edits)

    def moved(self, frames: Any, edits: Sequence[Edit]) -> Any:
        """A response's frames, `[byte, millisecond]` each, after the edits of its body."""
        if not edits or not frames:
            return frames
        places = moved_places([frame[0] for frame in frames], edits)
        return [[place, *frame[1:]] for place, frame in zip(places, frames, strict=True)]

    def report(self) -> list[dict[str, Any]]:
        """What was masked: `kind`, `placeholder`, `count`, `places` and how many `more`."""
        return self._placeholders.report()

    def _edits(self, text: str, scan: Callable[[], Iterable[Find]], at: Place) -> list[Edit]:
        self._was_cut = False
        if self._heard:
            self._heard.begin()
        kept = merged(_unmasked(text, scan()), text)
        if kept and (new := self._known.learn(kept)):
            self._learn(new)
            kept = merged(_unmasked(text, scan()), text)
        return [Edit(find.start, find.stop, self._placeholders.of(find, at)) for find in kept]

    def _learn(self, secrets: list[str]) -> None:
        """What was clean may not be so any more, now that these are known."""
        self._clean = Clean()
        if self._heard:
            for secret in secrets:
                self._heard.learn(secret)

    def _scan_body(self, text: str) -> Iterable[Find]:
        return stream_finds(text, self._scan) if looks_like_stream(text) else self._scan(text)

    def _scan(self, text: str) -> Iterable[Find]:
        key = self._clean.key_of(text)
        if key in self._clean:
            return self._known.finds(text)
        finds = list(self._scan_all(text))
        if not finds and not self._was_cut:
            self._clean.add(key)
        return finds

    def _scan_all(self, text: str) -> Iterator[Find]:
        if looks_like_json(text):
            self._was_cut = self._was_cut or self._depth == _DEEPEST
            if self._depth < _DEEPEST:
                yield from self._within(text)
                if is_json(text):
                    return
        yield from self._finds(text)
        for spelling in other_spellings(text):
            for find in self._finds(spelling.text):
                yield spelling.back(find)

    def _within(self, text: str) -> Iterator[Find]:
        self._depth += 1
        try:
            yield from json_finds(text, self._scan)
        finally:
            self._depth -= 1

    def _finds(self, text: str) -> Iterator[Find]:
        if self._heard:
            self._heard.add(text)
        if "[" in text:
            self._placeholders.notice(text)
        if _SUSPECT.search(text):
            yield from key_finds(text)
            yield from people_finds(text)
            yield from assignment_finds(text)
        yield from self._patterns.finds(text)
        yield from self._known.finds(text)

    def _value(self, name: str, value: Any, at: Place) -> Any:
        if isinstance(value, str):
            scan = lambda: value_finds(name, value, self._scan)  # noqa: E731
            return applied(value, self._edits(value, scan, at))
        if isinstance(value, dict):
            return {
                self.text(key, at): self._value(field_name(key, value), part, at)
                for key, part in value.items()
            }
        if isinstance(value, list):
            return [self._value(name, part, at) for part in value]
        if name and isinstance(value, int | float) and not isinstance(value, bool):
            return self._number(name, value, at)
        return value

    def _number(self, name: str, value: float, at: Place) -> Any:
        digits = str(value)
        find = number_find(name, digits)
        if find is None:
            return value
        return self._placeholders.of(find.at(0, len(digits), ""), at)

    def _pair(self, pair: Any, at: Place) -> Any:
        if isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str):
            return [pair[0], self._header(pair[0], pair[1], at)]
        return self.value(pair, at)

    def _header(self, name: str, value: Any, at: Place) -> Any:
        if isinstance(value, list):
            return [self._header(name, part, at) for part in value]
        if not isinstance(value, str):
            return value
        start = scheme_end(value)
        if is_credential_name(name) and not is_masked(value[start:]):
            whole = Find(start, len(value), kind_of(name), value[start:])
            return applied(value, self._edits(value, lambda: [whole], at))
        return self.url(value, at)


def _unmasked(text: str, finds: Iterable[Find]) -> Iterator[Find]:
    """Finds that are no placeholder, nor a part of one."""
    if "[" not in text:
        yield from finds
        return
    masked = [found.span() for found in PLACEHOLDER.finditer(text)]
    starts = [start for start, _ in masked]
    for find in finds:
        near = masked[
            max(0, bisect_right(starts, find.start) - 1) : bisect_right(starts, find.stop)
        ]
        cut = any(a < find.start < b or a < find.stop < b for a, b in (*near[:1], *near[-1:]))
        if not cut and not is_masked(text[find.start : find.stop]):
            yield find
