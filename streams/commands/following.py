"""Asks the replay agent for something, in every partition, and follows what it tells until it is through."""

import asyncio
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn, Protocol

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import schemas
from streams.commands import cluster, reading
from streams.commands.progress import AT_REST, ENDED, Replay, Replays, why_not
from streams.commands.requests import Asked, Verb, control
from streams.commands.terminal import aside, print_json, who
from streams.delivery.subscription_changes import ID_BYTES, identifier
from streams.errors import ConfigurationError, LogError, MalformedRecord
from streams.log.publisher import Published
from streams.log.records import Record, Write
from streams.world import SystemWorld
from topology.topics import REPLAY_REQUESTS

SILENCE_TOLD_S = 5.0
INTERRUPTED = 130  # what a shell expects of a command that Ctrl-C has ended
UNTIL: Mapping[str, frozenset[str]] = {"PAUSE": AT_REST}
"""Where each part has to stand for a request to be through; for all others that is its end."""
PASSED_ON = frozenset({"RETRY_NOW", "CANCEL"})
"""What the replay agent leaves to the deliver role."""

NoWait = Annotated[bool, typer.Option("--no-wait", help="Print the request's id and return at once; follow it with `replay show`.")]


class Tell(Protocol):
    """Shows how far a replay has come."""

    def __call__(self, replay: Replay) -> None:
        """Take it in."""


def asked(by: str | None, note: str | None = None) -> Asked:
    """Somebody asks for something now."""
    return Asked(identifier("rep", secrets.token_bytes(ID_BYTES)), who(by), SystemWorld().now_ms(), note)


def ask(request: Mapping[str, Any], *, wait: bool, as_json: bool, must_match: str | None = None) -> None:
    """Write a request and follow it to its end. `must_match` names what it is about, where it is a failure that there is no such thing."""
    replay = Replay(request["id"])
    starts = _write(request)
    for number in starts:
        replay.apply(number, request)
    if not wait:
        _left_alone(replay, as_json)
        return
    follow(replay, starts, ENDED, as_json)
    if must_match:
        _require_done(replay, must_match)


def _require_done(replay: Replay, what: str) -> None:
    """It is a failure that nothing came of what was named."""
    totals = replay.totals
    if not totals.matched:
        aside.print(f"Nothing was done: there is no {what}.", style="red", markup=False)
        raise typer.Exit(1)
    if not totals.sent and not (replay.request or {}).get("dry_run"):
        aside.print("Nothing was done, for what is told above.", style="red")
        raise typer.Exit(1)


def command(verb: Verb, replay_id: str, by: str | None, note: str | None, *, wait: bool, as_json: bool) -> None:
    """Pause, resume or stop a replay that there is."""
    replays = load()
    replay = one(replays, replay_id)
    if reason := why_not(verb, replay):
        raise ConfigurationError(reason)
    _write(control(Asked(replay_id, who(by), SystemWorld().now_ms(), note), verb))
    if not wait:
        _left_alone(replay, as_json)
        return
    follow(replay, replays.read_to, UNTIL.get(verb, ENDED), as_json, is_stopped_on_purpose=verb == "STOP")


def watch(replays: Replays, replay_id: str, as_json: bool) -> None:
    """Follow one that was asked for before to its end."""
    follow(one(replays, replay_id), replays.read_to, ENDED, as_json)


def load() -> Replays:
    """Every replay that the log still has."""
    replays = Replays()

    def take(record: Record) -> None:
        try:
            replays.apply(record.partition, schemas.decode(record.value or b"", schemas.REPLAY_REQUEST))
        except MalformedRecord as error:
            aside.print(f"{record.reference} is left out: {error}", style="yellow", markup=False)

    replays.read_to = reading.read_whole(REPLAY_REQUESTS, take)
    return replays


def one(replays: Replays, replay_id: str) -> Replay:
    """The replay of this id, or a refusal that says how to find it."""
    if replay_id not in replays.by_id:
        raise ConfigurationError(f"there is no replay {replay_id[:80]!r}: `hookline replay list` shows all")
    return replays.by_id[replay_id]


def follow(replay: Replay, starts: Mapping[int, int], until: frozenset[str], as_json: bool, *, is_stopped_on_purpose: bool = False) -> None:
    """Show how far it comes until every part stands where it shall; `starts` says where in each partition to listen."""
    try:
        with _bar() as tell:
            _listen(replay, starts, until, tell)
    except KeyboardInterrupt:
        _interrupted(replay)
    _conclude(replay, as_json, is_stopped_on_purpose)


def _listen(replay: Replay, starts: Mapping[int, int], until: frozenset[str], tell: Tell) -> None:
    heard: set[int] = set()
    last_heard_s, silence_told, pause_told = time.monotonic(), False, False
    tell(replay)
    if replay.all_stand(starts, until):
        return
    for record in reading.follow(REPLAY_REQUESTS, starts):
        if record is not None:
            if _take(replay, record):
                heard.add(record.partition)
                last_heard_s = time.monotonic()
                tell(replay)
            continue
        if replay.all_stand(starts, until):
            return
        silent = [number for number in starts if number not in heard and not replay.all_stand([number], until)]
        if silent and not silence_told and time.monotonic() - last_heard_s > SILENCE_TOLD_S:
            silence_told = True
            aside.print(
                f"No answer yet from {_partitions(silent, len(starts))}: is a worker with the role replay running? The request is kept; "
                "waiting on.",
                style="yellow",
            )
        if replay.standing == "PAUSED" and not silent and not pause_told:
            pause_told = True
            aside.print(f"It was paused: `hookline replay resume {replay.id}` lets it go on.", style="yellow", markup=False)


def _take(replay: Replay, record: Record) -> bool:
    """Whether a record tells of this replay; others' are not looked into."""
    if record.key != replay.id.encode():
        return False
    fields = schemas.decode(record.value or b"", schemas.REPLAY_REQUEST)
    replay.apply(record.partition, fields)
    return bool(fields["action"] == "PROGRESS")


def _write(request: Mapping[str, Any]) -> dict[int, int]:
    """Write a request to every partition, and say from where on each is answered."""
    value = schemas.encode(schemas.REPLAY_REQUEST, request)
    partitions = cluster.partitions_of(REPLAY_REQUESTS)
    writes = [Write(REPLAY_REQUESTS, request["id"].encode(), value, partition=number) for number in partitions]
    written = asyncio.run(cluster.write_all(writes))
    failed = [each for each in written if isinstance(each, BaseException)]
    if failed:
        reached = len(written) - len(failed)
        undo = (
            f" It has reached {reached} of {len(written)} partitions: `hookline replay stop {request['id']}`, then ask again."
            if reached
            else ""
        )
        raise LogError(f"asking for {request['id']}: {failed[0]}.{undo}") from failed[0]
    return {place.partition: place.offset + 1 for place in written if isinstance(place, Published)}


# What is said


@contextmanager
def _bar() -> Iterator[Tell]:
    """A bar on a terminal; nothing where nobody looks."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[counts]}"), TimeElapsedColumn())
    with Progress(*columns, console=aside, disable=not aside.is_terminal) as progress:
        bar: Any = progress.add_task("asked", total=None, counts="")

        def tell(replay: Replay) -> None:
            totals = replay.totals
            looked_at, left = totals.looked_at, totals.left
            progress.update(
                bar,
                description=replay.standing.lower(),
                completed=1 if replay.has_ended else looked_at,
                total=1 if replay.has_ended else looked_at + left or None,
                counts=f"{totals.matched} matched, {totals.sent} sent, {totals.skipped} skipped",
            )

        yield tell


def _partitions(numbers: Sequence[int], of: int) -> str:
    if len(numbers) == of:
        return "anybody"
    return f"partition{'s' if len(numbers) > 1 else ''} {', '.join(str(number) for number in numbers)}"


def _left_alone(replay: Replay, as_json: bool) -> None:
    if as_json:
        print_json({"id": replay.id, "standing": replay.standing})
        return
    typer.echo(replay.id)
    aside.print(_how_to_go_on(replay), markup=False)


def _interrupted(replay: Replay) -> NoReturn:
    aside.print(f"\n{replay.id} goes on without you. {_how_to_go_on(replay)}", markup=False)
    raise typer.Exit(INTERRUPTED)


def _how_to_go_on(replay: Replay) -> str:
    return f"Watch it with `hookline replay show {replay.id} --follow`, end it with `hookline replay stop {replay.id}`."


def _conclude(replay: Replay, as_json: bool, is_stopped_on_purpose: bool) -> None:
    if as_json:
        print_json(as_told(replay))
    else:
        typer.echo(summary(replay))
    if replay.standing == "REFUSED" or any(part.standing == "REFUSED" for part in replay.parts.values()):
        raise typer.Exit(1)
    if replay.standing == "STOPPED" and not is_stopped_on_purpose:
        raise typer.Exit(1)


def summary(replay: Replay) -> str:
    """Where it stands, what it came to, and what the agent says about that."""
    totals, request = replay.totals, replay.request or {}
    if request.get("action") in PASSED_ON and replay.standing == "FINISHED":
        return f"{replay.id} FINISHED: passed on to the deliver role. `hookline status {request['event_id']}` tells what came of it"
    done = "sent" if request.get("action") in (None, "START") else "done"
    counted = f"{totals.sent} {done}" if not request.get("dry_run") else "none sent, for it was a dry run"
    lines = [f"{replay.id} {replay.standing}: {totals.looked_at} looked at, {totals.matched} matched, {counted}, {totals.skipped} skipped"]
    return "\n".join([*lines, *(f"  {reason}" for reason in replay.reasons)])


def as_told(replay: Replay) -> dict[str, Any]:
    """All that is known of it, for machines."""
    totals = replay.totals
    return {
        "id": replay.id,
        "standing": replay.standing,
        "looked_at": totals.looked_at,
        "matched": totals.matched,
        "sent": totals.sent,
        "skipped": totals.skipped,
        "reasons": replay.reasons,
        "request": given(replay.request) if replay.request else None,
        "controls": [given(each) for each in replay.controls],
        "parts": [
            {"partition": number, **{name: getattr(part, name) for name in part.__struct_fields__}}
            for number, part in sorted(replay.parts.items())
        ],
    }


def given(request: Mapping[str, Any]) -> dict[str, Any]:
    """What a request says, without what it leaves open."""
    return {name: value for name, value in request.items() if value is not None and name != "progress"}
