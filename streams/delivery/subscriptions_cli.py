"""`hookline subscriptions`: who wants to hear of what, where and how; made, looked at and changed by a person."""

import asyncio
import secrets
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec
import typer
from rich.table import Column
from rich.table import Table as Grid
from rich.text import Text

from streams.commands import following, requests
from streams.commands import subscriptions as table
from streams.commands.following import NoWait
from streams.commands.terminal import AsJson, RequestedBy, console, only_warnings_are_logged, print_json, readable
from streams.commands.times import duration_ms
from streams.delivery import subscription_changes as changes
from streams.delivery.keys import keyring
from streams.delivery.sealing import NONCE_BYTES, new_secret
from streams.delivery.signing import SEED_BYTES, Algorithm
from streams.delivery.subscription import encoded
from streams.delivery.subscription_changes import NewSecret, Verb, Wanted
from streams.errors import ConfigurationError
from streams.settings import settings
from streams.world import SystemWorld

subscriptions_app = typer.Typer(no_args_is_help=True, help="Who wants to hear of what, where and how.", callback=only_warnings_are_logged)

Id = Annotated[str, typer.Argument(metavar="ID", help="A subscription, such as sub_….")]
Reason = Annotated[str, typer.Option(help="Why; kept with the state.")]
Url = Annotated[str | None, typer.Option(help="Where its webhooks go.")]
Events = Annotated[list[str] | None, typer.Option("--event", help="payin.success, payin.* or *; may be repeated. A new one takes *.")]
Filters = Annotated[list[str] | None, typer.Option("--filter", help="path=json, such as currency='\"PKR\"'; all paths must hold.")]
ProfileName = Annotated[str | None, typer.Option("--profile", help="Headers, signature and schedule. A new one takes standard.")]
Rate = Annotated[float | None, typer.Option("--rate", help="Deliveries a second, at most. A new one takes 10.")]
Burst = Annotated[int | None, typer.Option(help="Deliveries at once after a quiet time. A new one takes 20.")]
InFlight = Annotated[int | None, typer.Option("--in-flight", help="Deliveries under way at once. A new one takes 10.")]
Ordered = Annotated[bool | None, typer.Option("--ordered/--unordered", help="Keep the order of each resource.")]
Hold = Annotated[
    bool | None, typer.Option("--hold/--skip", help="Behind a dead letter, an ordered resource waits for a person, or goes on.")
]
OnAmbiguous = Annotated[Literal["retry", "dead-letter"] | None, typer.Option(help="After an attempt whose answer was lost.")]
Headers = Annotated[list[str] | None, typer.Option("--header", help="name:value of a custom header; may be repeated.")]
Operational = Annotated[bool | None, typer.Option("--operational/--no-operational", help="Also hears of operational events.")]
Contact = Annotated[str | None, typer.Option(help="Who is told when it is disabled.")]
Description = Annotated[str | None, typer.Option(help="For people.")]
Version = Annotated[str | None, typer.Option("--version", help="The dated version of the body. A new one takes the newest.")]
Destination = Annotated[Literal["http", "kafka"] | None, typer.Option(help="Webhooks, or the merchant's own topic.")]
HeadersOf = Annotated[str | None, typer.Option(help="Another profile's headers.")]
SignatureOf = Annotated[str | None, typer.Option(help="Another profile's signature.")]
ScheduleOf = Annotated[str | None, typer.Option(help="Another profile's delays.")]
Delays = Annotated[str | None, typer.Option("--delays", help="Delays after each failure, such as 1s,30s,5m, or none.")]
Jitter = Annotated[int | None, typer.Option("--jitter-percent", help="Up to this much is added to each delay.")]
ConnectTimeout = Annotated[str | None, typer.Option("--connect-timeout", help="Time to connect, such as 5s.")]
AnswerTimeout = Annotated[str | None, typer.Option("--answer-timeout", help="Time to answer, such as 15s.")]
Clear = Annotated[
    list[str] | None, typer.Option("--clear", help="filters, headers, overrides, contact or description: have none any more.")
]

CLEARABLE = ("filters", "headers", "overrides", "contact", "description")
AS_GIVEN = (
    "url", "profile", "rate_per_s", "burst", "in_flight_max", "ordered", "operational", "contact", "description",
    "payload_version",
)  # fmt: skip
OVERRIDES_AS_GIVEN = ("headers_of", "signature_of", "schedule_of", "jitter_percent")
OVERRIDES_AS_DURATION = ("connect_timeout_ms", "answer_timeout_ms")


@subscriptions_app.command()
def create(
    context: typer.Context,
    merchant: Annotated[str, typer.Option(help="Whose it is, as in its events.")],
    url: Url = None,
    event_types: Events = None,
    filters: Filters = None,
    profile: ProfileName = None,
    rate_per_s: Rate = None,
    burst: Burst = None,
    in_flight_max: InFlight = None,
    ordered: Ordered = None,
    hold: Hold = None,
    on_ambiguous: OnAmbiguous = None,
    headers: Headers = None,
    operational: Operational = None,
    contact: Contact = None,
    description: Description = None,
    payload_version: Version = None,
    destination: Destination = None,
    headers_of: HeadersOf = None,
    signature_of: SignatureOf = None,
    schedule_of: ScheduleOf = None,
    delays: Delays = None,
    jitter_percent: Jitter = None,
    connect_timeout_ms: ConnectTimeout = None,
    answer_timeout_ms: AnswerTimeout = None,
    disabled: Annotated[bool, typer.Option("--disabled", help="Deliver nothing until it is enabled.")] = False,
    algorithm: Annotated[Algorithm, typer.Option(help="What its secret signs with.")] = "hmac-sha256",
    as_json: AsJson = False,
) -> None:
    """Create a subscription, and show its secret this once."""
    now_ms = SystemWorld().now_ms()
    name = changes.identifier("sub", secrets.token_bytes(changes.ID_BYTES))
    secret = _new_secret(algorithm)
    sealed = changes.sealed(secret, name, keyring(settings()), secrets.token_bytes(NONCE_BYTES), now_ms)
    wanted = wanted_of(context.params)
    loopback = settings().allow_loopback
    fields = changes.created(name, merchant, wanted, sealed, now_ms, allow_loopback=loopback, disabled=disabled)
    asyncio.run(table.write(name, encoded(fields)))
    _tell(fields, as_json, "created", secret)


@subscriptions_app.command("list")
def list_all(
    merchant: Annotated[str | None, typer.Option(help="Only this merchant's.")] = None,
    state: Annotated[Literal["active", "paused", "disabled"] | None, typer.Option(help="Only those in this state.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the subscriptions, those of a merchant together."""
    found = sorted(
        (
            fields
            for fields in asyncio.run(table.load_all()).values()
            if merchant in (None, fields["merchant"]) and (state is None or state.upper() == fields["state"])
        ),
        key=lambda fields: (fields["merchant"], fields["created_ms"], fields["id"]),
    )
    if as_json:
        print_json([changes.visible(fields) for fields in found])
        return
    grid = Grid(Column("id", no_wrap=True), Column("merchant", overflow="fold"), "state", "events", Column("to", overflow="fold"))
    for fields in found:
        shown = (fields["id"], fields["merchant"], fields["state"], " ".join(fields["event_types"]), fields["url"] or fields["destination"])
        grid.add_row(*(Text(each) for each in shown))
    console.print(grid)


@subscriptions_app.command()
def show(subscription_id: Id, as_json: AsJson = False) -> None:
    """Show all of a subscription but its secrets and the values of its custom headers."""
    shown = changes.visible(table.one(asyncio.run(table.load_all()), subscription_id))
    if as_json:
        print_json(shown)
        return
    for name, value in shown.items():
        typer.echo(f"{name.removesuffix('_ms'):20}{readable(name, value)}")


@subscriptions_app.command()
def update(
    context: typer.Context,
    subscription_id: Id,
    url: Url = None,
    event_types: Events = None,
    filters: Filters = None,
    profile: ProfileName = None,
    rate_per_s: Rate = None,
    burst: Burst = None,
    in_flight_max: InFlight = None,
    ordered: Ordered = None,
    hold: Hold = None,
    on_ambiguous: OnAmbiguous = None,
    headers: Headers = None,
    operational: Operational = None,
    contact: Contact = None,
    description: Description = None,
    payload_version: Version = None,
    destination: Destination = None,
    headers_of: HeadersOf = None,
    signature_of: SignatureOf = None,
    schedule_of: ScheduleOf = None,
    delays: Delays = None,
    jitter_percent: Jitter = None,
    connect_timeout_ms: ConnectTimeout = None,
    answer_timeout_ms: AnswerTimeout = None,
    clear: Clear = None,
    as_json: AsJson = False,
) -> None:
    """Change what is given, and leave the rest. Events, filters and headers replace those that there are; overrides add to them."""
    wanted, now_ms, loopback = wanted_of(context.params), SystemWorld().now_ms(), settings().allow_loopback
    fields = asyncio.run(table.change(subscription_id, lambda before: changes.updated(before, wanted, now_ms, allow_loopback=loopback)))
    _tell(fields, as_json, "updated")


@subscriptions_app.command()
def pause(subscription_id: Id, reason: Reason = "by hand", as_json: AsJson = False) -> None:
    """Let its events wait until it is resumed."""
    _set_state(subscription_id, "pause", reason, as_json)


@subscriptions_app.command()
def resume(subscription_id: Id, reason: Reason = "by hand", as_json: AsJson = False) -> None:
    """Deliver again, beginning with what has waited."""
    _set_state(subscription_id, "resume", reason, as_json)


@subscriptions_app.command()
def disable(subscription_id: Id, reason: Reason = "by hand", as_json: AsJson = False) -> None:
    """Deliver nothing more; what happens meanwhile is replayed only when asked."""
    _set_state(subscription_id, "disable", reason, as_json)


@subscriptions_app.command()
def enable(
    subscription_id: Id,
    reason: Reason = "by hand",
    replay: Annotated[
        bool, typer.Option("--replay", help="Also send what it missed while it was disabled, and what that cancelled.")
    ] = False,
    rate: Annotated[float | None, typer.Option("--rate", help="Of the replay: at most this many a second.")] = None,
    by: RequestedBy = None,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Deliver what happens from now on; with --replay what has happened since it was disabled too."""
    if not replay:
        _set_state(subscription_id, "enable", reason, as_json)
        return
    request = requests.replay_since_disabled(following.asked(by, reason), table.one(asyncio.run(table.load_all()), subscription_id), rate)
    now_ms = SystemWorld().now_ms()
    fields = asyncio.run(table.change(subscription_id, lambda before: changes.with_state(before, "enable", reason, now_ms)))
    if not as_json:
        typer.echo(f"{subscription_id} is {fields['state']} ({reason})")
    following.ask(request, wait=not no_wait, as_json=as_json)


@subscriptions_app.command("rotate-secret")
def rotate_secret(
    subscription_id: Id,
    overlap: Annotated[str, typer.Option(help="How long the old secrets sign too, such as 24h; 0s ends them at once.")] = "24h",
    algorithm: Annotated[Algorithm | None, typer.Option(help="What the new one signs with. Unset: as the last one.")] = None,
    as_json: AsJson = False,
) -> None:
    """Sign with a new secret, and show it this once."""
    now_ms, overlap_ms, keys, nonce = SystemWorld().now_ms(), duration_ms(overlap), keyring(settings()), secrets.token_bytes(NONCE_BYTES)
    made: list[NewSecret] = []

    def rotated(before: Mapping[str, Any]) -> dict[str, Any]:
        if not made:
            made.append(_new_secret(algorithm or changes.algorithm_of(before)))
        return changes.rotated(before, changes.sealed(made[0], subscription_id, keys, nonce, now_ms), overlap_ms, now_ms)

    fields = asyncio.run(table.change(subscription_id, rotated))
    _tell(fields, as_json, "has another secret", made[0])


@subscriptions_app.command()
def delete(subscription_id: Id, yes: Annotated[bool, typer.Option("--yes", help="Do it without asking.")] = False) -> None:
    """Delete a subscription for good. One that is only disabled can be enabled again, and replayed."""
    fields = table.one(asyncio.run(table.load_all()), subscription_id)
    if not yes:
        typer.confirm(f"Delete {subscription_id} of merchant {fields['merchant']}?", abort=True)
    asyncio.run(table.write(subscription_id, None))
    typer.echo(f"{subscription_id} deleted")


# What the options say


def wanted_of(given: Mapping[str, Any]) -> Wanted:
    """Read what create and update are asked for from their options, which are the same; one that was not given is left out."""
    parts = {name: given[name] for name in AS_GIVEN}
    parts["event_types"] = list(given["event_types"] or ())
    parts["filters"] = filters_of(given["filters"] or ())
    parts["headers"] = headers_of(given["headers"] or ())
    parts["overrides"] = _overrides_of(given)
    parts["destination"] = given["destination"] and given["destination"].upper()
    parts["on_ambiguous"] = given["on_ambiguous"] and given["on_ambiguous"].upper().replace("-", "_")
    parts["behind_dead_letter"] = None if given["hold"] is None else "HOLD" if given["hold"] else "SKIP"
    wanted = {name: value for name, value in parts.items() if value not in (None, [], {})}
    for name in given.get("clear") or ():
        if name not in CLEARABLE:
            raise ConfigurationError(f"{name[:40]!r} cannot be cleared: choose from {', '.join(CLEARABLE)}")
        if name in wanted:
            raise ConfigurationError(f"asked to clear the {name} and to set it: do one of the two")
        wanted[name] = changes.DEFAULTS[name]
    return msgspec.convert(wanted, Wanted)


def _overrides_of(given: Mapping[str, Any]) -> dict[str, Any]:
    parts = {name: given[name] for name in OVERRIDES_AS_GIVEN}
    parts |= {name: duration_ms(given[name]) for name in OVERRIDES_AS_DURATION if given[name] is not None}
    if given["delays"] is not None:
        parts["delays_ms"] = [] if given["delays"] == "none" else [duration_ms(text) for text in given["delays"].split(",")]
    return {name: value for name, value in parts.items() if value is not None}


def filters_of(texts: Iterable[str]) -> list[dict[str, Any]]:
    """Read `path=json`; values given for the same path are alternatives."""
    values: dict[str, list[str]] = {}
    for text in texts:
        path, equals, value = text.partition("=")
        if not equals:
            raise ConfigurationError(f"the filter {text[:80]!r} has no value: write path=json, such as currency='\"PKR\"'")
        values.setdefault(path, []).append(value)
    return [{"path": path, "values": found} for path, found in values.items()]


def headers_of(texts: Iterable[str]) -> dict[str, str]:
    """Read `name:value`; the text is never told, for it may be a credential."""
    headers: dict[str, str] = {}
    for position, text in enumerate(texts, start=1):
        name, colon, value = text.partition(":")
        if not colon:
            raise ConfigurationError(f"custom header {position} has no value: write name:value")
        if name in headers:
            raise ConfigurationError("a custom header is given twice: give each once")
        headers[name] = value.strip()
    return headers


def _new_secret(algorithm: Algorithm) -> NewSecret:
    text = new_secret(algorithm, secrets.token_bytes(SEED_BYTES))
    return NewSecret(changes.identifier("sec", secrets.token_bytes(changes.ID_BYTES)), algorithm, text)


# What is said


def _set_state(subscription_id: str, verb: Verb, reason: str, as_json: bool) -> None:
    now_ms = SystemWorld().now_ms()
    fields = asyncio.run(table.change(subscription_id, lambda before: changes.with_state(before, verb, reason, now_ms)))
    _tell(fields, as_json, f"is {fields['state']} ({reason})")


def _tell(fields: Mapping[str, Any], as_json: bool, what: str, secret: NewSecret | None = None) -> None:
    if as_json:
        print_json({**changes.visible(fields), **({"new_secret": secret.shown()} if secret else {})})
        return
    typer.echo(f"{fields['id']} {what}")
    if secret:
        for name, value in secret.shown().items():
            typer.echo(f"  {name.replace('_', ' '):12}{value}")
        typer.echo("The secret is not shown again: give it to the merchant now.")
