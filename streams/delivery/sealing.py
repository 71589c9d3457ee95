"""Keeps signing secrets encrypted at rest, and makes new ones."""

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from streams.delivery.profiles import PROFILES
from streams.delivery.signing import (
    PRIVATE_PREFIX,
    PUBLIC_PREFIX,
    SEED_BYTES,
    SYMMETRIC_BYTES_MAX,
    SYMMETRIC_BYTES_MIN,
    SYMMETRIC_PREFIX,
    Algorithm,
    SigningFailed,
    key_of,
    public_bytes_of,
)
from streams.errors import ConfigurationError, Fatal

KEY_BYTES, NONCE_BYTES = 32, 12

_KEY_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


class MissingKey(Fatal):
    """A secret is encrypted under a key that the settings do not have, so nothing of it can be signed until a person gives it back."""


class Sealed(NamedTuple):
    """An encrypted secret as a subscription keeps it."""

    key_id: str
    nonce: bytes
    ciphertext: bytes


class Keyring:
    """The keys that secrets are encrypted under: the first seals, all of them open."""

    __slots__ = ("_ciphers", "current")

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        if not keys:
            raise ConfigurationError(f"HOOKLINE_SECRET_KEYS has no key: {_HOW}")
        for key_id, key in keys.items():
            if not _KEY_ID.fullmatch(key_id):
                raise ConfigurationError(f"HOOKLINE_SECRET_KEYS has an id that is not 1 to 64 letters, digits, '.', '_' or '-': {_HOW}")
            if len(key) != KEY_BYTES:
                raise ConfigurationError(f"HOOKLINE_SECRET_KEYS: key {key_id} has {len(key)} bytes in place of {KEY_BYTES}: {_HOW}")
        self.current = next(iter(keys))
        self._ciphers = MappingProxyType({key_id: AESGCM(key) for key_id, key in keys.items()})

    @classmethod
    def parse(cls, text: str) -> "Keyring":
        """Read the setting `id:base64,id2:base64`, of which the first is current."""
        keys: dict[str, bytes] = {}
        for position, entry in enumerate((part.strip() for part in text.split(",")) if text.strip() else (), start=1):
            key_id, colon, key = entry.partition(":")
            # An entry without its colon may be a bare key, so it is told by its place and not by its text.
            if not colon or not _KEY_ID.fullmatch(key_id):
                raise ConfigurationError(f"HOOKLINE_SECRET_KEYS: entry {position} is not of the form id:key: {_HOW}")
            if key_id in keys:
                raise ConfigurationError(f"HOOKLINE_SECRET_KEYS: key {key_id} is there twice: give each key an id of its own")
            keys[key_id] = _key(key_id, key)
        return cls(keys)

    def __repr__(self) -> str:
        return f"Keyring({', '.join(self._ciphers)})"

    def seal(self, secret: str, subscription_id: str, secret_id: str, nonce: bytes) -> Sealed:
        """Encrypt a secret for its place under the current key; the nonce is 12 random bytes that were never used before."""
        if len(nonce) != NONCE_BYTES:
            raise ValueError(f"a nonce has {NONCE_BYTES} bytes, and not {len(nonce)}")
        ciphertext = self._ciphers[self.current].encrypt(nonce, secret.encode(), _place(subscription_id, secret_id))
        return Sealed(self.current, nonce, ciphertext)

    def open(self, key_id: str, nonce: bytes, ciphertext: bytes, subscription_id: str, secret_id: str) -> str:
        """Decrypt a secret in its place: MissingKey stops the worker, SigningFailed is about this one secret."""
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            raise MissingKey(
                f"secret {secret_id} of subscription {subscription_id} is encrypted under key {key_id!r}, which HOOKLINE_SECRET_KEYS does "
                f"not have (it has {', '.join(self._ciphers)}): put the entry {key_id}:… back and start again"
            )
        try:
            return cipher.decrypt(nonce, ciphertext, _place(subscription_id, secret_id)).decode()
        except (InvalidTag, ValueError):
            raise SigningFailed(
                f"secret {secret_id} of subscription {subscription_id} does not open under key {key_id}: it was changed, moved from "
                "another place or sealed under another key of this id; rotate it"
            ) from None


def new_secret(algorithm: Algorithm, random_bytes: bytes) -> str:
    """Write random bytes as a merchant gets them: 24 to 64 for HMAC (`whsec_…`), 32 for ed25519 (`whsk_…`)."""
    if algorithm == "ed25519":
        if len(random_bytes) != SEED_BYTES:
            raise ValueError(f"an ed25519 secret is made of {SEED_BYTES} random bytes, and not {len(random_bytes)}")
        return PRIVATE_PREFIX + b64encode(random_bytes).decode()
    if not SYMMETRIC_BYTES_MIN <= len(random_bytes) <= SYMMETRIC_BYTES_MAX:
        raise ValueError(f"a secret is made of {SYMMETRIC_BYTES_MIN} to {SYMMETRIC_BYTES_MAX} random bytes, and not {len(random_bytes)}")
    return SYMMETRIC_PREFIX + b64encode(random_bytes).decode()


def public_key_of(whsk: str) -> str:
    """Give the public key (`whpk_…`) that a merchant checks this ed25519 secret's signatures with."""
    if not whsk.startswith(PRIVATE_PREFIX):
        raise SigningFailed(f"only an ed25519 secret, which begins with {PRIVATE_PREFIX}, has a public key")
    return PUBLIC_PREFIX + b64encode(public_bytes_of(key_of(whsk, PROFILES["standard"].signature))).decode()


def _key(key_id: str, text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise ConfigurationError(f"HOOKLINE_SECRET_KEYS: key {key_id} is not base64: {_HOW}") from None


def _place(subscription_id: str, secret_id: str) -> bytes:
    # The length keeps two different pairs of ids from being written alike.
    return f"hookline secret {len(subscription_id)}:{subscription_id}:{secret_id}".encode()


_HOW = "write id:key,id2:key2 with the newest first, each key from `openssl rand -base64 32`"
