"""`make prove`: everything that is proved at full size, one part after another, with the figures in bench/proofs.json.

Run: python -m tests.prove [--only faults,ladder,store,simulation,days,pipeline,payouts,payout_days | a fault's name]
"""

import argparse
import os
import subprocess
import sys

from tests.faults.cases import faults

PARTS = {
    "faults": [sys.executable, "-m", "tests.faults.prove"],
    "ladder": [sys.executable, "-m", "tests.ladder.prove"],
    "store": [sys.executable, "-m", "bench.store_proof"],
    "simulation": [sys.executable, "-m", "pytest", "tests/simulation", "tests/ladder/test_ladder_simulated.py"],
    "days": [sys.executable, "-m", "pytest", "tests/delivery/test_days.py"],
    "pipeline": [sys.executable, "-m", "tests.pipeline.prove"],
    "payouts": [sys.executable, "-m", "tests.payouts.prove"],
    "payout_days": [sys.executable, "-m", "pytest", "tests/payouts/test_days.py"],
}
SEEDS, SEEDS_OF_DAYS = "1000", "2000"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help=f"some of {', '.join(PARTS)}, or faults by name: {', '.join(faults())}")
    chosen = (parser.parse_args().only or ",".join(PARTS)).split(",")
    unknown = [name for name in chosen if name not in PARTS and name not in faults()]
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}: choose from {', '.join([*PARTS, *faults()])}")
    commands = [(PARTS[name], SEEDS_OF_DAYS if name.endswith("days") else SEEDS) for name in chosen if name in PARTS]
    named = [name for name in chosen if name in faults()]
    if named:
        commands.insert(0, ([*PARTS["faults"], "--only", ",".join(named)], SEEDS))
    codes = [subprocess.run(command, env={**os.environ, "HOOKLINE_SEEDS": seeds}, check=False).returncode for command, seeds in commands]
    sys.exit(max(codes))


if __name__ == "__main__":
    main()
