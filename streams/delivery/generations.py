"""Which generation of a delivery counts, and how the next one is made. Pure but for the shard's memory.

A replay is a new generation: the body stays as it was sent, the schedule begins anew, and what waits of an older one is ignored
when it comes back.
"""

from typing import Any

import msgspec

from streams.delivery.delivery import Delivery
from streams.delivery.state import Entry, ShardMemory

NEXT = -1
"""The generation of a replay that does not know which one it will be."""
ATTEMPTS_KEPT = 40
"""How many of the earlier attempts a new generation still tells of, so that a delivery replayed for ever fits its record."""


def is_current(delivery: Delivery, entry: Entry | None) -> bool:
    """Whether a delivery that comes back is the one that is waited for, and not one overtaken by a replay or by itself.

    What waits is not forgotten, so what comes back from waiting and is not known was cancelled or overtaken long ago.
    """
    if entry is None:
        return delivery.due_ms is None
    if delivery.generation > entry.generation:
        return True
    return (
        entry.standing == "waits"
        and entry.generation == delivery.generation
        and entry.attempts_spent == delivery.attempts_spent
        and entry.due_ms == (delivery.due_ms or 0)
    )


def next_generation(asked: Delivery, memory: ShardMemory) -> Delivery | None:
    """What a replay makes of a delivery; None where it is parked, so that it goes by itself, or where the same replay had it already."""
    entry = memory.entry(asked)
    if entry is None:
        return renewed(asked, 0, asked.replay_id)
    if entry.standing == "parked" or entry.replay_id == asked.replay_id:
        return None
    known = memory.waiting_copy(asked) if entry.standing == "waits" else None
    return renewed(
        known or asked,
        entry.generation + 1,
        asked.replay_id,
        sequence=asked.sequence or entry.sequence or None,
        payload_version=asked.payload_version or entry.payload_version or None,
    )


def renewed(delivery: Delivery, generation: int, replay_id: str | None, **others: Any) -> Delivery:
    """A delivery as it is before the first attempt of a generation."""
    return msgspec.structs.replace(
        delivery,
        generation=generation,
        replay_id=replay_id,
        attempts_spent=0,
        slot_ms=None,
        due_ms=None,
        waits_for=None,
        history=delivery.history[-ATTEMPTS_KEPT:],
        **others,
    )
