"""One shard of the payouts agent without Kafka: records go in, and what was written comes out, decoded."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

import schemas
from streams.ladder.handler import DUE, RETURN
from streams.log.records import Outcome, Record, Write
from streams.log.simulated.log import SimulatedStore
from streams.log.state import State
from streams.payouts.audit import Audit
from streams.payouts.beneficiaries import Beneficiaries
from streams.payouts.handler import Payouts
from streams.payouts.policy import Rules
from tests.payouts.making import NOW
from topology import topics
from topology.ladder import RUNG_TOPICS
from topology.topics import Topic

SCHEMAS = {
    topics.PAYOUT_TASKS: schemas.PAYOUT_TASK, topics.PAYOUT_REPLIES: schemas.PAYOUT_REPLY, topics.PAYOUT_STATUS: schemas.PAYOUT_STATUS,
    topics.PAYOUT_BATCH_STATUS: schemas.PAYOUT_BATCH_STATUS, topics.LEDGER_ENTRIES: schemas.LEDGER_TRANSFER, topics.EVENTS: schemas.EVENT,
    topics.OPERATIONAL_EVENTS: schemas.OPERATIONAL_EVENT, topics.BENEFICIARIES: schemas.BENEFICIARY,
}  # fmt: skip
BENEFICIARY = {
    "id": "b1", "merchant": "m1", "name": "Aisha", "channel": "mobile_wallet", "account": "0300", "state": "ACTIVE", "created_ms": NOW,
    "updated_ms": NOW,
}  # fmt: skip
command_ids = itertools.count(1)


def command(kind: str, body: Mapping[str, Any] | None, merchant: str = "m1", **others: Any) -> dict[str, Any]:
    """A command as a caller writes it."""
    field = kind.lower()
    return {"id": f"c{next(command_ids)}", "merchant": merchant, "kind": kind, "issued_ms": NOW, field: body, **others}


def submit(number: int | str = 1, **others: Any) -> dict[str, Any]:
    """A SUBMIT."""
    usual = {
        "payout_id": f"p{number}", "idempotency_key": f"k{number}", "beneficiary_id": "b1", "amount": "10.00", "currency": "PKR",
        "channel": "mobile_wallet",
    }  # fmt: skip
    return command("SUBMIT", {**usual, **others})


def funded(amount_minor: int, transfer_id: str = "t1") -> dict[str, Any]:
    """Money that comes in."""
    return command("FUND_ACCOUNT", {"transfer_id": transfer_id, "amount_minor": amount_minor, "currency": "PKR"})


class Written(Sequence[Any]):
    """What was written to one topic, decoded when it is looked at: a test may write far more than it looks at."""

    def __init__(self, schema: schemas.Schema) -> None:
        self.schema = schema
        self.values: list[bytes] = []

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, place: Any) -> Any:
        return schemas.decode(self.values[place], self.schema)


class PayoutShard:
    """What is written is kept in order; what waits on the ladder is kept apart."""

    def __init__(self, rules: Rules | None = None, available: int = 0) -> None:
        self.now_ms = NOW
        self.beneficiaries = Beneficiaries()
        self.beneficiaries.apply(b"m1 b1", schemas.encode(schemas.BENEFICIARY, BENEFICIARY))
        self.agent = Payouts(self.beneficiaries, rules or Rules())
        self.store = SimulatedStore()
        self.written = {topic: Written(schema) for topic, schema in SCHEMAS.items()}
        self.waiting: list[tuple[int, Write]] = []
        self.audit = Audit()
        self._offsets = itertools.count()
        if available:
            self.send(funded(available, "opening"))

    def send(self, fields: Mapping[str, Any]) -> Outcome:
        value = schemas.encode(schemas.PAYOUT_COMMAND, fields)
        return self.plan(topics.PAYOUT_COMMANDS, fields["merchant"].encode(), value)

    def plan(self, topic: Topic, key: bytes, value: bytes) -> Outcome:
        record = Record(topic, 0, next(self._offsets), key, value, (), self.now_ms)
        outcome = self.agent.plan(record, State(self.store), self.now_ms)
        self.store.apply(dict(outcome.changes), 0)
        for write in outcome.writes:
            self._keep(write)
        assert self.audit.findings() == []
        return outcome

    def _keep(self, write: Write) -> None:
        if write.topic in RUNG_TOPICS:
            self.waiting.append((int(dict(write.headers)[DUE]), write))
            return
        self.written[write.topic].values.append(write.value or b"")
        if write.topic is topics.LEDGER_ENTRIES:
            self.audit.take(self.written[write.topic][-1])

    def reply(self, outcome: str, action: str = "SUBMIT", number: int = 1, payout_id: str = "p1", **others: Any) -> Outcome:
        fields = {
            "task_id": "t", "payout_id": payout_id, "merchant": "m1", "channel": "mobile_wallet", "action": action, "number": number,
            "outcome": outcome, "duration_ms": 5, "replied_ms": self.now_ms, **others,
        }  # fmt: skip
        return self.plan(topics.PAYOUT_REPLIES, b"", schemas.encode(schemas.PAYOUT_REPLY, fields))

    def timer(self, name: str) -> Outcome:
        """Let the ladder give back the next timer of a name, when it is due."""
        for waiting in sorted(self.waiting, key=lambda each: each[0]):
            due_ms, write = waiting
            if dict(write.headers)[RETURN] != topics.PAYOUT_REPLIES.name.encode():
                continue
            if schemas.decode(write.value or b"", schemas.PAYOUT_REPLY)["code"] == name:
                self.waiting.remove(waiting)
                self.now_ms = max(self.now_ms, due_ms)
                return self.plan(topics.PAYOUT_REPLIES, b"", write.value or b"")
        raise AssertionError(f"no timer {name} waits")

    # What came of it

    def status(self, payout_id: str = "p1") -> dict[str, Any]:
        statuses: list[dict[str, Any]] = [each for each in self.written[topics.PAYOUT_STATUS] if each["payout_id"] == payout_id]
        return statuses[-1]

    def events(self) -> list[tuple[str, dict[str, Any]]]:
        return [(each["type"], orjson.loads(each["data"])) for each in self.written[topics.EVENTS]]

    def balance(self, name: str) -> int:
        return self.audit.balances[f"m1/PKR/{name}"]
