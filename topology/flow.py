"""The flow: which role reads and writes which topics, and what it does to the world beside."""

from collections.abc import Iterable
from dataclasses import dataclass

from streams.errors import ConfigurationError
from topology import topics as t
from topology.ladder import RUNG_TOPICS
from topology.topics import Topic


@dataclass(frozen=True)
class Role:
    """One kind of worker. It reads `reads` partition by partition, beside its state, and every record of `tables`."""

    name: str
    why: str
    reads: tuple[Topic, ...]
    writes: tuple[Topic, ...]
    tables: tuple[Topic, ...] = ()
    changelog: Topic | None = None
    effect: str | None = None
    writes_families: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a role whose sources would not meet: partition p of each, and of the changelog, must be the same merchants'."""
        together = (*self.reads, *([self.changelog] if self.changelog else []))
        for topic in together:
            if not topic.partitioned_by_merchant:
                raise ConfigurationError(
                    f"declaring role {self.name}: {topic} is not partitioned by merchant; name it in `tables` or partition it so"
                )
        for topic in self.tables:
            if topic.cleanup != "compact":
                raise ConfigurationError(f"declaring role {self.name}: table {topic} is not compacted, so reading it whole has no bound")
        if self.changelog and self.changelog.cleanup != "compact":
            raise ConfigurationError(f"declaring role {self.name}: changelog {self.changelog} must be compacted")


@dataclass(frozen=True)
class Actor:
    """Somebody outside who writes to topics with a plain idempotent producer, or is served by a role."""

    name: str
    why: str
    writes: tuple[Topic, ...]


RETURNS = (t.DELIVERIES, t.PAYOUT_COMMANDS, t.PAYOUT_TASKS, t.PAYOUT_REPLIES)
"""Where a record that has waited may go back to."""

DELIVER = Role(
    "deliver",
    "Posts each event to the subscriptions that want it, and decides what happens after each answer.",
    reads=(t.EVENTS, t.DELIVERIES),
    tables=(t.SUBSCRIPTIONS,),
    writes=(t.EVENTS, t.DELIVERIES, t.DELIVERY_STATUS, t.DLQ, t.OPERATIONAL_EVENTS, t.SUBSCRIPTIONS, *RUNG_TOPICS),
    changelog=t.CHANGELOG_DELIVER,
    effect="POST to the merchant's endpoint",
)
LADDER = Role(
    "ladder",
    "Lets each waiting record go when its rung or its due time says so: to the next rung down, or back where it came from.",
    reads=RUNG_TOPICS,
    writes=(*RETURNS, t.DLQ, *RUNG_TOPICS),
    changelog=t.CHANGELOG_LADDER,
    effect="wait until the head of a rung may go",
)
REPLAY = Role(
    "replay",
    "Runs what people ask for: sends dead letters or a stretch of events again, exactly once, at a rate.",
    reads=(t.REPLAY_REQUESTS, t.DLQ),
    tables=(t.SUBSCRIPTIONS,),
    writes=(*RETURNS, t.EVENTS, t.REPLAY_REQUESTS, t.DLQ, t.OPERATIONAL_EVENTS, *RUNG_TOPICS),
    changelog=t.CHANGELOG_REPLAY,
    effect="read a stretch of events or dlq again",
)
PAYOUTS = Role(
    "payouts",
    "Takes each payout through its saga and books every movement of money.",
    reads=(t.PAYOUT_COMMANDS, t.PAYOUT_REPLIES),
    tables=(t.BENEFICIARIES,),
    writes=(
        t.PAYOUT_TASKS, t.PAYOUT_REPLIES, t.PAYOUT_STATUS, t.PAYOUT_BATCH_STATUS, t.LEDGER_ENTRIES, t.BENEFICIARIES, t.EVENTS, t.DLQ,
        t.OPERATIONAL_EVENTS, *RUNG_TOPICS,
    ),
    changelog=t.CHANGELOG_PAYOUTS,
)  # fmt: skip
CHANNELS = Role(
    "channels",
    "Calls the payment channels, submits once and polls until there is an answer.",
    reads=(t.PAYOUT_TASKS,),
    writes=(t.PAYOUT_REPLIES, t.PAYOUT_TASKS, t.DLQ, *RUNG_TOPICS),
    changelog=t.CHANGELOG_CHANNELS,
    effect="call to the payment channel",
)
MERCHANT_TOPICS = Role(
    "merchant-topics",
    "Copies the events of merchants who consume Kafka themselves into their own topics, signed.",
    reads=(t.EVENTS,),
    tables=(t.SUBSCRIPTIONS,),
    writes=(t.DELIVERY_STATUS, t.DLQ, t.OPERATIONAL_EVENTS),
    writes_families=("merchant-<id>",),
    changelog=t.CHANGELOG_MERCHANT_TOPICS,
)
VIEW = Role(
    "view",
    "Projects what people search into SQL; it can be dropped and rebuilt, and no agent reads it.",
    reads=(
        t.EVENTS, t.DELIVERY_STATUS, t.DLQ, t.REPLAY_REQUESTS, t.OPERATIONAL_EVENTS,
        t.PAYOUT_STATUS, t.PAYOUT_BATCH_STATUS, t.LEDGER_ENTRIES,
    ),
    tables=(t.SUBSCRIPTIONS, t.BENEFICIARIES),
    writes=(),
    effect="write to SQL",
)  # fmt: skip

ROLES = (DELIVER, LADDER, REPLAY, PAYOUTS, CHANNELS, MERCHANT_TOPICS, VIEW)

ACTORS = (
    Actor("producers", "Publish what happened, directly or through the outbox relay.", (t.EVENTS,)),
    Actor("api", "Takes what merchants, support and operators ask for.",
          (t.SUBSCRIPTIONS, t.BENEFICIARIES, t.PAYOUT_COMMANDS, t.REPLAY_REQUESTS, t.EVENTS)),
)  # fmt: skip


def all_topics(roles: Iterable[Role], actors: Iterable[Actor]) -> tuple[Topic, ...]:
    """List every topic that the flow names, each once, in the order in which the flow meets them; refuse one that nobody writes."""
    roles = tuple(roles)
    sources: tuple[Role | Actor, ...] = (*roles, *actors)
    written = {topic for source in sources for topic in source.writes} | {role.changelog for role in roles}
    named: dict[str, Topic] = {}
    for topic in (topic for role in roles for topic in (*role.reads, *role.tables, *role.writes, role.changelog) if topic):
        if named.setdefault(topic.name, topic) is not topic:
            raise ConfigurationError(f"declaring the flow: topic {topic} is declared twice; declare it once in topology/topics.py")
        if topic not in written:
            raise ConfigurationError(f"declaring the flow: topic {topic} is read and nobody writes it")
    return tuple(named.values())


TOPICS = all_topics(ROLES, ACTORS)
