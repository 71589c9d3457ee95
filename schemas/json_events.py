"""Reads the JSON envelope of an event, a structured CloudEvent's or a plain one, and leaves its data as it was written."""

import base64
import binascii

import msgspec

from streams.errors import MalformedRecord


class Envelope(msgspec.Struct, kw_only=True):
    """What a producer may say about an event; what it must say, `Event` asks for."""

    specversion: str | None = None
    id: str | None = None
    type: str | None = None
    source: str | None = None
    subject: str | None = None
    resource: str | None = None
    merchant: str | None = None
    time: str | None = None
    datacontenttype: str | None = None
    traceparent: str | None = None
    # Raw keeps the bytes: parsing and writing anew would turn 12345678901234567890123 into 1.2345678901234568e22.
    data: msgspec.Raw = msgspec.Raw()
    data_base64: str | None = None

    def payload(self) -> bytes:
        """Take out the data's bytes, as they were written."""
        if self.data_base64 is None:
            return bytes(self.data)
        try:
            return base64.b64decode(self.data_base64, validate=True)
        except (binascii.Error, ValueError):
            raise MalformedRecord("the event's data_base64 is not base64") from None


_DECODER = msgspec.json.Decoder(Envelope)


def read_envelope(value: bytes) -> Envelope:
    """Read an event's JSON; MalformedRecord says where it is none."""
    try:
        return _DECODER.decode(value)
    except msgspec.ValidationError as error:
        raise MalformedRecord(f"the event's JSON is not as it must be: {error}") from None
    except msgspec.DecodeError as error:
        raise MalformedRecord(f"the event is neither framed Avro nor JSON: {error}") from None
    except (UnicodeDecodeError, RecursionError) as error:
        raise MalformedRecord(f"the event's JSON cannot be read: {error}") from None
