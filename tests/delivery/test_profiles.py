"""Profiles: the exact bytes of each one's headers, what a subscription may change, and which custom headers are refused."""

import base64
import hashlib
import hmac
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.delivery.profiles import CUSTOM_HEADERS_MAX, PROFILES, Profile, resolve, why_header_refused, why_headers_refused
from streams.delivery.schedule import Schedule
from streams.delivery.signing import Signer, SigningFailed, SigningSecret
from streams.errors import ConfigurationError

EVENT, TYPE, SUBSCRIPTION, TIMESTAMP, BODY = "evt_1", "payin.success", "sub_9", 1_700_000_000, b'{"id":"evt_1","data":{"amount":1000}}'
NEW, OLD = b"new secret's key, 24 byt", b"old secret's key, 24 byt"
TIMED, NAMED = b"1700000000." + BODY, b"evt_1.1700000000." + BODY


def hexed(key: bytes, message: bytes) -> str:
    return hmac.new(key, message, hashlib.sha256).hexdigest()


def based(key: bytes, message: bytes) -> str:
    return base64.b64encode(hmac.new(key, message, hashlib.sha256).digest()).decode()


def lines(profile: Profile, keys: tuple[bytes, ...] = (NEW,), sequence: int | None = None, **custom: str) -> bytes:
    secrets = [SigningSecret(f"s{n}", "hmac-sha256", key) for n, key in enumerate(keys)]
    return Signer(profile, SUBSCRIPTION, secrets, custom).headers(EVENT, TYPE, 3, TIMESTAMP, BODY, sequence)


EXPECTED = {
    "simpaisa": (
        "Content-Type: application/json\r\nUser-Agent: Simpaisa-Webhooks/1.0\r\nX-Simpaisa-Event-ID: evt_1\r\n"
        "X-Simpaisa-Event-Type: payin.success\r\nX-Simpaisa-Timestamp: 1700000000\r\nX-Simpaisa-Delivery-Attempt: 3\r\n"
        f"X-Simpaisa-Signature: sha256={hexed(NEW, BODY)}\r\n"
    ),
    "core": (
        "Content-Type: application/json\r\nUser-Agent: Hookline/1.0\r\nX-Webhook-Event: payin.success\r\n"
        f"X-Webhook-Signature: {hexed(NEW, BODY)}\r\n"
    ),
    "jitter": (
        "Content-Type: application/json\r\nUser-Agent: Hookline/1.0\r\nX-Event-ID: evt_1\r\nX-Timestamp: 1700000000\r\n"
        f"X-Signature: sha256={hexed(NEW, TIMED)}\r\n"
    ),
    "wf": (
        "Content-Type: application/json\r\nUser-Agent: Hookline/1.0\r\nWf-Webhook-Id: sub_9\r\nWf-Event-Id: evt_1\r\n"
        f"Wf-Event-Type: payin.success\r\nWf-Signature: t=1700000000,v1={hexed(NEW, TIMED)}\r\n"
    ),
    "standard": (
        "Content-Type: application/json\r\nUser-Agent: Hookline/1.0\r\nwebhook-id: evt_1\r\nwebhook-timestamp: 1700000000\r\n"
        f"webhook-signature: v1,{based(NEW, NAMED)}\r\n"
    ),
}

ROTATED = {
    "simpaisa": f"X-Simpaisa-Signature: sha256={hexed(NEW, BODY)},sha256={hexed(OLD, BODY)}",
    "core": f"X-Webhook-Signature: {hexed(NEW, BODY)},{hexed(OLD, BODY)}",
    "jitter": f"X-Signature: sha256={hexed(NEW, TIMED)},sha256={hexed(OLD, TIMED)}",
    "wf": f"Wf-Signature: t=1700000000,v1={hexed(NEW, TIMED)},v1={hexed(OLD, TIMED)}",
    "standard": f"webhook-signature: v1,{based(NEW, NAMED)} v1,{based(OLD, NAMED)}",
}

SEQUENCES = {
    "simpaisa": "X-Simpaisa-Sequence",
    "core": "X-Webhook-Sequence",
    "jitter": "X-Sequence",
    "wf": "Wf-Sequence",
    "standard": "webhook-sequence",
}


@pytest.mark.parametrize("name", EXPECTED)
def test_each_profile_sends_exactly_these_bytes(name: str) -> None:
    assert lines(PROFILES[name]) == EXPECTED[name].encode()


@pytest.mark.parametrize("name", ROTATED)
def test_while_secrets_overlap_both_sign_in_one_header_newest_first(name: str) -> None:
    sent = lines(PROFILES[name], (NEW, OLD)).decode().split("\r\n")

    assert sent[:-2] == EXPECTED[name].split("\r\n")[:-2]
    assert sent[-2] == ROTATED[name]


@pytest.mark.parametrize("name", SEQUENCES)
@pytest.mark.parametrize("sequence", [0, 42])
def test_an_ordered_subscription_sends_the_sequence_in_one_header_more(name: str, sequence: int) -> None:
    without, sent = (lines(PROFILES[name], sequence=each).decode().split("\r\n") for each in (None, sequence))

    assert set(sent) - set(without) == {f"{SEQUENCES[name]}: {sequence}"}
    assert len(sent) == len(without) + 1


def test_custom_headers_are_sent_as_they_are() -> None:
    sent = lines(PROFILES["core"], Authorization="Bearer 100%s {x}").split(b"\r\n")

    assert b"Authorization: Bearer 100%s {x}" in sent


@pytest.mark.parametrize(
    ("name", "answer_ms", "at_once"),
    [
        ("simpaisa", 30_000, False),
        ("core", 10_000, False),
        ("jitter", 10_000, False),
        ("wf", 30_000, True),
        ("standard", 15_000, False),
    ],
)
def test_each_profile_has_the_time_limits_of_the_table(name: str, answer_ms: int, at_once: bool) -> None:
    profile = PROFILES[name]

    assert (profile.answer_timeout_ms, profile.connect_timeout_ms, profile.disables_at_once) == (answer_ms, 5_000, at_once)


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("overrides", [None, {}, {"headers_of": None, "delays_ms": None, "jitter_percent": None}])
def test_without_overrides_a_profile_is_as_it_is(name: str, overrides: dict[str, Any] | None) -> None:
    assert resolve(name, overrides, {}) == PROFILES[name]


def test_each_part_can_be_that_of_another_profile() -> None:
    resolved = resolve("core", {"headers_of": "simpaisa", "signature_of": "jitter", "schedule_of": "wf"}, {})

    assert resolved.headers == PROFILES["simpaisa"].headers
    assert resolved.signature == PROFILES["jitter"].signature
    assert resolved.schedule == PROFILES["wf"].schedule
    assert (resolved.name, resolved.answer_timeout_ms) == ("core", 10_000)


def test_a_signature_of_another_profile_is_sent_under_the_headers_name() -> None:
    sent = lines(resolve("simpaisa", {"signature_of": "wf"}, {})).decode()

    assert f"X-Simpaisa-Signature: t=1700000000,v1={hexed(NEW, TIMED)}\r\n" in sent


@pytest.mark.parametrize(
    ("profile", "overrides", "schedule"),
    [
        ("core", {"delays_ms": [5, 10]}, Schedule((5, 10))),
        ("wf", {"delays_ms": [5, 10]}, Schedule((5, 10), "around", 0.1)),
        ("jitter", {"delays_ms": [500]}, Schedule((500,), "full")),
        ("jitter", {"delays_ms": [500], "jitter_percent": 0}, Schedule((500,))),
        ("core", {"jitter_percent": 25}, Schedule((60_000, 900_000, 3_600_000, 21_600_000), "added", 0.25)),
        ("core", {"delays_ms": []}, Schedule(())),
        ("core", {"schedule_of": "wf", "delays_ms": [1], "jitter_percent": 100}, Schedule((1,), "added", 1.0)),
    ],
)
def test_delays_and_jitter_replace_those_of_the_schedule(profile: str, overrides: dict[str, Any], schedule: Schedule) -> None:
    assert resolve(profile, overrides, {}).schedule == schedule


def test_time_limits_can_be_overridden() -> None:
    resolved = resolve("wf", {"connect_timeout_ms": 1_000, "answer_timeout_ms": 60_000}, {})

    assert (resolved.connect_timeout_ms, resolved.answer_timeout_ms) == (1_000, 60_000)


@pytest.mark.parametrize(
    ("profile", "overrides", "reason"),
    [
        ("stripe", None, "no profile 'stripe': choose from simpaisa, core, jitter, wf, standard"),
        ("core", {"headers_of": "stripe"}, "no profile 'stripe'"),
        ("core", {"signature_of": "jitter"}, "covers a timestamp that these headers do not send"),
        ("standard", {"headers_of": "wf"}, "covers a timestamp that these headers do not send"),
        ("core", {"delays_ms": [-1]}, "delay is -1 ms"),
        ("core", {"delays_ms": ["soon"]}, r"delays_ms\[0\]"),
        ("core", {"jitter_percent": 101}, "jitter is 1.01"),
        ("core", {"jitter_percent": -1}, "jitter is -0.01"),
        ("core", {"connect_timeout_ms": 0}, "connect_timeout_ms is 0: give 1 to 30000"),
        ("core", {"answer_timeout_ms": 60_001}, "answer_timeout_ms is 60001: give 1 to 60000"),
        ("core", {"retries": 3}, "unknown field `retries`"),
    ],
)
def test_overrides_that_cannot_be_are_refused_with_their_reason(profile: str, overrides: dict[str, Any] | None, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        resolve(profile, overrides, {})


def test_resolving_refuses_custom_headers_that_cannot_be_sent() -> None:
    with pytest.raises(ConfigurationError, match="custom header Host"):
        resolve("core", None, {"Host": "elsewhere"})


@pytest.mark.parametrize("name", ["Authorization", "X-Api-Key", "X-Tenant_Id", "Accept", "traceparent"])
def test_harmless_custom_headers_are_allowed(name: str) -> None:
    assert why_header_refused(name, "Basic dXNlcjpwYXNz") is None


@pytest.mark.parametrize(
    "name",
    [
        "Host",
        "Content-Length",
        "Content-Type",
        "Content-Encoding",
        "Transfer-Encoding",
        "Connection",
        "TE",
        "Trailer",
        "Upgrade",
        "Expect",
        "Proxy-Authorization",
        "Cookie",
        "Set-Cookie",
        "Forwarded",
        "X-Forwarded-For",
        "X_Forwarded_Host",
        "X-Real-IP",
        "x_real_ip",
        "Via",
        "Keep-Alive",
        "Accept-Encoding",
        "User-Agent",
        "webhook-id",
        "Webhook-Anything",
        "X-Simpaisa-Signature",
        "x-webhook-event",
        "X-Signature",
        "X-Event-ID",
        "Wf-Webhook-Id",
        "Wf-Sequence",
        "Metadata-Flavor",
        "X-aws-ec2-metadata-token",
    ],
)
def test_custom_headers_that_others_rely_on_are_refused_in_any_case(name: str) -> None:
    assert all("Hookline or HTTP sets" in (why_header_refused(each, "x") or "") for each in (name, name.upper(), name.lower()))


@pytest.mark.parametrize("name", ["", "X Y", "X:Y", "X\r\nY", "Ü", "X\n", "X\x00", "x" * 101])
def test_custom_header_names_that_are_no_token_are_refused(name: str) -> None:
    assert "no name that HTTP allows" in (why_header_refused(name, "x") or "")


@pytest.mark.parametrize("value", ["a\r\nHost: b", "a\n", "\ra", "a\x00b", "\x7f", " a", "a ", "ü", "a\u2028b", "\t"])
def test_custom_header_values_cannot_carry_line_ends_or_control_characters(value: str) -> None:
    refused = why_header_refused("X-Key", value)

    assert refused is not None
    assert "printable ASCII" in refused


def test_a_refusal_never_tells_the_value() -> None:
    assert "hunter2" not in (why_header_refused("X-Key", "hunter2\n") or "") + (why_header_refused("Host", "hunter2") or "")


@pytest.mark.parametrize(("length", "allowed"), [(0, True), (1_024, True), (1_025, False)])
def test_custom_header_values_have_a_bounded_length(length: int, allowed: bool) -> None:
    assert (why_header_refused("X-Key", "v" * length) is None) == allowed


def test_at_most_twenty_custom_headers_are_allowed_each_once() -> None:
    many = {f"X-{n}": "v" for n in range(CUSTOM_HEADERS_MAX)}

    assert why_headers_refused(many) is None
    assert "21 custom headers" in (why_headers_refused({**many, "X-More": "v"}) or "")
    assert "given twice" in (why_headers_refused({"X-Key": "1", "x-key": "2"}) or "")
    assert "X-Real-IP" in (why_headers_refused({"X-Key": "1", "X-Real-IP": "2"}) or "")


@pytest.mark.parametrize("name", PROFILES)
@given(event_id=st.text(), event_type=st.text(), subscription_id=st.text(), value=st.text())
def test_no_text_can_inject_a_header(name: str, event_id: str, event_type: str, subscription_id: str, value: str) -> None:
    secrets = [SigningSecret("s", "hmac-sha256", NEW)]
    try:
        sent = Signer(PROFILES[name], subscription_id, secrets, {"X-Key": value}).headers(event_id, event_type, 1, TIMESTAMP, BODY, 7)
    except SigningFailed:
        return

    assert sent.count(b"\r") == sent.count(b"\n") == sent.count(b"\r\n") == EXPECTED[name].count("\r\n") + 2


@pytest.mark.parametrize("bad", ["a\r\nX: y", "a\n", "a\r", "a\x00", "a\x85b", "a\u2028b", "ü"])
def test_line_ends_in_an_events_or_subscriptions_names_are_refused(bad: str) -> None:
    secrets = [SigningSecret("s", "hmac-sha256", NEW)]
    signer = Signer(PROFILES["wf"], SUBSCRIPTION, secrets, {})

    with pytest.raises(SigningFailed, match="event's id"):
        signer.headers(bad, TYPE, 1, TIMESTAMP, BODY, None)
    with pytest.raises(SigningFailed, match="event's type"):
        signer.headers(EVENT, bad, 1, TIMESTAMP, BODY, None)
    with pytest.raises(SigningFailed, match="subscription's id"):
        Signer(PROFILES["wf"], bad, secrets, {})
