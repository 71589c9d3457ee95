"""Carries out one call to a channel and replies what came of it, once for each task whatever goes wrong.

What follows from an answer (another try, a poll, giving back the money) is the saga's to decide. Two things are decided here, because
only here they can be: a submission that is too old is not begun, for a person may have released its money by now; and a channel that
has enough calls under way is left alone for a moment, so that a slow one takes no worker from the others.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

import schemas
from streams.dead_letters import dead_letter
from streams.errors import HooklineError
from streams.ladder.handler import DUE, RETURN
from streams.ladder.rules import UNSCALED, Ladder
from streams.log.records import Outcome, Record, Work, Write
from streams.log.state import State
from streams.payouts.channels.port import Answer, Channel, Task, task_in
from streams.payouts.policy import SUBMIT_WITHIN_MS
from topology import topics

BUSY_MS = 1_000
GRACE_S = 5.0
"""How long after its time limit a call is given up that does not keep to it by itself."""


class PutOff(msgspec.Struct, frozen=True):
    """The channel has enough under way."""


class Called(msgspec.Struct, frozen=True):
    """The call was made, or could not be."""

    answer: Answer
    began_ms: int
    ended_ms: int


class Line:
    """One channel, and how many calls to it may be under way at once."""

    def __init__(self, channel: Channel, in_flight_max: int) -> None:
        self.channel, self._free = channel, in_flight_max

    def enter(self) -> bool:
        """Take a place, if there is one."""
        if self._free == 0:
            return False
        self._free -= 1
        return True

    def leave(self) -> None:
        """Give it back."""
        self._free += 1


class ChannelsWorld(Protocol):
    """Where calls happen."""

    channels: Mapping[str, Line]

    def now_ms(self) -> int:
        """Milliseconds since 1970."""


class Job(msgspec.Struct, frozen=True):
    """A task, and its record, which is put off as it is."""

    task: Task
    key: bytes | None
    value: bytes | None


def plan(record: Record, state: State, now_ms: int) -> Sequence[Work[Job]]:
    """Make the call."""
    return [Work(Job(task_in(record), record.key, record.value))]


async def perform(job: Job, world: ChannelsWorld) -> Called | PutOff:
    """Call the channel within the time that the task gives it."""
    task, line, began_ms = job.task, world.channels.get(job.task.channel), world.now_ms()
    expires_ms = task.issued_ms + SUBMIT_WITHIN_MS
    if task.action == "SUBMIT" and began_ms > expires_ms:
        return Called(Answer("NOT_SENT", detail="it waited too long to be begun"), began_ms, began_ms)
    if line is None:
        outcome: Answer = Answer("NOT_SENT", detail=f"no endpoint is set for {task.channel}: see HOOKLINE_CHANNELS")
        return Called(outcome, began_ms, began_ms)
    if not line.enter():
        return PutOff()
    try:
        async with asyncio.timeout(task.timeout_ms / 1_000 + GRACE_S):
            answer = await (line.channel.submit(task, expires_ms) if task.action == "SUBMIT" else line.channel.poll(task))
    except TimeoutError:
        answer = Answer("LOST", detail=f"no answer in {task.timeout_ms} ms")
    finally:
        line.leave()
    return Called(answer, began_ms, world.now_ms())


def conclude(job: Job, result: Called | PutOff, state: State, now_ms: int, ladder: Ladder = UNSCALED) -> Outcome:
    """Reply, or come back to it in a moment."""
    if isinstance(result, PutOff):
        return Outcome([put_off(job, ladder, now_ms)])
    return Outcome([reply(job.task, result)])


def put_off(job: Job, ladder: Ladder, now_ms: int) -> Write:
    """The task itself, over the ladder."""
    due_ms = now_ms + BUSY_MS
    headers = ((DUE, b"%d" % due_ms), (RETURN, topics.PAYOUT_TASKS.name.encode()))
    return Write(ladder.next_hop(due_ms, now_ms) or topics.PAYOUT_TASKS, job.key, job.value, headers)


def reply(task: Task, called: Called) -> Write:
    """What came of it."""
    answer = called.answer
    value = {
        "task_id": task.id,
        "payout_id": task.payout_id,
        "merchant": task.merchant,
        "channel": task.channel,
        "action": task.action,
        "number": task.number,
        "outcome": answer.outcome,
        "channel_reference": answer.reference,
        "code": answer.code,
        "detail": answer.detail,
        "fee_minor": answer.fee_minor,
        "retry_after_ms": answer.retry_after_ms,
        "duration_ms": called.ended_ms - called.began_ms,
        "replied_ms": called.ended_ms,
        "trace_id": task.trace_id,
    }
    key = f"{task.merchant} {task.payout_id}".encode()
    return Write(topics.PAYOUT_REPLIES, key, schemas.encode(schemas.PAYOUT_REPLY, value))


def poison(record: Record, reason: str, now_ms: int) -> Outcome:
    """A task that could not be carried out is dead-lettered, and its payout hears that nobody knows what came of it: it will ask."""
    letter = dead_letter(record, reason, now_ms)
    try:
        task = task_in(record)
    except HooklineError:
        return letter
    lost = Called(Answer("LOST", detail=reason[:1_000]), now_ms, now_ms)
    return Outcome([*letter.writes, reply(task, lost)])
