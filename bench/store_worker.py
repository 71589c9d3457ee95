"""Restores all shards of a changelog in a process of its own, and says what it took and what is there then.

Run: python -m bench.store_worker --bootstrap B --prefix P --folder F --changelog T --keys N
"""

import argparse
import asyncio
import json
import random
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
import structlog
from rocksdict import Cache
from structlog.testing import capture_logs

from bench.ground import PARTITIONS
from bench.store_keys import key_of, value_of
from streams.log.restore import Restorer
from streams.log.store import RocksStore, StoreOptions
from streams.settings import Settings

MB = 1024 * 1024
CHECKED = 1_000


@dataclass(frozen=True)
class Restored:
    """One restore. Memory is resident: before it began, and at its peak."""

    seconds: float
    records: int
    before_mb: float
    peak_mb: float
    caches_mb: float
    keys: int
    wrong: int


async def restore(options: argparse.Namespace) -> Restored:
    settings = Settings(bootstrap_servers=options.bootstrap, topic_prefix=options.prefix)
    store_options = StoreOptions(
        Cache(settings.rocksdb_block_cache_mb * MB), settings.rocksdb_write_buffer_mb * MB, settings.store_age_max_h * 3_600_000
    )
    restorer = Restorer(settings.kafka(), options.prefix + "store", options.prefix + options.changelog, options.folder, store_options)
    before_mb = psutil.Process().memory_info().rss / MB
    forget_resident_peak()
    began_s = time.perf_counter()
    with capture_logs() as lines:
        stores = await asyncio.gather(*(restorer.open(shard) for shard in range(PARTITIONS)))
        seconds, peak_mb = time.perf_counter() - began_s, resident_peak_mb()
        await restorer.close()  # on the thread that restores, so that its line of what it restored has been logged
    keys, wrong = check(stores, options.keys)
    for store in stores:
        store.close()
    records = sum(line["records"] for line in lines if line["event"] == "state.restored")
    caches_mb = settings.rocksdb_block_cache_mb + settings.rocksdb_write_buffer_mb * PARTITIONS * 2
    return Restored(seconds, records, before_mb, peak_mb, caches_mb, keys, wrong)


def forget_resident_peak() -> None:
    """Let the kernel count the peak anew from here."""
    Path("/proc/self/clear_refs").write_text("5")


def resident_peak_mb() -> float:
    """Ask the kernel, which misses no moment between two samples."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


def check(stores: list[RocksStore], keys: int) -> tuple[int, int]:
    """Count what is stored, and compare some keys with what was written, the newest among them."""
    stored = sum(1 for store in stores for key, _ in store.scan(b"") if not key.startswith(b"\x00"))
    numbers = [*random.Random(9).sample(range(keys), CHECKED // 2), *range(keys - CHECKED // 2, keys)]
    wrong = sum(1 for number in numbers if stores[number % PARTITIONS].get(key_of(number)) != value_of(number))
    return stored, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--changelog", required=True)
    parser.add_argument("--keys", required=True, type=int)
    structlog.configure(cache_logger_on_first_use=False)
    print(json.dumps(asdict(asyncio.run(restore(parser.parse_args())))))


if __name__ == "__main__":
    main()
