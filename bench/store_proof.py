"""Proves that a lost store comes back from its changelog: in time, in bounded memory, whole, and warm from where it was.

Run: python -m bench.store_proof
"""

import json
import sys

from bench.feed import fill
from bench.ground import Ground, ground
from bench.store_keys import key_of, value_of
from bench.store_worker import Restored
from streams.errors import HooklineError
from tests.proofs import Proof, show, write
from topology.topics import changelog

KEYS = 1_000_000
MORE_KEYS = 1_000
KEYS_PER_S_LEAST = 50_000
BEYOND_CACHES_MB_MAX = 200
TIMEOUT_S = 180

CHANGELOG = changelog("store")


def restore(standing: Ground, name: str, keys: int) -> Restored:
    """Restore in a fresh process, on whatever files the last one left."""
    arguments = ("--folder", str(standing.folder / "state"), "--changelog", CHANGELOG.name, "--keys", str(keys))
    with standing.process(name, "bench.store_worker", *arguments) as worker:
        restored = Restored(**json.loads(worker.answer(TIMEOUT_S)))
    standing.tell(
        f"{name}: {restored.records:,} records in {restored.seconds:.2f} s, {restored.records / restored.seconds:,.0f}/s; "
        f"{restored.before_mb:.0f} MB before, {restored.peak_mb:.0f} MB at the peak"
    )
    return restored


def prove(standing: Ground) -> dict[str, Proof]:
    """Restore from nothing, then again after some more was written."""
    standing.make([CHANGELOG])
    standing.tell(f"writing {KEYS:,} keys")
    fill(standing, standing.name(CHANGELOG), range(KEYS), key_of, value_of)
    cold = restore(standing, "cold", KEYS)
    fill(standing, standing.name(CHANGELOG), range(KEYS, KEYS + MORE_KEYS), key_of, value_of)
    warm = restore(standing, "warm", KEYS + MORE_KEYS)
    beyond_mb = max(each.peak_mb - each.before_mb - each.caches_mb for each in (cold, warm))
    return {
        "store.restore_s": Proof(round(cold.seconds, 2), KEYS / KEYS_PER_S_LEAST),
        "store.beyond_caches_mb": Proof(round(beyond_mb, 1), BEYOND_CACHES_MB_MAX),
        "store.cold_restored_off": Proof(abs(cold.records - KEYS), 0),
        "store.warm_restored_off": Proof(abs(warm.records - MORE_KEYS), 0),
        "store.keys_off": Proof(abs(cold.keys - KEYS) + abs(warm.keys - KEYS - MORE_KEYS), 0),
        "store.values_wrong": Proof(cold.wrong + warm.wrong, 0),
    }


def main() -> None:
    try:
        with ground() as standing:
            proofs = prove(standing)
    except HooklineError as error:
        sys.exit(f"store proof: {error}")
    write(proofs)
    show(proofs)
    sys.exit(0 if all(proof.ok for proof in proofs.values()) else 1)


if __name__ == "__main__":
    main()
