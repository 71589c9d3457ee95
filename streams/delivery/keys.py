"""Finds the keys that signing secrets are encrypted under: those of the settings, or a local broker's own."""

import os
import secrets
from base64 import b64encode
from pathlib import Path

from streams.delivery.sealing import KEY_BYTES, Keyring
from streams.errors import ConfigurationError
from streams.settings import Settings

FILE = "secret-keys"


def keyring(settings: Settings) -> Keyring:
    """Give the keys that the settings mean; only beside a local broker, whose secrets never leave this machine, is one made."""
    if settings.secret_keys is not None:
        return Keyring.parse(settings.secret_keys.get_secret_value())
    if settings.bootstrap_servers:
        raise ConfigurationError(
            "HOOKLINE_SECRET_KEYS is not set, and every process of a cluster must have the same keys: set it to id:key with a key from "
            "`openssl rand -base64 32`, and keep it as safe as the secrets that it encrypts"
        )
    return _kept(settings.state_dir / FILE)


def _kept(path: Path) -> Keyring:
    if not path.exists():
        _make(path)
    try:
        return Keyring.parse(path.read_text())
    except (ConfigurationError, OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"reading the local keys in {path}: {error}. Put the file back; without it no secret opens") from None


def _make(path: Path) -> None:
    """Write a key under a name of its own and link it to its place: whole from the start, and the first of two processes wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(f"local:{b64encode(secrets.token_bytes(KEY_BYTES)).decode()}\n")
            file.flush()
            os.fsync(file.fileno())
        path.hardlink_to(fresh)
    except FileExistsError:
        pass
    finally:
        fresh.unlink()
