"""What may be asked of a subscription, in tables: what comes of it, and what is refused with which reason."""

import base64
from collections.abc import Mapping
from typing import Any, get_args

import msgspec
import pytest

import schemas
from streams.delivery import subscription_changes as changes
from streams.delivery.payload import LATEST
from streams.delivery.sealing import Keyring, new_secret
from streams.delivery.signing import Algorithm
from streams.delivery.subscription import Subscription, encoded
from streams.delivery.subscription_changes import NewSecret, Verb, Wanted
from streams.errors import ConfigurationError

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
RING = Keyring.parse(f"k1:{base64.b64encode(bytes(32)).decode()}")
SUB = changes.identifier("sub", bytes(range(16)))


def new(number: int, algorithm: Algorithm = "hmac-sha256") -> NewSecret:
    return NewSecret(changes.identifier("sec", bytes([number]) * 16), algorithm, new_secret(algorithm, bytes([number]) * 32))


def sealed(number: int, algorithm: Algorithm = "hmac-sha256", now_ms: int = NOW_MS) -> dict[str, Any]:
    return changes.sealed(new(number, algorithm), SUB, RING, bytes([number]) * 12, now_ms)


def created(
    wanted: Mapping[str, Any] | None = None, *, merchant: str = "m1", algorithm: Algorithm = "hmac-sha256", loopback: bool = False
) -> dict[str, Any]:
    """As the API would: what is wanted comes as builtins."""
    given = msgspec.convert({"url": "https://example.com/hook", **(wanted or {})}, Wanted)
    return changes.created(SUB, merchant, given, sealed(1, algorithm), NOW_MS, allow_loopback=loopback, disabled=False)


def updated(fields: Mapping[str, Any], **wanted: Any) -> dict[str, Any]:
    return changes.updated(fields, msgspec.convert(wanted, Wanted), NOW_MS + 5, allow_loopback=False)


# Made


def test_a_new_one_is_active_has_the_defaults_and_can_be_used() -> None:
    fields = created()

    assert {name: fields[name] for name in ("state", "state_reason", "state_since_ms", "revision", "created_ms", "updated_ms")} == {
        "state": "ACTIVE",
        "state_reason": "created",
        "state_since_ms": NOW_MS,
        "revision": 1,
        "created_ms": NOW_MS,
        "updated_ms": NOW_MS,
    }
    assert (fields["event_types"], fields["payload_version"], fields["profile"]) == (["*"], LATEST, "standard")
    subscription = Subscription(schemas.decode(encoded(fields), schemas.SUBSCRIPTION), RING)
    assert subscription.trouble is None
    assert subscription.signer(NOW_MS).headers("e1", "payin", 1, 1, b"{}", None)


def test_the_defaults_are_those_of_the_schema() -> None:
    """A default that is left out of a record is the schema's, so that the two must not differ."""
    declared = {field["name"]: field["default"] for field in schemas.SUBSCRIPTION.parsed["fields"] if "default" in field}

    assert {name: changes.DEFAULTS[name] for name in declared.keys() & changes.DEFAULTS.keys()} == {
        **{name: value for name, value in declared.items() if name in changes.DEFAULTS},
        "payload_version": LATEST,
    }


def test_one_that_is_created_disabled_says_so() -> None:
    fields = changes.created(SUB, "m1", Wanted(url="https://example.com"), sealed(1), NOW_MS, allow_loopback=False, disabled=True)

    assert (fields["state"], fields["state_reason"]) == ("DISABLED", "created")


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({"url": None}, "needs a URL"),
        ({"url": "http://example.com"}, "the URL cannot be used: http is not encrypted"),
        ({"url": "http://localhost:9000/"}, "the URL cannot be used: localhost is this machine"),
        ({"url": "https://10.0.0.1/"}, "10.0.0.1 is not a public address"),
        ({"url": "https://user:secret@example.com/"}, "has a user name or password"),
        ({"destination": "KAFKA", "url": "https://example.com"}, "has no URL: leave it out"),
        ({"event_types": []}, "there are 0 event type patterns: give 1 to 100"),
        ({"event_types": ["a"] * 101}, "there are 101 event type patterns"),
        ({"event_types": ["payin.*", "*.success"]}, "not its whole last part"),
        ({"filters": [{"path": "currency", "values": ["PKR"]}]}, "is not JSON"),
        ({"filters": [{"path": "currency", "values": []}]}, "has 0 values"),
        ({"filters": [{"path": "a", "values": ["1"]}] * 21}, "there are 21 filters: give at most 20"),
        ({"filters": [{"path": "a", "values": [f'"{"x" * 900}"'] * 100}]}, "bytes: give fewer or shorter patterns and filters"),
        ({"filters": [{"path": "\udcff", "values": ["1"]}]}, "cannot be written"),
        ({"profile": "fancy"}, "there is no profile 'fancy': choose from"),
        ({"headers": {"Host": "x"}}, "the custom header Host is one that Hookline or HTTP sets"),
        ({"headers": {"X-A": "1", "x-a": "2"}}, "given twice"),
        ({"headers": {"X-A": "a\r\nb"}}, "must be printable ASCII"),
        ({"overrides": {"headers_of": "core"}}, "covers a timestamp that these headers do not send"),
        ({"overrides": {"schedule_of": "fancy"}}, "there is no profile 'fancy'"),
        ({"overrides": {"delays_ms": [-1]}}, "a schedule's delay is -1 ms"),
        ({"overrides": {"jitter_percent": 101}}, "give 0 to 1"),
        ({"overrides": {"answer_timeout_ms": 60_001}}, "answer_timeout_ms is 60001: give 1 to 60000"),
        ({"overrides": {"colour": "red"}}, "are not as subscription.avsc says"),
        ({"payload_version": "2020-01-01"}, f"there is no payload version '2020-01-01': choose from {LATEST}"),
        ({"rate_per_s": 0}, "the rate a second is 0.0: give 0.001 to 10000"),
        ({"rate_per_s": float("nan")}, "the rate a second is nan"),
        ({"rate_per_s": float("inf")}, "the rate a second is inf"),
        ({"rate_per_s": 1e-300}, "the rate a second is 1e-300"),
        ({"burst": 0}, "the burst is 0: give 1 to 10000"),
        ({"burst": 2**40}, "the burst is"),
        ({"in_flight_max": -1}, "the number in flight is -1: give 1 to 1000"),
        ({"contact": ""}, "the contact must be 1 to 200 printable characters"),
        ({"contact": "a\nb"}, "the contact must be"),
        ({"description": "x" * 1_001}, "the description must be 1 to 1000 printable characters"),
        ({"description": "\udcff"}, "the description must be"),
    ],
)
def test_what_could_not_be_used_is_refused_with_its_reason_on_one_line(wanted: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        created(wanted)

    assert reason in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "secret@" not in str(raised.value)
    with pytest.raises(ConfigurationError):
        updated(created(), **wanted)


@pytest.mark.parametrize("merchant", ["", "a b", "é", "m" * 129, "a\n"])
def test_a_merchant_that_no_event_can_have_is_refused(merchant: str) -> None:
    with pytest.raises(ConfigurationError, match="visible ASCII"):
        created(merchant=merchant)


def test_a_merchant_that_no_topic_can_be_named_after_has_no_topic() -> None:
    assert created(merchant="a/b")["merchant"] == "a/b"
    with pytest.raises(ConfigurationError, match="declaring topic merchant-a/b"):
        created({"url": None, "destination": "KAFKA"}, merchant="a/b")


def test_this_machine_is_allowed_where_the_settings_allow_it() -> None:
    assert created({"url": "http://localhost:9000/"}, loopback=True)["url"] == "http://localhost:9000/"


@pytest.mark.parametrize("wanted", [{"profile": "core"}, {"overrides": {"signature_of": "simpaisa", "headers_of": "simpaisa"}}])
def test_ed25519_is_only_for_the_signature_of_standard(wanted: dict[str, Any]) -> None:
    assert created(algorithm="ed25519")["secrets"][0]["algorithm"] == "ed25519"
    with pytest.raises(ConfigurationError, match="ed25519 is only for the signature of standard"):
        created(wanted, algorithm="ed25519")
    with pytest.raises(ConfigurationError, match="ed25519 is only for the signature of standard"):
        updated(created(algorithm="ed25519"), **wanted)


# Changed


def test_an_update_changes_what_is_given_and_counts() -> None:
    before = created({"contact": "ops@example.com", "headers": {"X-A": "1"}})
    after = updated(before, rate_per_s=2, headers={"X-B": "2"}, contact=None)

    assert after == {**before, "rate_per_s": 2.0, "headers": {"X-B": "2"}, "contact": None, "revision": 2, "updated_ms": NOW_MS + 5}


@pytest.mark.parametrize(
    ("before", "given", "after"),
    [
        pytest.param(None, {"jitter_percent": 5}, {"jitter_percent": 5}, id="the first"),
        pytest.param({"delays_ms": [1]}, {"jitter_percent": 5}, {"delays_ms": [1], "jitter_percent": 5}, id="one more"),
        pytest.param({"delays_ms": [1]}, {"delays_ms": [2, 3]}, {"delays_ms": [2, 3]}, id="another"),
        pytest.param({"delays_ms": [1], "jitter_percent": 5}, {"delays_ms": None}, {"delays_ms": None, "jitter_percent": 5}, id="one less"),
        pytest.param({"delays_ms": [1]}, {"delays_ms": None}, None, id="the last one less"),
        pytest.param({"delays_ms": [1]}, None, None, id="none any more"),
        pytest.param(None, {}, None, id="none at all"),
        pytest.param({"delays_ms": []}, {}, {"delays_ms": []}, id="no delay is an override too"),
    ],
)
def test_overrides_are_laid_over_those_that_there_are(
    before: dict[str, Any] | None, given: dict[str, Any] | None, after: dict[str, Any] | None
) -> None:
    assert updated(created({"overrides": before}), overrides=given)["overrides"] == after


def test_one_that_goes_to_a_topic_from_now_on_forgets_its_url_and_needs_one_to_come_back() -> None:
    topic = updated(created(), destination="KAFKA")

    assert (topic["destination"], topic["url"]) == ("KAFKA", None)
    with pytest.raises(ConfigurationError, match="needs a URL"):
        updated(topic, destination="HTTP")
    assert updated(topic, destination="HTTP", url="https://example.com")["destination"] == "HTTP"


def test_an_update_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="nothing of subscription"):
        updated(created())


# States


@pytest.mark.parametrize(
    ("state", "verb", "after"),
    [
        ("ACTIVE", "pause", "PAUSED"),
        ("ACTIVE", "disable", "DISABLED"),
        ("PAUSED", "resume", "ACTIVE"),
        ("PAUSED", "disable", "DISABLED"),
        ("DISABLED", "enable", "ACTIVE"),
    ],
)
def test_a_state_leads_to_another_with_its_reason_and_time(state: str, verb: Verb, after: str) -> None:
    before = {**created(), "state": state}

    assert changes.with_state(before, verb, "by hand", NOW_MS + 9) == {
        **before,
        "state": after,
        "state_reason": "by hand",
        "state_since_ms": NOW_MS + 9,
        "updated_ms": NOW_MS + 9,
        "revision": 2,
    }


@pytest.mark.parametrize(("state", "verb"), [("ACTIVE", "resume"), ("ACTIVE", "enable"), ("PAUSED", "pause"), ("DISABLED", "disable")])
def test_a_state_asked_for_again_keeps_its_time_and_takes_the_reason(state: str, verb: Verb) -> None:
    after = changes.with_state({**created(), "state": state}, verb, "because", NOW_MS + 9)

    assert (after["state"], after["state_reason"], after["state_since_ms"], after["revision"]) == (state, "because", NOW_MS, 2)


@pytest.mark.parametrize(
    ("state", "verb", "way"), [("DISABLED", "pause", "enable"), ("DISABLED", "resume", "enable"), ("PAUSED", "enable", "resume")]
)
def test_a_state_that_does_not_lead_there_is_told_with_the_way(state: str, verb: Verb, way: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"cannot {verb} subscription {SUB}, which is {state} \(created\): {way} it first"):
        changes.with_state({**created(), "state": state}, verb, "by hand", NOW_MS)


@pytest.mark.parametrize("reason", ["", "a\nb", "x" * 201])
def test_a_reason_is_one_line(reason: str) -> None:
    with pytest.raises(ConfigurationError, match="the reason must be"):
        changes.with_state(created(), "pause", reason, NOW_MS)


@pytest.mark.parametrize("name", ["state", "destination", "behind_dead_letter", "on_ambiguous"])
def test_what_a_newer_version_wrote_is_not_written_back(name: str) -> None:
    fields = {**created(), name: "UNKNOWN"}

    for verb in get_args(Verb):
        with pytest.raises(ConfigurationError, match="change it with a newer one"):
            changes.with_state(fields, verb, "by hand", NOW_MS)
    with pytest.raises(ConfigurationError, match="change it with a newer one"):
        updated(fields, burst=1)
    with pytest.raises(ConfigurationError, match="change it with a newer one"):
        changes.rotated(fields, sealed(2), 0, NOW_MS)


# Secrets


def expiries(fields: Mapping[str, Any]) -> dict[str, int | None]:
    return {secret["id"]: secret["expires_ms"] for secret in fields["secrets"]}


def test_the_old_secret_signs_too_until_the_overlap_is_over() -> None:
    now_ms = NOW_MS + 10
    after = changes.rotated(created(), sealed(2, now_ms=now_ms), HOUR_MS, now_ms)

    assert expiries(after) == {new(1).id: now_ms + HOUR_MS, new(2).id: None}
    assert (after["revision"], after["updated_ms"]) == (2, now_ms)
    subscription = Subscription(after, RING)
    both, one = (subscription.signer(at_ms).headers("e1", "payin", 1, 1, b"{}", None) for at_ms in (now_ms, now_ms + HOUR_MS))
    assert (both.count(b"v1,"), one.count(b"v1,")) == (2, 1)


def test_a_secret_never_gets_longer_than_it_had_and_one_that_has_expired_is_forgotten() -> None:
    first = changes.rotated(created(), sealed(2), HOUR_MS, NOW_MS)
    second = changes.rotated(first, sealed(3), 24 * HOUR_MS, NOW_MS + 1)

    assert expiries(second) == {new(1).id: NOW_MS + HOUR_MS, new(2).id: NOW_MS + 1 + 24 * HOUR_MS, new(3).id: None}
    third = changes.rotated(second, sealed(4), HOUR_MS, NOW_MS + HOUR_MS)
    assert expiries(third) == {new(2).id: NOW_MS + 2 * HOUR_MS, new(4).id: None} | {new(3).id: NOW_MS + 2 * HOUR_MS}


def test_without_an_overlap_the_old_secret_is_gone_at_once() -> None:
    assert expiries(changes.rotated(created(), sealed(2), 0, NOW_MS)) == {new(2).id: None}


def test_too_many_secrets_at_once_are_refused() -> None:
    fields = created()
    for number in range(2, 6):
        fields = changes.rotated(fields, sealed(number), HOUR_MS, NOW_MS)

    with pytest.raises(ConfigurationError, match="still signs with 5 secrets"):
        changes.rotated(fields, sealed(6), HOUR_MS, NOW_MS)
    assert len(changes.rotated(fields, sealed(6), HOUR_MS, NOW_MS + 2 * HOUR_MS)["secrets"]) == 2


@pytest.mark.parametrize("overlap_ms", [-1, 31 * 24 * HOUR_MS])
def test_an_overlap_is_at_most_thirty_days(overlap_ms: int) -> None:
    with pytest.raises(ConfigurationError, match="the overlap is"):
        changes.rotated(created(), sealed(2), overlap_ms, NOW_MS)


def test_a_rotation_to_an_algorithm_that_the_signature_does_not_know_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="ed25519 is only for the signature of standard"):
        changes.rotated(created({"profile": "core"}), sealed(2, "ed25519"), 0, NOW_MS)


def test_the_newest_secret_tells_the_algorithm() -> None:
    fields = changes.rotated(created(), sealed(2, "ed25519", NOW_MS + 1), HOUR_MS, NOW_MS + 1)

    assert changes.algorithm_of(created()) == "hmac-sha256"
    assert changes.algorithm_of(fields) == "ed25519"


def test_a_new_secret_is_shown_when_asked_and_never_by_accident() -> None:
    plain, pair = new(1), new(2, "ed25519")

    assert plain.shown() == {"id": plain.id, "algorithm": "hmac-sha256", "secret": plain.text}
    assert pair.shown()["public_key"].startswith("whpk_")
    assert plain.text not in f"{plain!r} {plain} {plain.__rich_repr__()}"


def test_what_people_see_has_no_secret_and_no_value_of_a_header() -> None:
    shown = changes.visible(created({"headers": {"X-Token": "hush"}}))

    assert shown["secrets"] == [{"id": new(1).id, "algorithm": "hmac-sha256", "created_ms": NOW_MS, "expires_ms": None}]
    assert shown["headers"] == {"X-Token": "…"}
    assert "hush" not in msgspec.json.encode(shown).decode()


def test_ids_are_22_url_safe_characters_after_their_kind() -> None:
    assert changes.identifier("sub", bytes([255]) * 16) == "sub_" + "_" * 21 + "w"
    with pytest.raises(ValueError, match="16 random bytes"):
        changes.identifier("sec", bytes(15))
