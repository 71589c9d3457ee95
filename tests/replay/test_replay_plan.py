"""What the replay agent plans when its own progress comes back: the next page, once the index has come to where the replay ends."""

from typing import Any

import msgspec
import pytest

from streams.delivery.subscription import Subscriptions
from streams.log.records import Record, Work
from streams.log.simulated.log import SimulatedStore
from streams.log.state import State
from streams.replay.handler import Replayer
from streams.replay.request import Progress, encode, tell
from streams.replay.state import Replay, ReplayMemory, indexed_change, opened, replay_change
from streams.replay.tasks import Page, Prepare, Wait
from tests.replay.pipeline import KEYRING
from tests.replay.test_replay_rules import ASKED, LETTER
from topology import topics

REPLAYER = Replayer(Subscriptions(KEYRING), 50.0, 1)
RUNNING = Progress(cursor=2, end=9)


def planned(told: Progress, known: Progress = RUNNING, *, indexed: int = 8, is_ready: bool = True) -> list[Any]:
    letters = {1: LETTER, 4: msgspec.structs.replace(LETTER, id="second"), 9: msgspec.structs.replace(LETTER, id="late")}
    changes = [change for offset, letter in letters.items() for change in opened(offset, letter)]
    changes += [indexed_change(indexed), replay_change("rep", Replay(encode(ASKED), known, is_ready, 1))]
    store = SimulatedStore()
    store.apply(dict(changes), 0)
    memory = ReplayMemory(State(store))
    value = tell(ASKED, told).value
    works = REPLAYER.plan(Record(topics.REPLAY_REQUESTS, 0, 3, b"rep", value, (), 1), memory, 1)
    assert isinstance(works, list | tuple)
    return [work.task for work in works if isinstance(work, Work)]


def test_the_next_page_has_what_is_meant_from_the_cursor_to_the_end() -> None:
    (page,) = planned(RUNNING)

    assert isinstance(page, Page)
    assert [(meant.offset, meant.letter.id) for meant in page.letters] == [(4, "second")]
    assert (page.cursor, page.looked_at) == (9, 1)


def test_a_replay_waits_for_the_index_to_come_to_its_end() -> None:
    (wait,) = planned(RUNNING, indexed=7)

    assert isinstance(wait, Wait)


def test_a_replay_that_has_just_begun_finds_out_its_end() -> None:
    (prepare,) = planned(Progress(), Progress(), is_ready=False)

    assert isinstance(prepare, Prepare)


@pytest.mark.parametrize(
    ("told", "known"),
    [
        (RUNNING, msgspec.structs.replace(RUNNING, turn=1)),
        (RUNNING, msgspec.structs.replace(RUNNING, cursor=4)),
        (RUNNING, msgspec.structs.replace(RUNNING, standing="PAUSED")),
        (msgspec.structs.replace(RUNNING, standing="PAUSED"), msgspec.structs.replace(RUNNING, standing="PAUSED")),
        (msgspec.structs.replace(RUNNING, standing="FINISHED"), msgspec.structs.replace(RUNNING, standing="FINISHED")),
    ],
)
def test_what_was_told_before_or_stands_still_plans_nothing(told: Progress, known: Progress) -> None:
    assert planned(told, known) == []
