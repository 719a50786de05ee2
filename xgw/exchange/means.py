"""What every exchange works with."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from xgw.accounting.prices import PriceBook
from xgw.accounting.tokens import TokenCounter
from xgw.config import Config
from xgw.exchange.headers import Headers
from xgw.masking import Masker
from xgw.providers.transport import Timeouts, Transport
from xgw.recording.recorder import Recorder

HEADS_KEPT = 64
RecordedHead = tuple[str, list[list[str]]]


@dataclass(frozen=True, slots=True)
class Means:
    """The configuration and the parts that send, record, mask, price and count."""

    config: Config
    transport: Transport
    recorder: Recorder
    masker: Masker
    prices: PriceBook
    counter: TokenCounter
    timeouts: Timeouts = field(init=False, repr=False, compare=False)
    _passes_through: bool = field(init=False, repr=False, compare=False)
    """Whether any provider gets its clients' own credentials."""

    _recorded: dict[tuple[str, Headers], RecordedHead] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        passes_through = any(provider.passthrough for provider in self.config.providers)
        object.__setattr__(self, "_passes_through", passes_through)
        limits = self.config.gateway.timeouts
        timeouts = Timeouts(limits.connect, limits.first_byte, limits.idle)
        object.__setattr__(self, "timeouts", timeouts)

    def recorded(self, url: str, headers: Headers) -> RecordedHead:
        """The URL and the headers of a request as the record has them, for all who ask the same.

        Most calls go out with a head that has gone out before.
        """
        found = self._recorded.get((url, headers))
        if found is None:
            if len(self._recorded) >= HEADS_KEPT:
                self._recorded.clear()
            found = self.masker.url(url), self.masker.headers(headers)
            self._recorded[url, headers] = found
        return found

    def for_client(self, headers: Headers) -> Means:
        """These means for a request with these headers.

        Where a client's own credential goes upstream, an answer may quote it: it is masked too.
        """
        if not self._passes_through:
            return self
        return replace(self, masker=self.masker.including(headers))
