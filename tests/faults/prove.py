"""Runs faults against real Kafka under load and judges what came out: `make prove` at full size, the tests at one of seconds.

Run: python -m tests.faults.prove [--times 20] [--only kill,freeze] [--seed N]
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.cases import Fault, faults
from tests.faults.harness import PARTITIONS, Run, Verdict
from tests.proofs import Proof, show, write
from topology import broker

IN_FLIGHT = 100
BACK_S_MAX = 2.0
OTHERS_GAP_S_MAX = 1.0


def run_fault(fault: Fault, times: int, seed: int, folder: Path, bootstrap: str) -> Verdict:
    """Strike a number of times while records flow, then wait for everything and judge it."""
    chance = random.Random(seed)
    folder.mkdir(parents=True)
    run = Run(bootstrap, f"{fault.name}-{seed}-", folder, replication=fault.brokers)
    try:
        for name in ("w1", "w2"):
            run.start(name)
        run.wait_until_working()
        for turn in range(times):
            fault.strike(run, chance, fault)
            print(f"  {fault.name} {turn + 1}/{times}, {run.feeder.sent} records sent", file=sys.stderr, flush=True)
        run.wait_until_working()
        return run.finish()
    except BaseException:
        run.close()
        raise


def proofs_of(fault: Fault, verdict: Verdict) -> dict[str, Proof]:
    """The figures of one kind of fault."""
    found = {name: Proof(getattr(verdict, name), 0) for name in ("lost", "doubled", "out_of_order", "wrong_state", "never_posted")}
    if fault.kills:
        # What a worker may have posted and not committed: in work, or taken for the transaction under way, over its half of the partitions.
        found["posted_again_per_kill"] = Proof(round(verdict.posted_again / fault.kills, 1), 2 * IN_FLIGHT * PARTITIONS / 2)
    if fault.name == "kill":
        found["back_s"] = Proof(max(fault.figures["back_s"]), BACK_S_MAX)
        found["others_gap_s"] = Proof(max(fault.figures["others_gap_s"]), OTHERS_GAP_S_MAX)
    return {f"{fault.name}.{name}": proof for name, proof in found.items()}


def prove(names: list[str], times: int, seed: int, folder: Path) -> dict[str, Proof]:
    """All named faults, each on a cluster of its size."""
    proofs: dict[str, Proof] = {}
    for name in names:
        fault = faults()[name]
        brokers = folder / f"{fault.brokers}" / "brokers"
        began_s = time.monotonic()
        cluster = broker.ensure(brokers, nodes=fault.brokers, port=0)
        try:
            verdict = run_fault(fault, times, seed, brokers.parent / f"{name}", cluster.bootstrap_servers)
        except BaseException:
            broker.stop(brokers)
            raise
        if brokers_change(names, name):
            broker.stop(brokers)
        found = proofs_of(fault, verdict)
        proofs.update(found)
        print(f"{name}: {verdict}, figures {fault.figures}, {time.monotonic() - began_s:.0f} s", file=sys.stderr, flush=True)
    return proofs


def brokers_change(names: list[str], name: str) -> bool:
    """Whether the next fault wants another cluster, or there is none."""
    rest = names[names.index(name) + 1 :]
    return not rest or faults()[rest[0]].brokers != faults()[name].brokers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20, help="strikes of each kind")
    parser.add_argument("--only", help="kinds, separated by commas: " + ", ".join(faults()))
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(faults())
    folder = Path(tempfile.mkdtemp(prefix="hookline-prove-"))
    print(f"seed {options.seed}, logs in {folder}", file=sys.stderr, flush=True)
    proofs = prove(names, options.times, options.seed, folder)
    write(proofs)
    show(proofs)
    sys.exit(0 if all(proof.ok for proof in proofs.values()) else 1)


if __name__ == "__main__":
    main()
