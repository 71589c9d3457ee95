"""Writes commands for payouts and finds what came of each.

What a command causes is committed in one transaction with the place up to which commands are handled. So once its place is, its
answer is in the log, or there is none: nothing is guessed from silence.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import schemas
from streams.commands import cluster, reading
from streams.commands.handled import handled_by
from streams.commands.terminal import aside
from streams.errors import LogError
from streams.log.publisher import Published
from streams.log.records import Record, Write
from topology import flow
from topology.topics import LEDGER_ENTRIES, PAYOUT_BATCH_STATUS, PAYOUT_COMMANDS, PAYOUT_STATUS, Topic

ASK_EVERY_S = 0.1
SILENCE_TOLD_S = 5.0
TOLD_IN = {
    PAYOUT_STATUS: schemas.PAYOUT_STATUS, PAYOUT_BATCH_STATUS: schemas.PAYOUT_BATCH_STATUS, LEDGER_ENTRIES: schemas.LEDGER_TRANSFER,
}  # fmt: skip
AT_REST = frozenset({"SUCCESS", "FAILED", "CANCELLED", "STUCK", "REFUSED"})
"""A payout that stands so does nothing by itself."""


class Asked(NamedTuple):
    """Commands of one merchant that are written, and where what came of them begins."""

    commands: Sequence[Mapping[str, Any]]
    places: Sequence[Published]
    begins: Mapping[Topic, dict[int, int]]

    @property
    def partition(self) -> int:
        """The merchant's."""
        return self.places[0].partition


def ask(commands: Sequence[Mapping[str, Any]]) -> Asked:
    """Write commands of one merchant, in their order."""
    begins = {topic: reading.ends_of(topic) for topic in TOLD_IN}
    writes = [Write(PAYOUT_COMMANDS, command["merchant"].encode(), schemas.encode(schemas.PAYOUT_COMMAND, command)) for command in commands]
    written = asyncio.run(cluster.write_all(writes))
    places = [each for each in written if isinstance(each, Published)]
    if failed := next((each for each in written if isinstance(each, BaseException)), None):
        raise LogError(
            f"asking for {commands[0]['id']}: {failed}. {len(places)} of {len(writes)} commands are written: ask again with the same ids, "
            "and what is asked for twice is done once"
        ) from failed
    return Asked(commands, places, begins)


def wait_until_handled(asked: Asked) -> None:
    """Return when the payouts role has committed all of them."""
    began_s, told, last = time.monotonic(), False, asked.places[-1].offset
    while True:
        handled = handled_by(flow.PAYOUTS, PAYOUT_COMMANDS)[asked.partition]
        if handled.standing(last) == "DONE" and all(handled.standing(place.offset) == "DONE" for place in asked.places):
            return
        if not told and time.monotonic() - began_s > SILENCE_TOLD_S:
            told = True
            aside.print("No answer yet: is a worker with the role payouts running? The command is kept; waiting on.", style="yellow")
        time.sleep(ASK_EVERY_S)


def told_since(asked: Asked, topic: Topic) -> list[dict[str, Any]]:
    """What has been told in the merchant's partition since they were written."""
    found: list[dict[str, Any]] = []

    def take(record: Record) -> None:
        if record.value is not None:
            found.append(schemas.decode(record.value, TOLD_IN[topic]))

    reading.read_on(topic, {asked.partition: asked.begins[topic][asked.partition]}, take)
    return found


def steps_of(status: Mapping[str, Any], place: Published) -> list[Mapping[str, Any]]:
    """The steps of a payout that a command brought about. Pure."""
    return [
        step
        for step in status["history"]
        if step["cause"] is not None
        and (step["cause"]["topic"], step["cause"]["partition"], step["cause"]["offset"]) == (PAYOUT_COMMANDS.name, *place[1:])
    ]


def answers_in(statuses: Sequence[Mapping[str, Any]], command_id: str, place: Published) -> Mapping[str, Any] | None:
    """The last word on the payout that answers a command; None: the command changed none. Pure.

    A payout answers in its history. That a second submission asked for it again is only noted there, by the command's id.
    """
    by_payout: dict[str, Mapping[str, Any]] = {}
    for status in statuses:
        name = status["payout_id"]
        if status["command_id"] == command_id or name in by_payout or steps_of(status, place) or _notes(status, command_id):
            by_payout[name] = status
    return next(iter(by_payout.values()), None)


def _notes(status: Mapping[str, Any], command_id: str) -> list[Mapping[str, Any]]:
    words = (f"command {command_id} ", f"command {command_id}:")
    return [step for step in status["history"] if (step["detail"] or "").startswith(words)]


def said_of(status: Mapping[str, Any], command_id: str, place: Published) -> list[Mapping[str, Any]]:
    """The steps by which a payout answers a command. Pure."""
    if status["state"] == "REFUSED":
        return list(status["history"])
    return steps_of(status, place) or _notes(status, command_id)


def follow(asked: Asked, topic: Topic, is_over: Callable[[Mapping[str, Any]], bool]) -> Mapping[str, Any]:
    """Wait for the record that ends something, from when the commands were written on."""
    records = reading.follow(topic, {asked.partition: asked.begins[topic][asked.partition]})
    told = (schemas.decode(record.value, TOLD_IN[topic]) for record in records if record is not None and record.value is not None)
    return next(fields for fields in told if is_over(fields))
