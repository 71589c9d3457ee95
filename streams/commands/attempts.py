"""How attempts are shown: one line each, the oldest first."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.table import Column
from rich.table import Table as Grid
from rich.text import Text

from schemas.instants import to_rfc3339


def attempts_grid(attempts: Iterable[Mapping[str, Any]]) -> Grid:
    """When, which, what came of it and how long it took; a replay's attempts begin with 1 again."""
    numbers = (Column(name, justify="right") for name in ("attempt", "replay", "code", "ms"))
    grid = Grid("at", *numbers, Column("what came of it", overflow="fold"))
    for each in attempts:
        came = each["error"] or "delivered"
        if each["ambiguous"]:
            came += " (ambiguous: the merchant may have it)"
        code = "-" if each["code"] is None else str(each["code"])
        parts = (to_rfc3339(each["at_ms"]), str(each["number"]), str(each["generation"] or "-"), code, str(each["duration_ms"]), came)
        grid.add_row(*(Text(part) for part in parts))
    return grid
