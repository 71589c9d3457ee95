"""`hookline publish`: domain events by hand, one from its options or many from lines of JSON."""

import asyncio
import secrets
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import schemas
from schemas.event import Event
from streams.commands import cluster
from streams.commands.event_lines import SOURCE, Usual, made, read
from streams.commands.terminal import aside, only_warnings_are_logged, print_json
from streams.errors import ConfigurationError, LogError, MalformedRecord
from streams.log.publisher import Published, Publisher
from streams.log.records import Write
from streams.world import SystemWorld
from topology.topics import EVENTS

READ_BYTES = 65_536
ID_BYTES = 16


def publish(
    merchant: Annotated[str | None, typer.Option(help="Whom it concerns.")] = None,
    event_type: Annotated[str | None, typer.Option("--type", help="What happened, such as payin.success.")] = None,
    data: Annotated[str | None, typer.Option(help="A JSON object, such as '{\"amount\": 100}'.")] = None,
    event_id: Annotated[
        str | None, typer.Option("--id", help="Its id; published again with the same one it is the same event. Unset: one is made.")
    ] = None,
    source: Annotated[str | None, typer.Option(help=f"Who tells it. Unset: {SOURCE}.")] = None,
    resource: Annotated[str | None, typer.Option(help="What it concerns; ordered subscriptions keep the order of each resource.")] = None,
    file: Annotated[
        str | None, typer.Option("--file", metavar="FILE", help="Many: a file with an event on each line, or - for standard input.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each id with its place in the log, as lines of JSON.")] = False,
) -> None:
    """Publish an event, and print its id once every in-sync replica has it.

    One: hookline publish --merchant m1 --type payin.success --data '{"amount": 100}'

    Many: hookline publish --file events.jsonl, with lines such as {"merchant": "m1", "type": "payin.success", "data": {"amount": 100}};
    id, source, resource and time are taken where a line has them, and the options where it has none. A line that is no event is told
    with its number and left out; the command then ends with 1.
    """
    only_warnings_are_logged()
    usual = Usual(merchant, event_type, source, resource)
    if file is not None:
        if data is not None or event_id is not None:
            raise ConfigurationError("--file brings its own data and ids: leave out --data and --id")
        _publish_many(file, usual, as_json)
        return
    missing = [f"--{name}" for name, value in (("merchant", merchant), ("type", event_type), ("data", data)) if value is None]
    if data is None or missing:
        raise ConfigurationError(f"publishing an event takes {' and '.join(missing)}; `hookline publish --help` shows how")
    event = made(usual, data, event_id or _new_id(), SystemWorld().now_ms())
    asyncio.run(_publish_one(event, as_json))


async def _publish_one(event: Event, as_json: bool) -> None:
    async with cluster.publisher() as publisher:
        _tell(event.id, await publisher.publish(*_record(event)), as_json)


def _publish_many(file: str, usual: Usual, as_json: bool) -> None:
    with _opened(file) as stream:
        total = Path(file).stat().st_size if file != "-" and Path(file).is_file() else None
        with _bar(total) as bar:
            many = Many(usual, as_json, bar)
            asyncio.run(many.run(stream))
    aside.print(f"{many.published} published" + (f", {many.refused} left out" if many.refused else ""))
    if many.refused:
        raise typer.Exit(1)


class Many:
    """Lines on their way: read as they come, written many at once, told in their order."""

    def __init__(self, usual: Usual, as_json: bool, bar: "Bar") -> None:
        self._usual, self._as_json, self._bar = usual, as_json, bar
        self._waiting: deque[tuple[int, str, asyncio.Task[Published]]] = deque()
        self.published = self.refused = 0

    async def run(self, stream: BinaryIO) -> None:
        """Publish every line that is an event."""
        async with cluster.publisher() as publisher:
            number = 0
            try:
                async for lines in _lines(stream):
                    for line in lines:
                        number += 1
                        self._send(publisher, number, line)
                    await self._tell()
                    self._bar.move(sum(len(line) + 1 for line in lines), self.published)
            finally:
                await asyncio.gather(*(task for _, _, task in self._waiting), return_exceptions=True)

    def _send(self, publisher: Publisher, number: int, line: bytes) -> None:
        if not line.strip():
            return
        try:
            event = read(line, self._usual, _new_id(), SystemWorld().now_ms())
            record = _record(event)
        except MalformedRecord as error:
            self.refused += 1
            aside.print(f"line {number}: {error}", style="red", markup=False)
            return
        self._waiting.append((number, event.id, asyncio.get_running_loop().create_task(publisher.publish(*record))))

    async def _tell(self) -> None:
        """Wait for those on their way, in their order."""
        while self._waiting:
            number, event_id, task = self._waiting.popleft()
            try:
                place = await task
            except LogError as error:
                raise LogError(
                    f"line {number}, event {event_id}: {error}. {self.published} events before it are published, and perhaps some behind "
                    "it: publish on from this line, with an id in each, so that one that comes twice is recognised"
                ) from error
            self.published += 1
            _tell(event_id, place, self._as_json)


async def _lines(stream: BinaryIO) -> AsyncIterator[list[bytes]]:
    """Whole lines as they come; the last one needs no end."""
    begun = b""
    while chunk := await asyncio.to_thread(stream.read1, READ_BYTES):  # type: ignore[attr-defined]  # what is there, without waiting for more
        *lines, begun = (begun + chunk).split(b"\n")
        yield lines
    if begun:
        yield [begun]


def _record(event: Event) -> tuple[Any, bytes, bytes, list[tuple[str, bytes]]]:
    value, headers = schemas.encode_event(event)
    size = Write(EVENTS, event.merchant.encode(), value, headers).bytes_at_most
    if size > EVENTS.record_bytes_max:
        raise MalformedRecord(f"event {event.id} has {size} bytes: at most {EVENTS.record_bytes_max} are taken. Publish a reference to it")
    return EVENTS, event.merchant.encode(), value, headers


def _new_id() -> str:
    return f"evt_{secrets.token_urlsafe(ID_BYTES)}"


def _tell(event_id: str, place: Published, as_json: bool) -> None:
    if as_json:
        print_json({"id": event_id, **place._asdict()}, indent=False)
    else:
        typer.echo(event_id)


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        with Path(file).open("rb") as stream:
            yield stream
    except OSError as error:
        raise ConfigurationError(
            f"reading {file}: {error.strerror}. Name a file with an event on each line, or - for standard input"
        ) from None


class Bar:
    """How far the lines have come; of standard input nobody knows the end."""

    def __init__(self, progress: Progress, total: int | None) -> None:
        self._progress = progress
        self._task = progress.add_task("publishing", total=total, counts="")

    def move(self, read_bytes: int, published: int) -> None:
        """So many more bytes are read, and so many events are published in all."""
        self._progress.update(self._task, advance=read_bytes, counts=f"{published} published")


@contextmanager
def _bar(total: int | None) -> Iterator[Bar]:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[counts]}"), TimeElapsedColumn())
    with Progress(*columns, console=aside, transient=True, disable=not aside.is_terminal) as progress:
        yield Bar(progress, total)
