"""Measures how fast it is and prints it beside its targets: `make bench`, `make bench ONLY=name`.

Run: python -m bench [--only name,name]
"""

import argparse
import sys

from bench import report
from bench.ground import ground
from bench.registry import Benchmark, Measured, chosen
from streams.errors import HooklineError


def measure(benchmarks: list[Benchmark]) -> dict[Benchmark, Measured]:
    """One after the other, each on topics of its own."""
    results: dict[Benchmark, Measured] = {}
    with ground() as standing:
        for number, each in enumerate(benchmarks, 1):
            standing.tell(f"[{number}/{len(benchmarks)}] {each.name}")
            results[each] = each.run(standing.part(each.name))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="names of benchmarks, separated by commas")
    options = parser.parse_args()
    try:
        results = measure(chosen(options.only))
    except HooklineError as error:
        sys.exit(f"bench: {error}")
    report.write(results)
    report.show(results)
    sys.exit(0 if all(each.meets(measured) for each, measured in results.items()) else 1)


if __name__ == "__main__":
    main()
