"""`hookline ledger`: every balance recomputed from the log, and whether all that is said of money agrees with it."""

from collections.abc import Callable
from typing import Annotated

import typer
from rich.table import Column
from rich.table import Table as Grid
from rich.text import Text

import schemas
from streams.commands import payout_statuses, reading
from streams.commands.terminal import AsJson, aside, console, only_warnings_are_logged, print_json
from streams.log.records import Record
from streams.payouts.books import ACCOUNTS, Books
from streams.payouts.ledger import Balances
from streams.payouts.money import to_decimal
from streams.payouts.state import balances_in
from topology.topics import CHANGELOG_PAYOUTS, LEDGER_ENTRIES

ledger_app = typer.Typer(no_args_is_help=True, help="Recompute the ledger from the log.")
TIMES = 3
"""How often it is read on where something does not add up: a reader may have stopped in the middle of a transaction."""


@ledger_app.command()
def verify(as_json: AsJson = False) -> None:
    """Recompute everything from the entries, and compare it with the kept balances and with each payout.

    It may be run at any time: what workers do meanwhile is no difference. Any difference is told, and it ends with 1.
    """
    only_warnings_are_logged()
    books = Books()
    ends = reading.read_whole(LEDGER_ENTRIES, _taking(books))
    books.watch()
    kept, statuses = _kept(), payout_statuses.load()
    named = {f"{status['merchant']}/{status['payout_id']}": status for status in statuses.values()}
    for _ in range(TIMES):
        ends = reading.read_on(LEDGER_ENTRIES, ends, _taking(books))
        found = [*books.audit.findings(), *books.differences_of_balances(kept), *books.differences_of_payouts(named)]
        if not found:
            break
    counts = {"entries": books.audit.entries, "accounts": len(books.audit.balances), "payouts": len(named), "differences": len(found)}
    if as_json:
        print_json({**counts, "differences": found})
    else:
        typer.echo(", ".join(f"{count} {name}" for name, count in counts.items()))
        for line in found:
            aside.print(line, style="red", markup=False)
    if found:
        raise typer.Exit(1)


@ledger_app.command()
def balances(
    merchant: Annotated[str | None, typer.Option(help="Only this merchant's.")] = None,
    currency: Annotated[str | None, typer.Option(help="Only in this currency.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what is in each merchant's accounts, by the entries."""
    only_warnings_are_logged()
    books = Books()
    reading.read_whole(LEDGER_ENTRIES, _taking(books))
    places = [place for place in books.accounts() if merchant in (None, place[0]) and currency in (None, place[1])]
    if as_json:
        print_json([{"merchant": place[0], "currency": place[1], **_of(books.balances(*place))} for place in places])
        return
    grid = Grid("merchant", "currency", *(Column(name, justify="right") for name in ACCOUNTS))
    for place in places:
        amounts = (to_decimal(amount, place[1]) for amount in _of(books.balances(*place)).values())
        grid.add_row(*(Text(part) for part in (*place, *amounts)))
    console.print(grid)


def _of(found: Balances) -> dict[str, int]:
    return {name: getattr(found, name) for name in ACCOUNTS}


def _taking(books: Books) -> Callable[[Record], None]:
    def take(record: Record) -> None:
        books.take(schemas.decode(record.value or b"", schemas.LEDGER_TRANSFER))

    return take


def _kept() -> dict[tuple[str, str], Balances]:
    """The balances that the payouts role decides by, as its changelog has them."""
    found: dict[tuple[str, str], Balances] = {}

    def take(record: Record) -> None:
        read = balances_in(record.key or b"", record.value) if record.value is not None else None
        if read is not None:
            found[read[:2]] = read[2]

    reading.read_whole(CHANGELOG_PAYOUTS, take)
    return found
