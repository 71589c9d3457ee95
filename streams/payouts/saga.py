"""The saga: what a payout becomes when something happens, and what is to be done then. Pure, and complete: each state answers each message.

    ACCEPTED ─► SCHEDULED ─┐
        └──────────────────┴► RESERVED ─► SUBMITTING ◄──► POLLING ─► POSTING ─► SUCCESS
                                 └────────────┴──────────────┴─────► VOIDING ─► FAILED, CANCELLED
                                              └──────────────┴─────► STUCK ─── a person ──► POSTING, VOIDING

Three rules keep money from being paid and given back:

1. What undoes a step is registered before the step: a payout that fails voids its reservation only if one was asked for.
2. Nothing is given back before the channel itself has said that it will not pay: FAILED, REFUSED, or several times in a row, asked by
   its key when no submission can be under way any more, that it does not know the payout. A lost answer, an error, silence: ask.
3. A person's word is carried out and never overruled; a channel's late answer is recorded, and told when it says otherwise.
"""

from typing import Any

import msgspec

from streams.payouts.messages import (
    MESSAGES,
    Begin,
    Call,
    Cancel,
    Due,
    Effect,
    LedgerRefused,
    Message,
    Post,
    Posted,
    Replied,
    Reserve,
    Reserved,
    Resolve,
    Tell,
    Unfit,
    Void,
    Voided,
    Wait,
)
from streams.payouts.payout import STATES, Payout, State, moved, noted
from streams.payouts.people import (
    cancel_reserved,
    cancel_scheduled,
    contradicted,
    late,
    late_while_stuck,
    not_stuck,
    resolve,
    too_late_to_cancel,
)
from streams.payouts.policy import LEDGER_TRIES, NOT_FOUND_NEEDED, ChannelPolicy
from streams.payouts.steps import NOT_PAID, PAID, TAKEN, Answer, Step, give_back, learnt, not_paid, paid, stuck, told_of


def advance(payout: Payout, message: Message, policy: ChannelPolicy, now_ms: int) -> Step:
    """What the payout becomes, and what is to be done in the same breath."""
    return TABLE[payout.state][type(message)](payout, message, policy, now_ms)


# Until the money is held


def begin(payout: Payout, message: Begin, policy: ChannelPolicy, now_ms: int) -> Step:
    """Wait for its time, or hold its money."""
    if payout.scheduled_ms is not None and payout.scheduled_ms > now_ms:
        start_ms = payout.scheduled_ms
        return moved(payout, "SCHEDULED", "begin", now_ms, start_ms=start_ms), (Wait("start", start_ms, start_ms),)
    return reserve(payout)


def reserve(payout: Payout) -> Step:
    """Ask for its money; what gives it back is registered first."""
    return msgspec.structs.replace(payout, compensations=("void",), start_ms=None), (Reserve(),)


def start_scheduled(payout: Payout, message: Due, policy: ChannelPolicy, now_ms: int) -> Step:
    """Its time has come."""
    return reserve(payout) if message.timer == "start" and message.mark == payout.start_ms else (payout, ())


def start_again(payout: Payout, message: Due, policy: ChannelPolicy, now_ms: int) -> Step:
    """Its submission was given back unsent; try once more."""
    if message.timer != "start" or message.mark != payout.start_ms:
        return payout, ()
    return submit(msgspec.structs.replace(payout, start_ms=None), "due", policy, now_ms)


def unfit(payout: Payout, message: Unfit, policy: ChannelPolicy, now_ms: int) -> Step:
    """It cannot be paid any more, and nothing was held."""
    return fail_unreserved(payout, message.reason, message.detail, now_ms)


def not_reserved(payout: Payout, message: LedgerRefused, policy: ChannelPolicy, now_ms: int) -> Step:
    """There is not enough money, or the ledger will not hold it."""
    return fail_unreserved(payout, message.reason, message.detail, now_ms)


def fail_unreserved(payout: Payout, reason: str, detail: str, now_ms: int) -> Step:
    """End it where nothing is held."""
    return moved(payout, "FAILED", reason, now_ms, detail, reason=reason, compensations=(), start_ms=None), (Tell("payout.failed"),)


def reserved(payout: Payout, message: Reserved, policy: ChannelPolicy, now_ms: int) -> Step:
    """The money is held: submit."""
    payout, effects = submit(moved(payout, "RESERVED", "reserved", now_ms), "submit", policy, now_ms)
    return payout, (*effects, Tell("payout.submitted"))


# At the channel


def submit(payout: Payout, why: str, policy: ChannelPolicy, now_ms: int, delay_ms: int = 0) -> Step:
    """Ask the channel to pay, by the same key as ever; the first time also say until when all of this is to be over."""
    number, due_ms = payout.submissions + 1, now_ms + delay_ms
    changes: dict[str, Any] = {
        "submissions": number,
        "not_found": 0,
        "under_way_until_ms": due_ms + policy.submission_ms_most,
    }
    effects: tuple[Effect, ...] = (Call("SUBMIT", number, due_ms),)
    if payout.state == "RESERVED":
        changes["deadline_ms"] = now_ms + policy.overdue_ms
        effects = (*effects, Wait("deadline", changes["deadline_ms"], changes["deadline_ms"]))
    if payout.state == "SUBMITTING":
        return noted(payout, why, now_ms, **changes), effects
    return moved(payout, "SUBMITTING", why, now_ms, **changes), effects


def submitted(payout: Payout, reply: Replied, policy: ChannelPolicy, now_ms: int) -> Step:
    """An answer while a submission is under way. Only its own can say that nothing will be paid; that it was paid, any."""
    if reply.outcome in PAID:
        return paid(payout, reply, now_ms)
    if reply.action != "SUBMIT" or reply.number != payout.submissions:
        return payout, ()
    answered = learnt(payout, reply, under_way_until_ms=0, settled_ms=now_ms + policy.timeout_ms)
    if reply.outcome in NOT_PAID:
        return not_paid(answered, reply, now_ms)
    if reply.outcome in TAKEN:
        return poll_from_now_on(answered, reply, policy, now_ms, policy.poll_every_ms)
    if reply.outcome == "NOT_SENT":
        return unsent(answered, reply, policy, now_ms)
    if reply.outcome != "LOST" and payout.tries < policy.tries:
        delay_ms = max(policy.delay_ms(payout.tries), reply.retry_after_ms or 0)
        told = noted(answered, told_of(reply), now_ms, reply.detail)
        return submit(told, f"try {payout.tries + 1}", policy, now_ms, delay_ms)
    return poll_from_now_on(answered, reply, policy, now_ms, reply.retry_after_ms or 0)


def unsent(payout: Payout, reply: Replied, policy: ChannelPolicy, now_ms: int) -> Step:
    """It came back without having been begun: no try is spent. While nothing was ever sent, it can still be cancelled."""
    payout = msgspec.structs.replace(payout, unsent=payout.unsent + 1)
    delay_ms = max(policy.poll_every_ms, reply.retry_after_ms or 0)
    if payout.tries:
        return submit(noted(payout, told_of(reply), now_ms, reply.detail), "submit again", policy, now_ms, delay_ms)
    start_ms = now_ms + delay_ms
    payout = moved(payout, "RESERVED", told_of(reply), now_ms, reply.detail, start_ms=start_ms, deadline_ms=None)
    return payout, (Wait("start", start_ms, start_ms),)


def replied_unsent(payout: Payout, reply: Replied, policy: ChannelPolicy, now_ms: int) -> Step:
    """Nothing was sent, so nothing is expected; but a channel that says it has paid is believed."""
    return paid(payout, reply, now_ms) if reply.outcome in PAID else (payout, ())


def poll_from_now_on(payout: Payout, reply: Replied, policy: ChannelPolicy, now_ms: int, delay_ms: int) -> Step:
    """Ask the channel how it stands, until there is a final answer or the time is up; the time counts from the first poll on."""
    taken = payout.was_taken or reply.outcome in TAKEN
    payout = moved(payout, "POLLING", told_of(reply), now_ms, reply.detail, was_taken=taken, not_found=0, poll_failures=0)
    waits: tuple[Effect, ...] = ()
    if payout.was_polled_since_ms is None:
        deadline_ms = now_ms + policy.poll_for_ms
        payout = msgspec.structs.replace(payout, was_polled_since_ms=now_ms, deadline_ms=deadline_ms)
        waits = (Wait("deadline", deadline_ms, deadline_ms),)
    payout, effects = poll(payout, now_ms + delay_ms)
    return payout, (*effects, *waits)


def poll(payout: Payout, due_ms: int) -> Step:
    """Ask once more."""
    number = payout.polls + 1
    return msgspec.structs.replace(payout, polls=number), (Call("POLL", number, due_ms),)


def polled(payout: Payout, reply: Replied, policy: ChannelPolicy, now_ms: int) -> Step:
    """An answer while nothing is under way: a final one counts whatever it answers, another one only if it is the latest."""
    if reply.outcome in PAID:
        return paid(payout, reply, now_ms)
    if reply.outcome in NOT_PAID:
        return not_paid(payout, reply, now_ms)
    if reply.action != "POLL" or reply.number != payout.polls:
        return payout, ()
    payout = learnt(payout, reply)
    if reply.outcome in TAKEN:
        payout = msgspec.structs.replace(payout, was_taken=True, not_found=0, poll_failures=0)
        return poll(payout, now_ms + policy.poll_every_ms)
    if reply.outcome == "NOT_FOUND":
        return not_known(payout, reply, policy, now_ms)
    failures = payout.poll_failures + 1
    usual_ms = policy.delay_ms(failures) if failures < policy.tries else policy.poll_every_ms
    payout = msgspec.structs.replace(payout, poll_failures=failures)
    return poll(payout, now_ms + max(usual_ms, reply.retry_after_ms or 0))


def not_known(payout: Payout, reply: Replied, policy: ChannelPolicy, now_ms: int) -> Step:
    """The channel does not know it. Believe that only of what it never took, when nothing can be on its way, and several times."""
    payout = msgspec.structs.replace(payout, poll_failures=0)
    if payout.was_taken or now_ms < payout.settled_ms:
        return poll(payout, max(now_ms + policy.poll_every_ms, 0 if payout.was_taken else payout.settled_ms))
    if payout.tries < policy.tries:
        return submit(payout, f"{told_of(reply)}, try {payout.tries + 1}", policy, now_ms)
    if payout.not_found + 1 < NOT_FOUND_NEEDED:
        return poll(msgspec.structs.replace(payout, not_found=payout.not_found + 1), now_ms + policy.poll_every_ms)
    return give_back(payout, told_of(reply), "unknown_to_channel", reply.detail, now_ms)


def overdue(payout: Payout, message: Due, policy: ChannelPolicy, now_ms: int) -> Step:
    """No final answer in time: the hold stays until a person has found out."""
    if message.timer != "deadline" or message.mark != payout.deadline_ms:
        return payout, ()
    summary = f"Payout {payout.payout_id} of {payout.merchant} has no final answer from {payout.channel}. Ask the channel, and resolve it."
    return stuck(payout, "no_final_answer", summary, "WARNING", now_ms)


# The ledger has answered


def posted(payout: Payout, message: Posted, policy: ChannelPolicy, now_ms: int) -> Step:
    """It is booked: over."""
    return moved(payout, "SUCCESS", "posted", now_ms, compensations=()), (Tell("payout.success"), *told_resolved(payout))


def voided(payout: Payout, message: Voided, policy: ChannelPolicy, now_ms: int) -> Step:
    """The money is back: over."""
    told = Tell("payout.cancelled" if payout.ends_as == "CANCELLED" else "payout.failed")
    return moved(payout, payout.ends_as, "voided", now_ms, compensations=()), (told, *told_resolved(payout))


def told_resolved(payout: Payout) -> tuple[Effect, ...]:
    """What a person resolved is told as that, too."""
    return (Tell("payout.resolved"),) if payout.resolution is not None and payout.resolution.takes_effect else ()


def ledger_refused(payout: Payout, message: LedgerRefused, policy: ChannelPolicy, now_ms: int) -> Step:
    """The ledger should have taken this: try again in a while, and leave it to a person in the end."""
    tries = payout.ledger_tries + 1
    if tries >= LEDGER_TRIES:
        payout = msgspec.structs.replace(payout, ledger_tries=tries)
        summary = (
            f"The ledger refused {payout.state} of payout {payout.payout_id} of {payout.merchant} {tries} times: {message.detail}. "
            "Run `hookline ledger verify`, then resolve it."
        )
        return stuck(payout, "ledger_refused", summary, "CRITICAL", now_ms, "payout.ledger_refused")
    payout = noted(payout, f"ledger refused {tries}", now_ms, f"{message.reason}: {message.detail}", ledger_tries=tries)
    return payout, (Wait("ledger", tries, now_ms + policy.ledger_delays_ms[tries - 1]),)


def ask_ledger_again(payout: Payout, message: Due, policy: ChannelPolicy, now_ms: int) -> Step:
    """It is time for another try."""
    if message.timer != "ledger" or message.mark != payout.ledger_tries:
        return payout, ()
    return payout, (Post() if payout.state == "POSTING" else Void(),)


def ignore(payout: Payout, message: Message, policy: ChannelPolicy, now_ms: int) -> Step:
    """It concerns a step that is behind it."""
    return payout, ()


# The table

NOTHING_YET: dict[type[Message], Answer] = {Replied: ignore, Posted: ignore, Voided: ignore, Resolve: not_stuck}
UNDER_WAY: dict[type[Message], Answer] = {
    Begin: ignore, Unfit: ignore, Reserved: ignore, Posted: ignore, Voided: ignore, LedgerRefused: ignore,
    Cancel: too_late_to_cancel, Resolve: not_stuck,
}  # fmt: skip
OVER: dict[type[Message], Answer] = {**UNDER_WAY, Due: ignore, Replied: late}

TABLE: dict[State, dict[type[Message], Answer]] = {
    "ACCEPTED": {
        **NOTHING_YET, Begin: begin, Due: ignore, Unfit: unfit, Reserved: reserved, LedgerRefused: not_reserved, Cancel: ignore,
        Resolve: ignore,
    },
    "SCHEDULED": {
        **NOTHING_YET, Begin: ignore, Due: start_scheduled, Unfit: unfit, Reserved: reserved, LedgerRefused: not_reserved,
        Cancel: cancel_scheduled,
    },
    "RESERVED": {**UNDER_WAY, Due: start_again, Replied: replied_unsent, Cancel: cancel_reserved},
    "SUBMITTING": {**UNDER_WAY, Due: overdue, Replied: submitted},
    "POLLING": {**UNDER_WAY, Due: overdue, Replied: polled},
    "POSTING": {**UNDER_WAY, Due: ask_ledger_again, Replied: contradicted, Posted: posted, LedgerRefused: ledger_refused},
    "VOIDING": {**UNDER_WAY, Due: ask_ledger_again, Replied: contradicted, Voided: voided, LedgerRefused: ledger_refused},
    "STUCK": {**UNDER_WAY, Due: ignore, Replied: late_while_stuck, Resolve: resolve},
    "SUCCESS": OVER,
    "FAILED": OVER,
    "CANCELLED": {**OVER, Cancel: ignore},
}  # fmt: skip


def checked(table: dict[State, dict[type[Message], Answer]]) -> None:
    """Refuse a table with a hole: what it does not answer would stop a partition."""
    holes = [f"{state} and {message.__name__}" for state in STATES for message in MESSAGES if message not in table.get(state, {})]
    if holes:
        raise TypeError(f"the saga does not answer {', '.join(holes)}")


checked(TABLE)
