"""What must hold of each delivery of a simulated day: wanted, attempted in time, ended once, as its rules say."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from streams.delivery.subscription import Subscription
from tests.delivery.left import OVER, Key, Left, Sent
from tests.delivery.merchants import Post

FOLLOWED_WITHIN_MS, FOLLOWED_WITHIN_TROUBLE_MS = 5_000, 60_000
"""How soon a worker acts on a change of a subscription; and one that was frozen, or that came new."""
PLANNED_WITHIN_MS = 120_000
"""How soon an event is planned, whoever dies."""

Struck = Sequence[tuple[int, int]]


def is_struck(struck: Struck, from_ms: int, to_ms: int) -> bool:
    """Whether a worker was in trouble between these."""
    return any(begun_ms <= to_ms and from_ms <= ended_ms for begun_ms, ended_ms in struck)


def wrong_deliveries(left: Left, posts: Sequence[Post], struck: Struck, skew_ms: int) -> Iterator[str]:
    """Everything that is wrong with single deliveries."""
    by_delivery: dict[tuple[str, str], list[Post]] = defaultdict(list)
    for post in posts:
        by_delivery[post.event, post.subscription].append(post)
    yield from wrong_wants(left)
    letters: dict[Key, list[Mapping[str, Any]]] = defaultdict(list)
    for letter in left.letters:
        letters[letter["source"], letter["event_id"], letter["subscription_id"]].append(letter)
    for key, told in left.statuses.items():
        _, event, name = key
        wrong = [
            *wrong_course(told, left, name),
            *wrong_end(told[-1], left, name),
            *wrong_times(told[-1], left.ever(name)[0], by_delivery[event, name], skew_ms),
            *wrong_posts(told[-1], by_delivery[event, name], struck, ever_ordered(left, name)),
            *wrong_letters(told[-1], letters[key]),
        ]
        yield from (f"{event} for {name}: {what}" for what in wrong)
    for (event, name), made in by_delivery.items():
        if not any(key[1:] == (event, name) for key in left.statuses) and not explained(made, struck):
            yield f"{event} for {name}: posted, and nothing is known of it"
    yield from (what for post in posts for what in wrong_permission(post, left, struck))


def ever_ordered(left: Left, name: str) -> bool:
    return any(each.ordered for each in left.ever(name))


def was_reordered(left: Left, name: str) -> bool:
    return len({each.ordered for each in left.ever(name)}) > 1


# Who wanted it


def wrong_wants(left: Left) -> Iterator[str]:
    """Each event became a delivery for each subscription that wanted it, and for no other."""
    copies: dict[tuple[str, str], list[Sent]] = defaultdict(list)
    for sent in left.events:
        copies[sent.event.source, sent.event.id].append(sent)
    for (source, event), sent_ones in copies.items():
        for name in left.revisions:
            if left.ever(name)[0].merchant != sent_ones[0].event.merchant:
                continue
            exists = (source, event, name) in left.statuses
            if not exists and any(all(asked_for(sent, left, name)) for sent in sent_ones):
                yield f"lost: {event} for {name}"
            if exists and not any(any(asked_for(sent, left, name)) for sent in sent_ones):
                yield f"not wanted: {event} for {name}"


def asked_for(sent: Sent, left: Left, name: str) -> list[bool]:
    """Whether it was wanted, at every time at which it may have been planned."""
    while_planned = left.between(name, sent.at_ms - FOLLOWED_WITHIN_TROUBLE_MS, sent.at_ms + PLANNED_WITHIN_MS)
    return [each is not None and each.state != "DISABLED" and each.wants(sent.event) for each in while_planned]


# How it went


def wrong_course(told: Sequence[Mapping[str, Any]], left: Left, name: str) -> Iterator[str]:
    """Its history only grows, and nothing follows an end."""
    for before, after in pairwise(told):
        if before["state"] in OVER and before["generation"] == after["generation"]:
            yield f"{after['state']} after {before['state']}"
        if after["attempts"][: len(before["attempts"])] != before["attempts"]:
            yield "its history was changed"
        if len(after["attempts"]) > len(before["attempts"]) + 1:
            yield "two attempts in one step"
    last = told[-1]
    if [each["number"] for each in last["attempts"]] != list(range(1, len(last["attempts"]) + 1)):
        yield "its attempts are not numbered one by one"
    policy = left.ever(name)[0].policy
    for number, attempt in enumerate(last["attempts"], start=1):
        is_last = number == len(last["attempts"])
        if not is_last and (ends_it(attempt) or (attempt["ambiguous"] and policy.dead_letter_ambiguous)):
            yield f"attempt {number} ended it, and another followed"
    if len(last["attempts"]) > policy.schedule.attempts_max:
        yield f"{len(last['attempts'])} attempts of {policy.schedule.attempts_max}"


def ends_it(attempt: Mapping[str, Any]) -> bool:
    return attempt["code"] is not None and (is_2xx(attempt) or attempt["code"] == 410)


def is_2xx(attempt: Mapping[str, Any]) -> bool:
    return attempt["code"] is not None and 200 <= attempt["code"] < 300


def wrong_end(last: Mapping[str, Any], left: Left, name: str) -> Iterator[str]:
    """It ended, for a reason that its attempts and its subscription's life explain."""
    attempts, state, updated_ms = last["attempts"], last["state"], last["updated_ms"]
    final = attempts[-1] if attempts else None
    if (state == "DELIVERED") != (final is not None and is_2xx(final)):
        yield f"{state} after {final and final['code']}"
    if state == "CANCELLED" and not left_its_service(left, name, updated_ms):
        yield "cancelled, though its subscription never left its service"
    if state not in OVER and (why := why_never_over(last, left)) is not None:
        yield f"never over: {why}"
    if state in ("SERIALISATION_FAILED", "SIGNING_FAILED"):
        yield f"ended as {state}: {last['reason']}"


def left_its_service(left: Left, name: str, by_ms: int) -> bool:
    """Whether it was disabled or deleted before, or as, this happened; whatever the worker's clock says."""
    return any(each is None or each.state == "DISABLED" for each in left.between(name, 0, by_ms + 2 * 3_600_000))


def why_never_over(last: Mapping[str, Any], left: Left) -> str | None:
    """Why it should have ended by now; None: it may wait for ever."""
    subscription = left.now(last["subscription_id"])
    if subscription is not None and subscription.state == "PAUSED" and last["waits_for"] in ("PAUSED", "PARKED"):
        return None
    if (
        subscription is not None
        and subscription.state == "ACTIVE"
        and last["waits_for"] in ("PAUSED", "PARKED")
        and is_held(last, subscription, left)
    ):
        return None
    return f"{last['state']}, waits for {last['waits_for']}, and its subscription is {subscription and subscription.state}"


def is_held(last: Mapping[str, Any], subscription: Subscription, left: Left) -> bool:
    """Whether a dead letter of its resource holds back what came behind it."""
    return subscription.holds_behind_dead_letter and any(
        told[-1]["state"] == "DLQ" and told[-1]["resource"] == last["resource"]
        for (_, _, name), told in left.statuses.items()
        if name == subscription.id
    )


# When it was attempted


def wrong_times(last: Mapping[str, Any], subscription: Subscription, made: Sequence[Post], skew_ms: int) -> Iterator[str]:
    """Never early: neither for the schedule nor for what the merchant asked."""
    schedule = subscription.policy.schedule
    by_time = {post.at_ms: post for post in made}
    for number, (before, after) in enumerate(pairwise(last["attempts"]), start=1):
        if number >= schedule.attempts_max:
            return  # too many attempts are told elsewhere
        post = by_time.get(before["at_ms"])
        asked_ms = post.not_before_ms if post is not None and before["code"] in (429, 503) else 0
        due_ms = max(before["at_ms"] + before["duration_ms"] + schedule.delay_ms(number, 0.0), asked_ms)
        if after["at_ms"] < due_ms - skew_ms - 1:
            yield f"attempt {number + 1} came {due_ms - after['at_ms']} ms early"


def wrong_posts(last: Mapping[str, Any], made: Sequence[Post], struck: Struck, ever_ordered: bool) -> Iterator[str]:
    """Every attempt was a post and every post an attempt, but for those whose worker died or lost its shard meanwhile."""
    attempts = {attempt["at_ms"]: attempt for attempt in last["attempts"]}
    posts = {post.at_ms: post for post in made}
    for at_ms, attempt in attempts.items():
        if at_ms not in posts:
            yield f"attempt {attempt['number']} was never made"
    for at_ms, post in posts.items():
        if at_ms not in attempts and not explained([post], struck):
            yield f"posted at {post.began_ms} by {post.worker}, which no attempt tells and no fault explains"
    if len(posts) != len(made):
        yield "posted twice at the same time"
    # What was never committed did not freeze the body: where it has a sequence, another event may have taken that meanwhile.
    bodies = {post.body for post in made if not ever_ordered or post.at_ms in attempts}
    if len(bodies) > 1:
        yield "its body changed between attempts"


def explained(made: Sequence[Post], struck: Struck) -> bool:
    return all(is_struck(struck, post.began_ms, (post.ended_ms or post.began_ms + 60_000) + 5_000) for post in made)


def wrong_permission(post: Post, left: Left, struck: Struck) -> Iterator[str]:
    """Nothing is posted to a subscription that is paused, disabled or deleted, nor where it no longer lives, once that could be known."""
    in_trouble = is_struck(struck, post.began_ms - FOLLOWED_WITHIN_TROUBLE_MS, post.began_ms)
    within_ms = FOLLOWED_WITHIN_TROUBLE_MS if in_trouble else FOLLOWED_WITHIN_MS
    was = left.between(post.subscription, post.began_ms - within_ms, post.began_ms)
    if not any(each is not None and each.state == "ACTIVE" for each in was):
        yield f"{post.event} was posted at {post.began_ms} though {post.subscription} was {[each and each.state for each in was]}"
    if not any(each is not None and each.url == post.url for each in was):
        yield f"{post.event} was posted at {post.began_ms} where {post.subscription} no longer lived"


# Where it ended when it failed


def wrong_letters(last: Mapping[str, Any], letters: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A dead delivery is in the DLQ once, with its reason and its whole history; no other is there."""
    dead = last["state"] == "DLQ"
    if len(letters) != dead:
        yield f"{last['state']} and {len(letters)} times in the DLQ"
    if not dead or len(letters) != 1:
        return
    letter, final = letters[0], last["attempts"][-1]
    if letter["history"] != last["attempts"]:
        yield "its dead letter tells another history"
    holds = {
        "EXHAUSTED": not ends_it(final),
        "AMBIGUOUS": final["ambiguous"],
        "GONE": final["code"] == 410,
    }
    if not holds.get(letter["reason"], False):
        yield f"dead-lettered as {letter['reason']} after {final['code']} {final['error']}"
