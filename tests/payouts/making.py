"""Payouts to test with, in any state, and a driver that lets the ledger answer the saga as the handler does."""

from typing import Any

import msgspec

from streams.payouts import ledger
from streams.payouts.ledger import Balances, Booked, Hold
from streams.payouts.messages import Begin, Effect, LedgerRefused, Message, Post, Posted, Reserve, Reserved, Void, Voided
from streams.payouts.payout import Payout, State
from streams.payouts.policy import POLICIES, ChannelPolicy
from streams.payouts.saga import advance

NOW = 1_700_000_000_000
POLICY = POLICIES["mobile_wallet"]
S, M = 1_000, 60_000


def payout(state: State = "ACCEPTED", **others: Any) -> Payout:
    """One as it looks in a state when all went the usual way there."""
    usual: dict[str, Any] = {}
    if state not in ("ACCEPTED", "SCHEDULED"):
        usual |= {"compensations": ("void",), "submissions": 1, "deadline_ms": NOW + 30 * M}
    match state:
        case "SCHEDULED":
            usual |= {"start_ms": NOW, "scheduled_ms": NOW}
        case "RESERVED":
            usual |= {"start_ms": NOW, "unsent": 1, "deadline_ms": None}
        case "SUBMITTING":
            usual |= {"under_way_until_ms": NOW + 13 * M}
        case "POLLING":
            usual |= {"polls": 1, "was_polled_since_ms": NOW, "settled_ms": NOW}
        case "SUCCESS" | "FAILED" | "CANCELLED":
            usual |= {"compensations": ()}
    fields = {
        "payout_id": "p1", "merchant": "m1", "beneficiary_id": "b1", "channel": "mobile_wallet", "currency": "PKR", "amount_minor": 1_000,
        "fee_minor": 10, "idempotency_key": "k1", "fingerprint": "f", "command_id": "c1", "created_ms": NOW, "state": state,
    }  # fmt: skip
    return Payout(**{**fields, **usual, **others})


def names(effects: tuple[Effect, ...]) -> list[str]:
    """What was asked for, as a reader of a table wants it."""
    told = []
    for effect in effects:
        fields = msgspec.structs.asdict(effect)
        about = fields.get("action") or fields.get("timer") or fields.get("event")
        told.append(type(effect).__name__ + (f" {about}" if about else ""))
    return told


class Driven:
    """One payout with its merchant's ledger."""

    def __init__(self, payout: Payout, available: int, policy: ChannelPolicy = POLICY) -> None:
        self.payout, self.policy = payout, policy
        self.balances = Balances(available=available, external=-available)
        self.hold: Hold | None = None
        self.ledger_works = True
        self.movements: list[ledger.Movement] = []

    def take(self, message: Message, now_ms: int) -> list[Effect]:
        """Advance, and go on with what the ledger answers; what is left is asked of others."""
        left: list[Effect] = []
        waiting = [message]
        while waiting:
            self.payout, effects = advance(self.payout, waiting.pop(0), self.policy, now_ms)
            for effect in effects:
                if isinstance(effect, Reserve | Post | Void):
                    waiting.append(self._book(effect))
                else:
                    left.append(effect)
        return left

    def begin(self, now_ms: int) -> list[Effect]:
        return self.take(Begin(), now_ms)

    def _book(self, effect: Effect) -> Message:
        if not self.ledger_works:
            return LedgerRefused("broken", "the test says so")
        if isinstance(effect, Reserve):
            answer, done = ledger.reserve(self.balances, self.hold, self.payout.amount_minor), Reserved()  # type: tuple[Any, Message]
        elif isinstance(effect, Post):
            answer, done = ledger.post(self.balances, self.hold, self.payout.fee_minor), Posted()
        else:
            answer, done = ledger.void(self.balances, self.hold), Voided()
        if not isinstance(answer, Booked):
            return LedgerRefused(answer.reason, answer.detail)
        self.balances, self.hold = answer.balances, answer.hold
        self.movements += answer.movements
        return done
