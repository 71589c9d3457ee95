"""`hookline payouts trace`: the chain of proof of one payout, from its command to the merchant's answer."""

from typing import Annotated

import typer
from rich.table import Column
from rich.table import Table as Grid
from rich.text import Text

from schemas.instants import to_rfc3339
from streams.commands import payout_statuses, payout_trace, reading
from streams.commands.payout_trace import Traced
from streams.commands.payouts_show_cli import Whose
from streams.commands.terminal import AsJson, console, only_warnings_are_logged, print_json


def trace(
    payout_id: Annotated[str, typer.Argument(metavar="PAYOUT-ID", help="The payout.")], merchant: Whose = None, as_json: AsJson = False
) -> None:
    """Print each command, step, ledger transfer, call to the channel and webhook attempt of a payout, with its place in the log."""
    only_warnings_are_logged()
    found = payout_statuses.one(payout_id, merchant)
    traced = Traced(found["merchant"], payout_id)
    for topic in payout_trace.TOPICS:
        reading.read_whole(topic, traced.take)
    entries = traced.in_order()
    if as_json:
        print_json(payout_trace.told(entries))
        return
    grid = Grid("at", "what", Column("in a sentence", overflow="fold"), Column("where", no_wrap=True))
    for each in entries:
        grid.add_row(*(Text(part) for part in (to_rfc3339(each.at_ms), each.what, each.detail or "", each.reference)))
    console.print(grid)
    console.print(Text(f"{payout_id} of {found['merchant']} is {found['state']}"))
