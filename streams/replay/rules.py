"""What may be asked, which dead letters are meant, and where a replay stands after a word from a person. Pure."""

import math
from typing import Protocol

import msgspec

from streams.replay.request import Progress, Request

RUNS = frozenset({"START", "ACKNOWLEDGE", "DISCARD"})
"""What is run page by page."""
PASSED_ON = frozenset({"RETRY_NOW", "CANCEL"})
"""What the deliver agent does."""
CONTROLS = frozenset({"PAUSE", "RESUME", "STOP"})
ENDED = frozenset({"FINISHED", "STOPPED", "REFUSED"})
PAGE_MAX = 200
TRIAGED = {"START": "REPLAYED", "ACKNOWLEDGE": "ACKNOWLEDGED", "DISCARD": "DISCARDED"}
"""What becomes of a dead letter."""


class Told(Protocol):
    """What is known of a dead letter without its payload."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def reason(self) -> str:
        """Why it is dead."""

    @property
    def merchant(self) -> str | None:
        """Whose it is."""

    @property
    def subscription_id(self) -> str | None:
        """Whom it was for."""

    @property
    def event_type(self) -> str | None:
        """What had happened."""

    @property
    def event_id(self) -> str | None:
        """Which event it was."""

    @property
    def source(self) -> str | None:
        """Where that came from."""

    @property
    def dead_ms(self) -> int:
        """When it died."""


def refusal(request: Request) -> str | None:
    """Why a request is not taken, as far as it tells by itself."""
    if request.action in PASSED_ON and request.event_id is None:
        return f"to {request.action.lower().replace('_', ' ')} says nothing without an event: name it"
    if request.action in PASSED_ON:
        return None
    if request.action not in RUNS:
        return f"{request.action} is not understood by this version: upgrade the replay agent, or ask for something else"
    if request.from_log == "EVENTS" and request.action != "START":
        return "events are replayed, and not triaged: ask it of dead letters"
    if request.from_log not in ("EVENTS", "DEAD_LETTERS"):
        return f"to take from {request.from_log} is not understood by this version: upgrade the replay agent"
    if request.subscription_id is None and (request.from_log == "EVENTS" or request.include_cancelled):
        return "events, and what was cancelled, are sent to one subscription: name it"
    if request.from_ms is not None and request.to_ms is not None and request.to_ms <= request.from_ms:
        return f"it ends at {request.to_ms} ms, before it begins at {request.from_ms} ms: give a later end"
    if request.rate_per_s is not None and not (math.isfinite(request.rate_per_s) and request.rate_per_s > 0):
        return f"{request.rate_per_s} a second is no rate: give more than 0"
    return None


def matches(letter: Told, request: Request) -> bool:
    """Whether a dead letter is meant: all that is asked for must hold."""
    pairs = (
        (request.dead_letter_id, letter.id),
        (request.event_id, letter.event_id),
        (request.source, letter.source),
        (request.subscription_id, letter.subscription_id),
        (request.merchant, letter.merchant),
        (request.event_type, letter.event_type),
        (request.reason, letter.reason),
    )
    if any(wanted is not None and wanted != found for wanted, found in pairs):
        return False
    begins = request.from_ms is None or letter.dead_ms >= request.from_ms
    return begins and (request.to_ms is None or letter.dead_ms < request.to_ms)


def controlled(progress: Progress, action: str) -> Progress | None:
    """Where a replay stands after PAUSE, RESUME or STOP; None: as before.

    Resuming one that runs begins another turn too, which is harmless, and mends one whose progress was lost to the DLQ.
    """
    if progress.standing in ENDED:
        return None
    if action == "RESUME":
        return msgspec.structs.replace(progress, standing="RUNNING", turn=progress.turn + 1)
    standing = "PAUSED" if action == "PAUSE" else "STOPPED"
    return None if progress.standing == standing else msgspec.structs.replace(progress, standing=standing)


def rate_per_s(request: Request, usual_per_s: float, partitions: int) -> float:
    """How many a second this partition sends: all of them, where only one partition has what is meant."""
    rate = request.rate_per_s or usual_per_s
    in_one = request.subscription_id is not None or request.merchant is not None
    return rate if in_one else rate / partitions


def page_size(rate: float) -> int:
    """How many are sent at once: about a second's."""
    return max(1, min(PAGE_MAX, int(rate)))
