"""From an event, or a delivery that comes back, to an attempt and what follows it.

plan      which deliveries an event makes, and whether each goes now, is parked, or is known already
perform   waits for its turn, makes and signs the body, posts it
conclude  writes what came of it: delivered, on the ladder, dead; and lets the next of an ordered resource go
tick      lets parked deliveries go when their subscription is active again, and cancels what waits for a disabled one
"""

import random
from collections.abc import Sequence
from typing import Protocol

import msgspec
import structlog

from schemas.events import decode_event
from streams.delivery import delivery as deliveries
from streams.delivery import order
from streams.delivery.asks import Asks, rounds_of
from streams.delivery.brake import Brake, connected
from streams.delivery.cancelling import DELETED, DISABLED, cancel, cancel_unwanted
from streams.delivery.delivery import Delivery
from streams.delivery.gate import Gate, Pass
from streams.delivery.generations import NEXT, is_current, next_generation
from streams.delivery.lane import BUSY_MS, Clock
from streams.delivery.operational import operational_event
from streams.delivery.payload import SerialisationFailed, body_of
from streams.delivery.results import Answer, Failure, Result
from streams.delivery.rules import NO_STREAK, DeadLetter, Delivered, Gone, RetryAt, is_success, is_tls_error, judge, why_disable
from streams.delivery.signing import SigningFailed
from streams.delivery.state import Health, ShardMemory, entry_change, health_change, no_copies, parked_key, waits
from streams.delivery.subscription import OPERATIONAL_SOURCE, Subscription, Subscriptions, changed, encoded
from streams.delivery.tasks import Cancel, Park, Post, Posted, PutOff, Task, Unsendable
from streams.ladder.rules import UNSCALED, Ladder
from streams.log.records import NOTHING, Change, Outcome, Record, Work, Write
from topology import topics

DAY_MS = 24 * 3_600_000

log_line = structlog.get_logger()


class Poster(Protocol):
    """What posting needs."""

    async def post(
        self, url: str, headers: bytes, body: bytes, answer_timeout_s: float, connect_timeout_s: float | None = None
    ) -> Answer | Failure:
        """Post once and say what came of it."""


class DeliveryWorld(Clock, Protocol):
    """Where deliveries happen."""

    client: Poster
    gate: Gate


class Deliverer:
    """The deliver agent's functions, on the table of subscriptions."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        brake: Brake,
        remembered_ms: int = 7 * DAY_MS,
        chance: random.Random | None = None,
        ladder: Ladder = UNSCALED,
    ) -> None:
        self._subscriptions = subscriptions
        self._brake = brake
        self._remembered_ms = remembered_ms
        self._asks = Asks(subscriptions, remembered_ms, ladder)
        self._chance = chance or random.Random()
        self._ladder = ladder

    # Plan

    def plan(self, record: Record, memory: ShardMemory, now_ms: int) -> Outcome | Sequence[Work[Task]]:
        """What a record asks for."""
        if record.topic is topics.EVENTS:
            return self._plan_event(record, memory)
        rounds = rounds_of(record)
        if rounds is not None:
            return self._asks.plan(record, rounds, memory, now_ms)
        return self._plan_return(deliveries.decode(record.value), memory)

    def _plan_event(self, record: Record, memory: ShardMemory) -> Sequence[Work[Task]]:
        event = decode_event(record.value, record.headers, record.key, record.timestamp_ms)
        works = []
        for subscription in self._subscriptions.of(event.merchant):
            if subscription.destination != "HTTP" or memory.is_disabled(subscription) or not subscription.wants(event):
                continue
            delivery = deliveries.from_event(event, subscription.id, record)
            if delivery.key not in memory.under_way and memory.entry(delivery) is None:
                works.append(self._next(delivery, subscription, memory))
        return works

    def _plan_return(self, delivery: Delivery, memory: ShardMemory) -> Sequence[Work[Task]]:
        if delivery.key in memory.under_way:
            return ()
        if delivery.generation == NEXT:
            made = next_generation(delivery, memory)
            if made is None:
                return ()
            delivery = made
        elif not is_current(delivery, memory.entry(delivery)):
            return ()
        subscription = self._subscriptions.by_id.get(delivery.subscription_id)
        if subscription is None:
            return [Work(Cancel(delivery, DELETED))]
        if memory.is_disabled(subscription):
            return [Work(Cancel(delivery, DISABLED))]
        return [self._next(delivery, subscription, memory)]

    def _next(self, delivery: Delivery, subscription: Subscription, memory: ShardMemory) -> Work[Task]:
        """Post it, or park it: behind a pause, or behind an earlier event of its resource."""
        why = order.why_parked(delivery, subscription, memory)
        if why is not None:
            memory.with_parked().add(subscription.id)
            waiting = msgspec.structs.replace(delivery, waits_for=why, due_ms=None)
            parked = (parked_key(waiting), deliveries.encode(waiting))
            memory.swept.pop(subscription.id, None)
            return Work(Park(waiting), [parked, entry_change(waiting, "parked"), *no_copies(delivery)])
        memory.under_way.add(delivery.key)
        if subscription.ordered and delivery.resource is not None:
            memory.busy.add((subscription.id, delivery.resource))
            if delivery.sequence is None:
                turn = memory.turn(subscription.id, delivery.resource)
                delivery = msgspec.structs.replace(delivery, sequence=turn.next_sequence)
        lane = memory.lane(subscription) if delivery.replay_id is None else memory.side_lane(subscription)
        return Work(Post(delivery, subscription, lane))

    # Perform

    async def perform(self, task: Task, world: DeliveryWorld) -> PutOff | Unsendable | Posted | None:
        """Post, when it is its turn. It never raises: whatever goes wrong is what came of the attempt."""
        if not isinstance(task, Post):
            return None
        delivery, subscription, lane = task.delivery, task.subscription, task.lane
        if subscription.trouble is not None:
            return Unsendable("REFUSED", subscription.trouble)
        held_ms = self._brake.hold(subscription.merchant, world.now_ms())
        if held_ms is not None:
            return PutOff(held_ms, "HELD")
        later = await lane.enter(delivery.slot_ms)
        if later is not None:
            return PutOff(later.slot_ms, later.why, later.granted)
        result: Result | None = None
        entered: Pass | None = None
        try:
            entered = await world.gate.enter(lane.pace)
            if entered is None:
                later = lane.put_off(world.now_ms() + BUSY_MS)
                return PutOff(later.slot_ms, later.why, later.granted)
            at_ms = world.now_ms()
            if not self._still_takes(subscription):
                return PutOff(at_ms, "PAUSED")
            try:
                delivery = with_body(delivery, subscription)
                assert delivery.body is not None
                headers = subscription.signer(at_ms).headers(
                    delivery.event_id, delivery.event_type, delivery.attempts_spent + 1, at_ms // 1_000, delivery.body, delivery.sequence
                )
            except SerialisationFailed as error:
                return Unsendable("SERIALISATION_FAILED", str(error))
            except SigningFailed as error:
                return Unsendable("SIGNING_FAILED", str(error))
            profile = subscription.profile
            result = await world.client.post(
                subscription.url, headers, delivery.body, profile.answer_timeout_ms / 1_000, profile.connect_timeout_ms / 1_000
            )
            return Posted(result, at_ms, delivery, headers)
        finally:
            if entered is not None:
                world.gate.leave(entered)
            lane.leave(result)

    def _still_takes(self, subscription: Subscription) -> bool:
        """Whether a subscription was neither paused, disabled nor deleted while a delivery waited in its lane."""
        current = self._subscriptions.by_id.get(subscription.id)
        return current is not None and current.state == "ACTIVE"

    # Conclude

    def conclude(self, task: Task, result: PutOff | Unsendable | Posted | None, memory: ShardMemory, now_ms: int) -> Outcome:
        """What is true from now on."""
        if isinstance(task, Park):
            entry = memory.entry(task.delivery)  # it may have been cancelled in the same moment
            is_parked = entry is not None and entry.standing == "parked"
            return Outcome([deliveries.status(task.delivery, "PENDING", now_ms)]) if is_parked else NOTHING
        if isinstance(task, Cancel):
            return self._cancelled(task.delivery, task.why, memory, now_ms)
        memory.under_way.discard(task.delivery.key)
        if task.delivery.resource is not None:
            memory.busy.discard((task.subscription.id, task.delivery.resource))
        if isinstance(result, PutOff):
            return self._put_off(task, result, memory, now_ms)
        if isinstance(result, Unsendable):
            dead = self._dead(task.delivery, task.subscription, result.state, result.detail, memory, now_ms)
            return without_copies(dead, task.delivery)
        assert isinstance(result, Posted)
        return self._posted(task.subscription, result, memory, now_ms)

    def _cancelled(self, delivery: Delivery, why: str, memory: ShardMemory, now_ms: int) -> Outcome:
        writes: list[Write] = []
        changes: list[Change] = []
        subscription = self._subscriptions.by_id.get(delivery.subscription_id)
        over = cancel(delivery, why, memory, now_ms, self._remembered_ms, writes, changes, kept=subscription is not None)
        order.go_on(over, subscription, memory, now_ms, writes, changes)
        return Outcome(writes, changes)

    def _put_off(self, task: Post, put_off: PutOff, memory: ShardMemory, now_ms: int) -> Outcome:
        """It spends no attempt. The slots granted so far are kept, so that a restart does not grant them again."""
        delivery = msgspec.structs.replace(
            task.delivery,
            slot_ms=put_off.due_ms if put_off.why == "THROTTLED" and put_off.granted else None,
            due_ms=put_off.due_ms,
            waits_for=put_off.why,
        )
        health = memory.health(task.subscription.id)
        sent = deliveries.sent_on(delivery, self._ladder, now_ms)
        changes = [*waits(delivery, sent.value), health_change(task.subscription.id, Health(health.streak, task.lane.pace.slots))]
        memory.swept.pop(delivery.subscription_id, None)
        order.keep_head(delivery, task.subscription, memory, now_ms, changes)
        return Outcome([sent, deliveries.status(delivery, "PENDING", now_ms)], changes)

    def _posted(self, subscription: Subscription, posted: Posted, memory: ShardMemory, now_ms: int) -> Outcome:
        result, before = posted.result, posted.delivery
        self._brake.note(subscription.merchant, connected(result), now_ms)
        verdict = judge(before.attempts_spent + 1, result, subscription.policy, now_ms, self._chance.random())
        visible = subscription.signer(posted.at_ms).visible_headers(posted.headers)
        delivery = msgspec.structs.replace(
            before,
            attempts_spent=before.attempts_spent + 1,
            history=[*before.history, deliveries.attempt(before, result, posted.at_ms, visible)],
            slot_ms=None,
            due_ms=None,
            waits_for=None,
        )
        if isinstance(verdict, Delivered):
            outcome = self._delivered(delivery, subscription, memory, now_ms)
        elif isinstance(verdict, RetryAt):
            outcome = self._retried(delivery, subscription, verdict, memory, now_ms)
        elif isinstance(verdict, DeadLetter):
            outcome = self._dead(delivery, subscription, verdict.reason, verdict.detail, memory, now_ms)
        else:
            outcome = self._dead(delivery, subscription, "GONE", verdict.detail, memory, now_ms)
        if not isinstance(verdict, RetryAt):
            outcome = without_copies(outcome, before)
        return self._with_health(outcome, subscription, result, memory, now_ms, gone=isinstance(verdict, Gone))

    def _delivered(self, delivery: Delivery, subscription: Subscription, memory: ShardMemory, now_ms: int) -> Outcome:
        writes = [deliveries.status(delivery, "DELIVERED", now_ms, url=subscription.url)]
        changes = [entry_change(delivery, "over", now_ms + self._remembered_ms)]
        order.go_on(delivery, self._subscriptions.by_id.get(delivery.subscription_id), memory, now_ms, writes, changes)
        return Outcome(writes, changes)

    def _retried(self, delivery: Delivery, subscription: Subscription, retry: RetryAt, memory: ShardMemory, now_ms: int) -> Outcome:
        delivery = msgspec.structs.replace(delivery, due_ms=retry.due_ms, waits_for="RETRY")
        sent = deliveries.sent_on(delivery, self._ladder, now_ms)
        changes = waits(delivery, sent.value)
        memory.swept.pop(delivery.subscription_id, None)
        order.keep_head(delivery, subscription, memory, now_ms, changes)
        told = deliveries.status(delivery, "WAITING_RETRY", now_ms, reason=retry.reason, url=subscription.url)
        return Outcome([sent, told], changes)

    def _dead(self, delivery: Delivery, subscription: Subscription, reason: str, detail: str, memory: ShardMemory, now_ms: int) -> Outcome:
        delivery = msgspec.structs.replace(delivery, due_ms=None, waits_for=None)
        state = reason if reason in ("SERIALISATION_FAILED", "SIGNING_FAILED") else "DLQ"
        writes = [
            deliveries.dead_letter(delivery, reason, detail, now_ms),
            deliveries.status(delivery, state, now_ms, reason=detail, url=subscription.url),
            *self._told(
                "delivery.exhausted" if reason == "EXHAUSTED" else "delivery.failed",
                f"{delivery.subscription_id}/{delivery.event_id}/{delivery.generation}",
                f"Event {delivery.event_id} was not delivered to {subscription.id}: {detail}",
                subscription, delivery.source, now_ms, event_id=delivery.event_id, reason=reason,
            ),
        ]  # fmt: skip
        changes = [entry_change(delivery, "over", now_ms + self._remembered_ms)]
        if subscription.holds_behind_dead_letter:
            order.keep_head(delivery, subscription, memory, now_ms, changes, held=True)
        else:
            order.go_on(delivery, self._subscriptions.by_id.get(delivery.subscription_id), memory, now_ms, writes, changes)
        return Outcome(writes, changes)

    def _with_health(
        self, outcome: Outcome, subscription: Subscription, result: Result, memory: ShardMemory, now_ms: int, gone: bool
    ) -> Outcome:
        """Count the attempt; a subscription that has failed for too long, or is gone, is disabled, and once enabled it begins anew."""
        health = memory.health(subscription.id)
        streak = health.streak.after(is_success(result), is_tls_error(result), now_ms)
        if streak == health.streak:
            return outcome
        why = "gone" if gone else why_disable(streak, now_ms, subscription.disable_rule)
        after = Health(streak if why is None else NO_STREAK, health.slots)
        writes, changes = [*outcome.writes], [*outcome.changes, health_change(subscription.id, after)]
        current = self._subscriptions.by_id.get(subscription.id)  # as people have it by now: a change of theirs is not undone
        if why is not None and current is not None and not memory.is_disabled(current):
            writes += self._disabled(current, why, memory, now_ms)
        return Outcome(writes, changes)

    def _disabled(self, subscription: Subscription, why: str, memory: ShardMemory, now_ms: int) -> list[Write]:
        memory.disabled[subscription.id] = subscription.revision
        fields = changed(subscription.fields, now_ms, state="DISABLED", state_reason=why, state_since_ms=now_ms)
        summary = (
            f"Subscription {subscription.id} was disabled: {WHY_DISABLED[why]}. Mend the endpoint, enable it and replay what it missed."
        )
        return [
            Write(topics.SUBSCRIPTIONS, subscription.id.encode(), encoded(fields), partition=0),
            *self._told("subscription.disabled", f"{subscription.id}/{fields['revision']}", summary, subscription, "", now_ms, reason=why),
        ]

    def _told(
        self, kind: str, subject: str, summary: str, subscription: Subscription, source: str, now_ms: int,
        event_id: str | None = None, **details: str,
    ) -> list[Write]:  # fmt: skip
        """Tell operators; and the merchant, if it asked and this is not about telling it."""
        asked = any(each.is_operational and each.state != "DISABLED" for each in self._subscriptions.of(subscription.merchant))
        return operational_event(
            kind, "WARNING", subject, summary, subscription, now_ms,
            deliver_to_merchant=asked and source != OPERATIONAL_SOURCE, event_id=event_id, **details,
        )  # fmt: skip

    # Tick

    def tick(self, memory: ShardMemory, now_ms: int) -> Outcome:
        """Let parked deliveries go whose subscription is no longer paused and whose turn has come; tell of the brake."""
        writes = self._braked(now_ms)
        changes: list[Change] = []
        cancel_unwanted(self._subscriptions, memory, now_ms, self._remembered_ms, writes, changes)
        for subscription_id in sorted(memory.with_parked()):
            subscription = self._subscriptions.by_id.get(subscription_id)
            if (subscription is not None and subscription.state != "ACTIVE") or subscription_id in self._subscriptions.deleted:
                continue
            if not order.release_some(subscription_id, subscription, memory, now_ms, writes, changes):
                memory.with_parked().discard(subscription_id)
        return Outcome(writes, changes) if writes else NOTHING

    def _braked(self, now_ms: int) -> list[Write]:
        change = self._brake.change(now_ms)
        if change is None:
            return []
        log_line.warning("deliveries.brake", change=change, tried=self._brake.tried, failed=self._brake.failed)
        summary = (
            f"{self._brake.failed} of {self._brake.tried} merchants cannot be reached: deliveries are held, look at our own network."
            if change == "ON"
            else "Merchants can be reached again: deliveries go on."
        )
        return operational_event(
            f"deliveries.brake_{change.lower()}", "CRITICAL" if change == "ON" else "INFO", str(now_ms), summary, None, now_ms
        )


WHY_DISABLED = {
    "gone": "its endpoint answered 410 Gone",
    "failures": "it has failed too many times in a row",
    "tls": "its TLS has failed for too long",
}


def without_copies(outcome: Outcome, before: Delivery) -> Outcome:
    """What is over is not found waiting any more."""
    copies = no_copies(before)
    return Outcome(outcome.writes, [*outcome.changes, *copies]) if copies else outcome


def with_body(delivery: Delivery, subscription: Subscription) -> Delivery:
    """Freeze the body at the first attempt: later ones send the same bytes, whatever the subscription has become."""
    if delivery.body is not None:
        return delivery
    version = delivery.payload_version or subscription.version  # a replay makes the bytes that were sent before
    body = body_of(delivery.event_id, delivery.event_type, delivery.event_time_ms, delivery.data or b"", version, delivery.sequence)
    return msgspec.structs.replace(delivery, body=body, data=None, payload_version=version)
