"""What one record makes of payouts, accounts and batches: drives the saga, lets the ledger answer, and gathers what is written."""

from collections.abc import Sequence

import msgspec

from streams.ladder.rules import Ladder
from streams.log.records import Outcome, Record, Write
from streams.payouts import ledger, written
from streams.payouts.batch import Item, Standing, counted, standing_of
from streams.payouts.ledger import Booked
from streams.payouts.messages import (
    Alert,
    Call,
    Effect,
    LedgerRefused,
    Message,
    Post,
    Posted,
    Reserve,
    Reserved,
    Tell,
    Void,
    Voided,
    Wait,
)
from streams.payouts.payout import ENDED, Cause, Payout
from streams.payouts.policy import Rules
from streams.payouts.saga import advance
from streams.payouts.state import KEY_KEPT_MS, Draft, Entry


class Desk:
    """The work on one record."""

    def __init__(self, draft: Draft, rules: Rules, ladder: Ladder, record: Record, now_ms: int) -> None:
        self.draft, self.rules, self.now_ms, self._ladder = draft, rules, now_ms, ladder
        self._cause = Cause(record.topic.name, record.partition, record.offset, record.timestamp_ms)
        self.writes: list[Write] = []

    def outcome(self) -> Outcome:
        """All of it."""
        return Outcome(self.writes, self.draft.changes)

    def drive(self, entry: Entry, message: Message) -> None:
        """Take a payout as far as this message brings it, and write what it has become."""
        payout, hold = entry.payout, entry.hold
        policy = self.rules.policy(payout.channel)
        waiting = [message]
        asked: list[Effect] = []
        while waiting:
            payout, effects = advance(payout, waiting.pop(0), policy, self.now_ms)
            for effect in effects:
                if isinstance(effect, Reserve | Post | Void):
                    hold, answer = self._book(effect, payout, hold)
                    waiting.append(answer)
                else:
                    asked.append(effect)
        if payout == entry.payout:
            return
        if payout.state in ENDED and entry.payout.state not in ENDED:
            payout = msgspec.structs.replace(payout, expires_ms=self.now_ms + KEY_KEPT_MS)
        told = len(entry.payout.history)
        if len(payout.history) > told:
            payout = msgspec.structs.replace(
                payout, history=(*payout.history[:told], *(self._caused(step) for step in payout.history[told:]))
            )
            self.writes.append(written.status(payout))
        self._write(payout, asked)
        self.draft.keep_entry(Entry(payout, hold))
        self.count(payout, standing_of(payout.state))

    def _caused(self, step: msgspec.Struct) -> msgspec.Struct:
        return msgspec.structs.replace(step, cause=self._cause)

    def _book(self, effect: Effect, payout: Payout, hold: ledger.Hold | None) -> tuple[ledger.Hold | None, Message]:
        """Let the ledger answer. What it refuses changes nothing."""
        balances = self.draft.balances(payout.merchant, payout.currency)
        done: Message
        if isinstance(effect, Reserve):
            answer, done = ledger.reserve(balances, hold, payout.amount_minor), Reserved()
        elif isinstance(effect, Post):
            answer, done = ledger.post(balances, hold, payout.fee_minor), Posted()
        else:
            answer, done = ledger.void(balances, hold), Voided()
        if not isinstance(answer, Booked):
            return hold, LedgerRefused(answer.reason, answer.detail)
        if answer.movements:
            self.draft.keep_balances(payout.merchant, payout.currency, answer.balances)
            self.writes += written.payout_entries(payout, answer.movements, self.now_ms)
        return answer.hold, done

    def _write(self, payout: Payout, asked: Sequence[Effect]) -> None:
        """What is asked of others. A call is made out last, so that it says all that is known by then."""
        for effect in asked:
            if isinstance(effect, Call):
                self.writes.append(written.task(payout, effect, self.rules.policy(payout.channel), self._ladder, self.now_ms))
            elif isinstance(effect, Wait):
                self.writes.append(written.timer(payout, effect, self._ladder, self.now_ms))
            elif isinstance(effect, Tell):
                self.writes.append(written.payout_event(payout, effect.event, self.now_ms))
            elif isinstance(effect, Alert):
                self.writes.append(written.operational_event(payout, effect, self.now_ms))

    def count(self, payout: Payout, after: Standing) -> None:
        """Its batch hears of an item that stands otherwise."""
        if payout.batch_id is not None and payout.batch_index is not None:
            self.count_item(payout.merchant, payout.batch_id, payout.batch_index, payout.payout_id, after, payout.amount_minor)

    def count_item(self, merchant: str, batch_id: str, index: int, payout_id: str, after: Standing, amount_minor: int) -> None:
        """Count one place of a batch, and tell when that completes it."""
        batch, item = self.draft.batch(merchant, batch_id), self.draft.item(merchant, batch_id, index)
        before = item.standing if item else None
        if batch is None or before == after:
            return
        self.draft.keep_item(merchant, batch_id, index, Item(payout_id, after, self.now_ms))
        counts = counted(batch, before, after, amount_minor, self.now_ms)
        if counts.processed == batch.processed and counts.stuck == batch.stuck:
            return
        self.draft.keep_batch(counts)
        self.writes.append(written.batch_status(counts))
        if counts.state != batch.state:
            self.writes.append(written.batch_event(counts, self.now_ms))
