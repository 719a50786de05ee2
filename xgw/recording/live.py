"""Steps under way: the text that has arrived so far, and the live frames made from it.

Whoever relays an answer only appends to a step's list. One thread (the pulse) makes frames of what
is new every 50 ms, so that no reader and no write ever stands in the way of a stream.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from xgw import clock
from xgw.events import Envelope
from xgw.recording.facts import Scope
from xgw.values import Delta

FRAME_CHARACTERS = 4096
PROGRESS_SECONDS = 0.5
SAVE_SECONDS = 1.0

Key = tuple[str, int]


class LiveStep:
    """One running step. `add` is called by the one thread that reads its answer.

    Of a quiet one no `step.delta` is sent: its text is not what anyone waits for. A tool says
    nothing while it runs: of one that is known how long it has been running.
    """

    def __init__(
        self, scope: Scope, step_id: str, *, is_quiet: bool = False, is_tool: bool = False
    ) -> None:
        self.scope = scope
        self.step_id = step_id
        self._is_quiet = is_quiet
        self.is_tool = is_tool
        self.started = clock.monotonic()
        self.ttft_ms: int | None = None
        self.input_tokens: int | None = None
        self._pending: deque[Delta] = deque()
        self._texts: dict[Key, list[str]] = {}
        self._sent: dict[Key, int] = {}
        self._characters = 0
        self._saved = 0
        self._saved_at = self.started
        self._progress_at = self.started
        self.mask: Callable[[str], str] | None = None
        """Takes secrets out of a text that is to be stored."""

    def add(self, deltas: Iterable[Delta]) -> None:
        """Pieces that have just arrived."""
        for delta in deltas:
            self._texts.setdefault((delta.kind, delta.index), []).append(delta.text)
            self._pending.append(delta)
            self._characters += len(delta.text)

    def text(self) -> str:
        """What choice 0 has said so far."""
        return "".join(self._texts.get(("text", 0), ()))

    def unsaved_text(self, now: float) -> str | None:
        """The text so far if it is worth writing again: much is new, or something for a second."""
        pieces = self._texts.get(("text", 0))
        new = self._characters - self._saved
        if pieces is None or new == 0:
            return None
        if new < self._saved // 16 and now - self._saved_at < SAVE_SECONDS:
            return None
        self._saved += new
        self._saved_at = now
        text = "".join(pieces)
        return self.mask(text) if self.mask is not None else text

    def frames(self) -> list[Envelope]:
        """`step.delta` frames for everything new, in order, coalesced."""
        if self._is_quiet:
            self._pending.clear()
            return []
        runs: list[tuple[Key, list[str]]] = []
        while self._pending:
            delta = self._pending.popleft()
            key = (delta.kind, delta.index)
            if not runs or runs[-1][0] != key:
                runs.append((key, []))
            runs[-1][1].append(delta.text)
        return [frame for key, texts in runs for frame in self._frames_of(key, "".join(texts))]

    def _frames_of(self, key: Key, text: str) -> list[Envelope]:
        frames = []
        for at in range(0, len(text), FRAME_CHARACTERS):
            piece = text[at : at + FRAME_CHARACTERS]
            self._sent[key] = self._sent.get(key, 0) + len(piece)
            frames.append(self._delta(key, piece, self._sent[key], replace=False))
        return frames

    def whole(self) -> list[Envelope]:
        """The whole text so far of every part, for someone who joins late."""
        found = []
        for key, pieces in list(self._texts.items()):
            sent = self._sent.get(key, 0)
            text = "".join(pieces)[:sent]
            if text:
                found.append(self._delta(key, text, sent, replace=True))
        return found

    def texts(self) -> dict[Key, str]:
        """What has arrived of every part, by kind and index."""
        return {key: "".join(pieces) for key, pieces in list(self._texts.items())}

    def progress(self, now: float) -> Envelope | None:
        """A `step.progress` frame if half a second has passed since the last one."""
        if now - self._progress_at < PROGRESS_SECONDS:
            return None
        self._progress_at = now
        return self._envelope("step.progress", self.told(now))

    def told(self, now: float) -> dict[str, object]:
        """What a `step.progress` frame says at this moment (monotonic seconds)."""
        elapsed = now - self.started
        if self.is_tool:
            return {"elapsed_ms": round(elapsed * 1000)}
        streaming = elapsed - (self.ttft_ms or 0) / 1000
        tokens = self._characters // 4 if self._characters else None
        return {
            "input_tokens": self.input_tokens,
            "usage_source": None if self.input_tokens is None else "estimated",
            "elapsed_ms": round(elapsed * 1000),
            "output_tokens": tokens,
            "tokens_per_second": round(tokens / streaming, 1) if tokens and streaming > 0 else None,
            "ttft_ms": self.ttft_ms,
        }

    def _delta(self, key: Key, text: str, length: int, *, replace: bool) -> Envelope:
        kind, index = key
        payload: dict[str, object] = {
            "kind": kind,
            "index": index,
            "text": text,
            "text_length": length,
        }
        if replace:
            payload["replace"] = True
        return self._envelope("step.delta", payload)

    def _envelope(self, type: str, payload: dict[str, object]) -> Envelope:
        scope = self.scope
        return Envelope(
            None,
            type,
            clock.now(),
            scope.project_id,
            scope.session_id,
            scope.turn_id,
            scope.run_id,
            self.step_id,
            payload,
        )


class LiveSteps:
    """All steps under way in this process, by id."""

    def __init__(self, publish: Callable[[Sequence[Envelope]], None]) -> None:
        self._publish = publish
        self._steps: dict[str, LiveStep] = {}
        self._unannounced: set[str] = set()
        self._lock = threading.Lock()

    def expect(self, step_id: str) -> None:
        """A step's start is on its way to the store: nothing of it is sent before it was told."""
        self._unannounced.add(step_id)

    def drop(self, step_id: str) -> None:
        """The step is over and nothing of it will be published."""
        with self._lock:
            self._steps.pop(step_id, None)
            self._unannounced.discard(step_id)

    def start(
        self, scope: Scope, step_id: str, *, is_quiet: bool = False, is_tool: bool = False
    ) -> LiveStep:
        """A step begins."""
        step = LiveStep(scope, step_id, is_quiet=is_quiet, is_tool=is_tool)
        with self._lock:
            self._steps[step_id] = step
        return step

    def tell(self, envelopes: Sequence[Envelope]) -> None:
        """Send stored events, and before each one of a step what is new of the step."""
        with self._lock:
            told: list[Envelope] = []
            for envelope in envelopes:
                if envelope.step_id is not None and envelope.type != "step.started":
                    told += self._rest_of(envelope.step_id, envelope.type)
                told.append(envelope)
            self._publish(told)
            for envelope in envelopes:
                if envelope.type == "step.started" and envelope.step_id is not None:
                    self._unannounced.discard(envelope.step_id)

    def _rest_of(self, step_id: str, type: str) -> list[Envelope]:
        ends = type == "step.completed"
        step = self._steps.pop(step_id, None) if ends else self._steps.get(step_id)
        return [] if step is None else step.frames()

    def pulse(self, now: float | None = None) -> None:
        """Send what is new of every step whose start has been told; `now` is monotonic."""
        now = clock.monotonic() if now is None else now
        with self._lock:
            told: list[Envelope] = []
            for step in self._steps.values():
                if step.step_id in self._unannounced:
                    continue
                told += step.frames()
                if (progress := step.progress(now)) is not None:
                    told.append(progress)
            if told:
                self._publish(told)

    def snapshot(self, wants: Callable[[Envelope], bool]) -> list[Envelope]:
        """The whole text so far of every step under way, for someone who joins late."""
        with self._lock:
            steps = list(self._steps.values())
            return [frame for step in steps for frame in step.whole() if wants(frame)]

    def progress_of(self, step_id: str) -> dict[str, object] | None:
        """How far a call is now, as `step.progress` tells; None if it is not under way here."""
        step = self._steps.get(step_id)
        return step.told(clock.monotonic()) if step is not None and not step.is_tool else None

    def texts(self, step_id: str) -> dict[Key, str]:
        """What has arrived of each part of one step; {} if it is not under way here."""
        step = self._steps.get(step_id)
        return step.texts() if step is not None else {}

    def unsaved(self) -> list[tuple[Scope, str, str]]:
        """(scope, step id, text) of every step whose text so far should be written."""
        found, now = [], clock.monotonic()
        for step in list(self._steps.values()):
            text = step.unsaved_text(now)
            if text is not None:
                found.append((step.scope, step.step_id, text))
        return found

    def __len__(self) -> int:
        return len(self._steps)
