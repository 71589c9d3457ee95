"""Replays on the lane beside: a part of the places, the same slots, and they give way."""

import asyncio

from streams.delivery.lane import ASK_AGAIN_MS, Lane, SideLane
from streams.delivery.pace import PaceLimits
from streams.delivery.results import Answer, Failure
from streams.log.simulated.clock import simulate

QUICK = Answer(200, 10, {}, b"")


class Clock:
    def now_ms(self) -> int:
        return 1_000_000 + int(asyncio.get_running_loop().time() * 1000)


def lanes(limits: PaceLimits) -> tuple[Lane, SideLane]:
    lane = Lane(limits, None, Clock())
    return lane, SideLane(lane, limits, Clock())


def test_replays_have_a_quarter_of_the_places_and_at_least_one() -> None:
    async def program() -> None:
        lane, side = lanes(PaceLimits(rate_per_s=1_000, burst=1_000, in_flight_max=8))
        assert await side.enter(None) is None
        later = await side.enter(None)
        assert later is not None and not later.granted
        side.leave(QUICK)
        for _ in range(8):
            assert await lane.enter(None) is None
            lane.leave(QUICK)
        assert lane.pace.limit == 8
        assert [await side.enter(None) is None for _ in range(3)] == [True, True, False]
        side.leave(QUICK)
        assert await side.enter(None) is None

    simulate(program())


def test_a_replay_takes_a_slot_that_is_near_and_gives_way_where_none_is() -> None:
    async def program() -> None:
        lane, side = lanes(PaceLimits(rate_per_s=1, burst=3, in_flight_max=8))
        assert await side.enter(None) is None
        assert lane.pace.next_slot_ms(1_000_000) == 1_000_000
        side.leave(QUICK)
        for _ in range(2):
            assert await lane.enter(None) is None
            lane.leave(QUICK)
        before = lane.pace.slots
        waits = [await side.enter(None) for _ in range(3)]
        assert [each.slot_ms for each in waits if each is not None] == [1_000_000 + ASK_AGAIN_MS + 1_000 * place for place in range(3)]
        assert lane.pace.slots == before

    simulate(program())


def test_a_replay_does_not_stand_before_what_waits_in_memory() -> None:
    async def program() -> None:
        lane, side = lanes(PaceLimits(rate_per_s=1_000, burst=1_000, in_flight_max=2))
        assert [await lane.enter(None) for _ in range(2)] == [None, None]
        waiting = asyncio.create_task(lane.enter(None))
        await asyncio.sleep(0)
        later = await side.enter(None)
        assert later is not None and not later.granted
        lane.leave(QUICK)
        assert await waiting is None

    simulate(program())


def test_behind_an_open_breaker_a_replay_comes_back_when_it_may_have_closed() -> None:
    async def program() -> None:
        lane, side = lanes(PaceLimits(rate_per_s=1_000, burst=1_000, in_flight_max=2))
        for _ in range(10):
            assert await lane.enter(None) is None
            lane.leave(Failure("connect", "refused", 1))
        assert lane.pace.is_open
        later = await side.enter(None)
        assert later is not None and not later.granted and later.slot_ms >= lane.pace.open_until_ms

    simulate(program())
