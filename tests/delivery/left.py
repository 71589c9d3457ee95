"""What a simulated day left in the topics, read once for all the checks."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import schemas
from schemas.event import Event
from schemas.events import decode_event
from streams.delivery.subscription import Subscription
from streams.log.simulated.cluster import START_MS, Cluster, Entry
from tests.delivery.subscribers import KEYRING, PLACE
from topology import topics

Key = tuple[str, str, str]
"""An event's source and id, and a subscription."""

OVER = frozenset({"DELIVERED", "DLQ", "CANCELLED", "SERIALISATION_FAILED", "SIGNING_FAILED"})


class Sent(NamedTuple):
    """One record of the events topic."""

    event: Event
    at_ms: int
    partition: int
    offset: int


class Revision(NamedTuple):
    """What a subscription was from then on; None: nothing any more."""

    at_ms: int
    subscription: Subscription | None


@dataclass
class Left:
    """Read on whenever it is asked to."""

    cluster: Cluster
    partitions: int
    statuses: dict[Key, list[Mapping[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    in_order: list[Mapping[str, Any]] = field(default_factory=list)
    letters: list[Mapping[str, Any]] = field(default_factory=list)
    events: list[Sent] = field(default_factory=list)
    revisions: dict[str, list[Revision]] = field(default_factory=lambda: defaultdict(list))
    _positions: dict[tuple[str, int], int] = field(default_factory=dict)

    def read_on(self) -> None:
        for number in range(self.partitions):
            for entry in self._read(topics.DELIVERY_STATUS.name, number):
                status = schemas.decode(entry.value or b"", schemas.DELIVERY_STATUS)
                self.statuses[status["source"], status["event_id"], status["subscription_id"]].append(status)
                self.in_order.append(status)
            for entry in self._read(topics.DLQ.name, number):
                self.letters.append(schemas.decode(entry.value or b"", schemas.DEAD_LETTER))
            for entry in self._read(topics.EVENTS.name, number):
                event = decode_event(entry.value, entry.headers, entry.key, entry.timestamp_ms)
                self.events.append(Sent(event, entry.appended_ms, number, entry.offset))
        for entry in self._read(*PLACE):
            self._note_revision(entry)

    def _read(self, topic: str, number: int) -> Iterator[Entry]:
        place = (topic, number)
        start = self._positions.get(place, 0)
        self._positions[place] = self.cluster.stable_end(place)
        return self.cluster.read(place, start, 10**9)

    def _note_revision(self, entry: Entry) -> None:
        known = self.revisions[(entry.key or b"").decode()]
        if entry.value is None:
            known.append(Revision(entry.appended_ms, None))
            return
        subscription = Subscription(schemas.decode(entry.value, schemas.SUBSCRIPTION), KEYRING)
        before = known[-1].subscription if known else None
        if before is None or before.revision <= subscription.revision:
            known.append(Revision(entry.appended_ms, subscription))

    def last(self) -> dict[Key, Mapping[str, Any]]:
        """The last word on each delivery."""
        return {key: told[-1] for key, told in self.statuses.items()}

    def now(self, name: str) -> Subscription | None:
        return self.revisions[name][-1].subscription

    def ever(self, name: str) -> list[Subscription]:
        return [each.subscription for each in self.revisions[name] if each.subscription is not None]

    def between(self, name: str, from_ms: int, to_ms: int) -> list[Subscription | None]:
        """What it was at some time between these; None for when it was not there."""
        from_ms, found = max(from_ms, START_MS), list[Subscription | None]()
        before: Subscription | None = None
        for at_ms, subscription in self.revisions[name]:
            if at_ms > to_ms:
                break
            if at_ms <= from_ms:
                before = subscription
            else:
                found.append(subscription)
        return [before, *found]

    def changed_between(self, name: str, from_ms: int, to_ms: int) -> bool:
        return any(from_ms < each.at_ms <= to_ms for each in self.revisions[name])
