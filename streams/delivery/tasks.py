"""What a plan asks to be done about a delivery, and what came of it: the types between plan, perform and conclude."""

from dataclasses import dataclass

from streams.delivery.delivery import Delivery
from streams.delivery.lane import Lane, SideLane
from streams.delivery.results import Result
from streams.delivery.subscription import Subscription


@dataclass(frozen=True, slots=True)
class Park:
    """A delivery that waits for its subscription or its turn. Its plan parked it already: the next one must see it there."""

    delivery: Delivery


@dataclass(frozen=True, slots=True)
class Cancel:
    """A delivery that nobody wants any more."""

    delivery: Delivery
    why: str


@dataclass(frozen=True, slots=True)
class Post:
    """A delivery that is to be posted when its lane lets it."""

    delivery: Delivery
    subscription: Subscription
    lane: Lane | SideLane


Task = Park | Cancel | Post


@dataclass(frozen=True, slots=True)
class PutOff:
    """No attempt was made: come back at this time, which is a granted slot or only a time to ask again."""

    due_ms: int
    why: str
    granted: bool = True


@dataclass(frozen=True, slots=True)
class Unsendable:
    """No attempt can be made."""

    state: str
    detail: str


@dataclass(frozen=True, slots=True)
class Posted:
    """An attempt was made."""

    result: Result
    at_ms: int
    delivery: Delivery
    headers: bytes
