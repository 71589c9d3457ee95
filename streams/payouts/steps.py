"""The steps that several parts of the saga take: it was paid, it was not, a person must look. Pure."""

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from streams.payouts.messages import Alert, Effect, Post, Replied, Tell, Void
from streams.payouts.payout import Payout, moved
from streams.payouts.policy import ChannelPolicy

Step = tuple[Payout, tuple[Effect, ...]]
Answer = Callable[[Payout, Any, ChannelPolicy, int], Step]

PAID, NOT_PAID, TAKEN = frozenset({"SUCCESS"}), frozenset({"FAILED", "REFUSED"}), frozenset({"ACCEPTED", "PENDING"})
FINAL = PAID | NOT_PAID
COMPENSATIONS: dict[str, type[Effect]] = {"void": Void}


def learnt(payout: Payout, reply: Replied, **changes: Any) -> Payout:
    """Keep what a channel tells by the way."""
    return msgspec.structs.replace(
        payout,
        channel_reference=reply.reference or payout.channel_reference,
        channel_fee_minor=payout.channel_fee_minor if reply.fee_minor is None else reply.fee_minor,
        **changes,
    )


def told_of(reply: Replied) -> str:
    """An answer, as the history names it."""
    return f"{reply.action.lower()} {reply.number} {reply.outcome.lower()}"


def paid(payout: Payout, reply: Replied, now_ms: int) -> Step:
    """The channel has paid: book it."""
    payout = learnt(payout, reply, last_answer=reply.outcome)
    return moved(payout, "POSTING", told_of(reply), now_ms, reply.detail, ledger_tries=0, reason=None), (Post(),)


def not_paid(payout: Payout, reply: Replied, now_ms: int) -> Step:
    """The channel will not pay."""
    payout = learnt(payout, reply, last_answer=reply.outcome)
    return give_back(payout, told_of(reply), reply.code or reply.outcome.lower(), reply.detail, now_ms)


def give_back(payout: Payout, message: str, reason: str, detail: str | None, now_ms: int) -> Step:
    """Run what was registered."""
    undo = tuple(COMPENSATIONS[name]() for name in reversed(payout.compensations))
    return moved(payout, "VOIDING", message, now_ms, detail, ledger_tries=0, reason=reason), undo


def stuck(
    payout: Payout, reason: str, summary: str, severity: Literal["WARNING", "CRITICAL"], now_ms: int, kind: str = "payout.stuck"
) -> Step:
    """A person must look."""
    effects: tuple[Effect, ...] = (Tell("payout.stuck"), Alert("payout.stuck", severity, summary))
    if kind != "payout.stuck":
        effects = (*effects, Alert(kind, "CRITICAL", summary))
    return moved(payout, "STUCK", reason, now_ms, summary, reason=reason), effects
