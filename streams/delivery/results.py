"""What an attempt came to: an answer, or a failure that says how far it got."""

from collections.abc import Mapping
from typing import Literal

import msgspec

Stage = Literal["address", "connect", "tls", "send", "answer"]
"""Where an attempt without an answer ended: the address was refused or did not resolve, no connection, no TLS, in the request, after it."""

KEPT_BYTES_MAX = 2_048
"""How much of an answer's body an attempt keeps."""


class Answer(msgspec.Struct, frozen=True):
    """The merchant answered. Header names are lower case; of the body, the first 2 KiB are kept."""

    code: int
    duration_ms: int
    headers: Mapping[str, str] = {}
    body: bytes = b""


class Failure(msgspec.Struct, frozen=True):
    """No answer came. `ambiguous`: the whole request was sent, so the merchant may have it all the same."""

    stage: Stage
    error: str
    duration_ms: int
    timed_out: bool = False
    ambiguous: bool = False


Result = Answer | Failure
