"""`hookline payouts`: what is asked of payouts by hand, and what came of it."""

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from streams.commands import payout_answers, payout_requests
from streams.commands.following import INTERRUPTED
from streams.commands.payout_answers import AT_REST
from streams.commands.payout_requests import Asked, Item, metadata_in
from streams.commands.payouts_show_cli import list_payouts, show
from streams.commands.payouts_trace_cli import trace
from streams.commands.terminal import AsJson, RequestedBy, aside, only_warnings_are_logged, print_json, who
from streams.delivery.subscription_changes import ID_BYTES, identifier
from streams.errors import ConfigurationError
from streams.payouts.channels.demo_cli import demo_channel
from streams.payouts.money import from_decimal
from streams.world import SystemWorld
from topology.topics import LEDGER_ENTRIES, PAYOUT_BATCH_STATUS, PAYOUT_STATUS

payouts_app = typer.Typer(no_args_is_help=True, help="Pay beneficiaries: submit, cancel, resolve, fund, and see what came of it.")
for other in (show, trace, demo_channel):
    payouts_app.command()(other)
payouts_app.command("list")(list_payouts)

Merchant = Annotated[str, typer.Option(help="Whose money.")]
PayoutId = Annotated[str, typer.Argument(metavar="PAYOUT-ID", help="The payout, unique for its merchant.")]
Currency = Annotated[str, typer.Option(help="ISO 4217, such as PKR.")]
Wait = Annotated[bool, typer.Option("--wait", help="Until it has ended or is stuck, not only until it is accepted or refused.")]
Trace = Annotated[str | None, typer.Option("--trace", help="Your own trace id, kept with all that comes of it.")]


@payouts_app.command()
def submit(
    merchant: Merchant,
    beneficiary: Annotated[str, typer.Option(help="Whom to pay: a beneficiary that is registered.")],
    currency: Currency,
    channel: Annotated[str, typer.Option(help="mobile_wallet, bank_transfer or agent_network.")],
    amount: Annotated[str | None, typer.Option(help="As a decimal, such as 1234.50; the fee is taken out of it.")] = None,
    amount_minor: Annotated[int | None, typer.Option(help="Or in minor units.")] = None,
    payout_id: Annotated[str | None, typer.Option("--id", help="Its id. Unset: one is made.")] = None,
    key: Annotated[
        str | None, typer.Option(help="The idempotency key: asked for again with the same one, it is the same payout. Unset: its id.")
    ] = None,
    at: Annotated[str | None, typer.Option(help="Not before this: 2030-01-31T09:30:00Z, or in how long, such as 2h.")] = None,
    batch: Annotated[str | None, typer.Option(help="The batch that it is an item of.")] = None,
    index: Annotated[int | None, typer.Option(help="Which item of the batch, from 0.")] = None,
    metadata: Annotated[list[str] | None, typer.Option(help="name=value; may be given many times.")] = None,
    trace_id: Trace = None,
    by: RequestedBy = None,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Pay a beneficiary; prints the payout's id once it is accepted. Refused or failed, it ends with 1 and the reason."""
    item = Item(
        beneficiary, amount, amount_minor, currency, channel, payout_id or identifier("pay", secrets.token_bytes(ID_BYTES)), key, at,
        metadata_in(metadata or ()),
    )  # fmt: skip
    _about_payout(payout_requests.submit(_asked(merchant, by, trace_id), item, batch, index), wait, as_json)


@payouts_app.command()
def batch(
    merchant: Merchant,
    batch_id: Annotated[str, typer.Option("--id", help="Unique for its merchant; the same file sent again with it pays once.")],
    file: Annotated[Path, typer.Option("--file", exists=True, dir_okay=False, help="A payout on each line, as JSON.")],
    currency: Annotated[str | None, typer.Option(help="Of lines that name none.")] = None,
    channel: Annotated[str | None, typer.Option(help="Of lines that name none.")] = None,
    at: Annotated[str | None, typer.Option(help="Of lines that have no `scheduled`: when, or in how long.")] = None,
    trace_id: Trace = None,
    by: RequestedBy = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until each item has ended.")] = False,
    as_json: AsJson = False,
) -> None:
    """Pay many, from a file of lines such as {"beneficiary_id": "b1", "amount": "12.50"}.

    A line may have amount_minor instead of amount, and currency, channel, payout_id, idempotency_key, scheduled and metadata. If any
    line is no payout, nothing is written.
    """
    lines = [line for line in file.read_bytes().split(b"\n") if line.strip()]
    commands = payout_requests.batch(
        _asked(merchant, by, trace_id), batch_id, lines, Item(currency=currency, channel=channel, scheduled=at)
    )
    asked = _ask(commands)
    told = [each for each in payout_answers.told_since(asked, PAYOUT_BATCH_STATUS) if each["batch_id"] == batch_id]
    last: Mapping[str, Any] = told[-1]
    if wait and last["state"] == "OPEN":
        last = payout_answers.follow(asked, PAYOUT_BATCH_STATUS, lambda each: each["batch_id"] == batch_id and each["state"] != "OPEN")
    if as_json:
        print_json(last)
    else:
        counts = f"{last['items_succeeded']} succeeded, {last['items_failed']} failed, {last['items_stuck']} stuck of {last['items_total']}"
        typer.echo(f"{batch_id} {last['state']}: {counts}{_because(last)}")
    if last["state"] in ("REFUSED", "FAILED"):
        raise typer.Exit(1)


@payouts_app.command()
def cancel(
    payout_id: PayoutId,
    merchant: Merchant,
    reason: Annotated[str | None, typer.Option(help="Why.")] = None,
    trace_id: Trace = None,
    by: RequestedBy = None,
    as_json: AsJson = False,
) -> None:
    """End a payout that was never submitted to its channel."""
    body = {"payout_id": payout_id, "reason": reason}
    _about_payout(payout_requests.command(_asked(merchant, by, trace_id), "CANCEL", body), False, as_json)


@payouts_app.command()
def resolve(
    payout_id: PayoutId,
    merchant: Merchant,
    status: Annotated[str, typer.Option(help="How it ended: SUCCESS or FAILED.")],
    notes: Annotated[str, typer.Option(help="How you know; kept with the payout.")],
    confirms: Annotated[str | None, typer.Option(help="With four eyes: the command of the first person, which you confirm.")] = None,
    trace_id: Trace = None,
    by: RequestedBy = None,
    as_json: AsJson = False,
) -> None:
    """Say how a stuck payout ended, after asking its channel. Where four eyes are asked for, a second person confirms it."""
    asked = _asked(merchant, by, trace_id)
    if status.upper() not in ("SUCCESS", "FAILED"):
        raise ConfigurationError(f"{status[:20]!r} is no end of a payout: say SUCCESS or FAILED")
    body = {"payout_id": payout_id, "status": status.upper(), "resolved_by": asked.by, "notes": notes, "confirms": confirms}
    _about_payout(payout_requests.command(asked, "RESOLVE", body), False, as_json)


@payouts_app.command()
def fund(
    merchant: Merchant,
    amount: Annotated[str, typer.Option(help="As a decimal, such as 50000.")],
    currency: Currency,
    transfer: Annotated[str, typer.Option(help="The transfer that brought it: told again with the same one, it is booked once.")],
    reference: Annotated[str | None, typer.Option(help="The bank's or treasury's own.")] = None,
    by: RequestedBy = None,
) -> None:
    """Book money that came in for a merchant."""
    body = {"transfer_id": transfer, "amount_minor": from_decimal(amount, currency), "currency": currency, "reference": reference}
    command = payout_requests.command(_asked(merchant, by, None), "FUND_ACCOUNT", body)
    asked = _ask([command])
    _raise_refused(asked, command)
    booked = any(entry["command_id"] == command["id"] for entry in payout_answers.told_since(asked, LEDGER_ENTRIES))
    typer.echo(f"{transfer} " + (f"booked: {amount} {currency} for {merchant}" if booked else "was booked before: nothing has changed"))


@payouts_app.command()
def beneficiary(
    beneficiary_id: Annotated[str, typer.Argument(metavar="BENEFICIARY-ID", help="Unique for its merchant.")],
    merchant: Merchant,
    name: Annotated[str, typer.Option(help="Whom the channel pays.")],
    channel: Annotated[str, typer.Option(help="mobile_wallet, bank_transfer or agent_network.")],
    account: Annotated[str, typer.Option(help="The wallet, account or IBAN, as the channel takes it.")],
    bank_code: Annotated[str | None, typer.Option(help="The bank, where the channel asks for one.")] = None,
    country: Annotated[str | None, typer.Option(help="ISO 3166-1 alpha-2.")] = None,
    currency: Annotated[str | None, typer.Option(help="ISO 4217. Unset: any that the channel takes.")] = None,
    inactive: Annotated[bool, typer.Option("--inactive", help="It is not to be paid any more.")] = False,
    metadata: Annotated[list[str] | None, typer.Option(help="name=value; may be given many times.")] = None,
    by: RequestedBy = None,
) -> None:
    """Register whom a merchant pays out to, or change it."""
    asked_by = _asked(merchant, by, None)
    body = {
        "id": beneficiary_id, "merchant": merchant, "name": name, "channel": channel, "account": account, "bank_code": bank_code,
        "country": country, "currency": currency, "state": "INACTIVE" if inactive else "ACTIVE", "created_ms": asked_by.at_ms,
        "updated_ms": asked_by.at_ms, "metadata": metadata_in(metadata or ()),
    }  # fmt: skip
    command = payout_requests.command(asked_by, "REGISTER_BENEFICIARY", body)
    _raise_refused(_ask([command]), command)
    typer.echo(f"{beneficiary_id} is {body['state']}")


# Asking, and telling what came of it


def _asked(merchant: str, by: str | None, trace_id: str | None) -> Asked:
    only_warnings_are_logged()
    return Asked(identifier("cmd", secrets.token_bytes(ID_BYTES)), merchant, who(by), SystemWorld().now_ms(), trace_id)


def _ask(commands: list[dict[str, Any]]) -> payout_answers.Asked:
    asked = payout_answers.ask(commands)
    try:
        payout_answers.wait_until_handled(asked)
    except KeyboardInterrupt:
        aside.print(f"\nCommand {commands[0]['id']} is kept and will be carried out. `hookline payouts list` tells what came of it.")
        raise typer.Exit(INTERRUPTED) from None
    return asked


def _about_payout(command: dict[str, Any], wait: bool, as_json: bool) -> None:
    """Ask, and tell the payout's answer."""
    asked = _ask([command])
    place = asked.places[0]
    found = payout_answers.answers_in(payout_answers.told_since(asked, PAYOUT_STATUS), command["id"], place)
    if found is None:
        typer.echo("nothing has changed: it stood so before")
        return
    said = payout_answers.said_of(found, command["id"], place)
    if wait and found["state"] not in AT_REST:
        name = found["payout_id"]
        found = payout_answers.follow(asked, PAYOUT_STATUS, lambda each: each["payout_id"] == name and each["state"] in AT_REST)
    if as_json:
        print_json({**found, "asked_by_command": command["id"]})
    else:
        _tell(found, said, command)
    is_refused = any(step["message"].endswith("refused") for step in said)
    if is_refused or (command["kind"] == "SUBMIT" and found["state"] in ("REFUSED", "FAILED")):
        raise typer.Exit(1)


def _tell(found: Mapping[str, Any], said: list[Mapping[str, Any]], command: Mapping[str, Any]) -> None:
    """The id to stdout, what is said about it aside."""
    typer.echo(found["payout_id"])
    for step in said:
        aside.print(Text(f"{step['message']}: {step['detail']}" if step["detail"] else step["message"]))
    aside.print(Text(f"{found['payout_id']} is {found['state']}{_because(found)}"))
    if any(step["message"] == "resolve, to be confirmed" for step in said):
        aside.print(Text(f"A second person confirms it with --confirms {command['id']}"))


def _raise_refused(asked: payout_answers.Asked, command: Mapping[str, Any]) -> None:
    for status in payout_answers.told_since(asked, PAYOUT_STATUS):
        if status["command_id"] == command["id"] and status["state"] == "REFUSED":
            raise ConfigurationError(f"refused, {status['reason']}: {status['history'][0]['detail']}")


def _because(found: Mapping[str, Any]) -> str:
    return f" because {found['reason']}" if found["reason"] else ""
