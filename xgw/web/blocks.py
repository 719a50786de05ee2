"""An answer's bytes as the server takes them, and what is to be done once they have left."""

from __future__ import annotations

from collections.abc import Callable, Iterator

WRITE_BYTES = 65536


class Whole:
    """An answer's bytes; `tell` is called once they have left: their client waits for them."""

    def __init__(self, blocks: list[bytes], tell: Callable[[], None]) -> None:
        self._blocks = blocks
        self.close = tell

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._blocks)


class Streaming:
    """A stream's bytes in writes of bounded size; `leave` is called once, however it ends.

    Then `tell` is, too.
    """

    def __init__(
        self, stream: Iterator[bytes], leave: Callable[[], None], tell: Callable[[], None]
    ) -> None:
        self._stream = stream
        self._tell = tell
        self._leave: Callable[[], None] | None = leave

    def __iter__(self) -> Iterator[bytes]:
        try:
            for block in self._stream:
                if len(block) <= WRITE_BYTES:
                    yield block
                    continue
                for at in range(0, len(block), WRITE_BYTES):
                    yield block[at : at + WRITE_BYTES]
        finally:
            self.close()  # werkzeug forgets to, if its client has reset the connection

    def close(self) -> None:
        """Called by the server at the end, also when the client has gone."""
        close = getattr(self._stream, "close", None)
        try:
            if close is not None:
                close()
        finally:
            if self._leave is not None:
                leave, self._leave = self._leave, None
                leave()
                self._tell()
