"""What a webhook looks like to its merchant: header names, signature, delays and time limits under one name."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from streams.delivery.schedule import Jitter, Schedule, doubling
from streams.errors import ConfigurationError

SECOND_MS, MINUTE_MS, HOUR_MS = 1_000, 60_000, 3_600_000
CONNECT_TIMEOUT_MS_MAX, ANSWER_TIMEOUT_MS_MAX = 30_000, 60_000
CUSTOM_HEADERS_MAX, CUSTOM_NAME_LENGTH_MAX, CUSTOM_VALUE_LENGTH_MAX = 20, 100, 1_024

Signed = Literal["body", "timestamp.body", "id.timestamp.body"]
"""What a signature covers, joined by full stops."""


class HeaderStyle(msgspec.Struct, frozen=True):
    """The names that a webhook's headers have; None where it is not sent."""

    signature: str
    sequence: str
    user_agent: str = "Hookline/1.0"
    event_id: str | None = None
    event_type: str | None = None
    timestamp: str | None = None
    attempt: str | None = None
    subscription_id: str | None = None

    def names(self) -> frozenset[str]:
        """Give every header name of this style, in lower case."""
        named = (self.signature, self.sequence, self.event_id, self.event_type, self.timestamp, self.attempt, self.subscription_id)
        return frozenset(name.lower() for name in named if name)


class SignatureStyle(msgspec.Struct, frozen=True):
    """How a signature is made and written.

    While secrets overlap every one of them signs, in the one header: each signature has its `prefix`, the newest secret's comes
    first, and `separator` stands between them, as in `sha256=…,sha256=…`. Where the signature carries its timestamp, `t=…,` opens it.
    """

    name: str
    signed: Signed
    encoding: Literal["hex", "base64"] = "hex"
    prefix: str = ""
    separator: str = ","
    carries_timestamp: bool = False

    @property
    def standard(self) -> bool:
        """Whether it is that of Standard Webhooks, which alone has base64 secrets and ed25519."""
        return self.name == "standard"


class Profile(msgspec.Struct, frozen=True):
    """Everything about a subscription's webhooks that is not the event."""

    name: str
    headers: HeaderStyle
    signature: SignatureStyle
    schedule: Schedule
    answer_timeout_ms: int
    connect_timeout_ms: int = 5 * SECOND_MS
    disables_at_once: bool = False
    """Whether too many failures in a row disable however quickly they came."""

    def __post_init__(self) -> None:
        missing = why_unverifiable(self.headers, self.signature)
        if missing:
            raise ConfigurationError(f"profile {self.name}: {missing}")


def why_unverifiable(headers: HeaderStyle, signature: SignatureStyle) -> str | None:
    """Say what a merchant would lack to check this signature under these headers, or None."""
    if "timestamp" in signature.signed and not (headers.timestamp or signature.carries_timestamp):
        return f"the signature of {signature.name} covers a timestamp that these headers do not send: take both of one profile"
    if "id" in signature.signed.split(".") and not headers.event_id:
        return f"the signature of {signature.name} covers an event id that these headers do not send: take both of one profile"
    return None


_SIMPAISA_DELAYS_MS = (
    1 * MINUTE_MS,
    5 * MINUTE_MS,
    30 * MINUTE_MS,
    2 * HOUR_MS,
    12 * HOUR_MS,
    24 * HOUR_MS,
    72 * HOUR_MS,
)

_SIMPAISA = Profile(
    name="simpaisa",
    headers=HeaderStyle(
        event_id="X-Simpaisa-Event-ID",
        event_type="X-Simpaisa-Event-Type",
        signature="X-Simpaisa-Signature",
        timestamp="X-Simpaisa-Timestamp",
        attempt="X-Simpaisa-Delivery-Attempt",
        sequence="X-Simpaisa-Sequence",
        user_agent="Simpaisa-Webhooks/1.0",
    ),
    signature=SignatureStyle("simpaisa", "body", prefix="sha256="),
    schedule=Schedule(_SIMPAISA_DELAYS_MS),
    answer_timeout_ms=30 * SECOND_MS,
)

_CORE = Profile(
    name="core",
    headers=HeaderStyle(signature="X-Webhook-Signature", event_type="X-Webhook-Event", sequence="X-Webhook-Sequence"),
    signature=SignatureStyle("core", "body"),
    schedule=Schedule((1 * MINUTE_MS, 15 * MINUTE_MS, 1 * HOUR_MS, 6 * HOUR_MS)),
    answer_timeout_ms=10 * SECOND_MS,
)

_JITTER = Profile(
    name="jitter",
    headers=HeaderStyle(signature="X-Signature", timestamp="X-Timestamp", event_id="X-Event-ID", sequence="X-Sequence"),
    signature=SignatureStyle("jitter", "timestamp.body", prefix="sha256="),
    schedule=Schedule(doubling(1 * SECOND_MS, 5 * MINUTE_MS, count=4), "full"),
    answer_timeout_ms=10 * SECOND_MS,
)

_WF = Profile(
    name="wf",
    headers=HeaderStyle(
        signature="Wf-Signature",
        event_id="Wf-Event-Id",
        event_type="Wf-Event-Type",
        subscription_id="Wf-Webhook-Id",
        sequence="Wf-Sequence",
    ),
    signature=SignatureStyle("wf", "timestamp.body", prefix="v1=", carries_timestamp=True),
    schedule=Schedule((30 * SECOND_MS, 2 * MINUTE_MS, 10 * MINUTE_MS, 1 * HOUR_MS, 6 * HOUR_MS, 24 * HOUR_MS), "around", 0.1),
    answer_timeout_ms=30 * SECOND_MS,
    disables_at_once=True,
)

_STANDARD = Profile(
    name="standard",
    headers=HeaderStyle(event_id="webhook-id", timestamp="webhook-timestamp", signature="webhook-signature", sequence="webhook-sequence"),
    signature=SignatureStyle("standard", "id.timestamp.body", encoding="base64", prefix="v1,", separator=" "),
    schedule=Schedule(_SIMPAISA_DELAYS_MS, "added", 0.1),
    answer_timeout_ms=15 * SECOND_MS,
)

PROFILES: Mapping[str, Profile] = MappingProxyType({each.name: each for each in (_SIMPAISA, _CORE, _JITTER, _WF, _STANDARD)})


def profile_named(name: str) -> Profile:
    """Find a profile, or refuse a name that is none."""
    profile = PROFILES.get(name)
    if profile is None:
        raise ConfigurationError(f"there is no profile {name[:40]!r}: choose from {', '.join(PROFILES)}")
    return profile


class Overrides(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parts of the profile that a subscription has otherwise, as subscription.avsc tells them."""

    headers_of: str | None = None
    signature_of: str | None = None
    schedule_of: str | None = None
    delays_ms: tuple[int, ...] | None = None
    jitter_percent: int | None = None
    connect_timeout_ms: int | None = None
    answer_timeout_ms: int | None = None


def resolve(subscription_profile: str, overrides: Mapping[str, Any] | None, custom_headers: Mapping[str, str]) -> Profile:
    """Put a subscription's profile together, or raise ConfigurationError that says which part of it cannot be."""
    refused = why_headers_refused(custom_headers)
    if refused:
        raise ConfigurationError(refused)
    profile = profile_named(subscription_profile)
    if not overrides:
        return profile
    try:
        given = msgspec.convert(overrides, Overrides)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"the overrides of profile {profile.name} are not as subscription.avsc says: {error}") from None
    return msgspec.structs.replace(
        profile,
        headers=profile_named(given.headers_of or profile.name).headers,
        signature=profile_named(given.signature_of or profile.name).signature,
        schedule=_schedule(profile_named(given.schedule_of or profile.name).schedule, given),
        connect_timeout_ms=_timeout_ms("connect", given.connect_timeout_ms, profile.connect_timeout_ms, CONNECT_TIMEOUT_MS_MAX),
        answer_timeout_ms=_timeout_ms("answer", given.answer_timeout_ms, profile.answer_timeout_ms, ANSWER_TIMEOUT_MS_MAX),
    )


def _schedule(schedule: Schedule, given: Overrides) -> Schedule:
    # Other delays keep the profile's kind of chance, and only a jitter_percent changes it: 0 makes every delay exact.
    delays_ms = schedule.delays_ms if given.delays_ms is None else given.delays_ms
    if given.jitter_percent is None:
        return Schedule(delays_ms, schedule.jitter, schedule.jitter_fraction)
    jitter: Jitter = "added" if given.jitter_percent else "none"
    return Schedule(delays_ms, jitter, given.jitter_percent / 100)


def _timeout_ms(what: str, given_ms: int | None, otherwise_ms: int, most_ms: int) -> int:
    if given_ms is None:
        return otherwise_ms
    if not 1 <= given_ms <= most_ms:
        raise ConfigurationError(f"the override {what}_timeout_ms is {given_ms}: give 1 to {most_ms}")
    return given_ms


_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_VALUE = re.compile(r"[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?|", re.ASCII)

# What speaks to the connection, to proxies or about the sender is ours to say; metadata headers open the metadata
# services of clouds, so that a request that slipped past the address guard would still be turned away there.
_REFUSED_NAMES = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "cookie",
        "expect",
        "forwarded",
        "host",
        "http2-settings",
        "keep-alive",
        "metadata",
        "metadata-flavor",
        "set-cookie",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "via",
        "x-real-ip",
    }
).union(*(profile.headers.names() for profile in PROFILES.values()))
_REFUSED_BEGINNINGS = ("proxy-", "webhook-", "x-aws-ec2-metadata-", "x-forwarded-", "x-google-metadata-")


def why_header_refused(name: str, value: str) -> str | None:
    """Say why a custom header cannot be sent, or None when it can; the value is never told."""
    if len(name) > CUSTOM_NAME_LENGTH_MAX or not _TOKEN.fullmatch(name):
        return f"the custom header {name[:CUSTOM_NAME_LENGTH_MAX]!r} has no name that HTTP allows: use letters, digits and hyphens"
    # Many servers read X_Real_IP as X-Real-IP.
    plain = name.lower().replace("_", "-")
    if plain in _REFUSED_NAMES or plain.startswith(_REFUSED_BEGINNINGS):
        return f"the custom header {name} is one that Hookline or HTTP sets: choose another name"
    if len(value) > CUSTOM_VALUE_LENGTH_MAX:
        return f"the custom header {name} has {len(value)} characters: give at most {CUSTOM_VALUE_LENGTH_MAX}"
    if not _VALUE.fullmatch(value):
        return f"the custom header {name} must be printable ASCII, without control characters or spaces around it"
    return None


def why_headers_refused(headers: Mapping[str, str]) -> str | None:
    """Say why a subscription's custom headers cannot be sent, or None when they can."""
    if len(headers) > CUSTOM_HEADERS_MAX:
        return f"there are {len(headers)} custom headers: give at most {CUSTOM_HEADERS_MAX}"
    if len({name.lower() for name in headers}) < len(headers):
        return "a custom header is given twice, for upper and lower case are the same: give each once"
    return next((refused for name, value in headers.items() if (refused := why_header_refused(name, value))), None)
