"""Everything that happened to one payout, record by record, in the order of time. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

import schemas
from schemas.catalogue import Schema
from streams.commands.deliveries import event_named
from streams.errors import MalformedRecord
from streams.log.records import Record
from streams.payouts.commands import BODIES
from streams.payouts.commands import read as read_command
from streams.payouts.money import to_decimal
from streams.payouts.written import SOURCE
from topology.topics import (
    DELIVERY_STATUS,
    EVENTS,
    LEDGER_ENTRIES,
    PAYOUT_COMMANDS,
    PAYOUT_REPLIES,
    PAYOUT_STATUS,
    PAYOUT_TASKS,
)

TOPICS = (PAYOUT_COMMANDS, PAYOUT_REPLIES, PAYOUT_STATUS, LEDGER_ENTRIES, PAYOUT_TASKS, EVENTS, DELIVERY_STATUS)
"""In the order in which one thing causes the next, for what has the same time."""
Fields = Mapping[str, Any]


class Entry(msgspec.Struct, frozen=True):
    """One thing that happened, and the record that tells it."""

    at_ms: int
    topic: str
    partition: int
    offset: int
    what: str
    detail: str | None = None

    @property
    def reference(self) -> str:
        """Where the record is, as people write it."""
        return f"{self.topic}-{self.partition}@{self.offset}"


class Traced:
    """One payout's records, taken in topic by topic."""

    def __init__(self, merchant: str, payout_id: str) -> None:
        self.merchant, self.payout_id = merchant, payout_id
        self.found: list[Entry] = []
        self._key = f"{merchant} {payout_id}".encode()
        self._names = f"{merchant}/{payout_id}/".encode()
        self._steps_told = 0

    def take(self, record: Record) -> None:
        """Take in a record of any of the topics; what concerns others is left out, mostly without being decoded."""
        if record.value is None:
            return
        readers = {
            PAYOUT_COMMANDS: self._command, PAYOUT_TASKS: self._task, PAYOUT_REPLIES: self._reply, PAYOUT_STATUS: self._status,
            LEDGER_ENTRIES: self._entry, EVENTS: self._event, DELIVERY_STATUS: self._delivery,
        }  # fmt: skip
        readers[record.topic](record)

    def in_order(self) -> list[Entry]:
        """All of it, by time."""
        ranks = {topic.name: rank for rank, topic in enumerate(TOPICS)}
        return sorted(self.found, key=lambda each: (each.at_ms, ranks[each.topic], each.partition, each.offset))

    def _add(self, record: Record, what: str, detail: str | None = None, at_ms: int | None = None) -> None:
        at_ms = record.timestamp_ms if at_ms is None else at_ms
        self.found.append(Entry(at_ms, record.topic.name, record.partition, record.offset, what, detail or None))

    def _command(self, record: Record) -> None:
        if record.key != self.merchant.encode() or self.payout_id.encode() not in (record.value or b""):
            return
        try:
            command = read_command(record)
        except MalformedRecord:
            return  # it is in the DLQ, and no command of any payout
        if command.kind in BODIES and command.body.get("payout_id") == self.payout_id:
            by = f" by {command.issued_by}" if command.issued_by else ""
            self._add(record, f"command {command.kind}", f"{command.id}{by}")

    def _task(self, record: Record) -> None:
        if task := self._of_payout(record, schemas.PAYOUT_TASK):
            money = to_decimal(task["amount_minor"], task["currency"])
            self._add(record, f"task {task['action']} {task['number']}", f"{money} {task['currency']} by {task['channel']}")

    def _reply(self, record: Record) -> None:
        reply = self._of_payout(record, schemas.PAYOUT_REPLY)
        if reply and reply["outcome"] == "DUE":
            self._add(record, f"timer {reply['code']} ran out")
        elif reply:
            told = [reply["code"], reply["detail"], f"in {reply['duration_ms']} ms"]
            self._add(record, f"reply {reply['action']} {reply['number']} {reply['outcome']}", ", ".join(each for each in told if each))

    def _status(self, record: Record) -> None:
        """Steps are told by the first status that has them: the topic is compacted, and a later one has all that came before."""
        status = self._of_payout(record, schemas.PAYOUT_STATUS)
        if not status:
            return
        for step in status["history"][self._steps_told :]:
            self._add(record, _step(step), _because_of(step), step["at_ms"])
        self._steps_told = max(self._steps_told, len(status["history"]))

    def _entry(self, record: Record) -> None:
        if (record.key or b"").startswith(self._names):
            entry = schemas.decode(record.value or b"", schemas.LEDGER_TRANSFER)
            money = f"{to_decimal(entry['amount_minor'], entry['currency'])} {entry['currency']}"
            accounts = " to ".join(entry[name].rsplit("/", 1)[1] for name in ("debit_account", "credit_account"))
            self._add(record, f"ledger {entry['purpose']} {entry['state']}", f"{money} from {accounts}")

    def _event(self, record: Record) -> None:
        if record.key != self.merchant.encode() or self.payout_id.encode() not in (record.value or b""):
            return
        try:
            event = schemas.decode_event(record.value, record.headers, record.key, record.timestamp_ms)
        except MalformedRecord:
            return
        if event.source == SOURCE and event.resource == self.payout_id and event.merchant == self.merchant:
            self._add(record, f"event {event.type}", event.id)

    def _delivery(self, record: Record) -> None:
        if not event_named(record.key).startswith(f"{self.payout_id}/".encode()):
            return
        status = schemas.decode(record.value or b"", schemas.DELIVERY_STATUS)
        if status["source"] != SOURCE or status["merchant"] != self.merchant:
            return
        name = f"webhook {status['event_type']} to {status['subscription_id']}"
        for attempt in status["attempts"]:
            came = f"HTTP {attempt['code']}" if attempt["code"] is not None else attempt["error"]
            self._add_attempt(record, f"{name}, attempt {attempt['number']}", came, attempt["at_ms"])
        if status["state"] != "DELIVERED":
            self._add(record, f"{name}: {status['state']}", status["reason"])

    def _add_attempt(self, record: Record, what: str, came: str, at_ms: int) -> None:
        """A later status of a delivery tells its earlier attempts again; each is told once, by the first record that has it."""
        if not any((each.at_ms, each.what) == (at_ms, what) for each in self.found):
            self._add(record, what, came, at_ms)

    def _of_payout(self, record: Record, schema: Schema) -> Fields | None:
        return schemas.decode(record.value or b"", schema) if record.key == self._key else None


def _step(step: Fields) -> str:
    before = f"{step['from_state']} to " if step["from_state"] not in (None, step["to_state"]) else ""
    return f"{before}{step['to_state']}: {step['message']}"


def _because_of(step: Fields) -> str | None:
    cause = step["cause"] and f"by {step['cause']['topic']}-{step['cause']['partition']}@{step['cause']['offset']}"
    return ", ".join(each for each in (step["detail"], cause) if each) or None


def told(entries: Sequence[Entry]) -> Iterable[dict[str, Any]]:
    """For machines."""
    return [msgspec.to_builtins(each) for each in entries]
