"""Takes each payout through its saga: what a command or a reply asks for, and the Outcome that makes it true.

There is no effect here. What a record changes (payout, accounts, batch) and what it causes (tasks, timers, entries, status, events) is
one Outcome, so it is true as a whole or not at all.
"""

from collections.abc import Mapping
from typing import Any, get_args

import msgspec

import schemas
from streams.errors import MalformedRecord
from streams.ladder.rules import Ladder
from streams.log.records import NOTHING, Outcome, Record, Write
from streams.log.state import State
from streams.payouts import ledger, messages, written
from streams.payouts.batch import Batch
from streams.payouts.beneficiaries import Beneficiaries, key_of, newer
from streams.payouts.commands import (
    ITEMS_MAX,
    KEY_LENGTH_MAX,
    NOTES_LENGTH_MAX,
    Command,
    Refused,
    amount_of,
    fingerprint_of,
    read,
    to_payout,
    why_no_name,
    why_unfit,
)
from streams.payouts.desk import Desk
from streams.payouts.messages import Begin, Cancel, Due, Message, Replied, Resolve, Unfit
from streams.payouts.money import BadAmount, checked_minor, exponent_of
from streams.payouts.payout import noted
from streams.payouts.policy import Rules
from streams.payouts.state import Draft, Entry, Funding
from topology import topics

BENEFICIARY_BYTES_MAX = 16_000

TIMERS, ACTIONS, OUTCOMES = get_args(messages.Timer), get_args(messages.Action), get_args(messages.Outcome)


class Payouts:
    """The payouts agent's plan, on the table of beneficiaries."""

    def __init__(self, beneficiaries: Beneficiaries, rules: Rules) -> None:
        self._beneficiaries, self._rules, self._ladder = beneficiaries, rules, Ladder(rules.time_scale)

    def plan(self, record: Record, state: State, now_ms: int) -> Outcome:
        """What a record asks for."""
        desk = Desk(Draft(state), self._rules, self._ladder, record, now_ms)
        if record.topic is topics.PAYOUT_COMMANDS:
            self._take(read(record), desk)
        else:
            self._answer(schemas.decode(record.value or b"", schemas.PAYOUT_REPLY), desk)
        return desk.outcome() if desk.writes or desk.draft.changes else NOTHING

    # Replies and timers

    def _answer(self, reply: Mapping[str, Any], desk: Desk) -> None:
        entry = desk.draft.entry(reply["merchant"], reply["payout_id"])
        if entry is None:
            raise MalformedRecord(f"a reply for payout {reply['payout_id'][:80]!r}, which {reply['merchant'][:80]!r} does not have")
        message = message_of(reply)
        if isinstance(message, Due) and message.timer == "start" and entry.payout.state == "SCHEDULED":
            entry, message = self._looked_at_again(entry, message, desk)
        desk.drive(entry, message)

    def _looked_at_again(self, entry: Entry, due: Due, desk: Desk) -> tuple[Entry, Message]:
        """Much may have changed since a payout was scheduled."""
        payout = entry.payout
        beneficiary = self._beneficiary(payout.merchant, payout.beneficiary_id, desk)
        refused = why_unfit(payout.channel, payout.currency, beneficiary, self._rules)
        if refused is not None:
            return entry, Unfit(refused.reason, refused.detail) if due.mark == payout.start_ms else due
        return msgspec.structs.replace(entry, payout=msgspec.structs.replace(payout, beneficiary=dict(beneficiary or {}))), due

    def _beneficiary(self, merchant: str, beneficiary_id: str, desk: Desk) -> Mapping[str, Any] | None:
        return newer(self._beneficiaries.get(merchant, beneficiary_id), desk.draft.beneficiary(merchant, beneficiary_id))

    # Commands

    def _take(self, command: Command, desk: Desk) -> None:
        match command.kind:
            case "SUBMIT":
                self._submit(command, desk)
            case "SUBMIT_BATCH":
                open_batch(command, desk)
            case "CANCEL":
                self._about_payout(command, Cancel(command.id, command.issued_by, (command.body["reason"] or "")[:KEY_LENGTH_MAX]), desk)
            case "RESOLVE":
                self._resolve(command, desk)
            case "FUND_ACCOUNT":
                fund(command, desk)
            case "REGISTER_BENEFICIARY":
                self._register(command, desk)
            case _:
                answer(command, Refused("unknown_command", "it has no body that its kind names"), desk)

    def _submit(self, command: Command, desk: Desk) -> None:
        body = command.body
        beneficiary = self._beneficiary(command.merchant, body["beneficiary_id"], desk)
        payout = to_payout(command, beneficiary, self._rules, desk.now_ms)
        if self._is_repeated(command, desk):
            return
        if not isinstance(payout, Refused):
            payout = why_not_item(command, desk) or payout
        if isinstance(payout, Refused):
            refuse_submit(command, payout, desk)
            return
        desk.draft.keep_claim(payout, desk.now_ms)
        desk.count(payout, "open")
        desk.drive(Entry(payout), Begin())

    def _is_repeated(self, command: Command, desk: Desk) -> bool:
        """Whether it was asked for before: the first payout answers, or tells that something else was asked for."""
        claim = desk.draft.claim(command.merchant, command.body["idempotency_key"], desk.now_ms)
        if claim is None:
            return False
        first = desk.draft.entry(command.merchant, claim.payout_id)
        if first is not None and is_same(command, claim.fingerprint):
            note(first, "submit repeated", f"command {command.id} asked for it again", desk)
            return True
        detail = f"the idempotency key is that of payout {claim.payout_id}, which is another one"
        refuse_submit(command, Refused("idempotency_key_reused", detail), desk)
        return True

    def _resolve(self, command: Command, desk: Desk) -> None:
        body = command.body
        if body["status"] not in ("SUCCESS", "FAILED") or not body["resolved_by"]:
            answer(command, Refused("bad_resolution", "say how it ended, SUCCESS or FAILED, and who says so"), desk)
            return
        by, notes = body["resolved_by"][:KEY_LENGTH_MAX], body["notes"][:NOTES_LENGTH_MAX]
        word = Resolve(command.id, body["status"], by, notes, body["confirms"], self._rules.four_eyes)
        self._about_payout(command, word, desk)

    def _about_payout(self, command: Command, message: Message, desk: Desk) -> None:
        entry = desk.draft.entry(command.merchant, command.body["payout_id"])
        if entry is None:
            answer(command, Refused("unknown_payout", f"there is no payout {command.body['payout_id'][:80]!r}"), desk)
        else:
            desk.drive(entry, message)

    def _register(self, command: Command, desk: Desk) -> None:
        given = command.body
        refused = why_no_name(beneficiary_id=given["id"])
        if refused is None and given["merchant"] != command.merchant:
            refused = Refused("wrong_merchant", f"the beneficiary is said to be {given['merchant'][:80]!r}'s")
        if refused is None and given["state"] not in ("ACTIVE", "INACTIVE"):
            refused = Refused("bad_beneficiary", "its state must be ACTIVE or INACTIVE")
        if refused is None and len(schemas.encode(schemas.BENEFICIARY, given)) > BENEFICIARY_BYTES_MAX:
            refused = Refused("beneficiary_too_large", f"a beneficiary may have {BENEFICIARY_BYTES_MAX} bytes in all")
        if refused is not None:
            answer(command, refused, desk)
            return
        known = self._beneficiary(command.merchant, given["id"], desk)
        fields = {**given, "created_ms": known["created_ms"] if known else desk.now_ms, "updated_ms": desk.now_ms}
        encoded = schemas.encode(schemas.BENEFICIARY, fields)
        desk.draft.keep_beneficiary(command.merchant, given["id"], encoded)
        desk.writes.append(Write(topics.BENEFICIARIES, key_of(command.merchant, given["id"]), encoded, partition=0))


def message_of(reply: Mapping[str, Any]) -> Message:
    """A reply or a timer, as the saga takes it."""
    if reply["outcome"] == "DUE" and reply["code"] in TIMERS and reply["timer_mark"] is not None:
        return Due(reply["code"], reply["timer_mark"])
    if reply["action"] not in ACTIONS or reply["outcome"] not in OUTCOMES:
        raise MalformedRecord(f"a reply of {reply['action']} {reply['outcome']}, which this version does not know")
    return Replied(
        reply["action"], reply["number"], reply["outcome"], reply["channel_reference"], reply["code"], reply["detail"], reply["fee_minor"],
        reply["retry_after_ms"],
    )  # fmt: skip


def is_same(command: Command, fingerprint: str) -> bool:
    """Whether a command asks for what a key stands for, however it writes the amount."""
    try:
        return fingerprint_of(command.body, amount_of(command.body)) == fingerprint
    except BadAmount:
        return False


def answer(command: Command, refused: Refused, desk: Desk, payout_id: str | None = None, **others: Any) -> None:
    """Say why a command has no effect; under its own id where it names no payout."""
    name = payout_id or command.id
    told = written.refused(command.merchant, name, refused.reason, refused.detail, command.id, desk.now_ms, **others)
    desk.writes.append(told)


def note(entry: Entry, message: str, detail: str, desk: Desk) -> None:
    """Answer with a payout that is there, and what was asked in its history; its status is never that of a refused command."""
    payout = noted(entry.payout, message, desk.now_ms, detail)
    desk.draft.keep_entry(msgspec.structs.replace(entry, payout=payout))
    desk.writes.append(written.status(payout))


def refuse_submit(command: Command, refused: Refused, desk: Desk) -> None:
    """Answer, and count the place that it would have had in its batch; what has that name or that place already keeps it."""
    body = command.body
    there = desk.draft.entry(command.merchant, body["payout_id"])
    if body["batch_id"] is not None and why_not_place(command, desk) is None:
        desk.count_item(command.merchant, body["batch_id"], body["batch_index"], body["payout_id"], "failed", 0)
    if there is not None:
        note(there, "submit refused", f"command {command.id}: {refused.reason}, {refused.detail}", desk)
        return
    has_name = why_no_name(payout_id=body["payout_id"]) is None
    answer(command, refused, desk, body["payout_id"] if has_name else None, trace_id=command.trace_id, **place_of(command, desk))


def place_of(command: Command, desk: Desk) -> dict[str, Any]:
    """The place of a batch that its payout has, for its status."""
    batch_id, index = command.body["batch_id"], command.body["batch_index"]
    item = desk.draft.item(command.merchant, batch_id, index) if batch_id is not None and index is not None else None
    return {"batch_id": batch_id, "batch_index": index} if item is not None and item.payout_id == command.body["payout_id"] else {}


def why_not_item(command: Command, desk: Desk) -> Refused | None:
    """Why a good command is no new payout: its name or its place is taken."""
    if desk.draft.entry(command.merchant, command.body["payout_id"]) is not None:
        return Refused("payout_id_taken", "there is a payout of that id, with another idempotency key")
    return why_not_place(command, desk) if command.body["batch_id"] is not None else None


def why_not_place(command: Command, desk: Desk) -> Refused | None:
    """Why it has no place in the batch that it names."""
    batch_id, index = command.body["batch_id"], command.body["batch_index"]
    batch = desk.draft.batch(command.merchant, batch_id) if why_no_name(batch_id=batch_id) is None else None
    if batch is None:
        return Refused("unknown_batch", f"there is no batch {batch_id[:80]!r}: send its header first")
    if index is None or not 0 <= index < batch.items_total:
        return Refused("bad_batch_index", f"the batch has items 0 to {batch.items_total - 1}")
    if desk.draft.item(command.merchant, batch_id, index) is not None:
        return Refused("item_taken", f"item {index} of the batch is another payout")
    return None


def open_batch(command: Command, desk: Desk) -> None:
    """The header of a batch; a second one of the same id opens nothing."""
    body, now_ms = command.body, desk.now_ms
    batch_id, items = body["batch_id"], body["items_total"]
    refused = why_no_name(batch_id=batch_id)
    if refused is not None:
        answer(command, refused, desk)
        return
    known = desk.draft.batch(command.merchant, batch_id)
    if known is not None:
        if (known.items_total, known.amount_minor_total, known.currency) != (items, body["amount_minor_total"], body["currency"]):
            known = msgspec.structs.replace(known, reason=f"header_conflict: command {command.id} has another header", updated_ms=now_ms)
            desk.draft.keep_batch(known)
        desk.writes.append(written.batch_status(known))
        return
    if not 1 <= items <= ITEMS_MAX:
        reason = f"bad_items_total: {items}, and a batch has 1 to {ITEMS_MAX} items"
        desk.writes.append(written.refused_batch(command.merchant, batch_id, items, reason, now_ms))
        return
    batch = Batch(
        batch_id=batch_id, merchant=command.merchant, items_total=items, amount_minor_total=body["amount_minor_total"],
        currency=body["currency"], created_ms=now_ms, updated_ms=now_ms,
    )  # fmt: skip
    desk.draft.keep_batch(batch)
    desk.writes.append(written.batch_status(batch))


def fund(command: Command, desk: Desk) -> None:
    """Money that came in, once for each transfer."""
    body, merchant = command.body, command.merchant
    transfer_id, amount_minor, currency = body["transfer_id"], body["amount_minor"], body["currency"]
    refused = why_no_name(transfer_id=transfer_id) or _why_not_amount(amount_minor, currency)
    known = desk.draft.funding(merchant, transfer_id) if refused is None else None
    if known == Funding(amount_minor, currency):
        return
    if known is not None:
        refused = Refused("transfer_id_taken", f"transfer {transfer_id} brought {known.amount_minor} minor units of {known.currency}")
    if refused is None:
        booked = ledger.fund(desk.draft.balances(merchant, currency), amount_minor)
        if isinstance(booked, ledger.Booked):
            desk.draft.keep_balances(merchant, currency, booked.balances)
            desk.draft.keep_funding(merchant, transfer_id, Funding(amount_minor, currency))
            name = f"{merchant}/funding/{transfer_id}"
            more = {"command_id": command.id, "reason": body["reference"]}
            desk.writes += [written.entry(each, name, merchant, currency, desk.now_ms, **more) for each in booked.movements]
            return
        refused = Refused(booked.reason, booked.detail)
    answer(command, refused, desk)


def _why_not_amount(amount_minor: int, currency: str) -> Refused | None:
    try:
        exponent_of(currency)
        checked_minor(amount_minor)
    except BadAmount as error:
        return Refused("bad_amount", str(error))
    return None
