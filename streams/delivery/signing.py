"""Signs a webhook and writes its headers, byte for byte as the subscription's profile says."""

import hmac
from base64 import b64decode
from binascii import Error as NotBase64
from binascii import b2a_base64
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from streams.delivery.profiles import HeaderStyle, Profile, SignatureStyle, why_header_refused, why_headers_refused
from streams.errors import HooklineError

__all__ = [
    "Algorithm",
    "Signer",
    "SigningFailed",
    "SigningSecret",
    "key_of",
    "public_bytes_of",
    "signing_secret",
    "why_header_refused",
    "why_headers_refused",
]

Algorithm = Literal["hmac-sha256", "ed25519"]

SYMMETRIC_PREFIX, PRIVATE_PREFIX, PUBLIC_PREFIX = "whsec_", "whsk_", "whpk_"
SYMMETRIC_BYTES_MIN, SYMMETRIC_BYTES_MAX, SEED_BYTES = 24, 64, 32
VISIBLE_VALUE_LENGTH_MAX = 512

_Sign = Callable[[bytes, bytes], str]
"""Signs what stands before the body and the body, and gives the signature as it is written."""


class SigningFailed(HooklineError):
    """A webhook cannot be signed, for its secret, its custom headers or its event's names are bad."""


class SigningSecret(msgspec.Struct, frozen=True):
    """A secret that signs; its key is shown nowhere."""

    id: str
    algorithm: Algorithm
    key: bytes

    def __repr__(self) -> str:
        return f"SigningSecret(id={self.id!r}, algorithm={self.algorithm!r})"

    def __rich_repr__(self) -> list[tuple[str, str]]:
        return [("id", self.id), ("algorithm", self.algorithm)]


def key_of(secret: str, signature_style: SignatureStyle) -> bytes:
    """Read the key out of a secret as merchants hold it: base64 after a prefix for `standard`, else the whole string's UTF-8."""
    if not signature_style.standard:
        return _whole(secret)
    if secret.startswith(PRIVATE_PREFIX):
        return _seed(_decoded(secret.removeprefix(PRIVATE_PREFIX), PRIVATE_PREFIX))
    if not secret.startswith(SYMMETRIC_PREFIX):
        raise SigningFailed(f"a standard secret begins with {SYMMETRIC_PREFIX} or {PRIVATE_PREFIX}, and this one does not: rotate it")
    key = _decoded(secret.removeprefix(SYMMETRIC_PREFIX), SYMMETRIC_PREFIX)
    if not SYMMETRIC_BYTES_MIN <= len(key) <= SYMMETRIC_BYTES_MAX:
        raise SigningFailed(
            f"a standard secret has {SYMMETRIC_BYTES_MIN} to {SYMMETRIC_BYTES_MAX} bytes, and this one has {len(key)}: rotate it"
        )
    return key


def signing_secret(secret_id: str, algorithm: str, secret: str, signature_style: SignatureStyle) -> SigningSecret:
    """Make a secret ready to sign, and refuse one that is not of its algorithm."""
    try:
        if algorithm not in ("hmac-sha256", "ed25519"):
            raise SigningFailed(f"{algorithm[:40]!r} is no algorithm that signs here: it is hmac-sha256 or ed25519")
        if algorithm == "ed25519" and not signature_style.standard:
            raise SigningFailed(_only_standard(signature_style))
        if signature_style.standard and secret.startswith(PRIVATE_PREFIX) != (algorithm == "ed25519"):
            raise SigningFailed(f"it is kept as {algorithm}, and its prefix says otherwise: rotate it")
        return SigningSecret(secret_id, "ed25519" if algorithm == "ed25519" else "hmac-sha256", key_of(secret, signature_style))
    except SigningFailed as error:
        raise SigningFailed(f"secret {secret_id}: {error}") from None


def _whole(secret: str) -> bytes:
    try:
        key = secret.encode()
    except UnicodeEncodeError:
        # The error itself would tell the secret, so it is left out.
        raise SigningFailed("the secret is not text that UTF-8 can write: rotate it") from None
    if not key:
        raise SigningFailed("the secret is empty: rotate it")
    return key


def _decoded(text: str, prefix: str) -> bytes:
    try:
        # Merchants may have cut the padding off, which the official verifiers allow too.
        return b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), validate=True)
    except (NotBase64, ValueError):
        raise SigningFailed(f"what follows {prefix} in the secret is not base64: rotate it") from None


def _seed(key: bytes) -> bytes:
    """Take a seed as it is, or the first half of a key pair as other senders write it."""
    seed, public = key[:SEED_BYTES], key[SEED_BYTES:]
    if len(seed) < SEED_BYTES or len(public) not in (0, SEED_BYTES):
        raise SigningFailed(
            f"an ed25519 secret has {SEED_BYTES} bytes, or {2 * SEED_BYTES} with its public key, and not {len(key)}: rotate it"
        )
    if public and public_bytes_of(seed) != public:
        raise SigningFailed("the ed25519 secret's public half is not that of its private half: rotate it")
    return seed


def public_bytes_of(seed: bytes) -> bytes:
    """Give the ed25519 public key that belongs to a seed."""
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


class Signer:
    """Writes the headers of one subscription's webhooks; made once for each revision, for its keys and constants are prepared here."""

    __slots__ = ("_constant", "_custom", "_names", "_signature_style", "_signs")

    def __init__(self, profile: Profile, subscription_id: str, secrets: Sequence[SigningSecret], custom_headers: Mapping[str, str]) -> None:
        refused = why_headers_refused(custom_headers)
        if refused:
            raise SigningFailed(f"subscription {subscription_id[:80]!r}: {refused}")
        if not secrets:
            raise SigningFailed(f"subscription {subscription_id[:80]!r} has no secret that signs: rotate its secret to make one")
        _require_header_text("subscription's id", subscription_id)
        self._constant = _constant_lines(profile.headers, subscription_id, custom_headers)
        self._custom = frozenset(name.lower() for name in custom_headers)
        self._names = profile.headers
        self._signature_style = profile.signature
        self._signs = tuple(_sign_with(secret, profile.signature) for secret in secrets)

    def headers(self, event_id: str, event_type: str, attempt: int, timestamp_s: int, body: bytes, sequence: int | None) -> bytes:
        """Give every header line but Host and Content-Length, each with its line end."""
        # A line end in a name would let an event write headers of its own.
        if not (event_id.isprintable() and event_type.isprintable() and event_id.isascii() and event_type.isascii()):
            _require_header_text("event's id", event_id)
            _require_header_text("event's type", event_type)
        names = self._names
        lines = self._constant
        if names.event_id:
            lines += f"{names.event_id}: {event_id}\r\n"
        if names.event_type:
            lines += f"{names.event_type}: {event_type}\r\n"
        if names.timestamp:
            lines += f"{names.timestamp}: {timestamp_s}\r\n"
        if names.attempt:
            lines += f"{names.attempt}: {attempt}\r\n"
        if sequence is not None:
            lines += f"{names.sequence}: {sequence}\r\n"
        return f"{lines}{names.signature}: {self._signature(event_id, timestamp_s, body)}\r\n".encode("ascii")

    def visible_headers(self, headers: bytes) -> dict[str, str]:
        """Show people the header lines that `headers` gave: bounded, and without the custom ones' values, which may be credentials."""
        pairs = (line.partition(": ") for line in headers.decode("ascii").split("\r\n") if line)
        return {name: "…" if name.lower() in self._custom else value[:VISIBLE_VALUE_LENGTH_MAX] for name, _, value in pairs}

    def _signature(self, event_id: str, timestamp_s: int, body: bytes) -> str:
        style = self._signature_style
        if style.signed == "id.timestamp.body":
            before = f"{event_id}.{timestamp_s}.".encode()
        elif style.signed == "timestamp.body":
            before = b"%d." % timestamp_s
        else:
            before = b""
        signature = style.separator.join([sign(before, body) for sign in self._signs])
        return f"t={timestamp_s},{signature}" if style.carries_timestamp else signature


def _constant_lines(style: HeaderStyle, subscription_id: str, custom_headers: Mapping[str, str]) -> str:
    lines = {"Content-Type": "application/json", "User-Agent": style.user_agent, **custom_headers}
    if style.subscription_id:
        lines[style.subscription_id] = subscription_id
    return "".join(f"{name}: {value}\r\n" for name, value in lines.items())


def _sign_with(secret: SigningSecret, style: SignatureStyle) -> _Sign:
    if secret.algorithm == "ed25519":
        if not style.standard:
            raise SigningFailed(f"secret {secret.id}: {_only_standard(style)}")
        return _ed25519(secret)
    if not secret.key:
        raise SigningFailed(f"secret {secret.id} is empty: rotate it")
    return _hmac_base64(secret.key, style.prefix) if style.encoding == "base64" else _hmac_hex(secret.key, style.prefix)


def _hmac_base64(key: bytes, prefix: str) -> _Sign:
    keyed = hmac.new(key, digestmod="sha256")

    def sign(before: bytes, body: bytes) -> str:
        mac = keyed.copy()
        mac.update(before + body)
        return prefix + b2a_base64(mac.digest(), newline=False).decode()

    return sign


def _hmac_hex(key: bytes, prefix: str) -> _Sign:
    keyed = hmac.new(key, digestmod="sha256")

    def sign(before: bytes, body: bytes) -> str:
        mac = keyed.copy()
        mac.update(before + body)
        return prefix + mac.hexdigest()

    return sign


def _ed25519(secret: SigningSecret) -> _Sign:
    try:
        private = Ed25519PrivateKey.from_private_bytes(secret.key)
    except ValueError:
        raise SigningFailed(f"secret {secret.id} is no ed25519 seed of {SEED_BYTES} bytes: rotate it") from None

    def sign(before: bytes, body: bytes) -> str:
        return "v1a," + b2a_base64(private.sign(before + body), newline=False).decode()

    return sign


def _only_standard(style: SignatureStyle) -> str:
    return f"ed25519 is only for the signature of standard, and this is that of {style.name}: rotate it to hmac-sha256"


def _require_header_text(name: str, text: str) -> None:
    if not (text.isascii() and text.isprintable()):
        raise SigningFailed(f"the {name} {text[:80]!r} must be printable ASCII, for it travels in HTTP headers")
