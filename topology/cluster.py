"""Compares a cluster's topics with the declared ones: the difference is data, so it can be shown, refused or applied."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from streams.settings import Settings
from topology.topics import EVENTS, Topic

DURABILITY = "min.insync.replicas"


@dataclass(frozen=True)
class Wanted:
    """A topic as it should be on the cluster."""

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str]
    by_merchant: bool


@dataclass(frozen=True)
class Actual:
    """A topic as it is. `replication` is its partitions' least."""

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str]
    empty: bool


@dataclass(frozen=True)
class Create:
    """A topic is missing."""

    topic: Wanted

    def __str__(self) -> str:
        return f"{self.topic.name}: create with {self.topic.partitions} partition(s), {self.topic.replication} copies of each"


@dataclass(frozen=True)
class ChangeConfig:
    """A setting differs."""

    topic: str
    setting: str
    old: str | None
    new: str

    def __str__(self) -> str:
        return f"{self.topic}: {self.setting} {self.old} → {self.new}"


@dataclass(frozen=True)
class AddPartitions:
    """A topic without records has too few partitions."""

    topic: str
    old: int
    new: int

    def __str__(self) -> str:
        return f"{self.topic}: partitions {self.old} → {self.new}"


@dataclass(frozen=True)
class Refused:
    """A difference that apply leaves alone, with what a person can do."""

    topic: str
    what: str
    do: str

    def __str__(self) -> str:
        return f"{self.topic}: {self.what}. {self.do}"


Change = Create | ChangeConfig | AddPartitions | Refused


@dataclass(frozen=True)
class Plan:
    """All differences; none means that the cluster is as declared."""

    changes: tuple[Change, ...] = field(default=())

    @property
    def doable(self) -> tuple[Create | ChangeConfig | AddPartitions, ...]:
        """What apply would do."""
        return tuple(change for change in self.changes if not isinstance(change, Refused))

    @property
    def refused(self) -> tuple[Refused, ...]:
        """What apply would not."""
        return tuple(change for change in self.changes if isinstance(change, Refused))


def wanted(topics: Iterable[Topic], settings: Settings) -> tuple[Wanted, ...]:
    """Say how the declared topics should be on the cluster that the settings mean."""
    copies = settings.replication
    return tuple(
        Wanted(
            topic.on_cluster(settings.topic_prefix),
            topic.partitions(settings.partitions),
            copies,
            topic.config(copies, timedelta(days=settings.events_kept_days) if topic is EVENTS else None),
            topic.partitioned_by_merchant,
        )
        for topic in topics
    )


def difference(wanted: Iterable[Wanted], actual: Mapping[str, Actual]) -> Plan:
    """Find every difference. What nobody declared is not looked at; nothing is ever deleted or made smaller."""
    wanted = tuple(wanted)
    stuck = _stuck_merchant_partitions(wanted, actual)
    changes: list[Change] = []
    for topic in wanted:
        found = actual.get(topic.name)
        if found:
            changes += [*_partitions(topic, found, stuck), *_replication(topic, found), *_config(topic, found)]
        else:
            changes.append(_missing(topic, stuck))
    return Plan(tuple(changes))


def _stuck_merchant_partitions(wanted: Iterable[Wanted], actual: Mapping[str, Actual]) -> int | None:
    """Find the count that topics partitioned by merchant must stay at, if they cannot all be given the wanted one.

    A merchant's records meet in one partition number across all these topics, so they change together or not at all.
    """
    pairs = [(topic, actual[topic.name]) for topic in wanted if topic.by_merchant and topic.name in actual]
    differing = [found.partitions for topic, found in pairs if found.partitions != topic.partitions]
    too_many = any(found.partitions > topic.partitions for topic, found in pairs)
    has_records = any(not found.empty for _, found in pairs)
    return differing[0] if differing and (too_many or has_records) else None


def _missing(topic: Wanted, stuck: int | None) -> Change:
    if topic.by_merchant and stuck is not None:
        return Refused(topic.name, f"missing, and {topic.partitions} partitions would not match the others", _keep(stuck))
    return Create(topic)


def _partitions(topic: Wanted, found: Actual, stuck: int | None) -> list[Change]:
    if found.partitions == topic.partitions:
        return []
    what = f"has {found.partitions} partition(s), should have {topic.partitions}"
    if found.partitions > topic.partitions:
        return [Refused(topic.name, f"{what}, and Kafka cannot take any away", _keep(found.partitions))]
    if topic.by_merchant and stuck is not None:
        return [
            Refused(topic.name, f"{what}, but topics partitioned by merchant hold records that would be in the wrong place", _keep(stuck))
        ]
    if not found.empty:
        return [Refused(topic.name, f"{what}, but it holds records whose keys would move", _keep(found.partitions))]
    return [AddPartitions(topic.name, found.partitions, topic.partitions)]


def _keep(partitions: int) -> str:
    return f"Set HOOKLINE_PARTITIONS={partitions}, or drain into a cluster or a HOOKLINE_TOPIC_PREFIX that starts empty"


def _replication(topic: Wanted, found: Actual) -> list[Change]:
    if found.replication == topic.replication:
        return []
    what = f"has {found.replication} copies, should have {topic.replication}"
    return [Refused(topic.name, what, f"Move it with kafka-reassign-partitions, or set HOOKLINE_REPLICATION={found.replication}")]


def _config(topic: Wanted, found: Actual) -> list[Change]:
    """Compare what is declared; how many copies must be written is left alone until there are as many as declared."""
    named = sorted(name for name in topic.config if name != DURABILITY or found.replication == topic.replication)
    return [
        ChangeConfig(topic.name, name, found.config.get(name), topic.config[name])
        for name in named
        if found.config.get(name) != topic.config[name]
    ]
