"""Whether what came out is explained by what went in: the last word on each delivery, and each request that a merchant received."""

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from streams.ladder.handler import DUE
from tests.pipeline.harness import Pipeline
from tests.pipeline.outcome import Arrival
from topology import topics
from topology.ladder import RUNG_TOPICS

SHOWN = 10
RECEIVED_LATE_MS = 250
"""How long a merchant's server may take to read what a killed worker had sent; the next worker takes longer to begin."""


@dataclass
class Verdict:
    """Counts of deliveries, and what is wrong with them, each in a line."""

    deliveries: int = 0
    states: Counter[str] = field(default_factory=Counter)
    sent_again: int = 0
    """Requests that a merchant received twice because of a kill."""
    lost: list[str] = field(default_factory=list)
    unexplained: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> list[str]:
        return [*self.lost, *self.unexplained][:SHOWN]


def judge(pipeline: Pipeline) -> Verdict:
    """Read everything, and judge every event for every subscription of its merchant."""
    pipeline.read()
    verdict = Verdict()
    waiting = where_deliveries_wait(pipeline)
    letters = Counter((letter["event_id"], letter["subscription_id"]) for letter in pipeline.outcome.letters)
    for event in pipeline.sent.values():
        for subscription in pipeline.subscriptions.values():
            if subscription.merchant != event.merchant:
                continue
            verdict.deliveries += 1
            who = (event.id, subscription.id)
            status = pipeline.outcome.status.get(who)
            if status is None:
                verdict.lost.append(f"{who}: nothing was ever said of it")
                continue
            arrivals = pipeline.journal.of[urlsplit(subscription.url).path, event.id]
            verdict.states[status["state"]] += 1
            judge_state(status, arrivals, letters[who], waiting, verdict)
            judge_attempts(status, arrivals, pipeline.kills_ms, verdict)
    return verdict


def where_deliveries_wait(pipeline: Pipeline) -> set[tuple[bytes, int]]:
    """Keys and due times of everything that was ever on a rung, or on its way back."""
    topics_of_waiting = (*RUNG_TOPICS, topics.DELIVERIES)
    return {(key, int(headers[DUE])) for topic in topics_of_waiting for key, headers in pipeline.outcome.waiting(topic)}


def judge_state(status: dict[str, Any], arrivals: list[Arrival], letters: int, waiting: set[tuple[bytes, int]], verdict: Verdict) -> None:
    """The last word is true: the merchant took it, or it waits on the ladder, or it is in the DLQ, once."""
    who = (status["event_id"], status["subscription_id"])
    taken = any(arrival.code is not None and 200 <= arrival.code < 300 for arrival in arrivals)
    key = f"{status['source']} {status['event_id']} {status['subscription_id']}".encode()
    match status["state"]:
        case "DELIVERED":
            true = taken and not letters
        case "WAITING_RETRY" | "PENDING":
            true = (key, status["next_retry_ms"]) in waiting and not letters
        case "DLQ":
            true = letters == 1
        case _:
            true = False
    if not true:
        verdict.lost.append(f"{who} is {status['state']}, with {letters} dead letters; arrivals {arrivals}")


def judge_attempts(status: dict[str, Any], arrivals: list[Arrival], kills_ms: list[float], verdict: Verdict) -> None:
    """What the history tells has arrived, and what arrived is in it; again only what was under way when a worker was killed."""
    who = (status["event_id"], status["subscription_id"])
    by_attempt: dict[int, list[Arrival]] = {}
    for arrival in arrivals:
        by_attempt.setdefault(arrival.attempt, []).append(arrival)
    for attempt in status["attempts"]:
        came = by_attempt.pop(attempt["number"], [])
        if not any(arrival.code == attempt["code"] for arrival in came):
            verdict.unexplained.append(f"{who}: attempt {attempt['number']} came to {attempt['code']}, and the merchant has {came}")
        for before, after in pairwise(came):
            verdict.sent_again += 1
            if not any(before.at_ms - RECEIVED_LATE_MS < kill_ms < after.at_ms for kill_ms in kills_ms):
                verdict.unexplained.append(f"{who}: attempt {attempt['number']} came twice without a kill in between: {came}")
    if by_attempt:
        verdict.unexplained.append(f"{who} is {status['state']}, and the merchant has attempts that are not in its history: {by_attempt}")


@dataclass
class Order:
    """How ordered subscriptions came out."""

    overtaken: int = 0
    """Events that arrived before an earlier one of another resource was delivered."""
    wrong: list[str] = field(default_factory=list)


def judge_order(pipeline: Pipeline) -> Order:
    """First arrivals of each resource: in the order of the events, numbered from 1 without a gap, each after the one before was taken."""
    order = Order()
    for name, subscription in pipeline.subscriptions.items():
        path = urlsplit(subscription.url).path
        by_resource: dict[str, list[str]] = {}
        for event in pipeline.sent.values():
            if event.merchant == subscription.merchant and event.resource is not None:
                by_resource.setdefault(event.resource, []).append(event.id)
        for resource, ids in by_resource.items():
            firsts = [pipeline.journal.of[path, event][0] for event in ids if pipeline.journal.of[path, event]]
            if [first.sequence for first in firsts] != list(range(1, len(ids) + 1)):
                order.wrong.append(f"{name} {resource}: numbered {[first.sequence for first in firsts]}")
            for before, after in pairwise(ids):
                taken_ms = min((arrival.at_ms for arrival in pipeline.journal.of[path, before] if arrival.code == 200), default=None)
                if taken_ms is None or pipeline.journal.of[path, after][0].at_ms < taken_ms:
                    order.wrong.append(f"{name} {resource}: {after} arrived before {before} was taken")
        order.overtaken += overtaken(pipeline, path, [event for ids in by_resource.values() for event in ids])
    return order


def overtaken(pipeline: Pipeline, path: str, ids: list[str]) -> int:
    """How many events were first received when an earlier one, of another resource, was still to be taken."""
    sent = [event for event in pipeline.sent if event in set(ids)]
    taken_ms = [min(arrival.at_ms for arrival in pipeline.journal.of[path, event] if arrival.code == 200) for event in sent]
    count, latest_ms = 0, 0.0
    for event, at_ms in zip(sent, taken_ms, strict=True):
        count += pipeline.journal.of[path, event][0].at_ms < latest_ms
        latest_ms = max(latest_ms, at_ms)
    return count
