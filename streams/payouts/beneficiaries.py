"""Whom merchants pay out to: the table of all, as the log has it."""

from collections.abc import Mapping
from typing import Any

import schemas
from streams.errors import MalformedRecord

Beneficiary = Mapping[str, Any]


def key_of(merchant: str, beneficiary_id: str) -> bytes:
    """Names a beneficiary in its topic."""
    return f"{merchant} {beneficiary_id}".encode()


class Beneficiaries:
    """By merchant and id."""

    def __init__(self) -> None:
        self._found: dict[bytes, Beneficiary] = {}

    def get(self, merchant: str, beneficiary_id: str) -> Beneficiary | None:
        """One, if it is registered."""
        return self._found.get(key_of(merchant, beneficiary_id))

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Take in one record of the topic; no value means that it was deleted."""
        if value is None:
            self._found.pop(key or b"", None)
            return
        fields = schemas.decode(value, schemas.BENEFICIARY)
        if key != key_of(fields["merchant"], fields["id"]):
            raise MalformedRecord(f"the beneficiary {fields['id']!r} of {fields['merchant']!r} has the key {key!r}: they must be the same")
        self._found[key] = fields


def newer(one: Beneficiary | None, other: Beneficiary | None) -> Beneficiary | None:
    """The one that was changed last."""
    if one is None or other is None:
        return one or other
    return one if one["updated_ms"] >= other["updated_ms"] else other
