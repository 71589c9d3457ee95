"""Which generation counts, and what a replay makes of a delivery."""

from typing import Any

import msgspec
import pytest

from streams.delivery.delivery import Delivery, encode
from streams.delivery.generations import ATTEMPTS_KEPT, NEXT, is_current, next_generation
from streams.delivery.state import Entry, ShardMemory, entry_change, waits
from streams.log.simulated.log import SimulatedStore
from streams.log.state import State

ORIGIN = {"topic": "events", "partition": 0, "offset": 7, "timestamp_ms": 1}
ASKED = Delivery(
    event_id="evt", event_type="payin.success", source="/core", merchant="m1", subscription_id="sub", event_time_ms=1, origin=ORIGIN,
    generation=NEXT, data=b"{}", replay_id="rep",
)  # fmt: skip


class Clock:
    def now_ms(self) -> int:
        return 1


def memory_of(*changes: tuple[bytes, bytes | None]) -> ShardMemory:
    store = SimulatedStore()
    store.apply(dict(changes), 0)
    return ShardMemory(State(store), Clock())


def known(**others: Any) -> Delivery:
    fields = {"generation": 2, "replay_id": None, "sequence": 9, "payload_version": "2023-01-01", **others}
    return msgspec.structs.replace(ASKED, **fields)


@pytest.mark.parametrize(
    ("entry", "comes_back", "counts"),
    [
        (None, {"generation": 0}, True),
        (None, {"generation": 0, "due_ms": 5}, False),
        (Entry("waits", 1, 3, 5, 0), {"generation": 1, "attempts_spent": 3, "due_ms": 5}, True),
        (Entry("waits", 1, 3, 5, 0), {"generation": 1, "attempts_spent": 2, "due_ms": 5}, False),
        (Entry("waits", 1, 3, 5, 0), {"generation": 1, "attempts_spent": 3, "due_ms": 4}, False),
        (Entry("waits", 1, 3, 5, 0), {"generation": 0, "attempts_spent": 3, "due_ms": 5}, False),
        (Entry("parked", 1, 3, 5, 0), {"generation": 1, "attempts_spent": 3, "due_ms": 5}, False),
        (Entry("over", 1, 3, 5, 9), {"generation": 1, "attempts_spent": 3, "due_ms": 5}, False),
        (Entry("over", 0, 1, 0, 9), {"generation": 0}, False),
    ],
)
def test_only_what_is_waited_for_counts(entry: Entry | None, comes_back: dict[str, Any], counts: bool) -> None:
    assert is_current(msgspec.structs.replace(ASKED, **comes_back), entry) is counts


def test_a_delivery_that_nobody_knows_begins_with_the_first_generation() -> None:
    made = next_generation(ASKED, memory_of())
    assert made is not None and (made.generation, made.data) == (0, b"{}")


def test_one_that_is_over_has_its_next_generation_with_the_number_and_version_that_it_was_sent_with() -> None:
    made = next_generation(ASKED, memory_of(entry_change(known(), "over", 99)))
    assert made is not None and (made.generation, made.sequence, made.payload_version) == (3, 9, "2023-01-01")


def test_one_that_waits_goes_as_it_waits_with_its_body_and_its_latest_attempts() -> None:
    history: list[dict[str, Any]] = [
        {"number": number, "generation": 2, "at_ms": number, "duration_ms": 1, "code": 500, "error": None, "ambiguous": False,
         "request_headers": {}, "response_headers": {}, "response": b""}
        for number in range(60)
    ]  # fmt: skip
    waiting = known(body=b"sent", data=None, attempts_spent=60, due_ms=5, slot_ms=4, waits_for="RETRY", history=history)
    made = next_generation(ASKED, memory_of(*waits(waiting, encode(waiting))))
    assert made is not None
    assert (made.generation, made.body, made.data, made.attempts_spent, made.due_ms, made.slot_ms) == (3, b"sent", None, 0, None, None)
    assert [each["number"] for each in made.history] == list(range(60 - ATTEMPTS_KEPT, 60))


def test_one_that_is_parked_or_had_the_same_replay_already_is_left() -> None:
    assert next_generation(ASKED, memory_of(entry_change(known(), "parked"))) is None
    assert next_generation(ASKED, memory_of(entry_change(known(replay_id="rep"), "over", 99))) is None
