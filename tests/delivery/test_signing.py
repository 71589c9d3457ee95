"""Signing: official verifiers accept what is sent, rotation never locks a merchant out, and bad secrets say why."""

import base64
import time
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from standardwebhooks import Webhook, WebhookVerificationError

from streams.delivery.payload import body_of
from streams.delivery.profiles import PROFILES
from streams.delivery.sealing import new_secret, public_key_of
from streams.delivery.signing import Signer, SigningFailed, SigningSecret, key_of, signing_secret

STANDARD = PROFILES["standard"]
VECTOR_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OLD, NEW, OTHER = (new_secret("hmac-sha256", bytes([n]) * 32) for n in (1, 2, 3))
PRIVATE = new_secret("ed25519", bytes(range(32)))
# A key pair as another sender of Standard Webhooks writes it: the seed, then the public key.
PAIR = "whsk_" + base64.b64encode(bytes(range(32)) + base64.b64decode(public_key_of(PRIVATE).removeprefix("whpk_"))).decode()
BODY = body_of("evt_1", "payin.success", 1_700_000_000_000, '{"name":"Zoë"}'.encode(), "2024-01-01", None)


def signer(*secrets: str, **custom: str) -> Signer:
    def made(n: int, secret: str) -> SigningSecret:
        return signing_secret(f"s{n}", "ed25519" if secret.startswith("whsk_") else "hmac-sha256", secret, STANDARD.signature)

    return Signer(STANDARD, "sub_1", [made(n, secret) for n, secret in enumerate(secrets)], custom)


def sent(*secrets: str, at_s: int | None = None) -> dict[str, str]:
    made = signer(*secrets)
    return made.visible_headers(made.headers("evt_1", "payin.success", 1, int(time.time()) if at_s is None else at_s, BODY, None))


def test_the_vector_of_standard_webhooks_comes_out_as_published() -> None:
    made = signer(VECTOR_SECRET)
    headers = made.headers("msg_p5jXN8AQM9LWM0D4loKWxJek", "test", 1, 1_614_265_330, b'{"test": 2432232314}', None)

    assert b"webhook-signature: v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=\r\n" in headers


def test_the_official_verifier_accepts_what_is_sent() -> None:
    assert Webhook(NEW).verify(BODY, sent(NEW))["data"] == {"name": "Zoë"}


@pytest.mark.parametrize("held", [OLD, NEW])
def test_while_secrets_overlap_a_merchant_may_hold_either(held: str) -> None:
    Webhook(held).verify(BODY, sent(NEW, OLD))


def test_a_merchant_with_another_secret_or_another_body_is_warned() -> None:
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER).verify(BODY, sent(NEW, OLD))
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(BODY + b" ", sent(NEW))


def test_the_official_verifier_passes_over_an_ed25519_signature_beside_its_own() -> None:
    Webhook(OLD).verify(BODY, sent(PRIVATE, OLD))


@pytest.mark.parametrize("secret", [PRIVATE, PAIR])
def test_an_ed25519_signature_verifies_under_the_public_key_alone(secret: str) -> None:
    version, _, signature = sent(secret, at_s=1_700_000_000)["webhook-signature"].partition(",")
    public = Ed25519PublicKey.from_public_bytes(base64.b64decode(public_key_of(secret).removeprefix("whpk_")))

    assert version == "v1a"
    public.verify(base64.b64decode(signature), b"evt_1.1700000000." + BODY)
    with pytest.raises(InvalidSignature):
        public.verify(base64.b64decode(signature), b"evt_1.1700000001." + BODY)


def test_each_attempt_is_signed_anew() -> None:
    assert sent(NEW, at_s=1)["webhook-signature"] != sent(NEW, at_s=2)["webhook-signature"]
    assert sent(NEW, at_s=1) == sent(NEW, at_s=1)


@pytest.mark.parametrize("profile", ["simpaisa", "core", "jitter", "wf"])
def test_other_profiles_take_the_whole_string_as_their_key(profile: str) -> None:
    assert key_of(VECTOR_SECRET, PROFILES[profile].signature) == VECTOR_SECRET.encode()
    assert key_of("pässword", PROFILES[profile].signature) == "pässword".encode()


def test_a_standard_key_is_the_base64_after_its_prefix_with_or_without_padding() -> None:
    key = bytes(range(25))
    text = "whsec_" + base64.b64encode(key).decode()

    assert text.endswith("==")
    assert key_of(text, STANDARD.signature) == key_of(text.rstrip("="), STANDARD.signature) == key


@pytest.mark.parametrize(
    ("secret", "reason"),
    [
        ("", "begins with whsec_ or whsk_"),
        ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "begins with whsec_ or whsk_"),
        ("whsec_", "24 to 64 bytes, and this one has 0"),
        ("whsec_AAAA", "24 to 64 bytes, and this one has 3"),
        ("whsec_" + "A" * 88, "24 to 64 bytes, and this one has 66"),
        ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa!w", "not base64"),
        ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwA", "not base64"),
        ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSü", "not base64"),
        ("whsk_AAAA", "32 bytes, or 64 with its public key, and not 3"),
        ("whsk_" + base64.b64encode(bytes(48)).decode(), "and not 48"),
        ("whsk_" + base64.b64encode(bytes(64)).decode(), "public half is not that of its private half"),
    ],
)
def test_a_bad_standard_secret_is_refused_with_its_reason(secret: str, reason: str) -> None:
    with pytest.raises(SigningFailed, match=reason) as raised:
        key_of(secret, STANDARD.signature)

    told = secret.partition("_")[2]
    assert not told or told not in str(raised.value)


@pytest.mark.parametrize(("secret", "reason"), [("", "empty"), ("a\ud800b", "UTF-8")])
def test_a_bad_secret_of_another_profile_is_refused_without_being_told(secret: str, reason: str) -> None:
    with pytest.raises(SigningFailed, match=reason) as raised:
        key_of(secret, PROFILES["core"].signature)

    assert raised.value.__suppress_context__ or raised.value.__context__ is None


@pytest.mark.parametrize("profile", ["simpaisa", "core", "jitter", "wf"])
def test_ed25519_is_only_for_the_standard_signature(profile: str) -> None:
    with pytest.raises(SigningFailed, match="secret s: ed25519 is only for the signature of standard"):
        Signer(PROFILES[profile], "sub_1", [SigningSecret("s", "ed25519", bytes(32))], {})
    with pytest.raises(SigningFailed, match="secret s: ed25519 is only for the signature of standard"):
        signing_secret("s", "ed25519", PRIVATE, PROFILES[profile].signature)


@pytest.mark.parametrize(
    ("algorithm", "secret", "reason"),
    [
        ("hmac-sha256", PRIVATE, "its prefix says otherwise"),
        ("ed25519", NEW, "its prefix says otherwise"),
        ("md5", NEW, "'md5' is no algorithm"),
        ("hmac-sha256", "whsec_!", "not base64"),
    ],
)
def test_a_secret_that_is_not_of_its_algorithm_is_refused_by_its_id(algorithm: str, secret: str, reason: str) -> None:
    with pytest.raises(SigningFailed, match=f"secret s1: .*{reason}"):
        signing_secret("s1", algorithm, secret, STANDARD.signature)


@pytest.mark.parametrize(
    ("secrets", "custom", "reason"),
    [
        ([], {}, "no secret that signs"),
        ([SigningSecret("s", "hmac-sha256", b"")], {}, "secret s is empty"),
        ([SigningSecret("s", "ed25519", b"short")], {}, "secret s is no ed25519 seed"),
        ([SigningSecret("s", "hmac-sha256", b"k")], {"Host": "x"}, "custom header Host"),
    ],
)
def test_a_signer_that_could_not_sign_is_not_made(secrets: list[SigningSecret], custom: dict[str, str], reason: str) -> None:
    with pytest.raises(SigningFailed, match=reason):
        Signer(STANDARD, "sub_1", secrets, custom)


def test_a_secrets_key_is_in_no_picture_of_it() -> None:
    secret: Any = SigningSecret("s", "hmac-sha256", b"hunter2")

    assert "hunter2" not in f"{secret!r} {secret} {secret.__rich_repr__()}"


def test_support_sees_what_was_sent_without_the_values_of_custom_headers() -> None:
    made = signer(NEW, Authorization="Bearer hunter2")
    headers = made.headers("evt_1", "payin.success", 1, 1_700_000_000, BODY, 4)
    visible = made.visible_headers(headers)

    assert b"Authorization: Bearer hunter2\r\n" in headers
    assert visible["Authorization"] == "…"
    assert visible["webhook-signature"].encode() in headers
    assert list(visible) == [line.partition(b": ")[0].decode() for line in headers.split(b"\r\n")[:-1]]


def test_what_support_sees_is_bounded() -> None:
    made = signer(NEW)
    visible = made.visible_headers(made.headers("e" * 9_999, "payin.success", 1, 1, BODY, None))

    assert max(map(len, visible.values())) == 512
