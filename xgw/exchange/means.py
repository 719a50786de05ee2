"""What every exchange works with."""

from __future__ import annotations

from dataclasses import dataclass

from xgw.accounting.prices import PriceBook
from xgw.accounting.tokens import TokenCounter
from xgw.config import Config
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
