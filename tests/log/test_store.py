"""A shard's files: what is stored together survives together, and what cannot be used is set aside and never trusted."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Cache

from streams.errors import Fatal
from streams.log.store import DAMAGED, Checkpoint, RocksStore, StoreOptions, open_store

HOUR_MS = 3_600_000
MANY = {b"%05d" % number: b"value %d " % number * 10 for number in range(2_000)}


@pytest.fixture
def options() -> StoreOptions:
    return StoreOptions(Cache(1024 * 1024), 1024 * 1024, 12 * HOUR_MS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "agent" / "0"


def checkpoint(next_offset: int, cluster_id: str = "cluster", topic_id: str = "topic", age_ms: int = 0) -> Checkpoint:
    return Checkpoint(cluster_id, topic_id, next_offset, int(time.time() * 1000) - age_ms)


def opened(folder: Path, options: StoreOptions) -> tuple[RocksStore, int]:
    return open_store(folder, options, "cluster", "topic")


def values_of(store: RocksStore) -> dict[bytes, bytes]:
    return {key: value for key, value in store.scan(b"") if key[:1] != b"\x00"}


# Reading and writing


def test_keys_are_read_in_order_by_prefix(folder: Path, options: StoreOptions) -> None:
    store, next_offset = opened(folder, options)
    assert next_offset == 0
    store.apply({b"b/1": b"2", b"a/2": b"1", b"a/1": b"0", b"a": b"-", b"a0": b"+"}, checkpoint(5))
    assert [key for key, _ in store.scan(b"a/")] == [b"a/1", b"a/2"]
    assert [key for key, _ in store.scan(b"a")] == [b"a", b"a/1", b"a/2", b"a0"]
    assert list(store.scan(b"b/")) == [(b"b/1", b"2")]
    assert list(store.scan(b"c")) == []
    assert (store.get(b"a/1"), store.get(b"c")) == (b"0", None)
    store.close()


def test_everything_can_be_walked_through_a_little_at_a_time(folder: Path, options: StoreOptions) -> None:
    store, _ = opened(folder, options)
    store.apply(MANY, checkpoint(5))
    walked: list[bytes] = []
    place = b"\x01"
    while found := store.after(place, 300):
        assert len(found) <= 300
        walked += [key for key, _ in found]
        place = found[-1][0]
    assert walked == sorted(MANY)
    store.close()


def test_changes_and_how_far_they_bring_us_are_stored_in_one_write(folder: Path, options: StoreOptions) -> None:
    store, _ = opened(folder, options)
    assert store.checkpoint() is None
    first = checkpoint(7)
    store.apply({b"kept": b"1", b"deleted": b"1"}, first)
    assert store.checkpoint() == first
    store.apply({b"deleted": None, b"never there": None}, checkpoint(9))
    assert values_of(store) == {b"kept": b"1"}
    store.close()
    again, next_offset = opened(folder, options)
    assert (next_offset, values_of(again)) == (9, {b"kept": b"1"})
    again.close()


def test_a_killed_process_leaves_files_whose_checkpoint_fits_their_values(folder: Path, options: StoreOptions) -> None:
    """Each write here is one key and the offset after it, so a process killed at any moment leaves as many keys as its offset says."""
    program = f"""
import itertools, sys, time
from pathlib import Path
from rocksdict import Cache
from streams.log.store import Checkpoint, StoreOptions, open_store
store, start = open_store(Path({str(folder)!r}), StoreOptions(Cache(1024 * 1024), 64 * 1024, {12 * HOUR_MS}), "cluster", "topic")
for number in itertools.count(start):
    store.apply({{b"%09d" % number: b"x" * 100}}, Checkpoint("cluster", "topic", number + 1, int(time.time() * 1000)))
    if number == start + 2_000:
        print("written", flush=True)
"""
    reached = 0
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        process.kill()
        process.wait()
        process.stdout.close()
        store, next_offset = opened(folder, options)
        assert next_offset > reached + 2_000
        assert list(values_of(store)) == [b"%09d" % number for number in range(next_offset)]
        assert not folder.with_name("0.aside").exists()
        store.close()
        reached = next_offset


# Files that cannot be used


@pytest.mark.parametrize(
    "stored",
    [
        pytest.param(checkpoint(9, cluster_id="another"), id="of another cluster"),
        pytest.param(checkpoint(9, topic_id="another"), id="of another life of the topic"),
        pytest.param(checkpoint(9, age_ms=13 * HOUR_MS), id="older than the changelog remembers deleted keys"),
    ],
)
def test_files_that_do_not_belong_here_are_set_aside_and_rebuilt(folder: Path, options: StoreOptions, stored: Checkpoint) -> None:
    store, _ = opened(folder, options)
    store.apply(MANY, stored)
    store.close()
    rebuilt, next_offset = opened(folder, options)
    assert (next_offset, values_of(rebuilt), rebuilt.checkpoint()) == (0, {}, None)
    assert folder.with_name("0.aside").is_dir()
    rebuilt.close()


def test_files_that_are_old_but_not_too_old_are_a_warm_start(folder: Path, options: StoreOptions) -> None:
    store, _ = opened(folder, options)
    store.apply(MANY, checkpoint(9, age_ms=11 * HOUR_MS))
    store.close()
    warm, next_offset = opened(folder, options)
    assert (next_offset, values_of(warm)) == (9, MANY)
    warm.close()


def overwrite(path: Path, start: float, length: int = 300) -> None:
    """Turn around the bits of some bytes, from a fraction of the file on."""
    content = bytearray(path.read_bytes())
    first = int(len(content) * start)
    content[first : first + length] = bytes(byte ^ 0xFF for byte in content[first : first + length])
    path.write_bytes(content)


def only(folder: Path, pattern: str) -> Path:
    (path,) = folder.glob(pattern)
    return path


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda folder: overwrite(folder / "CURRENT", 0), id="CURRENT overwritten"),
        pytest.param(lambda folder: (folder / "CURRENT").write_text(""), id="CURRENT empty"),
        pytest.param(lambda folder: (folder / "CURRENT").unlink(), id="CURRENT gone"),
        pytest.param(lambda folder: overwrite(only(folder, "MANIFEST-*"), 0.1), id="manifest overwritten"),
        pytest.param(lambda folder: only(folder, "MANIFEST-*").unlink(), id="manifest gone"),
        pytest.param(lambda folder: only(folder, "*.sst").unlink(), id="table gone"),
        pytest.param(lambda folder: os.truncate(only(folder, "*.sst"), 100), id="table cut short"),
        pytest.param(lambda folder: overwrite(only(folder, "*.sst"), 0.99), id="table's index overwritten"),
        pytest.param(lambda folder: overwrite(only(folder, "*.sst"), 0), id="table's first block overwritten, where the checkpoint is"),
    ],
)
@pytest.mark.parametrize("parent", ["agent", "blocks"])
def test_damaged_files_are_set_aside_and_rebuilt(
    tmp_path: Path, options: StoreOptions, damage: Callable[[Path], None], parent: str
) -> None:
    """In whatever folder: the reason that RocksDB gives names it."""
    folder = tmp_path / parent / "0"
    fill(folder, options)
    damage(folder)
    rebuilt, next_offset = opened(folder, options)
    assert (next_offset, values_of(rebuilt)) == (0, {})
    assert folder.with_name("0.aside").is_dir()
    rebuilt.close()


def fill(folder: Path, options: StoreOptions) -> None:
    """Files with one table, and nothing left in the write-ahead log."""
    store, _ = opened(folder, options)
    store.apply(MANY, checkpoint(9))
    store._db.flush()
    store.close()


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda store: store.get(b"01000"), id="get"),
        pytest.param(lambda store: list(store.scan(b"0")), id="scan"),
        pytest.param(lambda store: store.after(b"00000", 5_000), id="after"),
    ],
)
def test_a_damaged_block_found_while_reading_ends_the_process_and_the_next_one_rebuilds(
    folder: Path, options: StoreOptions, read: Callable[[RocksStore], Any]
) -> None:
    fill(folder, options)
    overwrite(only(folder, "*.sst"), 0.3, 12_000)
    store, next_offset = opened(folder, options)
    assert next_offset == 9
    with pytest.raises(Fatal, match="rebuilt from their changelog at the next start"):
        read(store)
    assert (folder / DAMAGED).exists()
    store.close()
    rebuilt, next_offset = opened(folder, options)
    assert (next_offset, values_of(rebuilt)) == (0, {})
    rebuilt.close()


def test_the_newest_unusable_files_are_kept_for_a_look_and_older_ones_are_not(folder: Path, options: StoreOptions) -> None:
    for offset in (1, 2):
        store, _ = opened(folder, options)
        store.apply({b"k": b"%d" % offset}, checkpoint(offset, cluster_id="another"))
        store.close()
    opened(folder, options)[0].close()
    assert sorted(path.name for path in folder.parent.iterdir()) == ["0", "0.aside"]
    aside = RocksStore(folder.with_name("0.aside"), options)
    assert aside.get(b"k") == b"2"
    aside.close()


def test_files_that_are_open_elsewhere_are_fatal_and_never_set_aside(folder: Path, options: StoreOptions) -> None:
    store, _ = opened(folder, options)
    store.apply({b"k": b"v"}, checkpoint(9))
    with pytest.raises(Fatal, match="still has it open"):
        opened(folder, options)
    program = f"""
from pathlib import Path
from rocksdict import Cache
from streams.errors import Fatal
from streams.log.store import StoreOptions, open_store
try:
    open_store(Path({str(folder)!r}), StoreOptions(Cache(1024), 1024, {HOUR_MS}), "cluster", "topic")
except Fatal as error:
    print(error)
"""
    elsewhere = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=Path(__file__).parents[2], check=True)
    assert "still has it open" in elsewhere.stdout
    assert not folder.with_name("0.aside").exists()
    assert store.get(b"k") == b"v"
    store.close()
