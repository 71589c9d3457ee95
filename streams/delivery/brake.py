"""The brake of a whole worker: when half of all merchants cannot be reached, the fault is ours, and deliveries are held.

Each merchant's latest result of the last minute counts. The brake comes on when enough merchants were tried and enough of them
failed to connect; it clears when enough connect again, or when a minute passed in which nothing was tried. While it is on, one
delivery of each merchant goes through as a probe every few seconds; what is held behind it returns spread over the next minutes.
"""

from collections import OrderedDict
from typing import Literal

import msgspec

from streams.delivery.results import Failure, Result


class BrakeRule(msgspec.Struct, frozen=True):
    """When the brake comes on, and how a held delivery waits."""

    merchants_least: int = 20
    fraction: float = 0.5
    window_ms: int = 60_000
    probe_every_ms: int = 5_000
    hold_ms_max: int = 120_000
    merchants_max: int = 10_000

    def __post_init__(self) -> None:
        if not 1 <= self.merchants_least <= self.merchants_max:
            raise ValueError(f"{self} could never come on: give at least 1 merchant, and no more than are remembered")
        if not 0 < self.fraction <= 1:
            raise ValueError(f"{self} has a fraction outside 0 to 1: give a part of the merchants, such as 0.5")
        if not 0 < self.probe_every_ms <= min(self.window_ms, self.hold_ms_max):
            raise ValueError(f"{self} would forget a merchant between two probes: probe more often than the window and the longest hold")


Change = Literal["ON", "OFF"]


def connected(result: Result) -> bool:
    """Tell whether an attempt reached its merchant's machine at all, whatever came of it then."""
    return not (isinstance(result, Failure) and result.stage in ("address", "connect"))


class Brake:
    """Holds all of a worker's deliveries while the network, and not the merchants, seems at fault."""

    def __init__(self, rule: BrakeRule | None = None) -> None:
        self._rule = rule or BrakeRule()
        # A merchant is put in again with each result, so that the oldest is always first and leaves first.
        self._latest: OrderedDict[str, tuple[int, bool]] = OrderedDict()
        self._failed = 0
        # By merchant, while the brake is on: when its last probe went, and until when its last held delivery waits.
        self._held: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._on = False
        self._told = False

    @property
    def tried(self) -> int:
        """How many merchants count at present."""
        return len(self._latest)

    @property
    def failed(self) -> int:
        """How many of them could not be reached."""
        return self._failed

    def note(self, merchant: str, connected: bool, now_ms: int) -> None:
        """Take in what an attempt at one of a merchant's endpoints came to."""
        self._forget(merchant)
        self._latest[merchant] = (now_ms, connected)
        self._failed += not connected
        if len(self._latest) > self._rule.merchants_max:
            self._forget(next(iter(self._latest)))
        self._judge(now_ms)

    def is_on(self, now_ms: int) -> bool:
        """Tell whether deliveries are to be held."""
        if self._on:
            self._judge(now_ms)
        return self._on

    def change(self, now_ms: int) -> Change | None:
        """Tell once that the brake came on, and once that it cleared, for an operational event each."""
        if self.is_on(now_ms) == self._told:
            return None
        self._told = self._on
        return "ON" if self._on else "OFF"

    def hold(self, merchant: str, now_ms: int) -> int | None:
        """Tell until when a delivery is held; None: it goes, because the brake is off or as its merchant's probe."""
        if not self.is_on(now_ms):
            return None
        rule = self._rule
        probed_ms, held_ms = self._held.pop(merchant, (now_ms - rule.probe_every_ms, now_ms))
        if len(self._held) >= rule.merchants_max:
            self._held.popitem(last=False)
        if not 0 <= now_ms - probed_ms < rule.probe_every_ms:
            self._held[merchant] = (now_ms, max(held_ms, now_ms))
            return None
        due_ms = min(max(held_ms, now_ms) + rule.probe_every_ms, now_ms + rule.hold_ms_max)
        self._held[merchant] = (probed_ms, due_ms)
        return due_ms

    def _judge(self, now_ms: int) -> None:
        rule = self._rule
        while self._latest:
            merchant, (at_ms, _) = next(iter(self._latest.items()))
            if at_ms > now_ms - rule.window_ms:
                break
            self._forget(merchant)
        # Held deliveries are not tried, so that fewer merchants count while it is on: only the fraction of those keeps it on.
        least = 1 if self._on else rule.merchants_least
        self._on = len(self._latest) >= least and self._failed >= rule.fraction * len(self._latest)
        if not self._on:
            self._held.clear()

    def _forget(self, merchant: str) -> None:
        latest = self._latest.pop(merchant, None)
        if latest is not None:
            self._failed -= not latest[1]
