"""The records that are written about payouts: status, tasks and timers, ledger entries, events and alerts."""

from collections.abc import Sequence
from typing import Any

import orjson

import schemas
from schemas.event import Event
from schemas.events import encode_event
from streams.ladder.handler import DUE, RETURN
from streams.ladder.rules import Ladder
from streams.log.records import BY_KEY, Write
from streams.payouts.batch import Batch
from streams.payouts.ledger import Movement
from streams.payouts.messages import Alert, Call, Wait
from streams.payouts.money import to_decimal
from streams.payouts.payout import Payout, Transition
from streams.payouts.policy import ChannelPolicy
from topology import topics
from topology.topics import Topic

SOURCE = "hookline/payouts"
"""Who tells the events of payouts. Not `hookline`, whose events are about Hookline itself."""


def when_due(topic: Topic, key: bytes, value: bytes, due_ms: int, ladder: Ladder, now_ms: int) -> Write:
    """To a topic now, or over the ladder when it is due."""
    rung = ladder.next_hop(due_ms, now_ms)
    if rung is None:
        return Write(topic, key, value)
    return Write(rung, key, value, ((DUE, b"%d" % due_ms), (RETURN, topic.name.encode())))


def task(payout: Payout, call: Call, policy: ChannelPolicy, ladder: Ladder, now_ms: int) -> Write:
    """A call to the channel. All tries of a payout have one key at the channel: its merchant and id."""
    value = {
        "id": f"{payout.merchant}/{payout.payout_id}/{call.action.lower()}/{call.number}",
        "payout_id": payout.payout_id,
        "merchant": payout.merchant,
        "channel": payout.channel,
        "action": call.action,
        "number": call.number,
        "idempotency_key": f"{payout.merchant}/{payout.payout_id}",
        "amount_minor": payout.net_minor,
        "currency": payout.currency,
        "beneficiary": payout.beneficiary if call.action == "SUBMIT" else None,
        "channel_reference": payout.channel_reference,
        "timeout_ms": policy.timeout_ms,
        "issued_ms": max(call.due_ms, now_ms),
        "trace_id": payout.trace_id,
        "metadata": payout.metadata if call.action == "SUBMIT" else {},
    }
    return when_due(topics.PAYOUT_TASKS, payout.key, schemas.encode(schemas.PAYOUT_TASK, value), call.due_ms, ladder, now_ms)


def timer(payout: Payout, wait: Wait, ladder: Ladder, now_ms: int) -> Write:
    """A record that comes back when the time has come."""
    value = {
        "task_id": f"{payout.merchant}/{payout.payout_id}/{wait.timer}/{wait.mark}",
        "payout_id": payout.payout_id,
        "merchant": payout.merchant,
        "channel": payout.channel,
        "action": "WAIT",
        "number": 0,
        "outcome": "DUE",
        "code": wait.timer,
        "timer_mark": wait.mark,
        "duration_ms": 0,
        "replied_ms": wait.due_ms,
        "trace_id": payout.trace_id,
    }
    return when_due(topics.PAYOUT_REPLIES, payout.key, schemas.encode(schemas.PAYOUT_REPLY, value), wait.due_ms, ladder, now_ms)


def status(payout: Payout) -> Write:
    """Where a payout stands, with its history."""
    word = payout.resolution
    value = {
        "payout_id": payout.payout_id,
        "merchant": payout.merchant,
        "state": payout.state,
        "reason": payout.reason,
        "beneficiary_id": payout.beneficiary_id,
        "channel": payout.channel,
        "amount_minor": payout.amount_minor,
        "fee_minor": payout.fee_minor,
        "net_minor": payout.net_minor,
        "currency": payout.currency,
        "idempotency_key": payout.idempotency_key,
        "request_fingerprint": payout.fingerprint,
        "command_id": payout.command_id,
        "transfer_id": _transfer_id(payout, "reservation") if payout.submissions or payout.compensations else None,
        "channel_reference": payout.channel_reference,
        "tries": payout.tries,
        "polls": payout.polls,
        "scheduled_ms": payout.scheduled_ms,
        "deadline_ms": payout.deadline_ms,
        "batch_id": payout.batch_id,
        "batch_index": payout.batch_index,
        "resolution": word and {
            "status": word.status, "resolved_by": word.resolved_by, "confirmed_by": word.confirmed_by, "notes": word.notes,
            "resolved_ms": word.resolved_ms,
        },
        "history": [_step(step) for step in payout.history],
        "trace_id": payout.trace_id,
        "metadata": payout.metadata,
        "created_ms": payout.created_ms,
        "updated_ms": payout.updated_ms,
    }  # fmt: skip
    return Write(topics.PAYOUT_STATUS, payout.key, schemas.encode(schemas.PAYOUT_STATUS, value))


def _step(step: Transition) -> dict[str, Any]:
    cause = step.cause and {
        "topic": step.cause.topic, "partition": step.cause.partition, "offset": step.cause.offset, "timestamp_ms": step.cause.timestamp_ms,
    }  # fmt: skip
    return {
        "at_ms": step.at_ms, "from_state": step.from_state, "to_state": step.to_state, "message": step.message, "detail": step.detail,
        "cause": cause,
    }  # fmt: skip


def refused(merchant: str, payout_id: str, reason: str, detail: str, command_id: str, now_ms: int, **others: Any) -> Write:
    """The answer to a command that has no effect, where no payout has that name."""
    value = {
        "payout_id": payout_id,
        "merchant": merchant,
        "state": "REFUSED",
        "reason": reason,
        "command_id": command_id,
        "history": [{"at_ms": now_ms, "from_state": None, "to_state": "REFUSED", "message": reason, "detail": detail}],
        "created_ms": now_ms,
        "updated_ms": now_ms,
        **others,
    }
    return Write(topics.PAYOUT_STATUS, f"{merchant} {payout_id}".encode(), schemas.encode(schemas.PAYOUT_STATUS, value))


def batch_status(batch: Batch) -> Write:
    """Where a batch stands."""
    value = {
        "batch_id": batch.batch_id,
        "merchant": batch.merchant,
        "state": batch.state,
        "reason": batch.reason,
        "items_total": batch.items_total,
        "items_succeeded": batch.succeeded,
        "items_failed": batch.failed,
        "items_stuck": batch.stuck,
        "total_processed": batch.processed,
        "amount_minor_succeeded": batch.amount_minor_succeeded,
        "amount_minor_total": batch.amount_minor_total,
        "currency": batch.currency,
        "created_ms": batch.created_ms,
        "updated_ms": batch.updated_ms,
    }
    return Write(topics.PAYOUT_BATCH_STATUS, batch.key, schemas.encode(schemas.PAYOUT_BATCH_STATUS, value))


def refused_batch(merchant: str, batch_id: str, items_total: int, reason: str, now_ms: int) -> Write:
    """The answer to a header that has no effect."""
    value = {
        "batch_id": batch_id, "merchant": merchant, "state": "REFUSED", "reason": reason, "items_total": items_total, "created_ms": now_ms,
        "updated_ms": now_ms,
    }  # fmt: skip
    return Write(topics.PAYOUT_BATCH_STATUS, f"{merchant} {batch_id}".encode(), schemas.encode(schemas.PAYOUT_BATCH_STATUS, value))


# The ledger


def _transfer_id(payout: Payout, name: str) -> str:
    return f"{payout.merchant}/{payout.payout_id}/{name}"


def payout_entries(payout: Payout, movements: Sequence[Movement], now_ms: int) -> list[Write]:
    """The entries of what was booked for a payout."""
    reservation = _transfer_id(payout, "reservation")
    return [
        entry(
            movement, _transfer_id(payout, movement.name), payout.merchant, payout.currency, now_ms,
            pending_id=reservation if movement.ends_reservation else None, payout_id=payout.payout_id, command_id=payout.command_id,
        )
        for movement in movements
    ]  # fmt: skip


def entry(movement: Movement, transfer_id: str, merchant: str, currency: str, now_ms: int, **others: Any) -> Write:
    """One entry of the ledger."""
    value = {
        "id": transfer_id,
        "state": movement.state,
        "debit_account": account(merchant, currency, movement.debit),
        "credit_account": account(merchant, currency, movement.credit),
        "amount_minor": movement.amount_minor,
        "currency": currency,
        "purpose": movement.purpose,
        "merchant": merchant,
        "at_ms": now_ms,
        **others,
    }
    return Write(topics.LEDGER_ENTRIES, transfer_id.encode(), schemas.encode(schemas.LEDGER_TRANSFER, value))


def account(merchant: str, currency: str, purpose: str) -> str:
    """An account's name."""
    return f"{merchant}/{currency}/{purpose}"


# What is told


def payout_event(payout: Payout, kind: str, now_ms: int) -> Write:
    """To the merchant, as an event like any other. Its id is the same whenever it is told."""
    told: dict[str, Any] = {
        "payout_id": payout.payout_id,
        "status": payout.state,
        "reason": payout.reason,
        "beneficiary_id": payout.beneficiary_id,
        "channel": payout.channel,
        "channel_reference": payout.channel_reference,
        "currency": payout.currency,
        "amount": to_decimal(payout.amount_minor, payout.currency),
        "fee": to_decimal(payout.fee_minor, payout.currency),
        "net_amount": to_decimal(payout.net_minor, payout.currency),
        "amount_minor": payout.amount_minor,
        "fee_minor": payout.fee_minor,
        "net_amount_minor": payout.net_minor,
        "idempotency_key": payout.idempotency_key,
        "batch_id": payout.batch_id,
        "time_ms": now_ms,
        "metadata": payout.metadata,
    }
    if payout.resolution is not None and payout.resolution.takes_effect:
        told["resolution"] = {"status": payout.resolution.status, "notes": payout.resolution.notes}
    event_id = f"{payout.payout_id}/{kind}/{len(payout.history)}"
    return _event(event_id, kind, payout.merchant, payout.payout_id, told, now_ms)


def batch_event(batch: Batch, now_ms: int) -> Write:
    """A batch is complete."""
    told = {
        "batch_id": batch.batch_id, "status": batch.state, "items_total": batch.items_total, "items_succeeded": batch.succeeded,
        "items_failed": batch.failed, "total_processed": batch.processed, "amount_minor_succeeded": batch.amount_minor_succeeded,
        "currency": batch.currency, "time_ms": now_ms,
    }  # fmt: skip
    return _event(f"{batch.batch_id}/batch.completed", "batch.completed", batch.merchant, batch.batch_id, told, now_ms)


def _event(event_id: str, kind: str, merchant: str, resource: str, told: dict[str, Any], now_ms: int) -> Write:
    event = Event(id=event_id, type=kind, source=SOURCE, merchant=merchant, time_ms=now_ms, data=orjson.dumps(told), resource=resource)
    value, headers = encode_event(event)
    return Write(topics.EVENTS, merchant.encode(), value, headers, BY_KEY)


def operational_event(payout: Payout, alert: Alert, now_ms: int) -> Write:
    """To the operators."""
    value = {
        "id": f"{alert.event}/{payout.merchant}/{payout.payout_id}/{len(payout.history)}",
        "type": alert.event,
        "severity": alert.severity,
        "time_ms": now_ms,
        "source": "payouts",
        "summary": alert.summary,
        "merchant": payout.merchant,
        "payout_id": payout.payout_id,
        "details": {"state": payout.state, "reason": payout.reason or "", "channel": payout.channel},
    }
    return Write(topics.OPERATIONAL_EVENTS, payout.key, schemas.encode(schemas.OPERATIONAL_EVENT, value))
