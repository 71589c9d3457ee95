"""One payout in a world that loses, doubles and reorders: it ends or waits for a person, and is never both paid and given back.

The channel of this world is honest about what it has done; everything between it and the saga is not. Calls may be carried out late,
their answers may be lost or come twice, timers come when they are due and not before, and a person resolves what is stuck by asking the
channel. What is checked is what the channel has really done against what the ledger says.
"""

from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from streams.payouts.messages import Alert, Call, Cancel, Due, Effect, Outcome, Replied, Resolve, Tell, Wait
from streams.payouts.payout import ENDED
from streams.payouts.policy import ChannelPolicy
from tests.payouts.making import NOW, Driven, payout

POLICY = ChannelPolicy(timeout_ms=60_000, tries=2)
AMOUNT, FEE = 1_000, 10


@dataclass
class Channel:
    """What it has really done: nothing, taken it, paid it, or refused it for good. It knows a key only once."""

    truth: str = "unknown"
    paid: int = 0
    arriving: list[tuple[int, int]] = field(default_factory=list)
    """Requests on their way: from when to when they may arrive. A request lives no longer than its call's time limit."""

    def take(self, verdict: str) -> None:
        if self.truth == "unknown":
            self.decide(verdict)

    def decide(self, verdict: str) -> None:
        self.truth = verdict
        self.paid += verdict == "SUCCESS"

    def answer(self) -> Outcome:
        answers: dict[str, Outcome] = {"unknown": "NOT_FOUND", "PENDING": "PENDING", "SUCCESS": "SUCCESS", "FAILED": "FAILED"}
        return answers[self.truth]


class OnePayout(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = NOW
        self.channel = Channel()
        self.calls: list[Call] = []
        self.timers: list[Wait] = []
        self.replies: list[Replied] = []
        self.told: list[str] = []
        self.alerts: list[str] = []
        self.driven = Driven(payout(amount_minor=AMOUNT, fee_minor=FEE), available=5_000, policy=POLICY)
        self.do(self.driven.begin(self.now_ms))

    def do(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Call):
                self.calls.append(effect)
            elif isinstance(effect, Wait):
                self.timers.append(effect)
            elif isinstance(effect, Tell):
                self.told.append(effect.event)
            elif isinstance(effect, Alert):
                self.alerts.append(effect.event)

    # The channel and the way to it

    @precondition(lambda self: self.calls)
    @rule(
        data=st.data(),
        way=st.sampled_from(["there and back", "answer lost", "late", "refused connection"]),
        verdict=st.sampled_from(["PENDING", "SUCCESS", "FAILED"]),
    )
    def carry_out_a_call(self, data: st.DataObject, way: str, verdict: str) -> None:
        call = data.draw(st.sampled_from(self.calls))
        self.calls.remove(call)
        self.now_ms = max(self.now_ms, call.due_ms)
        if call.action == "SUBMIT" and not self.may_be_sent(call):
            self.reply(call, "NOT_SENT")
        elif way == "refused connection":
            self.reply(call, "ERROR")
        elif call.action == "POLL":
            self.reply(call, "LOST" if way != "there and back" else self.channel.answer())
        elif way == "late":
            self.channel.arriving.append((self.now_ms, self.now_ms + 2 * POLICY.timeout_ms - 1))
            self.now_ms += POLICY.timeout_ms
            self.reply(call, "LOST")
        else:
            self.channel.take(verdict)
            self.reply(call, "LOST" if way == "answer lost" else self.channel.answer())

    @precondition(lambda self: self.calls and len(self.calls) == 1)
    @rule(data=st.data(), way=st.sampled_from(["there and back", "answer lost", "late", "refused connection"]))
    def a_round_trip(self, data: st.DataObject, way: str) -> None:
        self.carry_out_a_call(data, way, "PENDING")
        self.do(self.driven.take(self.replies.pop(), self.now_ms))

    def may_be_sent(self, call: Call) -> bool:
        return call.action == "SUBMIT" and max(self.now_ms, call.due_ms) <= call.due_ms + POLICY.submit_within_ms

    def reply(self, call: Call, outcome: Outcome) -> None:
        self.replies.append(Replied(call.action, call.number, outcome))

    @precondition(lambda self: self.channel.arriving)
    @rule(verdict=st.sampled_from(["PENDING", "SUCCESS", "FAILED"]))
    def a_late_request_arrives(self, verdict: str) -> None:
        _, until_ms = self.channel.arriving.pop()
        if self.now_ms <= until_ms:
            self.channel.take(verdict)

    @precondition(lambda self: self.channel.truth == "PENDING")
    @rule(verdict=st.sampled_from(["SUCCESS", "FAILED"]))
    def the_channel_decides(self, verdict: str) -> None:
        self.channel.decide(verdict)

    # What comes back

    @precondition(lambda self: self.replies)
    @rule(data=st.data(), fate=st.sampled_from(["comes", "comes", "comes", "comes twice", "is lost"]))
    def a_reply(self, data: st.DataObject, fate: str) -> None:
        reply = data.draw(st.sampled_from(self.replies))
        if fate != "comes twice":
            self.replies.remove(reply)
        if fate != "is lost":
            self.do(self.driven.take(reply, self.now_ms))

    @precondition(lambda self: self.timers)
    @rule()
    def a_timer(self) -> None:
        timer = min(self.timers, key=lambda each: each.due_ms)
        self.timers.remove(timer)
        self.now_ms = max(self.now_ms, timer.due_ms)
        self.do(self.driven.take(Due(timer.timer, timer.mark), self.now_ms))

    @rule(seconds=st.integers(1, 900))
    def time_passes(self, seconds: int) -> None:
        self.now_ms += seconds * 1_000

    @rule(works=st.booleans())
    def the_ledger_breaks_or_is_mended(self, works: bool) -> None:
        self.driven.ledger_works = works

    @rule()
    def somebody_wants_to_cancel(self) -> None:
        self.do(self.driven.take(Cancel("c9"), self.now_ms))

    @precondition(lambda self: self.driven.payout.state == "STUCK" and self.channel.truth != "PENDING")
    @rule()
    def a_person_asks_the_channel_and_resolves(self) -> None:
        self.resolve()

    def resolve(self) -> None:
        word = Resolve(f"r{self.now_ms}", "SUCCESS" if self.channel.truth == "SUCCESS" else "FAILED", "ann")
        self.do(self.driven.take(word, self.now_ms))

    # What must hold

    @invariant()
    def it_was_never_both_paid_and_given_back(self) -> None:
        hold = self.driven.hold
        assert self.channel.paid <= 1
        if hold is not None and hold.state == "VOIDED":
            assert self.channel.paid == 0, self.driven.payout.history
            if self.channel.truth == "unknown":  # one that is known will not be paid by another request of the same key
                assert not [each for each in self.channel.arriving if self.now_ms <= each[1]], "a request may still arrive"
                assert not [call for call in self.calls if self.may_be_sent(call)], "a submission may still be sent"
        if hold is not None and hold.state == "POSTED":
            assert self.channel.paid == 1, self.driven.payout.history

    @invariant()
    def sums_are_zero(self) -> None:
        balances = self.driven.balances
        assert balances.total == 0
        assert min(balances.available, balances.held, balances.fees, balances.settled) >= 0

    @invariant()
    def it_has_ended_or_somebody_has_it(self) -> None:
        state = self.driven.payout.state
        assert state in ENDED or state == "STUCK" or self.timers or self.calls or self.replies

    @invariant()
    def its_end_is_told_once(self) -> None:
        ends = [event for event in self.told if event in ("payout.success", "payout.failed", "payout.cancelled")]
        assert len(ends) == (self.driven.payout.state in ENDED)

    def teardown(self) -> None:
        """Let everything come to its end: nothing more is lost, and the person is patient."""
        self.driven.ledger_works = True
        for _ in range(10_000):
            if self.driven.payout.state in ENDED:
                break
            if self.channel.truth == "PENDING":
                self.channel.decide("FAILED")
            if self.replies:
                self.do(self.driven.take(self.replies.pop(0), self.now_ms))
            elif self.driven.payout.state == "STUCK":
                self.now_ms += 60_000
                self.resolve()
            elif self.calls:
                call = self.calls.pop(0)
                self.now_ms = max(self.now_ms, call.due_ms)
                self.reply(call, "NOT_SENT" if call.action == "SUBMIT" else self.channel.answer())
                if self.may_be_sent(call):
                    self.channel.take("SUCCESS")
                    self.replies[-1] = Replied("SUBMIT", call.number, self.channel.answer())
            else:
                self.a_timer()
        assert self.driven.payout.state in ENDED, self.driven.payout
        self.it_was_never_both_paid_and_given_back()
        assert self.driven.hold is None or self.driven.hold.state != "PENDING"
        assert self.driven.balances.held == 0


TestOnePayout = OnePayout.TestCase
TestOnePayout.settings = settings(
    max_examples=500, stateful_step_count=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
