"""What every exchange works with."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from xgw.accounting.prices import PriceBook
from xgw.accounting.tokens import TokenCounter
from xgw.config import Config
from xgw.exchange.headers import Headers
from xgw.masking import Masker
from xgw.providers.transport import Transport
from xgw.recording.recorder import Recorder


@dataclass(frozen=True, slots=True)
class Means:
    """The configuration and the parts that send, record, mask, price and count."""

    config: Config
    transport: Transport
    recorder: Recorder
    masker: Masker
    prices: PriceBook
    counter: TokenCounter
    _passes_through: bool = field(init=False)
    """Whether any provider gets its clients' own credentials."""

    def __post_init__(self) -> None:
        passes_through = any(provider.passthrough for provider in self.config.providers)
        object.__setattr__(self, "_passes_through", passes_through)

    def for_client(self, headers: Headers) -> Means:
        """These means for a request with these headers.

        Where a client's own credential goes upstream, an answer may quote it: it is masked too.
        """
        if not self._passes_through:
            return self
        return replace(self, masker=self.masker.including(headers))
