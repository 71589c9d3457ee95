"""What must hold of each subscription over a simulated day: order, pace, breaker, and when it was disabled."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Any

from streams.delivery.pace import BREAKER_FAILURES, BREAKER_MS_FIRST, BREAKER_MS_MAX
from streams.delivery.results import Answer
from streams.delivery.rules import HOUR_MS
from streams.delivery.subscription import Subscription
from tests.delivery.checks import Struck, is_2xx, is_struck, was_reordered
from tests.delivery.left import Left
from tests.delivery.merchants import Post

FAILURES_MAX, TLS_FAILURES_MAX, TLS_LEAST_MS = 100, 20, 24 * HOUR_MS
LATE_MS, LATE_IN_TROUBLE_MS = 45_000, 180_000
"""How much later than its slot a delivery may go: behind a lane that hangs, or when the ladder was away."""
AT_ONCE_MS = 5_000
"""Two decisions about one subscription within this time may not know of each other."""
BY_WORKERS = ("gone", "failures", "tls")


def wrong_endpoints(left: Left, posts: Sequence[Post], struck: Struck, skew_ms: int) -> Iterator[str]:
    """Everything that is wrong with single subscriptions."""
    by_name: dict[str, list[Post]] = defaultdict(list)
    for post in posts:
        by_name[post.subscription].append(post)
    for name in left.revisions:
        found = [*wrong_disabling(left, name, skew_ms), *wrong_width(by_name[name], left.ever(name)[0])]
        if left.ever(name)[0].ordered and not was_reordered(left, name):
            found += wrong_order(left, name, by_name[name])
        if not skew_ms:
            found += [*wrong_rate(by_name[name], left.ever(name), struck), *wrong_breaker(by_name[name], left, struck)]
        yield from (f"{name}: {what}" for what in found)


# Order


def wrong_order(left: Left, name: str, posts: Sequence[Post]) -> Iterator[str]:
    """Each resource's events were numbered in their order without a gap, and each began when the one before was over."""
    made = {(post.event, post.at_ms): post for post in posts}  # by the worker's clock as attempts are, but told in steps of true time
    by_resource: dict[str, list[Sequence[Mapping[str, Any]]]] = defaultdict(list)
    for (_, _, subscription), told in left.statuses.items():
        if subscription == name and told[-1]["resource"] is not None:
            by_resource[told[-1]["resource"]].append(told)
    for resource, ones in by_resource.items():
        ones.sort(key=lambda told: int(told[-1]["origin"]["offset"]))
        attempted = [told[-1] for told in ones if told[-1]["attempts"]]
        taken = [
            told[-1] for told in ones if told[-1]["attempts"] or told[-1]["sequence"] is not None
        ]  # or cancelled when its turn had come
        numbers = [each["sequence"] for each in taken]
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"{resource}: numbered {numbers}"
        for before, after in pairwise(attempted):
            ended, began = (made[each["event_id"], each["attempts"][place]["at_ms"]] for each, place in ((before, -1), (after, 0)))
            if began.began_step < ended.ended_step:
                yield f"{resource}: {after['event_id']} overtook {before['event_id']}"
        yield from wrong_hold(resource, ones, left.ever(name)[0])


def wrong_hold(resource: str, ones: Sequence[Sequence[Mapping[str, Any]]], subscription: Subscription) -> Iterator[str]:
    """Behind a dead letter, what is held is not attempted."""
    if not subscription.holds_behind_dead_letter:
        return
    dead_at = next((place for place, told in enumerate(ones) if told[-1]["state"] == "DLQ"), len(ones))
    for told in ones[dead_at + 1 :]:
        if told[-1]["attempts"]:
            yield f"{resource}: {told[-1]['event_id']} went behind the dead {ones[dead_at][-1]['event_id']}"


# Disabling


def wrong_disabling(left: Left, name: str, skew_ms: int) -> Iterator[str]:
    """It was disabled when, and only when, its attempts ask for it; counted again here, in the order in which they ended."""
    written = {each.fields["state_since_ms"]: each.fields["state_reason"] for each in left.ever(name) if is_by_a_worker(each)}
    asked = dict(asked_to_disable(left, name))
    for at_ms, why in written.items():
        if asked.get(at_ms) != why:
            yield f"disabled at {at_ms} for {why}, and its attempts ask for {asked.get(at_ms)}"
    for at_ms, why in asked.items():
        was = left.between(name, at_ms - AT_ONCE_MS - skew_ms, at_ms + AT_ONCE_MS + skew_ms)
        if at_ms not in written and all(each is not None and each.state != "DISABLED" for each in was):
            yield f"not disabled at {at_ms} for {why}"


def is_by_a_worker(subscription: Subscription) -> bool:
    return subscription.state == "DISABLED" and subscription.fields["state_reason"] in BY_WORKERS


def asked_to_disable(left: Left, name: str) -> Iterator[tuple[int, str]]:
    """Each time at which the rule says that it is to be disabled, with the reason."""
    least_ms = 0 if left.ever(name)[0].profile.name == "wf" else HOUR_MS
    known: dict[tuple[str, str], int] = {}
    failed: list[tuple[int, bool]] = []
    for status in left.in_order:
        key = (status["source"], status["event_id"])
        if status["subscription_id"] != name or len(status["attempts"]) <= known.get(key, 0):
            continue
        known[key] = len(status["attempts"])
        attempt, at_ms = status["attempts"][-1], status["updated_ms"]
        if is_2xx(attempt):
            failed.clear()
            continue
        failed.append((at_ms, is_certificate(attempt)))
        why = why_disabled(failed, at_ms, least_ms, attempt["code"])
        if why is not None:
            failed.clear()
            yield at_ms, why


def why_disabled(failed: Sequence[tuple[int, bool]], at_ms: int, least_ms: int, code: int | None) -> str | None:
    if code == 410:
        return "gone"
    if len(failed) > FAILURES_MAX and at_ms - failed[0][0] >= least_ms:
        return "failures"
    bad = 0
    while bad < len(failed) and failed[-1 - bad][1]:
        bad += 1
    if bad >= TLS_FAILURES_MAX and at_ms - failed[-bad][0] >= TLS_LEAST_MS:
        return "tls"
    return None


def is_certificate(attempt: Mapping[str, Any]) -> bool:
    return attempt["code"] is None and "certificate" in (attempt["error"] or "")


# Pace


def wrong_width(posts: Sequence[Post], subscription: Subscription) -> Iterator[str]:
    """No worker has more of them under way at once than the subscription allows."""
    by_worker: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for post in posts:
        if post.ended_ms is not None:
            by_worker[post.worker] += [(post.began_ms, 1), (post.ended_ms, -1)]
    for worker, steps in by_worker.items():
        wide = widest = 0
        for _, step in sorted(steps):
            wide += step
            widest = max(widest, wide)
        if widest > subscription.pace_limits.in_flight_max:
            yield f"{widest} in flight at once in {worker}, at most {subscription.pace_limits.in_flight_max} are allowed"


def wrong_rate(posts: Sequence[Post], revisions: Sequence[Subscription], struck: Struck) -> Iterator[str]:
    """Over any window no worker posts more than its rate and one burst, but for what was late."""
    rate_per_ms = max(each.pace_limits.rate_per_s for each in revisions) / 1_000
    burst = max(each.pace_limits.burst for each in revisions)
    by_worker: dict[str, list[int]] = defaultdict(list)
    for post in posts:
        by_worker[post.worker].append(post.began_ms)
    for worker, times in by_worker.items():
        late_ms = LATE_IN_TROUBLE_MS if struck else LATE_MS
        over = 0.0  # how far beyond its rate it is, as a leaking bucket
        for before_ms, at_ms in pairwise([times[0], *times]):
            over = max(0.0, over - (at_ms - before_ms) * rate_per_ms) + 1
            if over > burst + 1 + late_ms * rate_per_ms:
                yield f"{over:.0f} more posts than its rate allows by {worker} at {at_ms}"
                return


def wrong_breaker(posts: Sequence[Post], left: Left, struck: Struck) -> Iterator[str]:
    """After ten posts in a row without an answer there is quiet, and then one probe at a time, ever more rarely."""
    by_worker: dict[str, list[Post]] = defaultdict(list)
    for post in posts:
        by_worker[post.worker].append(post)
    for made in by_worker.values():
        breaker, before_ms = Breaker(), 0
        steps = [(p.began_step, p.began_ms, True, p) for p in made] + [
            (p.ended_step, p.ended_ms or 0, False, p) for p in made if p.ended_step
        ]
        for _, at_ms, is_begin, post in sorted(steps, key=itemgetter(0)):
            if is_struck(struck, before_ms, at_ms):
                breaker = Breaker()  # its lane is a new one where the shard came back
            before_ms = at_ms
            if not is_begin:
                breaker.end(post, at_ms)
            elif not breaker.begin(post, at_ms):
                yield f"{post.event} was posted at {at_ms}, {breaker.open_until_ms - at_ms} ms before the breaker lets a probe go"


@dataclass
class Breaker:
    """When one worker's posts to one endpoint may go, told by how they end."""

    failures: int = 0
    open_ms: int = 0
    opened_ms: int = 0
    open_until_ms: int = 0
    probe: Post | None = None

    def begin(self, post: Post, at_ms: int) -> bool:
        """Whether this one may."""
        if not self.open_until_ms or at_ms <= self.opened_ms + 1:
            return True  # its turn had come before the last failure was known
        may = at_ms >= self.open_until_ms - 1 and self.probe is None
        self.probe = post
        return may

    def end(self, post: Post, at_ms: int) -> None:
        was_probe, self.probe = post is self.probe, None if post is self.probe else self.probe
        if isinstance(post.result, Answer):
            self.failures = self.open_until_ms = 0
            self.probe = None
        elif post.result is not None:
            self.failures += 1
            if was_probe or (not self.open_until_ms and self.failures >= BREAKER_FAILURES):
                self.open_ms = min(2 * self.open_ms, BREAKER_MS_MAX) if was_probe else BREAKER_MS_FIRST
                self.opened_ms, self.open_until_ms = at_ms, at_ms + self.open_ms
