"""A subscription made ready for use, once for each revision; and all of them, by id and by merchant."""

from collections.abc import Mapping
from typing import Any

import schemas
from schemas.event import Event
from streams.delivery.matching import Filter, filter_holds, matches, parse_filter
from streams.delivery.pace import PaceLimits
from streams.delivery.payload import LATEST
from streams.delivery.profiles import Profile, resolve
from streams.delivery.rules import DisableRule, Policy
from streams.delivery.sealing import Keyring
from streams.delivery.signing import Signer, signing_secret
from streams.errors import ConfigurationError, MalformedRecord

OPERATIONAL_SOURCE = "hookline"
"""The source of the events that Hookline tells of itself; what becomes of their deliveries makes no further ones."""


USUAL_RULE = DisableRule()


class Subscription:
    """What a merchant wants delivered, where and how.

    One that cannot be made ready has `trouble`: it still takes its events, and each of them is dead-lettered for that reason.
    """

    __slots__ = (
        "_filters", "_keyring", "_signer", "_signer_until_ms", "contact", "destination", "disable_rule", "event_types", "fields",
        "holds_behind_dead_letter", "id", "is_operational", "merchant", "ordered", "pace_limits", "policy", "profile", "revision", "state",
        "trouble", "url", "version",
    )  # fmt: skip

    def __init__(self, fields: Mapping[str, Any], keyring: Keyring, time_scale: float = 1.0, rule: DisableRule = USUAL_RULE) -> None:
        self.fields = fields
        self.id: str = fields["id"]
        self.merchant: str = fields["merchant"]
        self.revision: int = fields["revision"]
        self.state: str = fields["state"]
        self.destination: str = fields["destination"]
        self.url: str = fields["url"] or ""
        self.event_types: tuple[str, ...] = tuple(fields["event_types"])
        self.is_operational: bool = fields["operational"]
        self.ordered: bool = fields["ordered"]
        self.holds_behind_dead_letter = fields["behind_dead_letter"] == "HOLD"
        self.contact: str | None = fields["contact"]
        self.version: str = fields["payload_version"] or LATEST
        self.trouble: str | None = None
        self._keyring = keyring
        self._signer: Signer | None = None
        self._signer_until_ms = 0
        self._filters: tuple[Filter, ...] = ()
        self.pace_limits = PaceLimits()
        self.profile: Profile = resolve("standard", None, {})
        try:
            self._filters = tuple(parse_filter(each["path"], each["values"]) for each in fields["filters"])
            self.pace_limits = PaceLimits(fields["rate_per_s"], fields["burst"], fields["in_flight_max"])
            self.profile = resolve(fields["profile"], fields["overrides"], fields["headers"])
        except (ConfigurationError, ValueError) as error:
            self.trouble = f"subscription {self.id} cannot be used: {error}"
        self.policy = Policy(self.profile.schedule.scaled(time_scale), fields["on_ambiguous"] == "DEAD_LETTER")
        self.disable_rule = rule.scaled(time_scale, at_once=self.profile.disables_at_once)

    def wants(self, event: Event) -> bool:
        """Tell whether its patterns and filters take an event; operational ones are for those who asked for them by their flag."""
        if event.source == OPERATIONAL_SOURCE and not self.is_operational:
            return False
        return matches(event.type, self.event_types) and filter_holds(self._filters, event.fields)

    def signer(self, now_ms: int) -> Signer:
        """Who signs now: every secret that has not expired, the newest first. Kept until the next of them expires."""
        if self._signer is None or now_ms >= self._signer_until_ms:
            usable = [secret for secret in self.fields["secrets"] if secret["expires_ms"] is None or secret["expires_ms"] > now_ms]
            usable.sort(key=lambda secret: secret["created_ms"], reverse=True)
            secrets = [signing_secret(each["id"], each["algorithm"], self._open(each), self.profile.signature) for each in usable]
            self._signer = Signer(self.profile, self.id, secrets, self.fields["headers"])
            self._signer_until_ms = min((each["expires_ms"] for each in usable if each["expires_ms"] is not None), default=2**62)
        return self._signer

    def _open(self, secret: Mapping[str, Any]) -> str:
        return self._keyring.open(secret["encryption_key_id"], secret["nonce"], secret["ciphertext"], self.id, secret["id"])


class Subscriptions:
    """The table of all subscriptions, as the log has it."""

    def __init__(self, keyring: Keyring, time_scale: float = 1.0, rule: DisableRule = USUAL_RULE) -> None:
        self._keyring = keyring
        self._time_scale = time_scale
        self._rule = rule
        self.by_id: dict[str, Subscription] = {}
        self.disabled: dict[str, Subscription] = {}
        self.deleted: set[str] = set()
        """Those that were deleted since this table was begun; of earlier ones the log has forgotten that they were."""
        self._by_merchant: dict[str, dict[str, Subscription]] = {}

    def of(self, merchant: str) -> list[Subscription]:
        """A merchant's, oldest first."""
        return list(self._by_merchant.get(merchant, {}).values())

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Take in one record of the topic; no value means that the subscription was deleted, an older revision changes nothing."""
        name = (key or b"").decode(errors="replace")
        if value is None:
            self._remove(name)
            return
        fields = schemas.decode(value, schemas.SUBSCRIPTION)
        known = self.by_id.get(fields["id"])
        if fields["id"] != name:
            raise MalformedRecord(f"the subscription {fields['id']!r} has the key {name!r}: they must be the same")
        if known is not None and known.revision > fields["revision"]:
            return
        self.put(Subscription(fields, self._keyring, self._time_scale, self._rule))

    def put(self, subscription: Subscription) -> None:
        """Take in one that is ready."""
        known = self.by_id.get(subscription.id)
        if known is not None and known.merchant != subscription.merchant:
            self._remove(subscription.id)
        self.by_id[subscription.id] = subscription
        self.deleted.discard(subscription.id)
        self.disabled.pop(subscription.id, None)
        if subscription.state == "DISABLED":
            self.disabled[subscription.id] = subscription
        self._by_merchant.setdefault(subscription.merchant, {})[subscription.id] = subscription

    def _remove(self, name: str) -> None:
        known = self.by_id.pop(name, None)
        if known is not None:
            del self._by_merchant[known.merchant][name]
            self.disabled.pop(name, None)
            self.deleted.add(name)


def encoded(fields: Mapping[str, Any]) -> bytes:
    """A subscription's record."""
    return schemas.encode(schemas.SUBSCRIPTION, fields)


def changed(fields: Mapping[str, Any], now_ms: int, **changes: Any) -> dict[str, Any]:
    """The next revision of a subscription."""
    return {**fields, **changes, "revision": fields["revision"] + 1, "updated_ms": now_ms}
