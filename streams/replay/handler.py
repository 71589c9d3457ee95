"""Runs what people ask for, page by page: each page's records, its progress and the index change together or not at all.

plan      a request begins, controls or passes on; a progress record asks for the next page; a dead letter goes into the index
perform   reads the page's records, and keeps to the rate
conclude  sends them again, and tells how far it has come
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

import schemas
from streams.dead_letters import dead_letter
from streams.delivery.asks import ask_of
from streams.delivery.subscription import Subscriptions
from streams.errors import MalformedRecord
from streams.log.records import NOTHING, Change, Outcome, Record, Work, Write
from streams.replay import events, letters, rules
from streams.replay.reading import Reader, Stretch, last_offset
from streams.replay.request import Progress, Request, decode, encode, tell
from streams.replay.state import Letter, Replay, ReplayMemory, closed, indexed_change, letter_of, opened, replay_change
from streams.replay.tasks import Bounds, Events, Found, Meant, Page, Prepare, Refused, Result, Run, Task, Wait
from topology import topics

LOOKED_AT_MAX = 5_000
"""How many letters of the index a page looks through for those that are meant."""
INDEX_WAIT_S = 0.2
TABLE_WAIT_S, TABLE_TRIES = 0.25, 40
"""How long the table may take to show a subscription that was made or enabled just before the request."""
TABLES_ELSEWHERE_S = 1.0
"""And how much later other workers' tables may show it."""
REASON_CHARS_MAX = 500


class ReplayWorld(Protocol):
    """Where replays happen."""

    reader: Reader

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""


class Replayer:
    """The replay agent's functions, on the table of subscriptions."""

    def __init__(self, subscriptions: Subscriptions, usual_per_s: float, partitions: int, record_bytes_max: int = 1_000_000) -> None:
        self._subscriptions = subscriptions
        self._usual_per_s, self._partitions = usual_per_s, partitions
        self._record_bytes_max = record_bytes_max

    # Plan

    def plan(self, record: Record, memory: ReplayMemory, now_ms: int) -> Outcome | Sequence[Work[Task]]:
        """What a record asks for."""
        if record.topic is topics.DLQ:
            return index(record, memory, now_ms)
        request, told = decode(record.value)
        if told is not None:
            return self._go_on(request, told, record.partition, memory)
        if request.action in rules.CONTROLS:
            return control(request, memory, now_ms)
        if memory.replay(request.id) is not None:
            return NOTHING
        reason = rules.refusal(request)
        if reason is not None:
            return told_as(request, Progress("REFUSED", reason=reason), False, now_ms)
        if request.action in rules.PASSED_ON:
            finished = told_as(request, Progress("FINISHED"), True, now_ms)
            return Outcome([ask_of(encode(request), request.id), *finished.writes], finished.changes)
        return told_as(request, Progress(), False, now_ms)

    def _go_on(self, told: Request, progress: Progress, partition: int, memory: ReplayMemory) -> Sequence[Work[Task]]:
        """The next step of a replay, unless this progress was told before it was paused, stopped or resumed."""
        replay = memory.replay(told.id)
        if replay is None or progress.standing != "RUNNING" or progress != replay.progress:
            return ()
        request, _ = decode(replay.request)
        run = (request, progress, partition, rules.rate_per_s(request, self._usual_per_s, self._partitions))
        if not replay.is_ready:
            return [Work(Prepare(*run))]
        if request.from_log == "EVENTS":
            return [Work(Events(*run))]
        if memory.indexed < progress.end:
            return [Work(Wait(*run))]
        return [Work(page(Run(*run), memory))]

    # Perform

    async def perform(self, task: Task, world: ReplayWorld) -> Result:
        """Read what a step needs, and keep to the rate."""
        if isinstance(task, Prepare):
            return await self._prepare(task, world)
        if isinstance(task, Events):
            return await self._read_events(task, world)
        if isinstance(task, Page):
            return await read_page(task, world)
        await world.sleep(INDEX_WAIT_S)
        return None

    async def _prepare(self, task: Prepare, world: ReplayWorld) -> Bounds | Refused:
        request, reader = task.request, world.reader
        if request.action == "START" and request.subscription_id is not None:
            reason = await self._why_not_for(request, world)
            if reason is not None:
                return Refused(reason)
        if request.from_log == "DEAD_LETTERS":
            return Bounds(0, 1 + await last_offset(reader, topics.DLQ, task.partition))
        first, end = await reader.bounds(topics.EVENTS, task.partition)
        start = first if request.from_ms is None else await reader.offset_at(topics.EVENTS, task.partition, request.from_ms)
        if request.to_ms is not None:
            end = min(end, await reader.offset_at(topics.EVENTS, task.partition, request.to_ms))
        return Bounds(max(first, min(start, end)), end)

    async def _why_not_for(self, request: Request, world: ReplayWorld) -> str | None:
        """Why nothing can be replayed to its subscription, once the table had time to show it."""
        for _ in range(TABLE_TRIES):
            subscription = self._subscriptions.by_id.get(request.subscription_id or "")
            if subscription is not None and (request.dry_run or subscription.state != "DISABLED"):
                if request.missing_only or request.include_cancelled:
                    await world.sleep(TABLES_ELSEWHERE_S)
                return None if subscription.destination == "HTTP" else f"{subscription.id} is served by its topic: read that again"
            await world.sleep(TABLE_WAIT_S)
        if subscription is None:
            return f"there is no subscription {request.subscription_id}: see `hookline subscriptions list`"
        return f"subscription {subscription.id} is disabled: enable it, and ask again"

    async def _read_events(self, task: Events, world: ReplayWorld) -> Stretch | None:
        subscription = self._subscriptions.by_id.get(task.request.subscription_id or "")
        if subscription is None:
            return None
        progress, count = task.progress, rules.page_size(task.rate_per_s)
        key = subscription.merchant.encode()
        found = await world.reader.stretch(topics.EVENTS, task.partition, progress.cursor, progress.end, count, key)
        await world.sleep(0.0 if task.request.dry_run else len(found.records) / task.rate_per_s)
        return found

    # Conclude

    def conclude(self, task: Task, result: Result, memory: ReplayMemory, now_ms: int) -> Outcome:
        """What is true from now on; nothing, where the replay has been paused, stopped or resumed meanwhile."""
        request = task.request
        replay = memory.replay(request.id)
        if replay is None or replay.progress != task.progress:
            return NOTHING
        if isinstance(result, Refused):
            return told_as(request, msgspec.structs.replace(task.progress, standing="REFUSED", reason=result.reason), True, now_ms)
        if isinstance(result, Bounds):
            ready = msgspec.structs.replace(task.progress, cursor=result.start, end=result.end)
            begun = told_as(request, finished_at_end(ready), True, now_ms)
            asks = [ask_of(encode(request), request.id)] if request.include_cancelled and not request.dry_run else []
            return Outcome([*asks, *begun.writes], begun.changes)
        if isinstance(task, Page):
            assert result is None or isinstance(result, Found)
            return self._page_done(task, result, memory, now_ms)
        if isinstance(task, Events):
            assert result is None or isinstance(result, Stretch)
            return self._events_done(task, result, now_ms)
        return told_as(request, task.progress, True, now_ms)

    def _page_done(self, task: Page, found: Found | None, memory: ReplayMemory, now_ms: int) -> Outcome:
        writes: list[Write] = []
        changes: list[Change] = []
        sent = skipped = matched = 0
        cursor, looked_at, reason = task.cursor, task.looked_at, task.progress.reason
        for meant in task.letters:
            if found is not None and meant.offset >= found.up_to:
                cursor, looked_at = meant.offset, meant.looked_at - 1
                break
            matched += 1
            if found is None:
                continue
            why_not = self._letter_done(task, meant, found, memory, now_ms, writes, changes)
            sent, skipped, reason = sent + (why_not is None), skipped + (why_not is not None), why_not or reason
        progress = counted(task.progress, cursor, looked_at, matched, sent, skipped, reason)
        told = told_as(task.request, progress, True, now_ms)
        return Outcome([*writes, *told.writes], [*changes, *told.changes])

    def _letter_done(
        self, task: Page, meant: Meant, found: Found, memory: ReplayMemory, now_ms: int, writes: list[Write], changes: list[Change]
    ) -> str | None:
        """Send one again, or mark it; or say why not."""
        record = found.records.get(meant.offset)
        if memory.letter(meant.offset) is None:
            return "some were closed by somebody else meanwhile"
        if record is None:
            return f"the dead letter {meant.letter.id} is no longer in the log"
        try:
            fields = schemas.decode(record.value or b"", schemas.DEAD_LETTER)
            again = self._again(task, fields, found.origins.get(meant.offset)) if task.request.action == "START" else None
            if isinstance(again, str):
                return again
            told = letters.triaged(fields, rules.TRIAGED[task.request.action], task.request, now_ms)
        except MalformedRecord as error:
            return f"the dead letter {meant.letter.id} cannot be replayed: {error}"
        for write in (told,) if again is None else (again, told):
            if write.bytes_at_most > self._record_bytes_max:
                return f"the dead letter {meant.letter.id} is too large to be written again: {write.bytes_at_most} bytes"
        writes += [told] if again is None else [again, told]
        changes += marked(meant.offset, meant.letter, task.request)
        return None

    def _again(self, task: Page, fields: Mapping[str, Any], origin: Record | None) -> Write | str:
        if fields["kind"] == "RECORD":
            return letters.as_record(fields, origin)
        return letters.why_undeliverable(fields, self._subscriptions) or letters.as_delivery(fields, task.request.id)

    def _events_done(self, task: Events, found: Stretch | None, now_ms: int) -> Outcome:
        subscription = self._subscriptions.by_id.get(task.request.subscription_id or "")
        if found is None or subscription is None:
            reason = f"subscription {task.request.subscription_id} was deleted"
            return told_as(task.request, msgspec.structs.replace(task.progress, standing="STOPPED", reason=reason), True, now_ms)
        made = [events.delivery_of(record, subscription, task.request, self._record_bytes_max) for record in found.records]
        writes = [each for each in made if isinstance(each, Write)]
        reasons = [each for each in made if isinstance(each, str)]
        sent = 0 if task.request.dry_run else len(writes)
        progress = counted(
            task.progress, found.next_offset, found.looked_at, len(writes) + len(reasons), sent, len(reasons),
            reasons[-1] if reasons else task.progress.reason,
        )  # fmt: skip
        told = told_as(task.request, progress, True, now_ms)
        return Outcome([*writes[:sent], *told.writes], told.changes)


def index(record: Record, memory: ReplayMemory, now_ms: int) -> Outcome:
    """Take a dead letter into the index, or what people did about it."""
    place = indexed_change(record.offset)
    try:
        fields = schemas.decode(record.value or b"", schemas.DEAD_LETTER)
    except MalformedRecord as error:
        return Outcome(dead_letter(record, str(error), now_ms).writes, [place])
    letter, known = letter_of(fields), memory.place(fields["id"])
    changes: list[Change] = []
    if letter.triage == "ACKNOWLEDGED":
        if known is not None and (open_one := memory.letter(known.offset)) is not None:
            changes = opened(known.offset, msgspec.structs.replace(open_one, triage=letter.triage))
    else:
        if known is not None:
            changes = closed(known.offset, letter.id)
        if letter.triage not in rules.TRIAGED.values():
            changes += opened(record.offset, letter)
    return Outcome((), [*changes, place])


def control(request: Request, memory: ReplayMemory, now_ms: int) -> Outcome:
    """Pause, resume or stop."""
    replay = memory.replay(request.id)
    if replay is None:
        return Outcome([tell(request, Progress("REFUSED", reason=f"there is no replay {request.id}"))])
    progress = rules.controlled(replay.progress, request.action)
    return NOTHING if progress is None else told_as(decode(replay.request)[0], progress, replay.is_ready, now_ms)


def page(run: Run, memory: ReplayMemory) -> Page:
    """The next dead letters that are meant."""
    size, looked_at, cursor = rules.page_size(run.rate_per_s), 0, run.progress.cursor
    found: list[Meant] = []
    for offset, letter in memory.letters(cursor, run.progress.end):
        looked_at, cursor = looked_at + 1, offset + 1
        if rules.matches(letter, run.request):
            found.append(Meant(offset, letter, looked_at))
        if len(found) == size or looked_at == LOOKED_AT_MAX:
            break
    else:
        cursor = run.progress.end
    return Page(run.request, run.progress, run.partition, run.rate_per_s, found, looked_at, cursor)


async def read_page(task: Page, world: ReplayWorld) -> Found | None:
    """The records of a page's letters, and of those that only refer to theirs; none for a dry run."""
    if task.request.dry_run:
        return None
    offsets = [meant.offset for meant in task.letters]
    records, up_to = await world.reader.records(topics.DLQ, task.partition, offsets) if offsets else ({}, task.cursor)
    origins = {
        offset: origin for offset, record in records.items() if (origin := await origin_of(task.request, record, world.reader)) is not None
    }
    if task.request.action == "START":
        await world.sleep(len(records) / task.rate_per_s)
    return Found(records, origins, up_to)


async def origin_of(request: Request, record: Record, reader: Reader) -> Record | None:
    """The record that a letter was too small for; None where it is not needed or no longer there."""
    try:
        letter = schemas.decode(record.value or b"", schemas.DEAD_LETTER)
    except MalformedRecord:
        return None
    if request.action != "START" or letter["kind"] != "RECORD" or letter["payload"] is not None or letter["origin"] is None:
        return None
    topic, offset = letters.WRITABLE.get(letter["origin"]["topic"]), letter["origin"]["offset"]
    if topic is None:
        return None
    found, _ = await reader.records(topic, letter["origin"]["partition"], [offset])
    return found.get(offset)


def marked(offset: int, letter: Letter, request: Request) -> list[Change]:
    """What a letter's end, or its being known, is in the index."""
    if request.action == "ACKNOWLEDGE":
        return opened(offset, msgspec.structs.replace(letter, triage="ACKNOWLEDGED"))
    return closed(offset, letter.id)


def counted(before: Progress, cursor: int, looked_at: int, matched: int, sent: int, skipped: int, reason: str | None) -> Progress:
    """A page further."""
    return finished_at_end(
        msgspec.structs.replace(
            before,
            cursor=cursor,
            looked_at=before.looked_at + looked_at,
            matched=before.matched + matched,
            sent=before.sent + sent,
            skipped=before.skipped + skipped,
            reason=reason[:REASON_CHARS_MAX] if reason else None,
        )
    )


def finished_at_end(progress: Progress) -> Progress:
    """There is no more."""
    return msgspec.structs.replace(progress, standing="FINISHED") if progress.cursor >= progress.end else progress


def told_as(request: Request, progress: Progress, is_ready: bool, now_ms: int) -> Outcome:
    """Where a replay stands, told and remembered."""
    return Outcome([tell(request, progress)], [replay_change(request.id, Replay(encode(request), progress, is_ready, now_ms))])
