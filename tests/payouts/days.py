"""A simulated day of payouts: channels that fail in their own ways, workers that die, clocks that step, and what must hold afterwards.

The bank below is the truth: what it has paid it has paid. What may go wrong is everything else: requests and answers that are lost or
late, a bank that does not know for a moment what it has taken, that is down, or that never says how it ended.
"""

import asyncio
import itertools
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import schemas
from streams.ladder.agent import ladder_agent
from streams.ladder.rules import UNSCALED
from streams.log.machine import Limits as MachineLimits
from streams.log.records import BY_KEY
from streams.log.simulated.clock import simulate
from streams.log.simulated.log import Faults
from streams.log.simulated.process import Process, System
from streams.payouts.agent import payouts
from streams.payouts.audit import Audit
from streams.payouts.beneficiaries import Beneficiaries
from streams.payouts.channels.agent import channels
from streams.payouts.channels.handler import Line
from streams.payouts.channels.port import Answer, Task
from streams.payouts.payout import ENDED
from streams.payouts.policy import CHANNELS, Fee, Rules
from streams.payouts.state import balances_in
from topology import topics
from topology.topics import Topic

START_MS = 1_700_000_000_000
PARTITIONS, MERCHANTS, BATCH_ITEMS = 2, 3, 6
BUSY_S, QUIET_S = 4 * 3_600.0, 5 * 86_400.0
CLOCK_STEP_MS = 7_000
"""Workers' clocks are apart by at most twice as much: less than a poll waits, or polls would follow each other without a pause."""
BEHAVIOURS = ("ok", "ok", "ok", "later", "later", "refuses", "fails later", "slow", "silent", "deaf", "forgetful", "never final", "down")
AMOUNT, FEE = 1_000, Fee(10, 50)


def true_ms() -> int:
    return START_MS + int(asyncio.get_running_loop().time() * 1000)


@dataclass
class Day:
    """What a seed came to."""

    seed: int
    payouts: int = 0
    states: Counter[str] = field(default_factory=Counter)
    stuck: int = 0
    calls: int = 0
    wrong: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


@dataclass
class Payment:
    """One key as the bank knows it."""

    amount_minor: int
    taken_s: float
    final_s: float
    ends_as: str


class Bank:
    """All channels, behind the network."""

    def __init__(self, chance: random.Random, report: Day) -> None:
        self.chance, self.report = chance, report
        self.behaviour: dict[str, str] = {}
        self.payments: dict[str, Payment] = {}

    def behaves(self, key: str) -> str:
        return self.behaviour.setdefault(key, self.chance.choice(BEHAVIOURS))

    def status(self, key: str, now_s: float) -> str | None:
        payment = self.payments.get(key)
        if payment is None:
            return None
        return payment.ends_as if now_s >= payment.final_s else "PENDING"

    def take(self, task: Task) -> None:
        """A request arrives. A key is one payment."""
        now_s = asyncio.get_running_loop().time()
        later_s = {"later": self.chance.uniform(1, 1_500), "fails later": self.chance.uniform(1, 1_500), "never final": 1e12}
        behaviour = self.behaves(task.idempotency_key)
        ends_as = "FAILED" if behaviour in ("refuses", "fails later") else "SUCCESS"
        payment = Payment(task.amount_minor, now_s, now_s + later_s.get(behaviour, 0.0), ends_as)
        known = self.payments.setdefault(task.idempotency_key, payment)
        if known.amount_minor != task.amount_minor:
            self.report.wrong.append(f"{task.idempotency_key} was submitted with {task.amount_minor} and {known.amount_minor}")

    def decide(self, key: str) -> str:
        """A person asks on the phone."""
        payment = self.payments.get(key)
        if payment is not None:
            payment.final_s = min(payment.final_s, asyncio.get_running_loop().time())
        return payment.ends_as if payment is not None else "FAILED"


class SimulatedChannel:
    """The bank as one process reaches it."""

    def __init__(self, bank: Bank, process: Process) -> None:
        self.bank, self.process = bank, process

    async def submit(self, task: Task, expires_ms: int) -> Answer:
        bank, chance, limit_s = self.bank, self.bank.chance, task.timeout_ms / 1_000
        await self.process.gate.passed()
        bank.report.calls += 1
        match bank.behaves(task.idempotency_key):
            case "down" if chance.random() < 0.9:
                return await self._after(0.01, Answer("ERROR", detail="connection refused"))
            case "silent":
                self._arrives_in(chance.uniform(0, limit_s), task)
                return await self._after(limit_s, Answer("LOST"))
            case "deaf" if chance.random() < 0.7:
                return await self._after(limit_s, Answer("LOST"))
            case "slow":
                self._arrives_in(chance.uniform(0, limit_s * 0.9), task)
                await self._after(limit_s * 0.95, Answer("LOST"))
        await asyncio.sleep(chance.uniform(0.01, 0.5))
        bank.take(task)
        return await self._after(chance.uniform(0.01, 0.5), self._told(task))

    async def poll(self, task: Task) -> Answer:
        await self.process.gate.passed()
        behaviour, chance = self.bank.behaves(task.idempotency_key), self.bank.chance
        self.bank.report.calls += 1
        if behaviour == "down" or chance.random() < 0.05:
            return await self._after(0.01, Answer(chance.choice(["ERROR", "LOST"])))
        return await self._after(chance.uniform(0.01, 0.5), self._told(task))

    def _told(self, task: Task) -> Answer:
        now_s = asyncio.get_running_loop().time()
        payment = self.bank.payments.get(task.idempotency_key)
        forgetful = self.bank.behaves(task.idempotency_key) == "forgetful" and payment is not None and now_s < payment.taken_s + 40
        if payment is None or (forgetful and task.action == "POLL"):
            return Answer("NOT_FOUND")
        if forgetful:
            return Answer("LOST")
        status: Any = self.bank.status(task.idempotency_key, now_s)
        return Answer(status, f"ref-{task.idempotency_key}")

    def _arrives_in(self, seconds: float, task: Task) -> None:
        """The request is on its way, whatever becomes of who sent it."""
        asyncio.get_running_loop().call_later(seconds, self.bank.take, task)

    async def _after(self, seconds: float, answer: Answer) -> Answer:
        await asyncio.sleep(seconds)
        await self.process.gate.passed()
        return answer


class World:
    """One process's: its clock may be wrong, and what it begins ends with it."""

    def __init__(self, process: Process, bank: Bank, clocks: list["World"]) -> None:
        self._process = process
        self.step_ms = 0
        self.channels = {name: Line(SimulatedChannel(bank, process), 50) for name in CHANNELS}
        clocks.append(self)

    def now_ms(self) -> int:
        return true_ms() + self.step_ms

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._process.gate.passed()


def run_day(seed: int) -> Day:
    """Simulate one seed."""
    return simulate(day(seed))


class Ground:
    """The systems of a day on one cluster."""

    def __init__(self, seed: int, report: Day) -> None:
        self.chance, self.report, self.clocks = random.Random(seed), report, list[World]()
        self.bank = Bank(self.chance, report)
        chance = self.chance
        beneficiaries = Beneficiaries()
        for merchant, channel in itertools.product(range(MERCHANTS), CHANNELS):
            fields = {
                "id": channel, "merchant": f"m{merchant}", "name": "A", "channel": channel, "account": "1", "state": "ACTIVE",
                "created_ms": START_MS, "updated_ms": START_MS,
            }  # fmt: skip
            beneficiaries.apply(f"m{merchant} {channel}".encode(), schemas.encode(schemas.BENEFICIARY, fields))
        self.rules = Rules(fees={f"{channel}/PKR": FEE for channel in CHANNELS}, four_eyes=chance.random() < 0.3)
        faults = Faults(abort=chance.choice([0, 0.1]), lost_answer=chance.choice([0, 0.2]), step_ms_max=chance.choice([1, 20]))
        limits = MachineLimits(keep_every_s=chance.choice([30, 60]), note_ends_every_s=3_600)

        def world(process: Process) -> World:
            return World(process, self.bank, self.clocks)

        self.payouts = System(payouts(beneficiaries, self.rules), PARTITIONS, 2, seed, world, faults, limits)
        self.cluster = self.payouts.cluster
        self.cluster.clock = true_ms
        self.channels = System(channels(UNSCALED), PARTITIONS, 2, seed + 1, world, faults, limits, self.cluster)
        self.ladder = System(ladder_agent(UNSCALED), PARTITIONS, 1, seed + 2, world, faults, limits, self.cluster)
        self.systems = (self.payouts, self.channels, self.ladder)
        self.sent: dict[tuple[str, str], dict[str, Any]] = {}
        self.numbers = itertools.count(1)

    def command(self, merchant: str, kind: str, body: dict[str, Any], times: int = 1) -> None:
        number = next(self.numbers)
        fields = {"id": f"c{number}", "merchant": merchant, "kind": kind, "issued_ms": true_ms(), kind.lower(): body}
        value = schemas.encode(schemas.PAYOUT_COMMAND, fields)
        for _ in range(times):
            self.cluster.append((topics.PAYOUT_COMMANDS.name, int(merchant[1:]) % PARTITIONS), merchant.encode(), value, (), true_ms())

    def submit(self, merchant: str, **others: Any) -> None:
        name, channel = f"p{len(self.sent)}", self.chance.choice(CHANNELS)
        body = {
            "payout_id": name, "idempotency_key": name, "beneficiary_id": channel, "amount_minor": AMOUNT, "currency": "PKR",
            "channel": channel, **others,
        }  # fmt: skip
        self.sent[merchant, name] = body
        self.command(merchant, "SUBMIT", body, self.chance.choice([1, 1, 2]))

    def read(self, topic: Topic, schema: schemas.Schema) -> list[dict[str, Any]]:
        return [
            schemas.decode(entry.value or b"", schema)
            for number in (*range(PARTITIONS), BY_KEY)
            for entry in self.cluster.read((topic.name, number), 0, 10**9)
        ]

    def statuses(self) -> dict[tuple[str, str], dict[str, Any]]:
        """The last word on each payout."""
        found = self.read(topics.PAYOUT_STATUS, schemas.PAYOUT_STATUS)
        return {(each["merchant"], each["payout_id"]): each for each in found if (each["merchant"], each["payout_id"]) in self.sent}


async def day(seed: int) -> Day:
    report = Day(seed)
    ground = Ground(seed, report)
    chance = ground.chance
    for system in ground.systems:
        for host in system.hosts:
            host.start()
    for merchant in range(MERCHANTS):
        ground.command(
            f"m{merchant}", "FUND_ACCOUNT", {"transfer_id": "t", "amount_minor": chance.choice([8, 100]) * AMOUNT, "currency": "PKR"}, 2
        )
    ground.command("m0", "SUBMIT_BATCH", {"batch_id": "B", "items_total": BATCH_ITEMS})
    items = iter(range(BATCH_ITEMS))
    moments = sorted(chance.uniform(0, BUSY_S) for _ in range(chance.randint(15, 30)))
    for moment in moments:
        await asyncio.sleep(max(0.0, moment - asyncio.get_running_loop().time()))
        item = next(items, None)
        if item is not None:
            ground.submit("m0", batch_id="B", batch_index=item)
        scheduled_ms = true_ms() + chance.randint(-1_000, 7_200_000) if chance.random() < 0.2 else None
        ground.submit(f"m{chance.randrange(MERCHANTS)}", scheduled_ms=scheduled_ms)
        await trouble(ground)
    for item in items:
        ground.submit("m0", batch_id="B", batch_index=item)
    await until_all_over(ground)
    check(ground)
    return report


async def trouble(ground: Ground) -> None:
    chance = ground.chance
    what = chance.choice(["none", "kill", "kill", "freeze", "clock", "cancel", "mend", "long stop"])
    ground.report.faults.append(f"{asyncio.get_running_loop().time():.0f} {what}")
    system = chance.choice(ground.systems)
    match what:
        case "kill":
            await asyncio.sleep(chance.uniform(0, 2))
            system.kill(chance.choice(system.hosts), chance.uniform(0.1, 20))
        case "long stop":
            for host in ground.channels.hosts:
                ground.channels.kill(host, chance.uniform(300, 1_500))
        case "freeze":
            await system.freeze(chance.choice(system.hosts), chance.uniform(0.1, 20))
        case "clock":
            chance.choice(ground.clocks).step_ms = chance.randint(-CLOCK_STEP_MS, CLOCK_STEP_MS)
        case "cancel":
            merchant, name = chance.choice(list(ground.sent))
            ground.command(merchant, "CANCEL", {"payout_id": name})
        case "mend":
            for key, behaviour in ground.bank.behaviour.items():
                ground.bank.behaviour[key] = "ok" if behaviour in ("down", "deaf") else behaviour


async def until_all_over(ground: Ground) -> None:
    """Wait, and be the person who resolves what is stuck: ask the bank, say so, and let another confirm where that is wanted."""
    deadline_s = asyncio.get_running_loop().time() + QUIET_S
    stuck: set[tuple[str, str]] = set()
    while asyncio.get_running_loop().time() < deadline_s:
        await asyncio.sleep(1_800)
        found = ground.statuses()
        if len(found) == len(ground.sent) and all(status["state"] in (*ENDED, "REFUSED") for status in found.values()):
            ground.report.stuck = len(stuck)
            return
        for (merchant, name), status in found.items():
            if status["state"] == "STUCK":
                stuck.add((merchant, name))
                resolve(ground, merchant, name)
    open_ones = {key: status["state"] for key, status in ground.statuses().items() if status["state"] not in ENDED}
    ground.report.wrong.append(f"never over: {open_ones}, and without any status: {ground.sent.keys() - ground.statuses().keys()}")


def resolve(ground: Ground, merchant: str, name: str) -> None:
    body = {"payout_id": name, "status": ground.bank.decide(f"{merchant}/{name}"), "resolved_by": "ann", "notes": "phoned"}
    ground.command(merchant, "RESOLVE", body, 2)
    if ground.rules.four_eyes:
        first = f"c{next(ground.numbers) - 1}"
        ground.command(merchant, "RESOLVE", {**body, "resolved_by": "bob", "confirms": first})


def check(ground: Ground) -> None:
    report, wrong = ground.report, ground.report.wrong
    found = ground.statuses()
    report.payouts = len(found)
    ends = Counter(
        event["resource"]
        for event in ground.read(topics.EVENTS, schemas.EVENT)
        if event["type"] in ("payout.success", "payout.failed", "payout.cancelled")
    )
    for (merchant, name), status in found.items():
        state, payment = status["state"], ground.bank.payments.get(f"{merchant}/{name}")
        report.states[state] += 1
        is_paid = payment is not None and payment.ends_as == "SUCCESS"
        if is_paid != (state == "SUCCESS"):
            wrong.append(f"{name} is {state} and {'was' if is_paid else 'was not'} paid: {[s['message'] for s in status['history']]}")
        if payment is not None and payment.amount_minor != status["net_minor"]:
            wrong.append(f"{name}: {payment.amount_minor} was paid of {status['net_minor']}")
        if ends[name] != (state in ENDED):
            wrong.append(f"{name}: its end was told {ends[name]} times")
    check_ledger(ground, found)
    check_batch(ground)
    if letters := ground.read(topics.DLQ, schemas.DEAD_LETTER):
        wrong.append(f"dead letters: {[letter['detail'] for letter in letters]}")


def check_ledger(ground: Ground, found: dict[tuple[str, str], dict[str, Any]]) -> None:
    """Sums are zero at every commit, what is kept in the state is what the entries say, and what was paid was booked."""
    kept: dict[bytes, bytes | None] = {}
    settled = 0
    for number in range(PARTITIONS):
        audit = Audit()
        entries = ground.cluster.read((topics.LEDGER_ENTRIES.name, number), 0, 10**9)
        for _, together in itertools.groupby(entries, key=lambda entry: id(entry.transaction)):
            for entry in together:
                audit.take(schemas.decode(entry.value or b"", schemas.LEDGER_TRANSFER))
            ground.report.wrong += audit.findings()
        kept = {entry.key or b"": entry.value for entry in ground.cluster.read((topics.CHANGELOG_PAYOUTS.name, number), 0, 10**9)}
        check_balances(kept, audit, ground.report)
        settled += sum(balance for account, balance in audit.balances.items() if account.endswith("/settled"))
        if audit.pending and any(audit.pending.values()):
            ground.report.wrong.append(f"still held: {audit.pending}")
    paid = sum(payment.amount_minor for payment in ground.bank.payments.values() if payment.ends_as == "SUCCESS")
    if paid != settled:
        ground.report.wrong.append(f"the bank has paid {paid} and the ledger has settled {settled}")


def check_balances(kept: dict[bytes, bytes | None], audit: Audit, report: Day) -> None:
    for key, value in kept.items():
        found = balances_in(key, value) if value is not None else None
        if found is None:
            continue
        merchant, currency, balances = found
        for name in ("available", "held", "fees", "settled", "external"):
            account = f"{merchant}/{currency}/{name}"
            if getattr(balances, name) != audit.balances[account]:
                report.wrong.append(f"{account} is {getattr(balances, name)} in the state and {audit.balances[account]} by its entries")


def check_batch(ground: Ground) -> None:
    last = ground.read(topics.PAYOUT_BATCH_STATUS, schemas.PAYOUT_BATCH_STATUS)[-1]
    states = Counter(status["state"] == "SUCCESS" for status in ground.statuses().values() if status["batch_id"] == "B")
    told = sum(event["type"] == "batch.completed" for event in ground.read(topics.EVENTS, schemas.EVENT))
    if (last["items_succeeded"], last["total_processed"], told) != (states[True], BATCH_ITEMS, 1) or last["state"] == "OPEN":
        ground.report.wrong.append(f"the batch: {last}, and its items: {states}, completed {told} times")
