"""What one shard of the payouts agent knows, and the draft in which one record changes it.

    p/<merchant>\\0<payout>               a payout and its hold; forgotten 90 days after its end
    k/<merchant>\\0<idempotency key>      which payout a key made, of what body; forgotten after 90 days
    a/<merchant>\\0<currency>             the balances of a merchant's accounts
    f/<merchant>\\0<transfer>             money that came in: never forgotten, so that it comes in once
    b/<merchant>\\0<batch>                a batch's header and counts
    i/<merchant>\\0<batch>\\0<index>       one item of a batch: how it stands; like b/ forgotten 180 days after it ended
    n/<merchant>\\0<beneficiary>          a beneficiary registered here, until the table has long shown it; a day

A merchant's commands and replies meet in one shard, so all that one payout, batch or account needs is here.
"""

from typing import Any, TypeVar

import msgspec

import schemas
from streams.log.records import Change
from streams.log.state import State
from streams.payouts.batch import Batch, Item
from streams.payouts.ledger import NO_MONEY, Balances, Hold
from streams.payouts.payout import ENDED, Payout

DAY_MS = 24 * 3_600_000
KEY_KEPT_MS = 90 * DAY_MS
BATCH_KEPT_MS = 180 * DAY_MS

Value = TypeVar("Value")


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """A payout, and what the ledger holds for it."""

    payout: Payout
    hold: Hold | None = None


class Claim(msgspec.Struct, frozen=True, array_like=True):
    """What an idempotency key stands for."""

    payout_id: str
    fingerprint: str
    expires_ms: int


class Funding(msgspec.Struct, frozen=True, array_like=True):
    """Money that came in once."""

    amount_minor: int
    currency: str


_encode = msgspec.msgpack.Encoder().encode
_entry = msgspec.msgpack.Decoder(Entry)
_claim = msgspec.msgpack.Decoder(Claim)
_balances = msgspec.msgpack.Decoder(Balances)
_funding = msgspec.msgpack.Decoder(Funding)
_batch = msgspec.msgpack.Decoder(Batch)
_item = msgspec.msgpack.Decoder(Item)


class Draft:
    """The state as one record sees and changes it; what it has changed itself it sees at once."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._changed: dict[bytes, bytes | None] = {}

    @property
    def changes(self) -> list[Change]:
        """What is to be committed."""
        return list(self._changed.items())

    def _get(self, key: bytes, decoder: "msgspec.msgpack.Decoder[Value]") -> Value | None:
        found = self._changed[key] if key in self._changed else self._state.get(key)
        return None if found is None else decoder.decode(found)

    def _put(self, key: bytes, value: Any) -> None:
        self._changed[key] = _encode(value)

    def entry(self, merchant: str, payout_id: str) -> Entry | None:
        """A payout."""
        return self._get(_key("p", merchant, payout_id), _entry)

    def keep_entry(self, entry: Entry) -> None:
        """And what it has become."""
        self._put(_key("p", entry.payout.merchant, entry.payout.payout_id), entry)

    def claim(self, merchant: str, idempotency_key: str, now_ms: int) -> Claim | None:
        """What an idempotency key stands for, while it holds."""
        found = self._get(_key("k", merchant, idempotency_key), _claim)
        return found if found is not None and found.expires_ms > now_ms else None

    def keep_claim(self, payout: Payout, now_ms: int) -> None:
        """The key stands for this payout from now on."""
        claim = Claim(payout.payout_id, payout.fingerprint, now_ms + KEY_KEPT_MS)
        self._put(_key("k", payout.merchant, payout.idempotency_key), claim)

    def balances(self, merchant: str, currency: str) -> Balances:
        """A merchant's accounts."""
        return self._get(_key("a", merchant, currency), _balances) or NO_MONEY

    def keep_balances(self, merchant: str, currency: str, balances: Balances) -> None:
        """And what they have become."""
        self._put(_key("a", merchant, currency), balances)

    def funding(self, merchant: str, transfer_id: str) -> Funding | None:
        """Money that came in."""
        return self._get(_key("f", merchant, transfer_id), _funding)

    def keep_funding(self, merchant: str, transfer_id: str, funding: Funding) -> None:
        """It has come in."""
        self._put(_key("f", merchant, transfer_id), funding)

    def batch(self, merchant: str, batch_id: str) -> Batch | None:
        """A batch."""
        return self._get(_key("b", merchant, batch_id), _batch)

    def keep_batch(self, batch: Batch) -> None:
        """And what it has become."""
        self._put(_key("b", batch.merchant, batch.batch_id), batch)

    def item(self, merchant: str, batch_id: str, index: int) -> Item | None:
        """An item of a batch."""
        return self._get(_key("i", merchant, batch_id, str(index)), _item)

    def keep_item(self, merchant: str, batch_id: str, index: int, item: Item) -> None:
        """And how it stands."""
        self._put(_key("i", merchant, batch_id, str(index)), item)

    def beneficiary(self, merchant: str, beneficiary_id: str) -> dict[str, Any] | None:
        """One that was registered here lately."""
        key = _key("n", merchant, beneficiary_id)
        found = self._changed[key] if key in self._changed else self._state.get(key)
        return None if found is None else schemas.decode(found, schemas.BENEFICIARY)

    def keep_beneficiary(self, merchant: str, beneficiary_id: str, encoded: bytes) -> None:
        """The table shows it in a moment; the next command may come before that."""
        self._changed[_key("n", merchant, beneficiary_id)] = encoded


def _key(kind: str, *names: str) -> bytes:
    return f"{kind}/{chr(0).join(names)}".encode()


def balances_in(key: bytes, value: bytes) -> tuple[str, str, Balances] | None:
    """Read an entry that is a merchant's accounts in one currency; None: it is another one."""
    if key[:2] != b"a/":
        return None
    merchant, currency = key[2:].decode().split(chr(0))
    return merchant, currency, _balances.decode(value)


def expires_ms(key: bytes, value: bytes) -> int | None:
    """When an entry may be forgotten, if ever."""
    match key[:2]:
        case b"p/":
            payout = _entry.decode(value).payout
            return payout.expires_ms if payout.state in ENDED else None
        case b"k/":
            return _claim.decode(value).expires_ms
        case b"b/":
            batch = _batch.decode(value)
            return None if batch.state == "OPEN" else batch.updated_ms + BATCH_KEPT_MS
        case b"i/":
            item = _item.decode(value)
            return item.updated_ms + BATCH_KEPT_MS if item.standing in ("succeeded", "failed") else None
        case b"n/":
            registered_ms: int = schemas.decode(value, schemas.BENEFICIARY)["updated_ms"]
            return registered_ms + DAY_MS
    return None
