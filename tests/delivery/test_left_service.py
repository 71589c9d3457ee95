"""A subscription that leaves its service while deliveries are under way or parked: nothing goes on, nothing is brought back."""

import asyncio
from typing import Any

import orjson

from schemas.event import Event
from streams.delivery import order
from streams.delivery.brake import Brake
from streams.delivery.delivery import Delivery, encode, from_event
from streams.delivery.gate import Gate
from streams.delivery.handler import Deliverer, Poster
from streams.delivery.results import Answer, Failure
from streams.delivery.rules import HOUR_MS, NO_STREAK, Streak
from streams.delivery.state import Health, ShardMemory, Turn, health_change, parked_key, turn_change
from streams.delivery.subscription import Subscription, Subscriptions, changed
from streams.delivery.subscription_changes import NewSecret, Wanted, created, sealed
from streams.delivery.tasks import Posted, PutOff
from streams.log.records import Change, Record, Write
from streams.log.simulated.log import SimulatedStore
from streams.log.state import State
from tests.delivery.subscribers import KEYRING
from topology import topics

NOW_MS, NAME = 1_700_000_000_000, "sub_" + "0" * 22


class Merchant:
    """A world with one endpoint, which is gone."""

    def __init__(self) -> None:
        self.client: Poster = self
        self.gate, self.posts = Gate(8), 0

    def now_ms(self) -> int:
        return NOW_MS

    async def post(
        self, url: str, headers: bytes, body: bytes, answer_timeout_s: float, connect_timeout_s: float | None = None
    ) -> Answer | Failure:
        self.posts += 1
        return Answer(410, 5)


def subscription(**parts: Any) -> Subscription:
    secret = sealed(NewSecret(id="sec_1", algorithm="hmac-sha256", text="whsec_" + "a" * 32), NAME, KEYRING, bytes(12), NOW_MS)
    wanted = Wanted(url="https://m.example/", ordered=True, behind_dead_letter="HOLD", in_flight_max=1)
    fields = created(NAME, "m0", wanted, secret, NOW_MS, allow_loopback=False, disabled=False)
    return Subscription({**fields, **parts}, KEYRING)


def delivery(number: int) -> Delivery:
    event = Event(
        id=f"e{number}", type="payin.success", source="/core", merchant="m0", time_ms=NOW_MS, data=orjson.dumps({}), resource="r"
    )  # fmt: skip
    return from_event(event, NAME, Record(topics.EVENTS, 0, number, b"m0", b"", (), NOW_MS))


def memory_with(*changes: Change) -> ShardMemory:
    store = SimulatedStore()
    store.apply(dict(changes), 0)
    return ShardMemory(State(store), Merchant())


def held_behind_a_dead_letter(*numbers: int) -> ShardMemory:
    parked = [(parked_key(each), encode(each)) for each in map(delivery, numbers)]
    return memory_with(turn_change(NAME, "r", Turn(2, order.name_of(delivery(1)), held=True)), *parked)


def test_a_disabled_subscription_lets_go_of_everything_parked_to_be_cancelled_and_keeps_what_it_holds() -> None:
    writes: list[Write] = []
    changes: list[Change] = []
    left = order.release_some(NAME, subscription(state="DISABLED"), held_behind_a_dead_letter(2, 3), NOW_MS, writes, changes)

    assert not left
    assert [write.topic for write in writes] == [topics.DELIVERIES, topics.DELIVERIES]
    assert not any(key.startswith(b"o/") for key, _ in changes)


def test_an_active_one_goes_on_holding_them() -> None:
    writes: list[Write] = []

    assert order.release_some(NAME, subscription(), held_behind_a_dead_letter(2, 3), NOW_MS, writes, [])
    assert writes == []


def test_what_is_cancelled_behind_a_dead_letter_frees_no_one() -> None:
    writes: list[Write] = []
    changes: list[Change] = []
    order.go_on(delivery(2), subscription(), held_behind_a_dead_letter(3), NOW_MS, writes, changes)

    assert writes == []
    assert changes == [turn_change(NAME, "r", Turn(2, order.name_of(delivery(1)), held=True))]


def told_of_410(table: Subscriptions, posted_for: Subscription) -> list[Write]:
    answered = Posted(Answer(410, 5), NOW_MS, delivery(1), b"POST / HTTP/1.1\r\n\r\n")
    outcome = Deliverer(table, Brake())._posted(posted_for, answered, memory_with(), NOW_MS)
    return [write for write in outcome.writes if write.topic is topics.SUBSCRIPTIONS]


def test_a_deleted_subscription_is_not_brought_back_by_an_answer_of_410() -> None:
    assert told_of_410(Subscriptions(KEYRING), subscription()) == []


def test_disabling_keeps_what_somebody_changed_while_the_attempt_was_under_way() -> None:
    before, table = subscription(), Subscriptions(KEYRING)
    table.put(Subscription(changed(before.fields, NOW_MS, url="https://elsewhere.example/"), KEYRING))
    [write] = told_of_410(table, before)

    after = Subscriptions(KEYRING)
    after.apply(write.key, write.value)
    now = after.by_id[NAME]
    assert (now.state, now.url, now.revision) == ("DISABLED", "https://elsewhere.example/", 3)


def test_a_subscription_that_was_disabled_for_its_failures_begins_anew_once_it_is_enabled() -> None:
    table = Subscriptions(KEYRING)
    table.put(subscription())
    rule, since_ms = subscription().disable_rule, NOW_MS - 2 * HOUR_MS
    memory = memory_with(health_change(NAME, Health(Streak(rule.failures_max, since_ms))))
    failed = Posted(Answer(500, 5), NOW_MS, delivery(1), b"POST / HTTP/1.1\r\n\r\n")
    outcome = Deliverer(table, Brake())._posted(subscription(), failed, memory, NOW_MS)

    assert [write.key for write in outcome.writes if write.topic is topics.SUBSCRIPTIONS] == [NAME.encode()]
    assert memory_with(*outcome.changes).health(NAME).streak == NO_STREAK


def test_what_waits_in_a_lane_is_not_posted_once_its_subscription_is_paused() -> None:
    async def program() -> tuple[Any, int]:
        table, world, memory = Subscriptions(KEYRING), Merchant(), memory_with()
        table.put(subscription())
        deliverer = Deliverer(table, Brake())
        [work] = [deliverer._next(delivery(1), table.by_id[NAME], memory)]
        memory.lane(table.by_id[NAME]).pace.begin()  # another is under way, and the lane is one wide
        waiting = asyncio.create_task(deliverer.perform(work.task, world))
        await asyncio.sleep(0)
        table.put(Subscription(changed(table.by_id[NAME].fields, NOW_MS, state="PAUSED"), KEYRING))
        memory.lane(subscription()).leave(None)
        return await waiting, world.posts

    result, posts = asyncio.run(program())
    assert result == PutOff(NOW_MS, "PAUSED")
    assert posts == 0
