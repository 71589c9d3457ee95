"""What may be asked of a subscription: made, changed, given another state or another secret, and refused before it is written. Pure.

Whoever writes subscriptions (the command line, the API) does it through these functions, so that what one of them refuses the other
does not let in. Each gives the whole next record, and raises ConfigurationError with a reason that a person can act on.
"""

from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from schemas.event import MERCHANT_LENGTH_MAX
from streams.delivery.address import why_url_refused
from streams.delivery.matching import why_filter_refused, why_pattern_refused
from streams.delivery.pace import PaceLimits
from streams.delivery.payload import LATEST, VERSIONS
from streams.delivery.profiles import HOUR_MS, resolve
from streams.delivery.sealing import Keyring, public_key_of
from streams.delivery.signing import Algorithm
from streams.delivery.subscription import changed, encoded
from streams.errors import ConfigurationError, MalformedRecord
from topology.topics import merchant_topic

ID_BYTES = 16
PATTERNS_MAX, FILTERS_MAX, SECRETS_MAX = 100, 20, 5
RATE_PER_S_LEAST, RATE_PER_S_MAX, BURST_MAX, IN_FLIGHT_MAX = 0.001, 10_000, 10_000, 1_000
CONTACT_LENGTH_MAX, DESCRIPTION_LENGTH_MAX, REASON_LENGTH_MAX = 200, 1_000, 200
RECORD_BYTES_MAX = 65_536
"""Every worker keeps every subscription in memory."""
OVERLAP_MS_MAX = 30 * 24 * HOUR_MS

Verb = Literal["pause", "resume", "disable", "enable"]

_CHANGES: Mapping[Verb, tuple[str, frozenset[str]]] = {
    "pause": ("PAUSED", frozenset({"ACTIVE"})),
    "resume": ("ACTIVE", frozenset({"PAUSED"})),
    "disable": ("DISABLED", frozenset({"ACTIVE", "PAUSED"})),
    "enable": ("ACTIVE", frozenset({"DISABLED"})),
}
"""The state that each leads to, and those that it leads from: what was disabled has lost events, so it is not merely resumed."""

DEFAULTS: Mapping[str, Any] = {
    "destination": "HTTP",
    "url": None,
    "event_types": ["*"],
    "filters": [],
    "profile": "standard",
    "overrides": None,
    "payload_version": LATEST,
    "rate_per_s": PaceLimits().rate_per_s,
    "burst": PaceLimits().burst,
    "in_flight_max": PaceLimits().in_flight_max,
    "ordered": False,
    "behind_dead_letter": "SKIP",
    "on_ambiguous": "RETRY",
    "headers": {},
    "operational": False,
    "contact": None,
    "description": None,
}
"""A new subscription's parts where nothing else is asked."""


class FilterWanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A condition on the event's data, each value as JSON text."""

    path: str
    values: tuple[str, ...]


class Wanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person asks of a subscription. What is left out stays as it is, or has the default of a new one."""

    destination: Literal["HTTP", "KAFKA"] | UnsetType = UNSET
    url: str | UnsetType | None = UNSET
    event_types: tuple[str, ...] | UnsetType = UNSET
    filters: tuple[FilterWanted, ...] | UnsetType = UNSET
    profile: str | UnsetType = UNSET
    overrides: dict[str, Any] | UnsetType | None = UNSET
    """Laid over those that there are, part by part; a part of None is the profile's again, and None for all clears them."""
    payload_version: str | UnsetType = UNSET
    rate_per_s: float | UnsetType = UNSET
    burst: int | UnsetType = UNSET
    in_flight_max: int | UnsetType = UNSET
    ordered: bool | UnsetType = UNSET
    behind_dead_letter: Literal["SKIP", "HOLD"] | UnsetType = UNSET
    on_ambiguous: Literal["RETRY", "DEAD_LETTER"] | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    operational: bool | UnsetType = UNSET
    contact: str | UnsetType | None = UNSET
    description: str | UnsetType | None = UNSET

    def parts(self) -> dict[str, Any]:
        """Give what was asked for, as the record has it."""
        parts: dict[str, Any] = msgspec.to_builtins(self)
        return parts


class NewSecret(msgspec.Struct, frozen=True):
    """A secret that was just made: the only time that its text can be shown, and never by accident."""

    id: str
    algorithm: Algorithm
    text: str

    def __repr__(self) -> str:
        return f"NewSecret(id={self.id!r}, algorithm={self.algorithm!r})"

    def __rich_repr__(self) -> list[tuple[str, str]]:
        return [("id", self.id), ("algorithm", self.algorithm)]

    def shown(self) -> dict[str, str]:
        """What the person who asked for it gets to see, once."""
        shown = {"id": self.id, "algorithm": self.algorithm, "secret": self.text}
        return {**shown, "public_key": public_key_of(self.text)} if self.algorithm == "ed25519" else shown


def identifier(kind: Literal["sub", "sec", "rep", "pay", "cmd"], random_bytes: bytes) -> str:
    """Name a subscription, a secret or a replay by 16 random bytes."""
    if len(random_bytes) != ID_BYTES:
        raise ValueError(f"an id is made of {ID_BYTES} random bytes, and not {len(random_bytes)}")
    return f"{kind}_{urlsafe_b64encode(random_bytes).decode().rstrip('=')}"


def sealed(secret: NewSecret, subscription_id: str, keyring: Keyring, nonce: bytes, now_ms: int) -> dict[str, Any]:
    """Encrypt a secret as its subscription's record has it."""
    key_id, nonce, ciphertext = keyring.seal(secret.text, subscription_id, secret.id, nonce)
    return {
        "id": secret.id,
        "algorithm": secret.algorithm,
        "encryption_key_id": key_id,
        "nonce": nonce,
        "ciphertext": ciphertext,
        "created_ms": now_ms,
        "expires_ms": None,
    }


def created(
    subscription_id: str, merchant: str, wanted: Wanted, secret: Mapping[str, Any], now_ms: int, *, allow_loopback: bool, disabled: bool
) -> dict[str, Any]:
    """Make a subscription of what is wanted, its merchant and its first sealed secret."""
    fields = {
        **DEFAULTS,
        **wanted.parts(),
        "id": subscription_id,
        "merchant": merchant,
        "revision": 1,
        "state": "DISABLED" if disabled else "ACTIVE",
        "state_reason": "created",
        "state_since_ms": now_ms,
        "secrets": [dict(secret)],
        "created_ms": now_ms,
        "updated_ms": now_ms,
    }
    fields["overrides"] = _laid_over(None, fields["overrides"])
    _require_usable(fields, now_ms, allow_loopback)
    return fields


def updated(fields: Mapping[str, Any], wanted: Wanted, now_ms: int, *, allow_loopback: bool) -> dict[str, Any]:
    """Change what is wanted otherwise. One that goes to a topic from now on forgets its URL."""
    _require_known(fields)
    parts = wanted.parts()
    if not parts:
        raise ConfigurationError(f"nothing of subscription {fields['id']} was to be changed: say what shall be otherwise")
    if parts.get("destination") == "KAFKA":
        parts.setdefault("url", None)
    after = changed(fields, now_ms, **parts)
    after["overrides"] = _laid_over(fields["overrides"], after["overrides"])
    _require_usable(after, now_ms, allow_loopback)
    return after


def with_state(fields: Mapping[str, Any], verb: Verb, reason: str, now_ms: int) -> dict[str, Any]:
    """Pause, resume, disable or enable. Asked for again it keeps its time and takes the new reason."""
    _require_known(fields)
    _require_text("reason", reason, REASON_LENGTH_MAX)
    state, allowed = _CHANGES[verb]
    if fields["state"] != state and fields["state"] not in allowed:
        way = "enable" if fields["state"] == "DISABLED" else "resume"
        raise ConfigurationError(
            f"cannot {verb} subscription {fields['id']}, which is {fields['state']} ({fields['state_reason']}): {way} it first"
        )
    since_ms = fields["state_since_ms"] if fields["state"] == state else now_ms
    return changed(fields, now_ms, state=state, state_reason=reason, state_since_ms=since_ms)


def rotated(fields: Mapping[str, Any], secret: Mapping[str, Any], overlap_ms: int, now_ms: int) -> dict[str, Any]:
    """Sign with another sealed secret from now on, and with the old ones until the overlap is over: never longer than they had."""
    _require_known(fields)
    if not 0 <= overlap_ms <= OVERLAP_MS_MAX:
        raise ConfigurationError(f"the overlap is {overlap_ms} ms: give 0 to {OVERLAP_MS_MAX} (30 days)")
    end_ms = now_ms + overlap_ms
    ending = [{**old, "expires_ms": end_ms if old["expires_ms"] is None else min(old["expires_ms"], end_ms)} for old in fields["secrets"]]
    kept = [old for old in ending if old["expires_ms"] > now_ms]
    if len(kept) >= SECRETS_MAX:
        raise ConfigurationError(
            f"subscription {fields['id']} still signs with {len(kept)} secrets: wait until one expires, or give a shorter overlap"
        )
    after = changed(fields, now_ms, secrets=[*kept, dict(secret)])
    _require_signable(after, now_ms)
    return after


def algorithm_of(fields: Mapping[str, Any]) -> Algorithm:
    """Tell what the newest secret signs with, which a rotation keeps unless it is asked otherwise."""
    newest = max(fields["secrets"], key=lambda secret: int(secret["created_ms"]), default=None)
    return "ed25519" if newest is not None and newest["algorithm"] == "ed25519" else "hmac-sha256"


def visible(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A subscription as people may see it: of secrets only their names, of custom headers no values, which may be credentials."""
    secrets = [{name: secret[name] for name in ("id", "algorithm", "created_ms", "expires_ms")} for secret in fields["secrets"]]
    return {**fields, "secrets": secrets, "headers": dict.fromkeys(fields["headers"], "…")}


def _laid_over(before: Mapping[str, Any] | None, parts: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Overrides that leave everything to the profile are none."""
    after = {**(before or {}), **parts} if parts is not None else {}
    return after if any(value is not None for value in after.values()) else None


def _require_known(fields: Mapping[str, Any]) -> None:
    """Refuse to write back what a newer version wrote and this one could not read."""
    for name in ("state", "destination", "behind_dead_letter", "on_ambiguous"):
        if fields[name] == "UNKNOWN":
            raise ConfigurationError(
                f"subscription {fields['id']} has a {name} that this version does not know: change it with a newer one"
            )


def _require_usable(fields: Mapping[str, Any], now_ms: int, allow_loopback: bool) -> None:
    _require_merchant(fields["merchant"])
    _require_destination(fields, allow_loopback)
    _require_matching(fields["event_types"], fields["filters"])
    _require_pace(fields)
    _require_signable(fields, now_ms)
    if fields["payload_version"] is not None and fields["payload_version"] not in VERSIONS:
        raise ConfigurationError(f"there is no payload version {fields['payload_version'][:40]!r}: choose from {', '.join(VERSIONS)}")
    for name, length_max in (("contact", CONTACT_LENGTH_MAX), ("description", DESCRIPTION_LENGTH_MAX)):
        if fields[name] is not None:
            _require_text(name, fields[name], length_max)
    _require_writable(fields)


def _require_merchant(merchant: str) -> None:
    if not 0 < len(merchant) <= MERCHANT_LENGTH_MAX or not (merchant.isascii() and merchant.isprintable()) or " " in merchant:
        raise ConfigurationError(
            f"the merchant {merchant[:40]!r} must be 1 to {MERCHANT_LENGTH_MAX} visible ASCII characters, as in its events"
        )


def _require_destination(fields: Mapping[str, Any], allow_loopback: bool) -> None:
    if fields["destination"] == "KAFKA":
        merchant_topic(fields["merchant"])  # refuses a merchant that no topic can be named after
        if fields["url"] is not None:
            raise ConfigurationError("a subscription to a topic has no URL: leave it out, or choose http as the destination")
    elif fields["url"] is None:
        raise ConfigurationError("a subscription by http needs a URL: give one that begins with https://")
    elif reason := why_url_refused(fields["url"], allow_loopback):
        raise ConfigurationError(f"the URL cannot be used: {reason}")


def _require_matching(event_types: Sequence[str], filters: Sequence[Mapping[str, Any]]) -> None:
    if not 1 <= len(event_types) <= PATTERNS_MAX:
        raise ConfigurationError(f"there are {len(event_types)} event type patterns: give 1 to {PATTERNS_MAX}")
    if len(filters) > FILTERS_MAX:
        raise ConfigurationError(f"there are {len(filters)} filters: give at most {FILTERS_MAX}")
    for reason in (
        *(why_pattern_refused(pattern) for pattern in event_types),
        *(why_filter_refused(each["path"], each["values"]) for each in filters),
    ):
        if reason:
            raise ConfigurationError(reason)


def _require_pace(fields: Mapping[str, Any]) -> None:
    """The least rate keeps a burst's slots within what can be counted; the most are more than one endpoint is ever given."""
    for name, value, least, most in (
        ("rate a second", fields["rate_per_s"], RATE_PER_S_LEAST, RATE_PER_S_MAX),
        ("burst", fields["burst"], 1, BURST_MAX),
        ("number in flight", fields["in_flight_max"], 1, IN_FLIGHT_MAX),
    ):
        if not least <= value <= most:
            raise ConfigurationError(f"the {name} is {value}: give {least:g} to {most:g}")


def _require_signable(fields: Mapping[str, Any], now_ms: int) -> None:
    profile = resolve(fields["profile"], fields["overrides"], fields["headers"])
    if profile.signature.standard:
        return
    for secret in fields["secrets"]:
        if secret["algorithm"] == "ed25519" and (secret["expires_ms"] is None or secret["expires_ms"] > now_ms):
            raise ConfigurationError(
                f"ed25519 is only for the signature of standard, and this is that of {profile.signature.name}: sign with hmac-sha256, "
                "or choose the signature of standard"
            )


def _require_text(name: str, text: str, length_max: int) -> None:
    if not 0 < len(text) <= length_max or not text.isprintable():
        raise ConfigurationError(f"the {name} must be 1 to {length_max} printable characters on one line")


def _require_writable(fields: Mapping[str, Any]) -> None:
    try:
        size = len(encoded(fields))
    except MalformedRecord as error:
        raise ConfigurationError(f"subscription {fields['id']} cannot be written: {error}") from None
    if size > RECORD_BYTES_MAX:
        raise ConfigurationError(
            f"the subscription has {size} bytes: give fewer or shorter patterns and filters, {RECORD_BYTES_MAX} at most"
        )
