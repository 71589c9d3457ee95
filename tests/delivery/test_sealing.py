"""Sealing: a secret opens only where it belongs, a missing key says which one, and keys are shown nowhere."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.delivery.profiles import PROFILES
from streams.delivery.sealing import Keyring, MissingKey, new_secret, public_key_of
from streams.delivery.signing import SigningFailed, key_of
from streams.errors import ConfigurationError, Fatal

K1, K2 = (base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2))
NONCE = b"twelve bytes"
RING = Keyring.parse(f"k2:{K2},k1:{K1}")


@given(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.binary(min_size=12, max_size=12),
)
def test_what_was_sealed_opens(secret: str, subscription_id: str, nonce: bytes) -> None:
    key_id, kept, ciphertext = RING.seal(secret, subscription_id, "s1", nonce)

    assert (key_id, kept) == ("k2", nonce)
    assert RING.open(key_id, kept, ciphertext, subscription_id, "s1") == secret


def test_the_first_key_seals_and_every_key_opens() -> None:
    before = Keyring.parse(f"k1:{K1}").seal("whsec_x", "sub_1", "s1", NONCE)

    assert before.key_id == "k1"
    assert RING.current == "k2"
    assert RING.open(*before, "sub_1", "s1") == "whsec_x"


def test_the_ciphertext_does_not_hold_the_secret() -> None:
    assert b"whsec_" not in RING.seal("whsec_x", "sub_1", "s1", NONCE).ciphertext


@pytest.mark.parametrize(("subscription_id", "secret_id"), [("sub_2", "s1"), ("sub_1", "s2"), ("sub_1:s", "1"), ("", "sub_1:s1")])
def test_a_secret_that_was_moved_to_another_place_does_not_open(subscription_id: str, secret_id: str) -> None:
    sealed = RING.seal("whsec_x", "sub_1", "s1", NONCE)

    with pytest.raises(SigningFailed, match="does not open under key k2"):
        RING.open(*sealed, subscription_id, secret_id)


@pytest.mark.parametrize(("first", "second"), [(("a", "b:c"), ("a:b", "c")), (("1:a", "b"), ("1", "a:b"))])
def test_two_places_are_never_written_alike(first: tuple[str, str], second: tuple[str, str]) -> None:
    with pytest.raises(SigningFailed):
        RING.open(*RING.seal("whsec_x", *first, NONCE), *second)


@pytest.mark.parametrize("nonce", [NONCE[::-1], b"", b"short"])
def test_a_changed_nonce_does_not_open(nonce: bytes) -> None:
    with pytest.raises(SigningFailed, match="secret s1 of subscription sub_1"):
        RING.open("k2", nonce, RING.seal("whsec_x", "sub_1", "s1", NONCE).ciphertext, "sub_1", "s1")


@pytest.mark.parametrize("cut", [0, 5, -1])
def test_a_changed_ciphertext_does_not_open(cut: int) -> None:
    with pytest.raises(SigningFailed, match="rotate it"):
        RING.open("k2", NONCE, RING.seal("whsec_x", "sub_1", "s1", NONCE).ciphertext[:cut], "sub_1", "s1")


def test_another_key_under_the_same_id_does_not_open() -> None:
    sealed = Keyring.parse(f"k1:{K1}").seal("whsec_x", "sub_1", "s1", NONCE)

    with pytest.raises(SigningFailed, match="another key of this id"):
        Keyring.parse(f"k1:{K2}").open(*sealed, "sub_1", "s1")


def test_a_missing_key_ends_the_process_and_says_which_entry_to_put_back() -> None:
    sealed = Keyring.parse(f"old:{K1}").seal("whsec_x", "sub_1", "s1", NONCE)

    with pytest.raises(
        MissingKey, match=r"secret s1 of subscription sub_1 .*'old', which HOOKLINE_SECRET_KEYS .*\(it has k2, k1\).*old:…"
    ) as raised:
        RING.open(*sealed, "sub_1", "s1")
    assert isinstance(raised.value, Fatal)


@pytest.mark.parametrize("nonce", [b"", b"eleven byte", b"thirteen byte"])
def test_a_nonce_of_another_length_is_refused(nonce: bytes) -> None:
    with pytest.raises(ValueError, match="a nonce has 12 bytes"):
        RING.seal("whsec_x", "sub_1", "s1", nonce)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has no key"),
        ("  ", "has no key"),
        (K1, "entry 1 is not of the form id:key"),
        (f"k1:{K1},", "entry 2 is not of the form id:key"),
        (f"k 1:{K1}", "entry 1 is not of the form id:key"),
        (f":{K1}", "entry 1 is not of the form id:key"),
        (f"k1:{K1},k1:{K2}", "key k1 is there twice"),
        (f"k1:{K1[:-4]}", "key k1 has 30 bytes in place of 32"),
        (f"k1:{K1[:-1]}", "key k1 is not base64"),
        (f"k1:{K1}:", "key k1 is not base64"),
        ("k1:ü", "key k1 is not base64"),
    ],
)
def test_a_setting_that_is_no_keyring_is_refused_without_telling_a_key(text: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason) as raised:
        Keyring.parse(text)

    assert "HOOKLINE_SECRET_KEYS" in str(raised.value)
    assert K1[:20] not in str(raised.value)


def test_spaces_around_the_settings_entries_are_allowed() -> None:
    assert repr(Keyring.parse(f" k1:{K1} , k2:{K2} ")) == "Keyring(k1, k2)"


def test_a_keyring_shows_ids_and_no_keys() -> None:
    assert f"{RING!r} {RING}" == "Keyring(k2, k1) Keyring(k2, k1)"


@pytest.mark.parametrize("length", [24, 32, 64])
def test_a_new_secret_is_one_that_signs(length: int) -> None:
    secret = new_secret("hmac-sha256", bytes(range(length)))

    assert secret.startswith("whsec_")
    assert key_of(secret, PROFILES["standard"].signature) == bytes(range(length))


@pytest.mark.parametrize("length", [0, 23, 65])
def test_a_secret_is_not_made_of_too_few_or_too_many_bytes(length: int) -> None:
    with pytest.raises(ValueError, match="24 to 64 random bytes"):
        new_secret("hmac-sha256", bytes(length))


def test_an_ed25519_secret_is_its_seed_and_has_the_public_key_of_rfc_8032() -> None:
    seed = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    public = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
    secret = new_secret("ed25519", seed)

    assert secret == "whsk_" + base64.b64encode(seed).decode()
    assert public_key_of(secret) == "whpk_" + base64.b64encode(public).decode()


@pytest.mark.parametrize("length", [31, 33, 64])
def test_an_ed25519_secret_is_made_of_32_bytes(length: int) -> None:
    with pytest.raises(ValueError, match="32 random bytes"):
        new_secret("ed25519", bytes(length))


def test_only_an_ed25519_secret_has_a_public_key() -> None:
    with pytest.raises(SigningFailed, match="begins with whsk_"):
        public_key_of(new_secret("hmac-sha256", bytes(24)))
