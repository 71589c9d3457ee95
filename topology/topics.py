"""Every topic that exists, declared once: what is in it, why, how its records are keyed and how long they stay."""

import re
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Literal

from streams.errors import ConfigurationError

NAME = re.compile(r"[a-zA-Z0-9._-]{1,149}")  # Kafka takes 249 characters; 100 are the prefix's.
RECORD_BYTES_MAX = 1_048_576
TOMBSTONES_LEAST = timedelta(hours=24)
FOREVER = None


@dataclass(frozen=True, eq=False)
class Topic:
    """One topic. Two are the same only if they are one object, so that a topic is a cheap key of the hot path's tables."""

    name: str
    why: str
    key: str
    schema: str | None
    cleanup: Literal["delete", "compact"] = "delete"
    retention: timedelta | None = FOREVER
    partitioned_by_merchant: bool = True
    timestamps: Literal["CreateTime", "LogAppendTime"] = "CreateTime"
    segment_age: timedelta | None = None
    segment_bytes: int | None = None
    tombstones: timedelta = TOMBSTONES_LEAST
    record_bytes_max: int = RECORD_BYTES_MAX

    def __post_init__(self) -> None:
        """Refuse a declaration that Kafka would refuse, or that would lose what the topic is for."""
        for wrong, reason in (
            (not NAME.fullmatch(self.name), "its name must be 1 to 149 of letters, digits, dot, dash and underscore"),
            (not self.why.endswith("."), "its why must be a sentence"),
            (self.cleanup == "compact" and self.retention is not FOREVER, "a compacted topic keeps the last record of each key forever"),
            (self.cleanup == "compact" and self.tombstones < TOMBSTONES_LEAST, "a reader away for a day would miss its tombstones"),
            (self.retention and self.retention <= (self.segment_age or timedelta()), "its retention must be longer than its segments last"),
            (not 1_000 <= self.record_bytes_max <= 10 * RECORD_BYTES_MAX, "record_bytes_max must be from 1,000 bytes to 10 MiB"),
        ):
            if wrong:
                raise ConfigurationError(f"declaring topic {self.name}: {reason}")

    def __str__(self) -> str:
        return self.name

    def on_cluster(self, prefix: str) -> str:
        """Name it as the cluster does."""
        return prefix + self.name

    def partitions(self, by_merchant: int) -> int:
        """Count its partitions: the common number, or one for what every worker reads whole."""
        return by_merchant if self.partitioned_by_merchant else 1

    def config(self, replication: int, retention: timedelta | None = None) -> dict[str, str]:
        """Derive the broker's settings, of which only these are ours to compare; `retention` takes the place of the declared one."""
        kept = retention or self.retention
        given = {
            "cleanup.policy": self.cleanup,
            "compression.type": "producer",
            "max.message.bytes": self.record_bytes_max,
            "message.timestamp.type": self.timestamps,
            "min.insync.replicas": max(1, replication - 1),
            "retention.ms": None if self.cleanup == "compact" else _ms(kept) if kept else -1,
            "delete.retention.ms": _ms(self.tombstones) if self.cleanup == "compact" else None,
            "segment.ms": _ms(self.segment_age) if self.segment_age else None,
            "segment.bytes": self.segment_bytes,
        }
        return {name: str(value) for name, value in given.items() if value is not None}


def _ms(span: timedelta) -> int:
    return span // timedelta(milliseconds=1)


def _table(name: str, why: str, key: str, schema: str, *, read_whole: bool = False) -> Topic:
    """Keep the last record of each key; a day-old segment is closed, so that what is deleted is soon gone from the disk."""
    return Topic(name, why, key, schema, "compact", partitioned_by_merchant=not read_whole, segment_age=timedelta(days=1))


def changelog(role: str) -> Topic:
    """Declare a role's changelog: small segments, for only closed ones are compacted and a restore reads all that is left."""
    why = f"The state of `{role}`, from which a worker that lost its files rebuilds them."
    return Topic(f"changelog-{role}", why, "state key", None, "compact", segment_age=timedelta(hours=1), segment_bytes=64 * 1024 * 1024)


EVENTS = Topic(
    "events", "What happened to merchants, as producers tell it; kept so that a resumed merchant can have a month again.",
    key="merchant", schema="event", retention=timedelta(days=30),
)  # fmt: skip
DELIVERIES = Topic(
    "deliveries", "Deliveries that come back for another attempt: from the ladder, from a replay, or from waiting for their turn.",
    key="source, event and subscription", schema="delivery", retention=timedelta(days=30),
)  # fmt: skip
DELIVERY_STATUS = _table(
    "delivery-status", "Where each delivery stands, with its attempts: what support looks up.",
    key="source, event and subscription", schema="delivery_status",
)  # fmt: skip
SUBSCRIPTIONS = _table(
    "subscriptions", "What each merchant wants to hear of, where and how; every worker reads all of it before its first event.",
    key="subscription", schema="subscription", read_whole=True,
)  # fmt: skip
DLQ = Topic(
    "dlq", "What could not be delivered or read, with the reason, until a person replays it or lets it go.",
    key="dead letter", schema="dead_letter", retention=timedelta(days=90),
)  # fmt: skip
REPLAY_REQUESTS = Topic(
    "replay-requests", "What people ask of the replay agent: start, pause, resume and stop.",
    key="replay", schema="replay_request", retention=timedelta(days=30),
)  # fmt: skip
OPERATIONAL_EVENTS = Topic(
    "operational-events", "What an operator or a merchant's contact should know: a subscription disabled, a payout stuck.",
    key="what it is about", schema="operational_event", retention=timedelta(days=90),
)  # fmt: skip
PAYOUT_COMMANDS = Topic(
    "payout-commands", "What is asked of payouts; kept as long as an idempotency key holds.",
    key="merchant", schema="payout_command", retention=timedelta(days=90),
)  # fmt: skip
PAYOUT_TASKS = Topic(
    "payout-tasks", "Calls that a channel is to be sent: submissions and polls.",
    key="merchant and payout", schema="payout_task", retention=timedelta(days=30),
)  # fmt: skip
PAYOUT_REPLIES = Topic(
    "payout-replies", "What channels answered, and timers that ran out: each moves a payout on by a step.",
    key="merchant and payout", schema="payout_reply", retention=timedelta(days=30),
)  # fmt: skip
PAYOUT_STATUS = _table(
    "payout-status", "Where each payout stands: what merchants and support look up.",
    key="merchant and payout", schema="payout_status",
)  # fmt: skip
PAYOUT_BATCH_STATUS = _table(
    "payout-batch-status", "Where each batch of payouts stands, and how many of its items have ended.",
    key="merchant and batch", schema="payout_batch_status",
)  # fmt: skip
LEDGER_ENTRIES = Topic(
    "ledger-entries", "Every movement of money, in the order in which it was booked: append only, so kept forever.",
    key="transfer", schema="ledger_transfer", retention=FOREVER,
)  # fmt: skip
BENEFICIARIES = _table(
    "beneficiaries", "Whom merchants pay out to; every payouts worker reads all of it before its first command.",
    key="merchant and beneficiary", schema="beneficiary", read_whole=True,
)  # fmt: skip

CHANGELOG_DELIVER = changelog("deliver")
CHANGELOG_LADDER = changelog("ladder")
CHANGELOG_REPLAY = changelog("replay")
CHANGELOG_PAYOUTS = changelog("payouts")
CHANGELOG_CHANNELS = changelog("channels")
CHANGELOG_MERCHANT_TOPICS = changelog("merchant-topics")


@cache
def merchant_topic(merchant: str) -> Topic:
    """Declare a merchant's own topic, made when it subscribes; its partitions are its own, so its order is by resource."""
    why = f"Events of merchant {merchant}, signed, for its own consumers: same id, same bytes as its webhooks would have."
    return Topic(f"merchant-{merchant}", why, "resource", None, retention=timedelta(days=7), partitioned_by_merchant=False)
