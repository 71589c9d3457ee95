"""The keys and values of the store's proof: from a number, so that reader and writer agree without a table."""

import hashlib

VALUE_BYTES = 100


def key_of(number: int) -> bytes:
    """Spread the keys as ids are spread: not in the order they were written."""
    return hashlib.blake2b(b"%d" % number, digest_size=15).hexdigest().encode()


def value_of(number: int) -> bytes:
    return (b"%d " % number).ljust(VALUE_BYTES, b"v")
