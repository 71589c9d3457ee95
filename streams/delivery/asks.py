"""What a person asks about deliveries that wait: go now, go never, or come back after their subscription was disabled.

The replay agent passes such requests on into `deliveries`, once for each partition. One that finds its delivery under way, or more
than it can do at once, goes round and comes back.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import structlog

import schemas
from streams.delivery import delivery as deliveries
from streams.delivery import order
from streams.delivery.cancelling import cancel
from streams.delivery.delivery import Delivery
from streams.delivery.generations import renewed
from streams.delivery.state import ShardMemory, waits
from streams.delivery.subscription import Subscriptions
from streams.errors import MalformedRecord
from streams.ladder.handler import DUE, RETURN
from streams.ladder.rules import Ladder
from streams.log.records import NOTHING, Change, Outcome, Record, Write
from topology import topics

ASK = "hookline-ask"
"""The header that tells a request from a delivery; its value counts how often it went round in vain."""
RELEASED_AT_ONCE = 200
ROUND_MS = 5_000
ROUNDS_MAX = 120
"""After ten minutes a subscription that is still disabled is not about to be enabled."""

log_line = structlog.get_logger()


def ask_of(value: bytes, replay_id: str) -> Write:
    """The record that passes a request on."""
    return Write(topics.DELIVERIES, replay_id.encode(), value, ((ASK, b"0"),))


def rounds_of(record: Record) -> int | None:
    """How often a request went round; None for a delivery."""
    if not record.headers:
        return None
    found = next((value for name, value in record.headers if name == ASK), None)
    return None if found is None else int(found) if found.isdigit() else 0


class Asks:
    """Answers requests from what one shard knows."""

    def __init__(self, subscriptions: Subscriptions, remembered_ms: int, ladder: Ladder) -> None:
        self._subscriptions = subscriptions
        self._remembered_ms = remembered_ms
        self._ladder = ladder

    def plan(self, record: Record, rounds: int, memory: ShardMemory, now_ms: int) -> Outcome:
        """Do what is asked, at once."""
        request = schemas.decode(record.value or b"", schemas.REPLAY_REQUEST)
        match request["action"]:
            case "CANCEL":
                return self._cancel(record, rounds, request, memory, now_ms)
            case "RETRY_NOW":
                return self._retry_now(request, memory, now_ms)
            case "START":
                return self._release(record, rounds, request, memory, now_ms)
        raise MalformedRecord(f"request {request['id'][:80]!r} asks {request['action']} of deliveries, which is for the replay agent to do")

    def _cancel(self, record: Record, rounds: int, request: Mapping[str, Any], memory: ShardMemory, now_ms: int) -> Outcome:
        writes: list[Write] = []
        changes: list[Change] = []
        why = f"cancelled by {request['requested_by']}" + (f": {request['note']}" if request["note"] else "")
        for subscription_id in self._subscriptions_of(request):
            subscription = self._subscriptions.by_id.get(subscription_id)
            parked = ((key, each) for key, each in memory.parked_of_event(subscription_id, request["event_id"]) if is_meant(each, request))
            waiting = [(b"", each) for each in waiting_of(request, subscription_id, memory) if each.key not in memory.under_way]
            for key, delivery in (*waiting, *parked):
                if key:
                    changes.append((key, None))
                over = cancel(delivery, why, memory, now_ms, self._remembered_ms, writes, changes, kept=False)
                if order.is_head(over, memory):
                    order.go_on(over, subscription, memory, now_ms, writes, changes)
        if any(is_key_meant(key, request) for key in memory.under_way):
            writes.append(round_again(record, rounds, self._ladder, now_ms))
        return Outcome(writes, changes) if writes else NOTHING

    def _retry_now(self, request: Mapping[str, Any], memory: ShardMemory, now_ms: int) -> Outcome:
        writes: list[Write] = []
        changes: list[Change] = []
        for subscription_id in self._subscriptions_of(request):
            for delivery in waiting_of(request, subscription_id, memory):
                if delivery.key not in memory.under_way:
                    send_anew(delivery, delivery.generation + 1, request["id"], now_ms, writes, changes)
        return Outcome(writes, changes) if writes else NOTHING

    def _release(self, record: Record, rounds: int, request: Mapping[str, Any], memory: ShardMemory, now_ms: int) -> Outcome:
        """Send again what the disabling cancelled, the oldest first."""
        name = request["subscription_id"] or ""
        subscription = self._subscriptions.by_id.get(name)
        if subscription is None:
            return NOTHING
        if memory.is_disabled(subscription):
            if rounds < ROUNDS_MAX:
                return Outcome([round_again(record, rounds + 1, self._ladder, now_ms)])
            log_line.warning("release.given_up", request=request["id"], subscription=name, reason="it is still disabled: enable it first")
            return NOTHING
        writes: list[Write] = []
        changes: list[Change] = []
        for count, (key, delivery) in enumerate(memory.kept(name)):
            if count == RELEASED_AT_ONCE:
                writes.append(Write(topics.DELIVERIES, record.key, record.value, record.headers))
                break
            entry = memory.entry(delivery)
            if entry is None or (entry.standing == "over" and entry.generation == delivery.generation):
                send_anew(delivery, delivery.generation + 1, request["id"], now_ms, writes, changes)
            else:
                changes.append((key, None))
        return Outcome(writes, changes) if changes else NOTHING

    def _subscriptions_of(self, request: Mapping[str, Any]) -> list[str]:
        named = request["subscription_id"]
        return [named] if named is not None else [*self._subscriptions.by_id, *self._subscriptions.deleted]


def send_anew(
    delivery: Delivery, generation: int, replay_id: str, now_ms: int, writes: list[Write], changes: list[Change]
) -> None:  # fmt: skip
    """Back through the log as a new generation."""
    anew = msgspec.structs.replace(renewed(delivery, generation, replay_id), due_ms=now_ms)
    sent = deliveries.sent_back(anew, now_ms)
    writes += [sent, deliveries.status(anew, "PENDING", now_ms)]
    changes += waits(anew, sent.value)


def waiting_of(request: Mapping[str, Any], subscription_id: str, memory: ShardMemory) -> Iterator[Delivery]:
    """What waits of the event that is meant."""
    return (each for _, each in memory.waiting(subscription_id, request["event_id"]) if is_meant(each, request))


def is_meant(delivery: Delivery, request: Mapping[str, Any]) -> bool:
    """Whether the request is about this delivery, in its subscription."""
    return delivery.event_id == request["event_id"] and request["source"] in (None, delivery.source)


def is_key_meant(key: bytes, request: Mapping[str, Any]) -> bool:
    """Whether the request is about the delivery of this key."""
    source, event_id, subscription_id = key.decode().rsplit(" ", 2)
    meant = (request["source"], request["event_id"], request["subscription_id"])
    return all(wanted in (None, found) for wanted, found in zip(meant, (source, event_id, subscription_id), strict=True))


def round_again(record: Record, rounds: int, ladder: Ladder, now_ms: int) -> Write:
    """The same request, a little later."""
    due_ms = now_ms + ROUND_MS
    headers = ((DUE, b"%d" % due_ms), (RETURN, topics.DELIVERIES.name.encode()), (ASK, b"%d" % rounds))
    return Write(ladder.next_hop(due_ms, now_ms) or topics.DELIVERIES, record.key, record.value, headers)
