"""`hookline payouts show` and `list`: where payouts stand."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.table import Column
from rich.table import Table as Grid
from rich.text import Text

from schemas.instants import to_rfc3339
from streams.commands import payout_statuses
from streams.commands.terminal import AsJson, console, only_warnings_are_logged, print_json, readable
from streams.payouts.money import to_decimal

AMOUNTS = ("amount_minor", "fee_minor", "net_minor")
LEFT_OUT = frozenset({"history", "resolution", "request_fingerprint", *AMOUNTS})
Whose = Annotated[str | None, typer.Option("--merchant", help="Whose, where several have one of that id.")]


def show(
    payout_id: Annotated[str, typer.Argument(metavar="PAYOUT-ID", help="The payout.")], merchant: Whose = None, as_json: AsJson = False
) -> None:
    """Show where a payout stands, with every step that it has taken."""
    only_warnings_are_logged()
    found = payout_statuses.one(payout_id, merchant)
    if as_json:
        print_json(found)
        return
    for name, value in found.items():
        if name not in LEFT_OUT and value not in (None, {}):
            console.print(Text(f"{name.removesuffix('_ms'):18}{readable(name, value)}"), soft_wrap=True)
    if found["currency"] is not None:
        for name in AMOUNTS:
            console.print(Text(f"{name.removesuffix('_minor'):18}{money(found, name)}"))
    if found["resolution"]:
        word = found["resolution"]
        second = f", confirmed by {word['confirmed_by']}" if word["confirmed_by"] else ""
        console.print(Text(f"{'resolution':18}{word['status']} by {word['resolved_by']}{second}: {word['notes']}"), soft_wrap=True)
    grid = Grid("at", "state", "what brought it about", Column("in a sentence", overflow="fold"))
    for step in found["history"]:
        grid.add_row(*(Text(part) for part in (to_rfc3339(step["at_ms"]), step["to_state"], step["message"], step["detail"] or "")))
    console.print(grid)


def list_payouts(
    merchant: Annotated[str | None, typer.Option(help="Only this merchant's.")] = None,
    state: Annotated[str | None, typer.Option(help="Only those that stand so, such as STUCK.")] = None,
    channel: Annotated[str | None, typer.Option(help="Only those through this channel.")] = None,
    batch: Annotated[str | None, typer.Option(help="Only the items of this batch.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most this many, the newest.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List payouts, the newest first."""
    only_warnings_are_logged()
    wanted = {"merchant": merchant, "state": state and state.upper(), "channel": channel, "batch_id": batch}
    asked = {name: value for name, value in wanted.items() if value is not None}
    found = [each for each in payout_statuses.load().values() if all(each[name] == value for name, value in asked.items())]
    newest = sorted(found, key=lambda each: (-each["created_ms"], each["merchant"], each["payout_id"]))[:limit]
    if as_json:
        print_json(newest)
        return
    for each in newest:
        about = f" because {each['reason']}" if each["reason"] else ""
        line = f"{each['payout_id']} of {each['merchant']}: {each['state']}{about}\n  asked for at {to_rfc3339(each['created_ms'])}"
        paid = f", {money(each, 'amount_minor')} to {each['beneficiary_id']} by {each['channel']}" if each["currency"] else ""
        console.print(Text(line + paid), soft_wrap=True)
    console.print(f"{len(newest)} of {len(found)}" if found else "no payouts")


def money(status: Mapping[str, Any], name: str) -> str:
    """An amount of a payout, with its currency."""
    return f"{to_decimal(status[name], status['currency'])} {status['currency']}"
