"""How each channel is used: its time limits and tries, what it takes and what it costs. Pure; the figures are settings."""

from collections.abc import Mapping

import msgspec

from streams.errors import ConfigurationError

SECOND_MS, MINUTE_MS = 1_000, 60_000

POLL_EVERY_MS = 15 * SECOND_MS
POLL_FOR_MS = 30 * MINUTE_MS
SUBMIT_WITHIN_MS = 10 * MINUTE_MS
"""A submission that nobody has begun for so long is given back unsent, so that it cannot be carried out behind a person's back."""
CLOCKS_APART_MS = 2 * MINUTE_MS
"""How far apart the clocks of two workers may be before that promise is broken."""
LEDGER_TRIES = 5
LEDGER_DELAYS_MS = (5 * SECOND_MS, 15 * SECOND_MS, 30 * SECOND_MS, MINUTE_MS)
"""After each refused posting but the last."""
NOT_FOUND_NEEDED = 3
"""How often in a row a channel must say that it does not know a payout before the money is released."""
PARTS_PER_UNIT = 10_000
"""Percentages of fees are in basis points."""


class ChannelPolicy(msgspec.Struct, frozen=True):
    """How patient we are with one channel."""

    timeout_ms: int = 2 * MINUTE_MS
    delay_ms_first: int = 5 * SECOND_MS
    delay_ms_most: int = 2 * MINUTE_MS
    tries: int = 3
    poll_every_ms: int = POLL_EVERY_MS
    poll_for_ms: int = POLL_FOR_MS
    submit_within_ms: int = SUBMIT_WITHIN_MS
    ledger_delays_ms: tuple[int, ...] = LEDGER_DELAYS_MS

    def __post_init__(self) -> None:
        if self.tries < 1 or min(self.timeout_ms, self.delay_ms_first, self.poll_every_ms) < 1 or self.delay_ms_most < self.delay_ms_first:
            raise ConfigurationError(
                f"{self} cannot be followed: give at least one try, times above 0, and a longest delay not below the first"
            )
        if len(self.ledger_delays_ms) != LEDGER_TRIES - 1:
            raise ConfigurationError(
                f"{LEDGER_TRIES} tries at the ledger have {LEDGER_TRIES - 1} delays in between, not {len(self.ledger_delays_ms)}"
            )

    def delay_ms(self, failed: int) -> int:
        """How long to wait after the `failed`-th failure, counted from 1: doubled each time, up to the most."""
        return min(self.delay_ms_first << min(failed - 1, 40), self.delay_ms_most)

    @property
    def submission_ms_most(self) -> int:
        """How long after it was asked for a submission may still reach the channel."""
        return self.submit_within_ms + self.timeout_ms + CLOCKS_APART_MS

    @property
    def overdue_ms(self) -> int:
        """How long all tries may take, when each is begun as late and lasts as long as it may, and a time of polls after them."""
        waits = sum(self.delay_ms(failed) for failed in range(1, self.tries))
        return self.tries * (self.submit_within_ms + self.timeout_ms) + waits + self.poll_for_ms

    def scaled(self, scale: float) -> "ChannelPolicy":
        """Divide every time by `scale`, for demonstrations and tests. How long a call may take and when it is too old are left."""

        def shorter(time_ms: int) -> int:
            return max(1, int(time_ms / scale))

        return msgspec.structs.replace(
            self,
            delay_ms_first=shorter(self.delay_ms_first),
            delay_ms_most=shorter(self.delay_ms_most),
            poll_every_ms=shorter(self.poll_every_ms),
            poll_for_ms=shorter(self.poll_for_ms),
            ledger_delays_ms=tuple(shorter(delay_ms) for delay_ms in self.ledger_delays_ms),
        )


POLICIES: Mapping[str, ChannelPolicy] = {
    "mobile_wallet": ChannelPolicy(MINUTE_MS, 2 * SECOND_MS, 30 * SECOND_MS, 5),
    "bank_transfer": ChannelPolicy(5 * MINUTE_MS, 5 * SECOND_MS, 2 * MINUTE_MS, 3),
    "agent_network": ChannelPolicy(3 * MINUTE_MS, 3 * SECOND_MS, MINUTE_MS, 4),
}
OTHERWISE = ChannelPolicy()


class Limits(msgspec.Struct, frozen=True):
    """What one payout of a channel and a currency may come to, in minor units."""

    least_minor: int = 1
    most_minor: int | None = None

    def __post_init__(self) -> None:
        if self.least_minor < 1 or (self.most_minor is not None and self.most_minor < self.least_minor):
            raise ConfigurationError(f"{self} would take no payout: give a least of at least 1, and a most that is not below it")


class Fee(msgspec.Struct, frozen=True):
    """What one payout costs: a fixed part and basis points of the amount, within bounds. The fee is taken out of the amount."""

    fixed_minor: int = 0
    basis_points: int = 0
    least_minor: int = 0
    most_minor: int | None = None

    def __post_init__(self) -> None:
        if min(self.fixed_minor, self.basis_points, self.least_minor) < 0 or self.basis_points > PARTS_PER_UNIT:
            raise ConfigurationError(f"{self} is no fee: give parts of at least 0, and at most {PARTS_PER_UNIT} basis points")
        if self.most_minor is not None and self.most_minor < self.least_minor:
            raise ConfigurationError(f"{self} is no fee: its most is below its least")

    def of(self, amount_minor: int) -> int:
        """The fee for an amount, rounded up: what cannot be split is the merchant's."""
        fee = self.fixed_minor + -(-amount_minor * self.basis_points // PARTS_PER_UNIT)
        fee = max(fee, self.least_minor)
        return fee if self.most_minor is None else min(fee, self.most_minor)


NO_LIMITS, NO_FEE = Limits(), Fee()
CHANNELS = ("mobile_wallet", "bank_transfer", "agent_network")


class Rules(msgspec.Struct, frozen=True):
    """All of them together. Limits and fees are looked up by channel and currency: `mobile_wallet/PKR`."""

    policies: Mapping[str, ChannelPolicy] = msgspec.field(default_factory=lambda: POLICIES)
    limits: Mapping[str, Limits] = {}
    fees: Mapping[str, Fee] = {}
    available: frozenset[str] = frozenset(CHANNELS)
    four_eyes: bool = False
    time_scale: float = 1.0

    def policy(self, channel: str) -> ChannelPolicy:
        """How patient we are with a channel."""
        found = self.policies.get(channel, OTHERWISE)
        return found if self.time_scale == 1.0 else found.scaled(self.time_scale)

    def limits_of(self, channel: str, currency: str) -> Limits:
        """What a payout may come to."""
        return self.limits.get(f"{channel}/{currency}", NO_LIMITS)

    def fee_of(self, channel: str, currency: str) -> Fee:
        """What it costs."""
        return self.fees.get(f"{channel}/{currency}", NO_FEE)
