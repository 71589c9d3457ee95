"""The ladder of delays: one topic per rung, in which records wait until the rung lets them go."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise

from streams.errors import ConfigurationError
from topology.topics import Topic

RETENTION_BEYOND_DELAY = timedelta(days=7)
UNITS = {"s": timedelta(seconds=1), "m": timedelta(minutes=1), "h": timedelta(hours=1)}


@dataclass(frozen=True, eq=False)
class Rung:
    """One delay and its topic."""

    delay: timedelta
    topic: Topic

    def __post_init__(self) -> None:
        """Refuse a rung that would drop what still waits, or whose clock is not the broker's."""
        if self.topic.retention is None or self.topic.retention < self.delay + RETENTION_BEYOND_DELAY:
            raise ConfigurationError(
                f"declaring rung {self.topic}: it must keep records for its delay and at least {RETENTION_BEYOND_DELAY.days} days"
            )
        if self.topic.timestamps != "LogAppendTime":
            raise ConfigurationError(f"declaring rung {self.topic}: a producer's clock could block it; its timestamps must be the broker's")

    @property
    def delay_ms(self) -> int:
        """The delay as records' timestamps count."""
        return self.delay // timedelta(milliseconds=1)


def rung(label: str) -> Rung:
    """Declare a rung by its label: `15m` waits 15 minutes in `retry-15m`."""
    delay = int(label[:-1]) * UNITS[label[-1]]
    topic = Topic(
        f"retry-{label}",
        f"Records wait here for {label} from the broker's append time, or until they are due.",
        key="the record's own",
        schema=None,
        retention=delay + RETENTION_BEYOND_DELAY,
        timestamps="LogAppendTime",
    )
    return Rung(delay, topic)


def checked(rungs: Sequence[Rung]) -> tuple[Rung, ...]:
    """Refuse a ladder that does not climb: the next hop is looked for from the longest down."""
    for lower, upper in pairwise(rungs):
        if lower.delay >= upper.delay:
            raise ConfigurationError(f"declaring the ladder: {upper.topic} comes after {lower.topic} and must be longer")
    return tuple(rungs)


LABELS = ("5s", "15s", "30s", "1m", "2m", "5m", "10m", "15m", "30m", "1h", "2h", "6h", "12h", "24h", "72h")
RUNGS = checked([rung(label) for label in LABELS])
RUNG_TOPICS = tuple(each.topic for each in RUNGS)
