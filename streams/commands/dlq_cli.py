"""`hookline dlq`: what could not be delivered or read, and what is done about it."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import orjson
import typer
from rich.text import Text

import schemas
from schemas.instants import to_rfc3339
from streams.commands import following, reading, requests
from streams.commands.attempts import attempts_grid
from streams.commands.following import NoWait
from streams.commands.letters import DEPTH, Letter, Letters, grouped
from streams.commands.requests import Selection
from streams.commands.terminal import AsJson, RequestedBy, aside, console, only_warnings_are_logged, print_json, readable, text_of
from streams.commands.times import instant_ms, readable_ms
from streams.errors import ConfigurationError, MalformedRecord
from streams.log.records import Record
from streams.world import SystemWorld
from topology.topics import DLQ

dlq_app = typer.Typer(
    no_args_is_help=True,
    callback=only_warnings_are_logged,
    help="What could not be delivered or read: look at it, send it again, or let it go.",
)

EARLIER_MS = 3_600_000
"""How much earlier than a letter's own time its record may be in the log: producers' clocks differ."""

EventId = Annotated[str, typer.Argument(metavar="EVENT-ID", help="The event, as its producer named it.")]
Reason = Annotated[str | None, typer.Option(help="Only those of this reason, such as EXHAUSTED or AMBIGUOUS.")]
OfSubscription = Annotated[str | None, typer.Option("--subscription", help="Only this subscription's.")]
OfMerchant = Annotated[str | None, typer.Option("--merchant", help="Only this merchant's.")]
OfType = Annotated[str | None, typer.Option("--type", help="Only events of this type, such as payin.success.")]
OfEvent = Annotated[str | None, typer.Option("--event", help="Only this event's.")]
Since = Annotated[str | None, typer.Option(help="Only those that died after this: 24h (ago), or 2024-01-31T09:30:00Z.")]
Until = Annotated[str | None, typer.Option(help="And before this, written in the same way.")]
Rate = Annotated[float | None, typer.Option("--rate", help="At most this many a second. Unset: the agent's setting.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Count what would be sent, and send nothing.")]
Note = Annotated[str | None, typer.Option(help="Why; kept with the request.")]
NoteNeeded = Annotated[str, typer.Option(help="Why; kept with each letter, for those who come after you.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it without asking.")]
LetterId = Annotated[str | None, typer.Argument(metavar="[ID]", help="One dead letter, as `dlq list` names it.")]


@dlq_app.command("list")
def list_letters(
    reason: Reason = None,
    subscription: OfSubscription = None,
    merchant: OfMerchant = None,
    event_type: OfType = None,
    since: Since = None,
    until: Until = None,
    event: OfEvent = None,
    triage: Annotated[
        Literal["open", "acknowledged", "discarded", "replayed", "all"] | None,
        typer.Option(help="Only those in this state. Unset: open and acknowledged ones, which nobody has dealt with."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many letters, the newest. Unset: 50.")] = None,
    as_json: AsJson = False,
) -> None:
    """Count the dead letters by reason; with any filter or --limit, list them, the newest first."""
    selection = selected(reason, subscription, merchant, event_type, since, until, event)
    found = load(selection).chosen(selection, _triages(triage))
    if not selection.parts() and triage is None and limit is None:
        _tell_groups(found, as_json)
        return
    shown = found[: limit or 50]
    if as_json:
        print_json(shown)
        return
    for letter in shown:
        about = f"{letter['event_type'] or 'a record'} of {letter['merchant'] or 'an unknown merchant'}"
        line = f"{to_rfc3339(letter['dead_ms'])}  {letter['reason']}  {letter['triage']}  {about}: {letter['detail']}"
        console.print(Text(f"{letter['id']}\n  {line}"), soft_wrap=True)
    if not shown:
        console.print("no dead letter is meant by that")
    if len(found) > len(shown):
        aside.print(f"{len(found) - len(shown)} more: --limit shows them")


@dlq_app.command()
def show(
    letter_id: Annotated[str, typer.Argument(metavar="ID", help="A dead letter, as `dlq list` names it.")], as_json: AsJson = False
) -> None:
    """Show all of a dead letter: why it died, every attempt, its payload, and what was done about it."""
    letters = load(Selection(), whole=lambda name: name == letter_id)
    letter = letters.by_id.get(letter_id)
    if letter is None:
        raise ConfigurationError(_unknown(letter_id, letters))
    if as_json:
        print_json(letter)
        return
    for name, value in letter.items():
        if name not in ("payload", "history", "headers") and value not in (None, ""):
            console.print(Text(f"{name.removesuffix('_ms'):18}{readable(name, value)}"), soft_wrap=True)
    for header in letter["headers"]:
        console.print(Text(f"{'header':18}{header['name']}: {readable('value', header['value'])}"), soft_wrap=True)
    if letter["history"]:
        console.print(attempts_grid(letter["history"]))
    console.print(Text(f"payload ({letter['payload_size']} bytes)"))
    console.print(Text(_payload(letter)), soft_wrap=True)


@dlq_app.command()
def replay(
    event_id: EventId,
    subscription: OfSubscription = None,
    rate: Rate = None,
    dry_run: DryRun = False,
    note: Note = None,
    by: RequestedBy = None,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Send an event's dead deliveries again, and leave its other deliveries alone."""
    selection = Selection(event_id=event_id, subscription_id=subscription)
    request = requests.replay_letters(following.asked(by, note), selection, rate, dry_run)
    following.ask(request, wait=not no_wait, as_json=as_json, must_match=f"dead delivery of event {event_id}")


@dlq_app.command("replay-all")
def replay_all(
    reason: Reason = None,
    subscription: OfSubscription = None,
    merchant: OfMerchant = None,
    event_type: OfType = None,
    since: Since = None,
    until: Until = None,
    rate: Rate = None,
    dry_run: DryRun = False,
    note: Note = None,
    by: RequestedBy = None,
    yes: Yes = False,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Send dead letters again: all that the filters leave, and without any the whole DLQ. Asks first, with their number."""
    selection = selected(reason, subscription, merchant, event_type, since, until)
    request = requests.replay_letters(following.asked(by, note), selection, rate, dry_run)
    if not dry_run:
        _confirm("Replay", selection, yes)
    following.ask(request, wait=not no_wait, as_json=as_json)


@dlq_app.command()
def acknowledge(
    note: NoteNeeded,
    letter_id: LetterId = None,
    reason: Reason = None,
    subscription: OfSubscription = None,
    merchant: OfMerchant = None,
    event_type: OfType = None,
    since: Since = None,
    until: Until = None,
    event: OfEvent = None,
    by: RequestedBy = None,
    yes: Yes = False,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Say of dead letters that somebody knows of them. They still count, and can be replayed."""
    selection = selected(reason, subscription, merchant, event_type, since, until, event, letter_id)
    _triage("ACKNOWLEDGE", selection, note, by, yes=yes, wait=not no_wait, as_json=as_json)


@dlq_app.command()
def discard(
    note: NoteNeeded,
    letter_id: LetterId = None,
    reason: Reason = None,
    subscription: OfSubscription = None,
    merchant: OfMerchant = None,
    event_type: OfType = None,
    since: Since = None,
    until: Until = None,
    event: OfEvent = None,
    by: RequestedBy = None,
    yes: Yes = False,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Let dead letters go: they count no more, and nothing is sent."""
    selection = selected(reason, subscription, merchant, event_type, since, until, event, letter_id)
    _triage("DISCARD", selection, note, by, yes=yes, wait=not no_wait, as_json=as_json)


# What the options say


def selected(
    reason: str | None,
    subscription: str | None,
    merchant: str | None,
    event_type: str | None,
    since: str | None,
    until: str | None,
    event: str | None = None,
    letter_id: str | None = None,
) -> Selection:
    """Read which letters are meant."""
    now_ms = SystemWorld().now_ms()
    return Selection(
        dead_letter_id=letter_id,
        event_id=event,
        subscription_id=subscription,
        merchant=merchant,
        event_type=event_type,
        reason=requests.reason_named(reason) if reason is not None else None,
        from_ms=instant_ms(since, now_ms) if since is not None else None,
        to_ms=instant_ms(until, now_ms) if until is not None else None,
    )


def _triages(triage: str | None) -> frozenset[str]:
    if triage is None:
        return DEPTH
    return frozenset(requests.TRIAGES) if triage == "all" else frozenset({triage.upper()})


# What is done


def load(selection: Selection, whole: Callable[[str], bool] = lambda _: False) -> Letters:
    """The letters as they stand, as far back as a selection may mean them."""
    letters = Letters(whole)

    def take(record: Record) -> None:
        try:
            letters.apply(schemas.decode(record.value or b"", schemas.DEAD_LETTER))
        except MalformedRecord as error:
            aside.print(f"{record.reference} is left out: {error}", style="yellow", markup=False)

    reading.read_whole(DLQ, take, None if selection.from_ms is None else max(0, selection.from_ms - EARLIER_MS))
    return letters


def _triage(action: requests.Triage, selection: Selection, note: str, by: str | None, *, yes: bool, wait: bool, as_json: bool) -> None:
    request = requests.triage(following.asked(by, note), action, selection)
    if selection.dead_letter_id is None:
        _confirm(action.capitalize(), selection, yes)
    named = selection.dead_letter_id and f"dead letter {selection.dead_letter_id} to {action.lower()}"
    following.ask(request, wait=wait, as_json=as_json, must_match=named)


def _confirm(what: str, selection: Selection, yes: bool) -> None:
    """Ask with the number that it is about, as of now."""
    if yes:
        return
    found = load(selection).chosen(selection)
    if not found:
        aside.print("No dead letter is meant by that: there is nothing to do.")
        raise typer.Exit
    merchants = len({letter["merchant"] for letter in found} - {None})
    of = f" of {merchants} merchants" if merchants > 1 else ""
    typer.confirm(f"{what} {len(found)} dead letter{'s' if len(found) > 1 else ''}{of}?", abort=True, err=True)


# What is said


def _tell_groups(found: list[Letter], as_json: bool) -> None:
    groups = grouped(found)
    if as_json:
        print_json([{name: getattr(group, name) for name in group.__struct_fields__} for group in groups])
        return
    if not groups:
        console.print("no dead letters: everything was delivered, or has been dealt with")
        return
    now_ms = SystemWorld().now_ms()
    for group in groups:
        counts = f"{group.open} open, {group.acknowledged} acknowledged"
        ages = f"{readable_ms(max(0, now_ms - group.oldest_ms))} to {readable_ms(max(0, now_ms - group.newest_ms))} ago"
        of = f"subscriptions: {group.subscriptions}, merchants: {group.merchants}"
        console.print(f"{group.reason:22}{counts}; {of}; {ages}", soft_wrap=True)
    console.print(f"{len(found)} in all. `hookline dlq list --reason …` lists those of one reason", soft_wrap=True)


def _unknown(letter_id: str, letters: Letters) -> str:
    of_event = [each["id"] for each in letters.by_id.values() if each["event_id"] == letter_id]
    if of_event:
        return f"{letter_id[:80]!r} is an event. Its dead letters: {', '.join(of_event)}"
    return f"there is no dead letter {letter_id[:80]!r}: `hookline dlq list --limit 50` shows the newest"


def _payload(letter: Mapping[str, Any]) -> str:
    payload: bytes | None = letter["payload"]
    if payload is None:
        origin = letter["origin"]
        return f"kept where it is: {origin['topic']}-{origin['partition']}@{origin['offset']}" if origin else "not kept"
    text = text_of(payload)
    if text is None:
        return payload.hex(" ", 4)
    try:
        return orjson.dumps(orjson.loads(text), option=orjson.OPT_INDENT_2).decode()
    except orjson.JSONDecodeError:
        return text
