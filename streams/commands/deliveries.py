"""Where an event's deliveries stand: those that have a status, and what is true of those that have none yet. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from schemas.event import Event
from streams.commands.times import readable_ms
from streams.delivery.sealing import Keyring
from streams.delivery.subscription import Subscription

WAITS = {
    "RETRY": "for its next attempt",
    "THROTTLED": "for its turn: the subscription's rate, or its endpoint, lets no more through",
    "PARKED": "behind an earlier event of its resource",
    "PAUSED": "until its subscription is resumed",
    "BREAKER": "until its endpoint answers again",
    "HELD": "until merchants can be reached again: deliveries are held",
}
LOOKING = Keyring({"none": bytes(32)})
"""Whether an event is wanted needs no secret, so none is opened."""

Place = tuple[int, int]
"""A record's partition and offset in the events log."""


class Handled(msgspec.Struct, frozen=True):
    """How far a role has read one partition of the events log."""

    committed: int = 0
    high: int = 0
    unfinished: frozenset[int] = frozenset()

    def standing(self, offset: int) -> str:
        """Whether a record was not read yet, is under way, or is done with."""
        if offset == self.committed or offset in self.unfinished:
            return "UNDER_WAY" if offset < self.high else "UNREAD"
        return "DONE" if offset < self.high else "UNREAD"


class Untold(msgspec.Struct, frozen=True):
    """A subscription that wants the event and has no status of it. Nothing comes of one that is not PENDING."""

    event_id: str
    source: str
    merchant: str
    subscription_id: str
    state: str
    reason: str


def event_named(key: bytes | None) -> bytes:
    """Take the event's id out of a status record's key: source, event and subscription, of which only a source may have spaces."""
    parts = (key or b"").rsplit(b" ", 2)
    return parts[1] if len(parts) == 3 else b""


def untold(event: Event, offset: int, told: Iterable[str], subscriptions: Iterable[Mapping[str, Any]], handled: Handled) -> list[Untold]:
    """What is true of the subscriptions that want an event and are not among those that tell of it."""
    known = set(told)
    found = []
    for fields in subscriptions:
        if fields["merchant"] != event.merchant or fields["id"] in known or not Subscription(fields, LOOKING).wants(event):
            continue
        state, reason = _standing(fields, handled.standing(offset))
        found.append(Untold(event.id, event.source, event.merchant, fields["id"], state, reason))
    return found


def _standing(subscription: Mapping[str, Any], handled: str) -> tuple[str, str]:
    name = subscription["id"]
    if handled == "DONE":
        return "NOT_GIVEN", (
            "when its turn came, the subscription did not want it, or was disabled, or did not exist: "
            f"`hookline replay --missing-only --subscription {name} --from …` sends it"
        )
    if subscription["state"] == "DISABLED":
        return "NOT_GIVEN", f"its subscription is disabled: `hookline subscriptions enable {name} --replay` sends it"
    if handled == "UNDER_WAY":
        return "PENDING", "a worker has it, or had it when it ended, and no attempt is through"
    return "PENDING", "no worker has read it yet: `hookline offsets show deliver` tells how far they are"


def why_it_waits(status: Mapping[str, Any], now_ms: int) -> str | None:
    """Say what a delivery waits for, and until when; None: it does not wait."""
    if status["waits_for"] is None:
        return None
    what = WAITS.get(status["waits_for"], f"for {status['waits_for'].lower()}")
    due_ms = status["next_retry_ms"]
    if due_ms is None:
        return what
    return f"{what}, due in {readable_ms(due_ms - now_ms)}" if due_ms > now_ms else f"{what}, due now"
