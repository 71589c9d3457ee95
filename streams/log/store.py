"""One shard's committed state on disk: a RocksDB that can always be thrown away, since its changelog topic has it all."""

import re
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import structlog
from rocksdict import BlockBasedOptions, Cache, Options, Rdict, WriteBatch

from streams.errors import Fatal

log_line = structlog.get_logger()

CHECKPOINT = b"\x00checkpoint"
DAMAGED = "DAMAGED"
LOCKED = re.compile(r"IO error: (While lock file|lock hold by current process)")
"""As RocksDB says it. "lock" alone is in "block checksum mismatch" too, and perhaps in the folder's name."""


class Checkpoint(msgspec.Struct, frozen=True):
    """How far into which changelog the files are, and since when."""

    cluster_id: str
    topic_id: str
    next_offset: int
    at_ms: int


@dataclass(frozen=True)
class StoreOptions:
    """What RocksDB may use; the cache is one for all shards of a process."""

    block_cache: Cache
    write_buffer_bytes: int
    age_ms_max: int  # older files are rebuilt: the changelog may have forgotten that a key was deleted

    def rocksdb(self) -> Options:
        """As RocksDB wants them: bloom filters, since most look-ups are for what was never seen."""
        table = BlockBasedOptions()
        table.set_block_cache(self.block_cache)
        table.set_bloom_filter(10, False)
        table.set_cache_index_and_filter_blocks(True)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_block_based_table_factory(table)
        options.set_write_buffer_size(self.write_buffer_bytes)
        options.set_max_write_buffer_number(2)
        options.set_max_open_files(256)
        options.set_max_total_wal_size(4 * self.write_buffer_bytes)
        options.set_keep_log_file_num(2)
        return options


class RocksStore:
    """An open database. Reads may come from one thread while another writes; nothing else is shared."""

    def __init__(self, folder: Path, options: StoreOptions) -> None:
        self.folder = folder
        self._options = options.rocksdb()
        self._db = Rdict(str(folder), self._options)

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""
        try:
            value: bytes | None = self._db.get(key)
        except Exception as error:
            raise self._damaged(error) from error
        return value

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All keys that begin with `prefix`, ascending; not those before `start`."""
        for entry in self._from(max(prefix, start)):
            if not entry[0].startswith(prefix):
                return
            yield entry

    def after(self, key: bytes, count: int) -> list[tuple[bytes, bytes]]:
        """The next keys after `key`, for walking through everything a little at a time."""
        return list(islice(self._from(key + b"\x00"), count))

    def _from(self, key: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Everything from `key` on. A damaged block ends RocksDB's iterator as the last key does: only its status tells them apart."""
        entries: Any = self._db.items(from_key=key)
        last = key
        for entry in entries:
            last = entry[0]
            yield entry
        ended = self._db.iter()
        ended.seek(last)
        if ended.valid() and ended.key() == last:
            ended.next()
        try:
            ended.status()
        except Exception as error:
            raise self._damaged(error) from error

    def apply(self, changes: Mapping[bytes, bytes | None], checkpoint: Checkpoint) -> None:
        """Store changes and how far they bring us, in one write."""
        batch = WriteBatch(raw_mode=True)
        for key, value in changes.items():
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        batch.put(CHECKPOINT, msgspec.msgpack.encode(checkpoint))
        try:
            self._db.write(batch)
        except Exception as error:
            raise self._damaged(error) from error

    def checkpoint(self) -> Checkpoint | None:
        """How far it is; None where nothing was ever stored."""
        stored = self.get(CHECKPOINT)
        return None if stored is None else msgspec.msgpack.decode(stored, type=Checkpoint)

    def close(self) -> None:
        """Write out and let go of the files."""
        self._db.close()

    def _damaged(self, error: Exception) -> Fatal:
        """Noted beside the files, so that the next process sets them aside."""
        (self.folder / DAMAGED).touch()
        return Fatal(f"reading or writing {self.folder} failed ({error}); the files are rebuilt from their changelog at the next start")


def open_store(folder: Path, options: StoreOptions, cluster_id: str, topic_id: str) -> tuple[RocksStore, int]:
    """A shard's store and the changelog offset to restore from: 0 with empty files where the old ones can't be used."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    if (folder / DAMAGED).exists():
        set_aside(folder, "it was found damaged")
    store: RocksStore | None = None
    try:
        store = RocksStore(folder, options)
        checkpoint = store.checkpoint()
    except Exception as error:
        if LOCKED.match(str(error)):
            raise Fatal(f"opening {folder}: {error}. Another process or an earlier assignment still has it open") from error
        if store is not None:
            store.close()
        set_aside(folder, str(error))
        return RocksStore(folder, options), 0
    if checkpoint is None:
        unusable = None if next(store.scan(b""), None) is None else "it has no checkpoint"
    else:
        unusable = why_unusable(checkpoint, options, cluster_id, topic_id)
    if unusable is None:
        return store, checkpoint.next_offset if checkpoint else 0
    store.close()
    set_aside(folder, unusable)
    return RocksStore(folder, options), 0


def why_unusable(checkpoint: Checkpoint, options: StoreOptions, cluster_id: str, topic_id: str) -> str | None:
    """Files of another cluster or another life of the topic, or too old to tell which keys were deleted since."""
    if (checkpoint.cluster_id, checkpoint.topic_id) != (cluster_id, topic_id):
        return "it belongs to another cluster or topic"
    if time.time() * 1000 - checkpoint.at_ms > options.age_ms_max:
        return "it is older than the changelog remembers deleted keys"
    return None


def set_aside(folder: Path, reason: str) -> None:
    """Keep the newest unusable files for a look, under another name."""
    aside = folder.with_name(folder.name + ".aside")
    shutil.rmtree(aside, ignore_errors=True)
    folder.rename(aside)
    log_line.warning("store.set_aside", folder=str(folder), reason=reason, kept=str(aside))
