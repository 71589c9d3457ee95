"""`hookline replay`, `retry-now`, `cancel` and `subscriptions enable --replay`, on a real broker, with somebody who plays the agent."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from streams.commands import following, terminal
from streams.errors import ConfigurationError, HooklineError
from tests.commands.ground import PARTITIONS, Ground, finished

pytestmark = pytest.mark.kafka

ROOT = Path(__file__).parents[2]


def controlled(request: Mapping[str, Any], partition: int) -> list[dict[str, Any]]:
    """An agent that is half through with partition 0, and through with the others, until it is told otherwise."""
    half: dict[str, Any] = {"cursor": 5, "end": 10, "looked_at": 5, "matched": 5, "sent": 5}
    if partition:
        return finished(request, partition) if request["action"] == "START" else []
    return {
        "START": [{"standing": "RUNNING", **half}],
        "PAUSE": [{"standing": "PAUSED", **half}],
        "RESUME": [{"standing": "RUNNING", "turn": 1, **half}, {"standing": "FINISHED", "turn": 1, "matched": 10, "sent": 10}],
        "STOP": [{"standing": "STOPPED", **half}],
    }[request["action"]]


def started(ground: Ground) -> str:
    """A replay that runs, and is known to."""
    name = ground.run("dlq", "replay", "e1", "--no-wait").strip()
    deadline_s = time.monotonic() + 60
    while ground.json("replay", "show", name)["sent"] != 7:  # 5 of partition 0 and 2 of partition 1
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    return name


def test_a_stretch_of_events_is_asked_for_as_the_options_say(ground: Ground) -> None:
    name = ground.subscribe("m1")
    with ground.agent(finished):
        said = ground.run(
            "replay", "--from", "2023-11-14T22:13:20Z", "--to", "2023-11-15T22:13:20Z", "--subscription", name, "--missing-only",
            "--rate", "9", "--type", "payin.success",
        )  # fmt: skip

    assert "FINISHED: 10 looked at, 6 matched, 4 sent, 2 skipped" in said
    expected = {
        "action": "START", "from_log": "EVENTS", "subscription_id": name, "from_ms": 1_700_000_000_000, "to_ms": 1_700_086_400_000,
        "missing_only": True, "include_cancelled": False, "rate_per_s": 9.0, "event_type": "payin.success", "dry_run": False,
    }  # fmt: skip
    written = ground.requests()
    assert len(written) == PARTITIONS
    assert all({key: each[key] for key in expected} == expected for each in written)


def test_a_running_replay_is_paused_resumed_and_told_of(ground: Ground) -> None:
    with ground.agent(controlled):
        name = started(ground)
        assert ground.json("replay", "pause", name, "--note", "too fast")["standing"] == "PAUSED"
        assert [each["id"] for each in ground.json("replay", "list", "--running")] == [name]
        resumed = ground.json("replay", "resume", name)

    assert (resumed["standing"], resumed["sent"]) == ("FINISHED", 12)
    assert [each["action"] for each in resumed["controls"]] == ["PAUSE", "RESUME"]
    said = ground.run("replay", "show", name)
    assert "too fast" in said and "FINISHED" in said
    assert ground.json("replay", "list", "--running") == []
    listed = ground.run("replay", "list")
    assert f"{name}  FINISHED" in listed and "DEAD_LETTERS of e1" in listed
    with pytest.raises(ConfigurationError, match=f"replay {name} is FINISHED: nothing of it is left to stop"):
        ground.run("replay", "stop", name)


def test_stopping_a_replay_is_a_success_to_who_asked(ground: Ground) -> None:
    with ground.agent(controlled):
        name = started(ground)
        stopped = ground.json("replay", "stop", name, "--by", "mia")

    assert (stopped["standing"], stopped["sent"], stopped["controls"][0]["requested_by"]) == ("STOPPED", 7, "mia")


def test_a_replay_is_watched_by_somebody_else_until_it_has_ended(ground: Ground) -> None:
    with ground.agent(controlled):
        name = started(ground)
        (request, *_) = ground.requests()
        ending = threading.Timer(1, lambda: ground.tell(request, 0, standing="FINISHED", matched=10, sent=10))
        ending.start()
        watched = ground.json("replay", "show", name, "--follow")
        ending.join()

    assert (watched["standing"], watched["sent"]) == ("FINISHED", 12)


def test_who_follows_a_replay_that_is_stopped_is_told_by_the_code(ground: Ground) -> None:
    with ground.agent(lambda request, partition: [{"standing": "STOPPED", "sent": 1}]):
        result = ground.invoke("dlq", "replay", "e1")

    assert result.exit_code == 1
    assert "STOPPED" in result.stdout


def test_a_replay_that_there_is_not_is_told(ground: Ground) -> None:
    for verb in ("pause", "resume", "stop", "show"):
        with pytest.raises(ConfigurationError, match="there is no replay 'rep_x'"):
            ground.run("replay", verb, "rep_x")
    assert ground.run("replay", "list") == "no replays\n"


def test_where_nobody_answers_it_says_so_and_waits_on(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "SILENCE_TOLD_S", 0.0)
    told = terminal.aside.print
    answered = threading.Event()

    def printed(*words: Any, **style: Any) -> None:
        told(*words, **style)
        if "No answer yet from anybody: is a worker with the role replay running?" in str(words[0]):
            answered.set()

    def late(request: Mapping[str, Any], partition: int) -> list[dict[str, Any]]:
        assert answered.wait(60)
        return finished(request, partition)

    monkeypatch.setattr(terminal.aside, "print", printed)
    with ground.agent(late):
        assert "FINISHED" in ground.run("dlq", "replay", "e1")
    assert answered.is_set()


def test_ctrl_c_leaves_it_running_and_says_how_to_go_on(ground: Ground) -> None:
    # Tests that a shell runs in the background have it ignored, and what they start would too.
    heeds_it = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    command = [sys.executable, "-c", heeds_it + "from streams.cli import main; main()", "dlq", "replay", "e1"]
    environment = {**os.environ, **ground.environment, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert "No answer yet" in process.stderr.readline()
    finally:
        process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]

    (request, *_) = ground.requests()
    assert process.returncode == 130
    assert f"{request['id']} goes on without you." in said
    assert f"hookline replay show {request['id']} --follow" in said and f"hookline replay stop {request['id']}" in said
    assert {each["action"] for each in ground.requests()} == {"START"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["retry-now", "e1", "--subscription", "sub_1"], {"action": "RETRY_NOW", "event_id": "e1", "subscription_id": "sub_1"}),
        (["cancel", "e1"], {"action": "CANCEL", "event_id": "e1", "subscription_id": None}),
        (["cancel", "e1", "--subscription", "sub_1"], {"action": "CANCEL", "event_id": "e1", "subscription_id": "sub_1"}),
    ],
)
def test_a_delivery_that_waits_is_retried_now_or_cancelled(ground: Ground, arguments: list[str], expected: dict[str, Any]) -> None:
    with ground.agent(lambda request, partition: [{"standing": "FINISHED"}]):  # the deliver role does it, and tells it in the status
        assert ground.run(*arguments).endswith("FINISHED: passed on to the deliver role. `hookline status e1` tells what came of it\n")
    assert {name: ground.requests()[0][name] for name in expected} == expected


# Resuming from when it was disabled


def test_a_subscription_is_enabled_and_what_it_missed_is_asked_for(ground: Ground) -> None:
    name = ground.subscribe("m1")
    disabled = ground.json("subscriptions", "disable", name)
    with ground.agent(finished):
        said = ground.run("subscriptions", "enable", name, "--replay", "--rate", "3")

    assert f"{name} is ACTIVE (by hand)" in said and "FINISHED" in said
    expected = {
        "action": "START", "from_log": "EVENTS", "subscription_id": name, "from_ms": disabled["created_ms"], "to_ms": None,
        "missing_only": True, "include_cancelled": True, "rate_per_s": 3.0,
    }  # fmt: skip
    assert {key: ground.requests()[0][key] for key in expected} == expected
    assert ground.json("subscriptions", "show", name)["state"] == "ACTIVE"
    with pytest.raises(ConfigurationError, match="is ACTIVE, so it does not tell since when it missed something"):
        ground.run("subscriptions", "enable", name, "--replay")


def test_a_disabled_subscription_is_sent_nothing(ground: Ground) -> None:
    name = ground.subscribe("m1", "--disabled")
    for subscription, reason in ((name, "enable .* --replay"), ("sub_x", "there is no subscription 'sub_x'")):
        with pytest.raises(HooklineError, match=reason):
            ground.run("replay", "--from", "1h", "--subscription", subscription)
    assert ground.requests() == []


def test_without_anything_it_says_how(ground: Ground) -> None:
    result = ground.invoke("replay")

    assert result.exit_code == 2
    assert "--from" in result.stdout and "resume" in result.stdout
