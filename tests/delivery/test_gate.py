"""The gate of a worker: room for all, whatever hangs."""

import asyncio

from streams.delivery.gate import HANGING_OF_ROOM_MAX, Gate, Pass
from streams.delivery.pace import Pace, PaceLimits
from streams.delivery.results import Answer, Failure
from streams.log.simulated.clock import simulate

ROOM = 4


def new() -> Pace:
    return Pace(PaceLimits())


def quick() -> Pace:
    return after(Answer(200, 5))


def after(result: Answer | Failure) -> Pace:
    pace = new()
    pace.begin()
    pace.end(result, 0)
    return pace


async def enter(gate: Gate, pace: Pace) -> Pass:
    entered = await gate.enter(pace)
    assert entered is not None
    return entered


def test_endpoints_that_have_not_shown_to_be_quick_share_half_of_the_room_and_wait_for_it() -> None:
    async def scene() -> None:
        gate = Gate(ROOM)
        held = [await enter(gate, new()) for _ in range(ROOM // 2)]
        waiting = asyncio.create_task(gate.enter(new()))
        for _ in range(ROOM // 2):
            await enter(gate, quick())
        assert not waiting.done()

        gate.leave(held[0])
        assert await waiting is not None

    simulate(scene())


def test_who_gives_up_waiting_takes_no_room() -> None:
    async def scene() -> None:
        gate = Gate(ROOM)
        quick_ones = [await enter(gate, quick()) for _ in range(ROOM)]
        given_up = [asyncio.create_task(gate.enter(pace)) for pace in (new(), new(), new(), quick())]
        await asyncio.sleep(0.1)
        for task in given_up:
            task.cancel()
        await asyncio.gather(*given_up, return_exceptions=True)
        for each in quick_ones:
            gate.leave(each)

        for pace in (new(), new(), quick(), quick()):
            await asyncio.wait_for(enter(gate, pace), 0.5)

    simulate(scene())


def test_who_waits_behind_its_own_endpoint_that_turns_out_to_hang_is_turned_away() -> None:
    async def scene() -> None:
        gate, hanging = Gate(ROOM), new()
        for _ in range(ROOM // 2):
            await enter(gate, hanging)

        assert await gate.enter(hanging) is None

    simulate(scene())


def test_a_quick_endpoint_waits_for_room_and_gets_it() -> None:
    async def scene() -> None:
        gate = Gate(ROOM)
        held = [await enter(gate, quick()) for _ in range(ROOM)]
        waiting = asyncio.create_task(gate.enter(quick()))
        await asyncio.sleep(0.1)
        assert not waiting.done()

        gate.leave(held[0])
        assert await waiting is not None

    simulate(scene())


def test_what_hangs_for_a_second_no_longer_takes_room_from_others() -> None:
    async def scene() -> None:
        gate, hanging = Gate(ROOM), quick()
        for _ in range(ROOM):
            await enter(gate, hanging)
        began_s = asyncio.get_running_loop().time()
        await enter(gate, quick())

        assert asyncio.get_running_loop().time() - began_s <= 1.1
        assert not hanging.proven
        assert hanging.hanging == ROOM

    simulate(scene())


def test_an_endpoint_that_nothing_is_known_of_is_let_in_while_more_hang_than_there_is_room_for() -> None:
    async def scene() -> None:
        gate = Gate(ROOM)
        for _ in range(ROOM):
            for _ in range(ROOM // 2):
                await enter(gate, new())
            await asyncio.sleep(1.1)

        assert await gate.enter(new()) is not None

    simulate(scene())


def test_an_endpoint_that_is_slow_or_hangs_now_waits_until_fewer_hang() -> None:
    async def scene() -> None:
        gate, hanging = Gate(ROOM), new()
        slow = after(Failure("answer", "", 10_000, timed_out=True, ambiguous=True))
        held = [await enter(gate, pace) for pace in (hanging, new())]
        await asyncio.sleep(1.1)

        assert await gate.enter(slow) is None
        assert await gate.enter(hanging) is None
        for each in held:
            gate.leave(each)
        assert await gate.enter(slow) is not None
        assert hanging.hanging == 0
        assert await gate.enter(hanging) is not None

    simulate(scene())


def test_there_is_an_end_to_how_many_may_hang() -> None:
    async def scene() -> None:
        gate, held = Gate(ROOM), []
        while (entered := await gate.enter(new())) is not None:
            held.append(entered)
            if len(held) % (ROOM // 2) == 0:
                await asyncio.sleep(1.1)

        assert len(held) == ROOM * HANGING_OF_ROOM_MAX
        assert await gate.enter(quick()) is not None
        gate.leave(held[0])
        assert await gate.enter(new()) is not None

    simulate(scene())


def test_room_is_not_lost_whoever_leaves_when() -> None:
    async def scene() -> None:
        gate = Gate(ROOM)
        for turn in range(20):
            held = [await enter(gate, quick()) for _ in range(ROOM)]
            await asyncio.sleep(turn % 3)
            for each in held:
                gate.leave(each)
        held = [await enter(gate, quick()) for _ in range(ROOM)]
        assert len(held) == ROOM

    simulate(scene())


def test_whenever_a_post_began_it_hangs_a_second_later() -> None:
    async def scene() -> None:
        gate = Gate(ROOM)
        for step in range(200):
            entered = await enter(gate, quick())
            await asyncio.sleep(1.01 + step / 977)  # sums of such times are rounded, one way or the other
            assert entered.hangs
            gate.leave(entered)

    simulate(scene())
