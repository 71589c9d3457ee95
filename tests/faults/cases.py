"""The faults: what is done to the workers or the brokers, at random moments, while records flow."""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.harness import PARTITIONS, Run
from tests.pipelines import OUT, POSTED
from topology import broker

FREEZE_S = 8.0
"""Longer than the session of 6 s."""

COMMIT_POINTS = ("commit-begins", "commit-written", "commit-decides", "commit-decided", "commit-stored")
GUESTS_MAX = 8
REBALANCE_POINTS = ("revoke-begins", "revoke-ends", "assign-begins", "assign-ends")


@dataclass
class Fault:
    """How one kind of fault is done once. `figures` collects what is worth knowing of it."""

    name: str
    strike: "Callable[[Run, random.Random, Fault], None]"
    brokers: int = 1
    kills: int = 0
    figures: dict[str, list[float]] = field(default_factory=dict)

    def note(self, name: str, value: float) -> None:
        self.figures.setdefault(name, []).append(round(value, 3))


def kill(run: Run, chance: random.Random, fault: Fault) -> None:
    """kill -9 of a worker at any moment; how soon it works again, and whether the others notice."""
    time.sleep(chance.uniform(2.1, 2.6))
    began_s = time.monotonic()
    run.kill(chance.choice(sorted(run.processes)))
    fault.kills += 1
    note_pauses(run, fault, began_s)


def note_pauses(run: Run, fault: Fault, began_s: float) -> None:
    """Partitions that paused are the killed worker's; with range and two workers each has half of them."""
    places = {(topic.name, number) for topic in (OUT, POSTED) for number in range(PARTITIONS)}
    deadline_s = began_s + 20
    while time.monotonic() < deadline_s and any((run.watcher.first_after(place, began_s + 0.3) or 0) == 0 for place in places):
        time.sleep(0.02)
    ended_s = time.monotonic()
    gaps = {place: run.watcher.widest_gap_s({place}, began_s, ended_s) for place in places}
    by_number = {number: max(gaps[OUT.name, number], gaps[POSTED.name, number]) for number in range(PARTITIONS)}
    halves = [
        [by_number[number] for number in range(PARTITIONS // 2)],
        [by_number[number] for number in range(PARTITIONS // 2, PARTITIONS)],
    ]
    others, killed = sorted(halves, key=max)
    fault.note("back_s", max(killed))
    fault.note("others_gap_s", max(others))


def harm_at(points: tuple[str, ...], nth_max: int) -> Callable[[Run, random.Random, Fault], None]:
    """kill -9 of a worker by itself, exactly at one of these points."""

    def strike(run: Run, chance: random.Random, fault: Fault) -> None:
        name = chance.choice(sorted(run.processes))
        run.leave(name)
        run.start(name, f"{chance.choice(points)}:{chance.randint(1, nth_max)}:SIGKILL")
        assert run.wait_for_second_life(name), f"{name} never came to its fault; its log is in {run.folder}"
        fault.kills += 1
        run.wait_until_working()

    return strike


def kill_in_restore(run: Run, chance: random.Random, fault: Fault) -> None:
    """kill -9 while the state comes back, with its local files gone."""
    name = chance.choice(sorted(run.processes))
    run.leave(name)
    for agent in ("counting", "effect"):
        shutil.rmtree(run.folder / name / agent, ignore_errors=True)
    run.start(name, chance.choice([f"restore-begins:{chance.randint(1, 2)}:SIGKILL", f"restore-stores:{chance.randint(1, 6)}:SIGKILL"]))
    assert run.wait_for_second_life(name), f"{name} never came to its fault; its log is in {run.folder}"
    fault.kills += 1
    run.wait_until_working()


def kill_in_rebalance(run: Run, chance: random.Random, fault: Fault) -> None:
    """kill -9 inside a rebalance callback, while other workers join and die too: as many as it takes."""
    name = chance.choice(sorted(run.processes))
    run.leave(name)
    run.start(name, f"{chance.choice(REBALANCE_POINTS)}:{chance.randint(1, 3)}:SIGKILL")
    time.sleep(chance.uniform(0.3, 1.5))
    guests = invite_until(run, fault, lambda: run.wait_for_second_life(name, 4))
    fault.kills += 1
    for guest in guests:
        run.kill(guest)
        run.leave(guest)
    run.wait_until_working()


def invite_until(run: Run, fault: Fault, struck: Callable[[], bool]) -> list[str]:
    """Let one worker after another join, each a rebalance for the others, until the armed one was struck in its callback."""
    guests: list[str] = []
    for turn in range(GUESTS_MAX):
        guests.append(f"joined-{len(fault.figures.get('rebalances', []))}-{turn}")
        run.start(guests[-1])
        if struck():
            fault.note("rebalances", turn + 1)
            return guests
    raise AssertionError(f"{GUESTS_MAX} rebalances did not bring the armed worker to its fault; the logs are in {run.folder}")


def freeze(run: Run, chance: random.Random, fault: Fault) -> None:
    """SIGSTOP for longer than the session, then SIGCONT."""
    time.sleep(chance.uniform(0.1, 0.5))
    name = chance.choice(sorted(run.processes))
    run.kill(name, signal.SIGSTOP)
    time.sleep(FREEZE_S + chance.uniform(0, 1))
    run.kill(name, signal.SIGCONT)
    run.wait_until_working()


def freeze_in_revoke(run: Run, chance: random.Random, fault: Fault) -> None:
    """SIGSTOP inside the revoke callback, past the session, then SIGCONT."""
    name = chance.choice(sorted(run.processes))
    run.leave(name)
    run.start(name, f"{chance.choice(['revoke-begins', 'revoke-ends'])}:{chance.randint(1, 2)}:SIGSTOP")
    run.wait_until_working()
    pid = run.pid(name)
    guests = invite_until(run, fault, lambda: stops_within(pid, 4))
    time.sleep(FREEZE_S)
    os.kill(pid, signal.SIGCONT)
    for guest in guests:
        run.leave(guest)
    run.wait_until_working()


def stops_within(pid: int, seconds: float) -> bool:
    deadline_s = time.monotonic() + seconds
    while time.monotonic() < deadline_s and not is_stopped(pid):
        time.sleep(0.02)
    return is_stopped(pid)


def is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"
    except FileNotFoundError:
        return False


def join_and_leave(run: Run, chance: random.Random, fault: Fault) -> None:
    """A worker joins, works, and leaves; its place is free when its session is over."""
    name = f"guest-{chance.randrange(10**6)}"
    run.start(name)
    run.wait_until_given_work(name)
    run.wait_until_working()
    time.sleep(chance.uniform(0, 2))
    run.leave(name)
    run.wait_until_working()


def kill_leader(run: Run, chance: random.Random, fault: Fault) -> None:
    """kill -9 of a broker, which leads a third of everything, and its return."""
    folder = run.folder.parent / "brokers"
    running = broker.status(folder)
    assert running is not None
    node = chance.choice(running.nodes)
    time.sleep(chance.uniform(0.1, 0.5))
    os.kill(node.pid, signal.SIGKILL)
    time.sleep(chance.uniform(1, 3))
    run.wait_until_working(180)
    broker.start_node(folder, node.id)
    time.sleep(3)
    run.wait_until_working(180)


def faults() -> dict[str, Fault]:
    """Every kind, fresh."""
    return {
        fault.name: fault
        for fault in (
            Fault("kill", kill),
            Fault("kill_in_commit", harm_at(COMMIT_POINTS, 30)),
            Fault("kill_in_restore", kill_in_restore),
            Fault("kill_in_rebalance", kill_in_rebalance),
            Fault("freeze", freeze),
            Fault("freeze_in_revoke", freeze_in_revoke),
            Fault("join_and_leave", join_and_leave),
            Fault("kill_leading_broker", kill_leader, brokers=3),
        )
    }
