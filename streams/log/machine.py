"""The one machine that every agent runs on: plan, perform and conclude each record, and commit what is finished.

It knows no Kafka: the log is behind `port.Log`, so the same code runs on a simulated log from a seed. It lives on one event
loop, and state is read and changed only in plan and conclude, never across an await.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import structlog

from streams.errors import PositionLost
from streams.log.agent import Agent, World
from streams.log.committer import Committer
from streams.log.offsets import UNFINISHED_MAX, Mark, Offsets
from streams.log.performer import Performer
from streams.log.port import Log, Partition
from streams.log.records import NOTHING, Outcome, Record
from streams.log.shard import Inlet, Shard
from streams.log.state import State
from streams.log.units import Unit
from topology.topics import Topic

log_line = structlog.get_logger()

BORN = b"\x00born/"
"""Keys of the machine's own in every store begin with a zero byte. This one says that a topic has been read here before."""

TURN_RECORDS = 64
"""How many records of one inlet are handed out before the next inlet's turn."""

TURN_EFFECTS = 8
"""And how many of them may begin an effect: what has been answered meanwhile is heard before more is begun, so that a backlog does
not begin everything that a commit can name at once, and endpoints are given as much as they are seen to take."""

FULL_WAIT_S = 0.1
"""How long reading waits for a commit to make room, before it pauses what is full."""

NOTE_ENDS_S = 60.0
"""How often the ends of idle logs are committed; the shortest retention is days."""

SWEEP_KEYS = 1_000

IN_FLIGHT_OF_ALL_MAX = 80_000
"""Over all inlets: their marks go into one transaction, and the broker takes 512 KB of them."""

RECORDS_OF_ALL_MAX, LEAST_RECORDS = 60_000, 200
BYTES_OF_ALL_MAX, LEAST_BYTES = 128 * 1024 * 1024, 1024 * 1024
"""Over all inlets, read and not committed; and what each may hold at the least."""


class Bounds(NamedTuple):
    """What one inlet may hold: handed out and unfinished; read and not committed."""

    in_flight: int
    records: int
    bytes: int


@dataclass(frozen=True)
class Limits:
    """How much a machine holds, and how often it commits."""

    in_flight_max: int = UNFINISHED_MAX
    uncommitted_max: int = 5_000
    inlet_bytes_max: int = 8 * 1024 * 1024
    record_bytes_max: int = 1_000_000
    commit_interval_s: float = 0.02
    retry_pause_s: float = 0.05
    revoke_commit_s: float = 1.0
    keep_every_s: float = 1.0
    note_ends_every_s: float = NOTE_ENDS_S


class Machine:
    """One agent at work in one process."""

    def __init__(self, agent: Agent, world: World, log: Log, writer: str, limits: Limits = Limits()) -> None:
        """`writer` names this process and no other, ever: marks that carry it are this machine's own."""
        self.agent, self.world, self.log, self.limits = agent, world, log, limits
        self.shards: dict[int, Shard] = {}
        self.restoring: dict[int, asyncio.Task[None]] = {}
        self.generation: Any = None  # of the assignment that is held; None between a revoke and the next assignment
        self.epoch = 0  # which assignment that is; counted by the source
        self.restored = asyncio.Event()  # set once everything of the first assignment is at work
        self._committer = Committer(agent, world, log, writer)
        self._performer = Performer(agent, world, limits.record_bytes_max, self._note_finished, self._fail)
        self._writing = asyncio.Lock()
        self._finished = asyncio.Event()
        self._committed = asyncio.Event()  # pulses with every commit
        self._handing_out = False
        self._share_out(partitions=1)
        self._failure: BaseException | None = None
        self._last_commit_s = float("-inf")
        self._noted_s = 0.0
        self._swept: dict[int, bytes] = {}  # how far each shard's state was looked through for what has expired

    # Records come in

    def offer(self, epoch: int, records: Sequence[Record], ends: Sequence[tuple[Topic, int, int]] = ()) -> None:
        """Take records in the order they were read, and where the log ended then.

        What an earlier assignment read is dropped: positions were given anew since.
        """
        if epoch != self.epoch:
            return
        for record in records:
            shard = self.shards.get(record.partition)
            if shard is not None:
                shard.inlets[record.topic].admit(record)
        for topic, number, end in ends:
            if (shard := self.shards.get(number)) is not None:
                shard.inlets[topic].end = end
        self.hand_out()

    def hand_out(self) -> None:
        """Plan what waits, a few records of each inlet in turn, so that no topic and no partition starves another."""
        if self.generation is None:
            return  # between a revoke and the next assignment no effect is begun that may be somebody else's
        more = False
        for shard in self.shards.values():
            for inlet in shard.inlets.values():
                if inlet.queue and self._hand_out_turn(inlet):
                    more = True
                if inlet.paused and self._is_half_empty(inlet):
                    inlet.paused = False
                    self.log.resume((inlet.topic, shard.number))
        if more and not self._handing_out:
            self._handing_out = True
            asyncio.get_running_loop().call_soon(self._hand_out_more)

    def _hand_out_more(self) -> None:
        self._handing_out = False
        self.hand_out()

    def _hand_out_turn(self, inlet: Inlet) -> bool:
        """Hand out some of an inlet; False when it is empty or has enough in work."""
        queue, offsets, plan = inlet.queue, inlet.offsets, self._performer.plan
        enough = inlet.working + TURN_EFFECTS
        for _ in range(TURN_RECORDS):
            if not queue or self._has_enough_in_work(inlet):
                return False
            if inlet.working >= enough:
                break
            record = queue.popleft()
            if offsets.hand_out(record.offset):
                plan(inlet, record)
            else:
                inlet.release(record)
        return bool(queue)

    async def room(self) -> None:
        """Before more is read: pause the inlets that hold too much.

        One whose records wait only for the commit moves in a moment. It is cheaper to wait for that than to pause, since a pause
        throws away what was fetched and fetches it again.
        """
        full = [inlet for inlet in self._inlets() if not inlet.paused and self._is_full(inlet)]
        if full and not any(self._has_enough_in_work(inlet) for inlet in full):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._committed.wait(), FULL_WAIT_S)
        for inlet in full:
            if inlet.shard.alive and self._is_full(inlet):
                inlet.paused = True
                self.log.pause((inlet.topic, inlet.shard.number))

    def _inlets(self) -> Iterator[Inlet]:
        return (inlet for shard in self.shards.values() for inlet in shard.inlets.values())

    @property
    def commits(self) -> int:
        """How many transactions it has begun."""
        return self._committer.commits

    def in_work(self) -> int:
        """How many records are read and not yet committed."""
        return sum(inlet.records for inlet in self._inlets())

    def describe(self) -> dict[str, Any]:
        """What it holds now, for a person who asks why nothing moves."""
        return {
            "agent": self.agent.name,
            "epoch": self.epoch,
            "has_generation": self.generation is not None,
            "commits": self.commits,
            "committing": self._writing.locked(),
            "restoring": sorted(self.restoring),
            "inlets": {
                f"{inlet.topic.name}-{inlet.shard.number}": {
                    "position": inlet.offsets.position,
                    "unfinished": len(inlet.offsets.unfinished),
                    "waiting": len(inlet.queue),
                    "held": inlet.records,
                    "paused": inlet.paused,
                }
                for inlet in self._inlets()
            },
        }

    def _share_out(self, partitions: int) -> None:
        """What one inlet may hold, so that all of them together stay within what a worker may."""
        limits, shares = self.limits, {topic: self.agent.shares.get(topic, 1) for topic in self.agent.reads}
        all_shares = max(1, partitions * sum(shares.values()))
        self._bounds = {
            topic: Bounds(
                min(self.agent.in_flight_max or limits.in_flight_max, max(1, IN_FLIGHT_OF_ALL_MAX * share // all_shares)),
                min(limits.uncommitted_max, max(LEAST_RECORDS, RECORDS_OF_ALL_MAX * share // all_shares)),
                min(limits.inlet_bytes_max, max(LEAST_BYTES, BYTES_OF_ALL_MAX * share // all_shares)),
            )
            for topic, share in shares.items()
        }

    def _has_enough_in_work(self, inlet: Inlet) -> bool:
        return inlet.working >= self._bounds[inlet.topic].in_flight or not inlet.offsets.can_name(inlet.working + 1)

    def _is_full(self, inlet: Inlet) -> bool:
        bounds = self._bounds[inlet.topic]
        return inlet.records >= bounds.records or inlet.bytes >= bounds.bytes

    def _is_half_empty(self, inlet: Inlet) -> bool:
        bounds = self._bounds[inlet.topic]
        return inlet.records <= bounds.records // 2 and inlet.bytes <= bounds.bytes // 2

    # Outcomes are committed

    async def run(self) -> None:
        """Commit what is finished, one transaction at a time, until stopped. Ends with an error only when the process must."""
        loop = asyncio.get_running_loop()
        while True:
            await self._finished.wait()
            self._finished.clear()
            if self._failure is not None:
                raise self._failure
            pause_s = self._last_commit_s + self.limits.commit_interval_s - loop.time()
            if pause_s > 0:
                await asyncio.sleep(pause_s)
            self._last_commit_s = loop.time()
            if not await self.commit():
                await asyncio.sleep(self.limits.retry_pause_s)
                self._finished.set()

    def _note_finished(self) -> None:
        self._finished.set()

    def _fail(self, error: BaseException) -> None:
        """The process must end: `run` raises it."""
        self._failure = self._failure or error
        self._finished.set()

    async def commit(self) -> bool:
        """Commit what is finished. False: not now, the same Outcomes are written again."""
        async with self._writing:
            if self.generation is None:
                return True  # the next assignment asks again
            done = await self._committer.commit(self.shards, self.generation)
        if done:
            self._committed.set()
            self._committed = asyncio.Event()
            self.hand_out()
        return done

    # What happens without a record

    async def keep(self) -> None:
        """Every second: let the agent act on what its state or the time asks for, and forget a little of what has expired.

        Every minute: commit how far idle logs were read, so that their positions outlive what retention deletes.
        """
        self._noted_s = asyncio.get_running_loop().time()
        while True:
            await asyncio.sleep(self.limits.keep_every_s)
            self.take_turn()

    def take_turn(self) -> None:
        """One second's part of what `keep` does."""
        if self.generation is None:
            return
        now_s = asyncio.get_running_loop().time()
        notes = now_s - self._noted_s >= self.limits.note_ends_every_s
        self._noted_s = now_s if notes else self._noted_s
        for shard in list(self.shards.values()):
            self._performer.tick(shard)
            if self.agent.expires_ms is not None:
                self._swept[shard.number] = self._sweep_some(shard, self._swept.get(shard.number, b""))
            if notes:
                self._note_ends(shard)

    def _note_ends(self, shard: Shard) -> None:
        for inlet in shard.inlets.values():
            if inlet.reach_end():
                self._performer.finish(Unit(inlet, None), NOTHING)

    def _sweep_some(self, shard: Shard, place: bytes) -> bytes:
        """Forget what has expired among the next keys; where to go on from, or the beginning after the end."""
        expires_ms, now_ms = self.agent.expires_ms, self.world.now_ms()
        assert expires_ms is not None
        entries, place = shard.state.after(place, SWEEP_KEYS)
        expired = [
            key for key, value in entries if key[:1] != b"\x00" and (due_ms := expires_ms(key, value)) is not None and due_ms <= now_ms
        ]
        if expired:
            unit = Unit(next(iter(shard.inlets.values())), None, shard.state.seen())
            self._performer.finish(unit, Outcome((), [(key, None) for key in expired]))
        return place

    # Shards come and go

    async def assigned(self, epoch: int, generation: Any, numbers: Sequence[int]) -> None:
        """Hold these shards from now on, under this generation. Returns when those kept go on; the others follow when restored."""
        try:
            await self._assigned(epoch, generation, numbers)
        except Exception as error:  # noqa: BLE001 - nobody awaits a rebalance: `run` raises what went wrong in it
            self._fail(error)

    async def _assigned(self, epoch: int, generation: Any, numbers: Sequence[int]) -> None:
        self.epoch = epoch
        await self._stop_restoring()
        async with self._writing:
            if self.epoch != epoch:
                return  # the next assignment has come already
            marks = await self.log.marks([(topic, number) for number in numbers for topic in self.agent.reads])
            starts = {place: mark.offset if mark else await self.log.beginning(place) for place, mark in marks.items()}
            if self.epoch != epoch:
                return
            kept = {number: shard for number, shard in self.shards.items() if number in numbers and shard.is_ours_still(marks)}
            dropped = [shard for shard in self.shards.values() if shard.number not in kept]
            for shard in dropped:
                shard.drop()
            self.shards = kept
            self.generation = generation
            self._share_out(len(numbers))
            for shard in dropped:
                await self.log.close_shard(shard.number)
        if self.epoch != epoch:
            return
        log_line.info("shards.assigned", agent=self.agent.name, assigned=len(numbers), kept=len(kept), dropped=len(dropped))
        for inlet in self._inlets():
            inlet.forget_unplanned()
            starts[inlet.topic, inlet.shard.number] = inlet.offsets.position
        self.log.read_from(starts, [place for place in starts if place[1] not in kept])
        for number in numbers:
            if number not in kept:
                self._begin_restoring(number, marks, starts)
        if not self.restoring:
            self.restored.set()
        self._finished.set()
        self.hand_out()

    def _begin_restoring(self, number: int, marks: Mapping[Partition, Mark | None], starts: Mapping[Partition, int]) -> None:
        task = self.restoring[number] = asyncio.create_task(self._restore(number, marks, starts))
        task.add_done_callback(self._heed)

    def _heed(self, task: asyncio.Task[Any]) -> None:
        """Nobody awaits this task: `run` raises what went wrong in it."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    async def _restore(self, number: int, marks: Mapping[Partition, Mark | None], starts: Mapping[Partition, int]) -> None:
        store = await self.log.open(number)
        state = State(store)
        shard = Shard(number, state, self.agent.state(state))
        for topic in self.agent.reads:
            mark = marks[topic, number]
            if mark is None:
                self._open_for_the_first_time(shard, topic, starts[topic, number], store.get(BORN + topic.name.encode()) is not None)
            else:
                shard.open_inlet(topic, Offsets(mark))
        self.shards[number] = shard
        del self.restoring[number]
        if not self.restoring:
            self.restored.set()
        for inlet in shard.inlets.values():
            self.log.resume((inlet.topic, number), inlet.offsets.position)

    def _open_for_the_first_time(self, shard: Shard, topic: Topic, start: int, was_read_before: bool) -> None:
        if was_read_before:
            raise PositionLost(
                f"{self.agent.name}: {topic.name}-{shard.number} has been read before, and its committed offset is gone (a group idle for "
                f"7 days loses them). Starting over would send everything again. Decide where to read on: `hookline offsets reset --help`"
            )
        offsets = Offsets(Mark(start, ""))
        offsets.known = None
        birth = Unit(shard.open_inlet(topic, offsets), None)
        birth.outcome, birth.clear = NOTHING, True
        shard.state.change(birth, [(BORN + topic.name.encode(), b"1")])
        shard.finished.append(birth)
        self._finished.set()

    async def revoked(self) -> None:
        """Everything is taken away for a moment: commit what is finished under the old generation, then hold still."""
        generation = self.generation
        await self._stop_restoring()
        if generation is None or self.generation is not generation:
            return  # nothing was held, or stopping took so long that the next assignment has come
        committing = asyncio.create_task(self.commit())
        committing.add_done_callback(self._heed)
        await asyncio.wait([committing], timeout=self.limits.revoke_commit_s)
        if not committing.done():  # it goes on under the old generation; the next assignment waits until it is decided
            log_line.warning("revoke.commit_unfinished", agent=self.agent.name)
        if self.generation is generation:
            self.generation = None

    def lost(self) -> None:
        """The group gave our shards away without asking. What comes back untouched is kept: its marks tell."""
        self.generation = None

    async def _stop_restoring(self) -> None:
        tasks, self.restoring = list(self.restoring.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def stop(self, drain_s: float) -> None:
        """Reading has ended: let what is in work finish for a while, commit it, and let go of everything."""
        for inlet in self._inlets():
            inlet.queue.clear()
        await self._stop_restoring()
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + drain_s
        while loop.time() < deadline_s and (
            not self._committer.is_idle()
            or (self.agent.drains and any(i.working for i in self._inlets()))
            or any(s.finished for s in self.shards.values())
        ):
            if self.generation is None or not await self.commit():
                await asyncio.sleep(self.limits.retry_pause_s)
            await asyncio.sleep(self.limits.commit_interval_s)
        shards, self.shards = list(self.shards.values()), {}
        for shard in shards:
            shard.drop()
