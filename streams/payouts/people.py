"""The saga where people come in: late answers for them to see, cancelling, and resolving what is stuck. Pure."""

import msgspec

from streams.payouts.messages import Alert, Cancel, Effect, Post, Replied, Resolve, Tell, Void
from streams.payouts.payout import Payout, Resolution, State, moved, noted
from streams.payouts.policy import ChannelPolicy
from streams.payouts.steps import FINAL, NOT_PAID, PAID, Step, give_back, learnt, stuck, told_of


def contradicted(payout: Payout, reply: Replied, policy: ChannelPolicy, now_ms: int) -> Step:
    """The channel takes back what it said while the ledger had not booked it yet: hold everything, unless a person has decided."""
    if not _says_otherwise(payout, reply):
        return payout, ()
    summary = _discrepancy(payout, reply)
    if payout.resolution is not None and payout.resolution.takes_effect:
        return late(payout, reply, policy, now_ms)
    payout = learnt(payout, reply, last_answer=reply.outcome, ends_as="FAILED")
    return stuck(payout, "contradicting_answers", summary, "CRITICAL", now_ms, "payout.discrepancy")


def late(payout: Payout, reply: Replied, policy: ChannelPolicy, now_ms: int) -> Step:
    """Recorded, and resolves nothing by itself."""
    if reply.outcome not in FINAL or reply.outcome == payout.last_answer:
        return payout, ()
    told = noted(learnt(payout, reply, last_answer=reply.outcome), f"late {told_of(reply)}", now_ms, reply.detail)
    if not _says_otherwise(payout, reply):
        return told, ()
    return told, (Alert("payout.discrepancy", "CRITICAL", _discrepancy(payout, reply)),)


def _says_otherwise(payout: Payout, reply: Replied) -> bool:
    if payout.state in ("SUCCESS", "POSTING"):
        return reply.outcome in NOT_PAID
    if payout.state in ("FAILED", "CANCELLED", "VOIDING"):
        return reply.outcome in PAID
    return False


def _discrepancy(payout: Payout, reply: Replied) -> str:
    return (
        f"{payout.channel} says {reply.outcome} of payout {payout.payout_id} of {payout.merchant}, which is {payout.state} here. "
        "Ask the channel what happened, and correct the books."
    )


def late_while_stuck(payout: Payout, reply: Replied, policy: ChannelPolicy, now_ms: int) -> Step:
    """As any late answer; and when it answers the submission that was waited for, none is under way any more."""
    if reply.action == "SUBMIT" and reply.number == payout.submissions and payout.under_way_until_ms:
        payout = msgspec.structs.replace(payout, under_way_until_ms=0)
    return late(payout, reply, policy, now_ms)


def cancel_scheduled(payout: Payout, message: Cancel, policy: ChannelPolicy, now_ms: int) -> Step:
    """Nothing was held yet."""
    changes = {"reason": message.reason or "cancelled", "start_ms": None, "ends_as": "CANCELLED", "compensations": ()}
    return moved(payout, "CANCELLED", "cancel", now_ms, _by(message), **changes), (Tell("payout.cancelled"),)


def cancel_reserved(payout: Payout, message: Cancel, policy: ChannelPolicy, now_ms: int) -> Step:
    """Nothing was sent: give the money back."""
    payout = msgspec.structs.replace(payout, ends_as="CANCELLED", start_ms=None)
    return give_back(payout, "cancel", message.reason or "cancelled", _by(message), now_ms)


def _by(message: Cancel) -> str:
    return f"command {message.command_id}" + (f" by {message.by}" if message.by else "")


def too_late_to_cancel(payout: Payout, message: Cancel, policy: ChannelPolicy, now_ms: int) -> Step:
    """It was submitted, or has ended."""
    return noted(
        payout, "cancel refused", now_ms, f"{_by(message)}: it is {payout.state}, and only what was never submitted is cancelled"
    ), ()


def resolve(payout: Payout, message: Resolve, policy: ChannelPolicy, now_ms: int) -> Step:
    """A person's word on a stuck payout; with four eyes, the second one's."""
    refusal = _why_not(payout, message, now_ms)
    if refusal is not None:
        return noted(payout, "resolve refused", now_ms, f"command {message.command_id} by {message.by}: {refusal}"), ()
    first = payout.resolution
    if message.confirms is not None and first is not None:
        resolution = msgspec.structs.replace(first, confirmed_by=message.by, takes_effect=True)
    elif first is not None and first.command_id == message.command_id:
        return payout, ()
    else:
        resolution = Resolution(message.command_id, message.status, message.by, message.notes, now_ms, None, not message.four_eyes)
    told = f"{resolution.status} by {resolution.resolved_by}" + (f", confirmed by {message.by}" if resolution.confirmed_by else "")
    payout = msgspec.structs.replace(payout, resolution=resolution)
    if not resolution.takes_effect:
        return noted(payout, "resolve, to be confirmed", now_ms, f"{told}: {resolution.notes}"), ()
    return carry_out(payout, resolution, told, now_ms)


def _why_not(payout: Payout, message: Resolve, now_ms: int) -> str | None:
    """Why a person's word is not taken."""
    first = payout.resolution
    if message.confirms is not None:
        if first is None or first.command_id != message.confirms:
            return f"there is no resolution {message.confirms} to confirm"
        if first.resolved_by == message.by:
            return "whoever resolved it cannot confirm it: a second person must"
        if first.status != message.status:
            return f"it confirms {message.status}, and {first.status} was said"
    takes_effect = message.confirms is not None or not message.four_eyes
    if takes_effect and message.status == "FAILED" and now_ms < payout.under_way_until_ms:
        wait_s = -(-(payout.under_way_until_ms - now_ms) // 1_000)
        return f"its last submission may still reach the channel: ask again in {wait_s} s"
    return None


def carry_out(payout: Payout, resolution: Resolution, told: str, now_ms: int) -> Step:
    """Book what a person said; a channel's answer that says otherwise is told."""
    detail = f"{told}: {resolution.notes}"
    to: State = "POSTING" if resolution.status == "SUCCESS" else "VOIDING"
    reason = None if to == "POSTING" else "resolved"
    after = moved(payout, to, "resolve", now_ms, detail, ledger_tries=0, ends_as="FAILED", reason=reason)
    effects: tuple[Effect, ...] = (Post(),) if to == "POSTING" else (Void(),)
    against = NOT_PAID if to == "POSTING" else PAID
    if payout.last_answer in against:
        summary = f"Payout {payout.payout_id} of {payout.merchant} was resolved as {told}, and {payout.channel} says {payout.last_answer}."
        effects = (*effects, Alert("payout.discrepancy", "CRITICAL", summary))
    return after, effects


def not_stuck(payout: Payout, message: Resolve, policy: ChannelPolicy, now_ms: int) -> Step:
    """Only a stuck one is a person's to resolve; a command that was carried out and comes again is no news."""
    known = payout.resolution
    if known is not None and known.command_id in (message.command_id, message.confirms):
        return payout, ()
    detail = f"command {message.command_id} by {message.by}: it is {payout.state}, and only a STUCK one is resolved"
    return noted(payout, "resolve refused", now_ms, detail), ()
