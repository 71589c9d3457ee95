"""What was measured, for people and for files."""

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.registry import Benchmark, Measured

RESULTS = Path(__file__).parent / "results.json"


def write(results: dict[Benchmark, Measured]) -> None:
    """Into bench/results.json, beside what other runs measured."""
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for each, measured in results.items():
        known[each.name] = {"value": rounded(measured.value), "unit": each.unit, "target": each.target, "limit": rounded(measured.limit)}
    RESULTS.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")


def show(results: dict[Benchmark, Measured]) -> None:
    table = Table("benchmark", "value", "unit", "target", "limit", "")
    for each, measured in results.items():
        bound = ("≥ " if each.better == "higher" else "≤ ") + f"{each.target:,g}"
        verdict = "[green]ok[/]" if each.meets(measured) else "[red]missed[/]"
        table.add_row(each.name, f"{rounded(measured.value):,}", each.unit, bound, f"{rounded(measured.limit):,}", verdict)
    Console(width=100).print(table)


def rounded(value: float) -> float:
    """As many digits as mean something."""
    return round(value) if value >= 1_000 else round(value, 2)
