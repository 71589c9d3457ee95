"""Figures beside what they must not exceed, kept in bench/proofs.json and shown as a table."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

PROOFS = Path(__file__).parents[1] / "bench" / "proofs.json"


@dataclass(frozen=True)
class Proof:
    """One figure beside what it must not exceed."""

    value: float
    bound: float

    @property
    def ok(self) -> bool:
        return self.value <= self.bound


def write(proofs: Mapping[str, Proof]) -> None:
    """Into bench/proofs.json, beside what other runs proved."""
    known = json.loads(PROOFS.read_text()) if PROOFS.exists() else {}
    known.update({name: {**asdict(proof), "ok": proof.ok} for name, proof in proofs.items()})
    PROOFS.parent.mkdir(exist_ok=True)
    PROOFS.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")


def show(proofs: Mapping[str, Proof]) -> None:
    table = Table("proof", "value", "bound", "")
    for name, proof in proofs.items():
        table.add_row(name, f"{proof.value:g}", f"{proof.bound:g}", "[green]ok[/]" if proof.ok else "[red]missed[/]")
    Console(width=100).print(table)
