"""`hookline replay`: a stretch of the events log sent to a subscription again, and the replays that there are."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.table import Column
from rich.table import Table as Grid
from rich.text import Text

from schemas.instants import to_rfc3339
from streams.commands import following, requests, subscriptions
from streams.commands.following import NoWait, as_told, given, summary
from streams.commands.progress import Replay
from streams.commands.requests import Selection, Verb
from streams.commands.terminal import AsJson, RequestedBy, console, only_warnings_are_logged, print_json, readable
from streams.commands.times import instant_ms
from streams.errors import ConfigurationError
from streams.world import SystemWorld

replay_app = typer.Typer(invoke_without_command=True)

ReplayId = Annotated[str, typer.Argument(metavar="REPLAY-ID", help="A replay, such as rep_….")]
EventId = Annotated[str, typer.Argument(metavar="EVENT-ID", help="The event, as its producer named it.")]
Note = Annotated[str | None, typer.Option(help="Why; kept with the request.")]
TELLS_WHAT = ("dead_letter_id", "event_id", "source", "subscription_id", "merchant", "event_type", "reason")


@replay_app.callback()
def replay(
    context: typer.Context,
    from_time: Annotated[str | None, typer.Option("--from", help="From here: 24h (ago), or 2024-01-31T09:30:00Z.")] = None,
    to_time: Annotated[str | None, typer.Option("--to", help="And before this, written in the same way. Unset: to the end.")] = None,
    subscription: Annotated[str | None, typer.Option(help="To this subscription.")] = None,
    event_type: Annotated[str | None, typer.Option("--type", help="Only events of this type, such as payin.success.")] = None,
    missing_only: Annotated[bool, typer.Option("--missing-only", help="Only what the subscription was never given.")] = False,
    rate: Annotated[float | None, typer.Option(help="At most this many a second. Unset: the agent's setting.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would be sent, and send nothing.")] = False,
    note: Note = None,
    by: RequestedBy = None,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Send a stretch of the events log to a subscription again: hookline replay --from 24h --subscription sub_….

    Without --missing-only it is sent whatever became of it the first time. `hookline dlq replay`
    sends dead letters again. The commands below look after replays of both kinds.
    """
    only_warnings_are_logged()
    if context.invoked_subcommand is not None:
        return
    if from_time is None and subscription is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)
    now_ms = SystemWorld().now_ms()
    selection = Selection(
        subscription_id=subscription,
        event_type=event_type,
        from_ms=instant_ms(from_time, now_ms) if from_time is not None else None,
        to_ms=instant_ms(to_time, now_ms) if to_time is not None else None,
    )
    request = requests.replay_events(following.asked(by, note), selection, rate, dry_run, missing_only)
    _require_active(request["subscription_id"])
    following.ask(request, wait=not no_wait, as_json=as_json)


@replay_app.command()
def pause(replay_id: ReplayId, note: Note = None, by: RequestedBy = None, no_wait: NoWait = False, as_json: AsJson = False) -> None:
    """Send no more of a replay until it is resumed."""
    _control("PAUSE", replay_id, note, by, no_wait, as_json)


@replay_app.command()
def resume(replay_id: ReplayId, note: Note = None, by: RequestedBy = None, no_wait: NoWait = False, as_json: AsJson = False) -> None:
    """Let a paused replay go on where it was, and follow it to its end."""
    _control("RESUME", replay_id, note, by, no_wait, as_json)


@replay_app.command()
def stop(replay_id: ReplayId, note: Note = None, by: RequestedBy = None, no_wait: NoWait = False, as_json: AsJson = False) -> None:
    """End a replay where it is. What it has sent is sent."""
    _control("STOP", replay_id, note, by, no_wait, as_json)


@replay_app.command("list")
def list_replays(
    running: Annotated[bool, typer.Option("--running", help="Only those that have not ended.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="At most this many, the newest.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List the replays of the last 30 days, and everything else that was asked of the replay agent; the newest first."""
    found = sorted(following.load().by_id.values(), key=lambda each: (-_asked_ms(each), each.id))
    found = [each for each in found if not (running and each.has_ended)][:limit]
    if as_json:
        print_json([as_told(each) for each in found])
        return
    for each in found:
        request = each.request or {}
        counts = f"{each.totals.matched} matched, {each.totals.sent} sent, {each.totals.skipped} skipped"
        asked = f"{to_rfc3339(_asked_ms(each))} by {request.get('requested_by', 'somebody')}"
        console.print(Text(f"{each.id}  {each.standing}\n  {asked}: {_what(request)} of {_of(request)}; {counts}"), soft_wrap=True)
    if not found:
        console.print("no replays")


@replay_app.command()
def show(
    replay_id: ReplayId,
    follow: Annotated[bool, typer.Option("--follow", help="Go on watching until it has ended.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what was asked, by whom, and how far each partition has come with it."""
    replays = following.load()
    found = following.one(replays, replay_id)
    if follow and not found.has_ended:
        following.watch(replays, replay_id, as_json)
        return
    if as_json:
        print_json(as_told(found))
        return
    for name, value in given(found.request or {}).items():
        console.print(Text(f"{name.removesuffix('_ms'):18}{readable(name, value)}"), soft_wrap=True)
    for each in found.controls:
        told = f"{each['action']} by {each['requested_by']} at {to_rfc3339(each['requested_ms'])}"
        console.print(Text(f"{'then':18}{told}{': ' + each['note'] if each['note'] else ''}"), soft_wrap=True)
    grid = Grid("partition", "standing", *(Column(name, justify="right") for name in ("looked at", "left", "matched", "sent", "skipped")))
    for number, part in sorted(found.parts.items()):
        counts = (part.looked_at, part.left, part.matched, part.sent, part.skipped)
        grid.add_row(str(number), part.standing, *(str(count) for count in counts))
    console.print(grid)
    console.print(Text(summary(found)), soft_wrap=True)


def retry_now(
    event_id: EventId,
    subscription: Annotated[str, typer.Option(help="Whose delivery.")],
    note: Note = None,
    by: RequestedBy = None,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Attempt a delivery that waits for its next attempt at once. `hookline status` tells what came of it."""
    only_warnings_are_logged()
    request = requests.retry_now(following.asked(by, note), event_id, subscription)
    following.ask(request, wait=not no_wait, as_json=as_json)


def cancel(
    event_id: EventId,
    subscription: Annotated[str | None, typer.Option(help="Only its delivery to this subscription. Unset: all of them.")] = None,
    note: Note = None,
    by: RequestedBy = None,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Attempt an event's waiting deliveries no more. What was delivered is delivered; `hookline status` tells."""
    only_warnings_are_logged()
    request = requests.cancel(following.asked(by, note), event_id, subscription)
    following.ask(request, wait=not no_wait, as_json=as_json)


def _control(verb: Verb, replay_id: str, note: str | None, by: str | None, no_wait: bool, as_json: bool) -> None:
    following.command(verb, replay_id, by, note, wait=not no_wait, as_json=as_json)


def _require_active(subscription_id: str) -> None:
    fields = subscriptions.one(asyncio.run(subscriptions.load_all()), subscription_id)
    if fields["state"] == "DISABLED":
        raise ConfigurationError(
            f"subscription {subscription_id} is disabled ({fields['state_reason']}), and all that is sent to it would be cancelled: "
            f"`hookline subscriptions enable {subscription_id} --replay` sends what it missed"
        )


def _asked_ms(replay: Replay) -> int:
    known = [each["requested_ms"] for each in ([replay.request] if replay.request else replay.controls)]
    return int(known[0]) if known else 0


def _what(request: Mapping[str, Any]) -> str:
    if not request:
        return "something"
    if request["action"] != "START":
        return str(request["action"])
    return f"{request['from_log']}{' (dry run)' if request['dry_run'] else ''}"


def _of(request: Mapping[str, Any]) -> str:
    named = [str(request[name]) for name in TELLS_WHAT if request.get(name) is not None]
    stretch = [
        f"{word} {to_rfc3339(request[name])}" for word, name in (("from", "from_ms"), ("to", "to_ms")) if request.get(name) is not None
    ]
    return " ".join([*named, *stretch]) or "all"
