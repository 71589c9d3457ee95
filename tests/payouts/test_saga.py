"""The saga: every state with every message, and the ways that a payout takes."""

from typing import Any

import msgspec
import pytest

from streams.payouts.messages import (
    MESSAGES,
    Action,
    Begin,
    Call,
    Cancel,
    Due,
    LedgerRefused,
    Message,
    Outcome,
    Posted,
    Replied,
    Reserved,
    Resolve,
    Unfit,
    Voided,
    Wait,
)
from streams.payouts.payout import ENDED, NOTES_MAX, STATES, Payout, Resolution, State
from streams.payouts.policy import LEDGER_DELAYS_MS, NOT_FOUND_NEEDED
from streams.payouts.saga import TABLE, advance, checked
from tests.payouts.making import NOW, POLICY, Driven, M, S, names, payout

OUTCOMES: tuple[Outcome, ...] = ("ACCEPTED", "PENDING", "SUCCESS", "FAILED", "REFUSED", "NOT_FOUND", "ERROR", "LOST", "NOT_SENT")
ACTIONS: tuple[Action, ...] = ("SUBMIT", "POLL")
REPLIES = [Replied(action, 1, outcome) for action in ACTIONS for outcome in OUTCOMES]
DUES = [Due("start", NOW), Due("deadline", NOW + 30 * M), Due("ledger", 0), Due("start", 1), Due("deadline", 1), Due("ledger", 7)]
RESOLVES = [Resolve("r1", "SUCCESS", "ann"), Resolve("r1", "FAILED", "ann"), Resolve("r1", "FAILED", "ann", four_eyes=True)]
ALL: list[Message] = [
    Begin(), *DUES, Unfit("x", "y"), Reserved(), Posted(), Voided(), LedgerRefused("x", "y"), *REPLIES, Cancel("c2"), *RESOLVES,
]  # fmt: skip


POLL = ["Call POLL"]
MOVES: dict[State, list[tuple[Any, Any, Any]]] = {
    "ACCEPTED": [
        (Begin(), "ACCEPTED", ["Reserve"]),
        (Reserved(), "SUBMITTING", ["Call SUBMIT", "Wait deadline", "Tell payout.submitted"]),
        (LedgerRefused("x", "y"), "FAILED", ["Tell payout.failed"]),
        (Unfit("x", "y"), "FAILED", ["Tell payout.failed"]),
    ],
    "SCHEDULED": [
        (Due("start", NOW), "SCHEDULED", ["Reserve"]),
        (Reserved(), "SUBMITTING", ["Call SUBMIT", "Wait deadline", "Tell payout.submitted"]),
        (LedgerRefused("x", "y"), "FAILED", ["Tell payout.failed"]),
        (Unfit("x", "y"), "FAILED", ["Tell payout.failed"]),
        (Cancel("c2"), "CANCELLED", ["Tell payout.cancelled"]),
    ],
    "RESERVED": [
        (Due("start", NOW), "SUBMITTING", ["Call SUBMIT", "Wait deadline"]),
        (Replied("SUBMIT", 1, "SUCCESS"), "POSTING", ["Post"]),
        (Replied("POLL", 1, "SUCCESS"), "POSTING", ["Post"]),
        (Cancel("c2"), "VOIDING", ["Void"]),
    ],
    "SUBMITTING": [
        (Replied("SUBMIT", 1, "SUCCESS"), "POSTING", ["Post"]),
        (Replied("POLL", 1, "SUCCESS"), "POSTING", ["Post"]),
        (Replied("SUBMIT", 1, "ACCEPTED"), "POLLING", ["Call POLL", "Wait deadline"]),
        (Replied("SUBMIT", 1, "PENDING"), "POLLING", ["Call POLL", "Wait deadline"]),
        (Replied("SUBMIT", 1, "LOST"), "POLLING", ["Call POLL", "Wait deadline"]),
        (Replied("SUBMIT", 1, "FAILED"), "VOIDING", ["Void"]),
        (Replied("SUBMIT", 1, "REFUSED"), "VOIDING", ["Void"]),
        (Replied("SUBMIT", 1, "ERROR"), "SUBMITTING", ["Call SUBMIT"]),
        (Replied("SUBMIT", 1, "NOT_FOUND"), "SUBMITTING", ["Call SUBMIT"]),
        (Replied("SUBMIT", 1, "NOT_SENT"), "RESERVED", ["Wait start"]),
        (Due("deadline", NOW + 30 * M), "STUCK", ["Tell payout.stuck", "Alert payout.stuck"]),
    ],
    "POLLING": [
        *((Replied(action, 1, "SUCCESS"), "POSTING", ["Post"]) for action in ("SUBMIT", "POLL")),
        *((Replied(action, 1, "FAILED"), "VOIDING", ["Void"]) for action in ("SUBMIT", "POLL")),
        *((Replied(action, 1, "REFUSED"), "VOIDING", ["Void"]) for action in ("SUBMIT", "POLL")),
        *((Replied("POLL", 1, outcome), "POLLING", POLL) for outcome in ("ACCEPTED", "PENDING", "ERROR", "LOST", "NOT_SENT")),
        (Replied("POLL", 1, "NOT_FOUND"), "SUBMITTING", ["Call SUBMIT"]),
        (Due("deadline", NOW + 30 * M), "STUCK", ["Tell payout.stuck", "Alert payout.stuck"]),
    ],
    "POSTING": [
        (Posted(), "SUCCESS", ["Tell payout.success"]),
        (LedgerRefused("x", "y"), "POSTING", ["Wait ledger"]),
        (Due("ledger", 0), "POSTING", ["Post"]),
        *(
            (Replied(action, 1, outcome), "STUCK", ["Tell payout.stuck", "Alert payout.stuck", "Alert payout.discrepancy"])
            for action in ("SUBMIT", "POLL") for outcome in ("FAILED", "REFUSED")
        ),
    ],
    "VOIDING": [
        (Voided(), "FAILED", ["Tell payout.failed"]),
        (LedgerRefused("x", "y"), "VOIDING", ["Wait ledger"]),
        (Due("ledger", 0), "VOIDING", ["Void"]),
        *(
            (Replied(action, 1, "SUCCESS"), "STUCK", ["Tell payout.stuck", "Alert payout.stuck", "Alert payout.discrepancy"])
            for action in ("SUBMIT", "POLL")
        ),
    ],
    "STUCK": [
        (Resolve("r1", "SUCCESS", "ann"), "POSTING", ["Post"]),
        (Resolve("r1", "FAILED", "ann"), "VOIDING", ["Void"]),
    ],
    "SUCCESS": [
        (Replied(action, 1, outcome), "SUCCESS", ["Alert payout.discrepancy"])
        for action in ("SUBMIT", "POLL") for outcome in ("FAILED", "REFUSED")
    ],
    "FAILED": [(Replied(action, 1, "SUCCESS"), "FAILED", ["Alert payout.discrepancy"]) for action in ("SUBMIT", "POLL")],
    "CANCELLED": [(Replied(action, 1, "SUCCESS"), "CANCELLED", ["Alert payout.discrepancy"]) for action in ("SUBMIT", "POLL")],
}  # fmt: skip
"""What each state does about each message; what is not here changes no state and asks for nothing."""

PAIRS = [(state, message) for state in STATES for message in ALL]


@pytest.mark.parametrize(("state", "message"), PAIRS, ids=lambda each: each if isinstance(each, str) else str(each)[:60])
def test_each_state_answers_each_message(state: State, message: Message) -> None:
    expected: Any = next(((to, effects) for asked, to, effects in MOVES[state] if asked == message), (state, []))

    after, effects = advance(payout(state), message, POLICY, NOW)

    assert (after.state, names(effects)) == expected
    if after.state != state:
        assert after.history and after.history[-1].to_state == after.state, "a step is told"


def test_every_kind_of_message_is_in_these_tables() -> None:
    assert {type(message) for message in ALL} == set(MESSAGES)
    assert set(TABLE) == set(STATES)


def test_a_table_with_a_hole_is_refused_when_it_is_declared() -> None:
    holed = {state: dict(answers) for state, answers in TABLE.items()}
    del holed["POLLING"][Replied]

    with pytest.raises(TypeError, match="POLLING and Replied"):
        checked(holed)


@pytest.mark.parametrize("state", sorted(ENDED))
@pytest.mark.parametrize("message", ALL, ids=lambda each: str(each)[:60])
def test_what_has_ended_stays_as_it_ended(state: State, message: Message) -> None:
    assert advance(payout(state), message, POLICY, NOW)[0].state == state


# Ways through it


def call(effects: list[Any] | tuple[Any, ...]) -> Call:
    return next(effect for effect in effects if isinstance(effect, Call))


def test_the_compensation_is_registered_before_the_reservation_is_asked_for() -> None:
    after, effects = advance(payout(), Begin(), POLICY, NOW)

    assert names(effects) == ["Reserve"] and after.compensations == ("void",)


def test_a_scheduled_payout_holds_nothing_until_its_time_and_ignores_a_timer_of_another() -> None:
    waiting, effects = advance(payout(scheduled_ms=NOW + M), Begin(), POLICY, NOW)

    assert (waiting.state, waiting.compensations, effects) == ("SCHEDULED", (), (Wait("start", NOW + M, NOW + M),))
    assert advance(waiting, Due("start", NOW), POLICY, NOW + M)[1] == ()
    assert names(advance(waiting, Due("start", NOW + M), POLICY, NOW + M)[1]) == ["Reserve"]


def test_a_payout_that_nothing_was_held_for_fails_and_voids_nothing() -> None:
    driven = Driven(payout(), available=999)

    assert names(tuple(driven.begin(NOW))) == ["Tell payout.failed"]
    assert (driven.payout.state, driven.payout.reason, driven.movements) == ("FAILED", "insufficient_funds", [])


def test_errors_are_tried_again_by_the_policy_and_then_asked_about_and_never_taken_for_a_no() -> None:
    driven = Driven(payout(), available=5_000)
    effects, delays = driven.begin(NOW), []
    for number in range(1, POLICY.tries):
        effects = driven.take(Replied("SUBMIT", number, "ERROR"), NOW)
        delays.append(call(effects).due_ms - NOW)

    effects = driven.take(Replied("SUBMIT", POLICY.tries, "ERROR"), NOW)

    assert delays == [2 * S, 4 * S, 8 * S, 16 * S]
    assert driven.payout.state == "POLLING" and call(effects) == Call("POLL", 1, NOW)
    assert driven.hold is not None and driven.hold.state == "PENDING"


def test_a_channel_that_asks_to_be_left_alone_is() -> None:
    _, effects = advance(payout("SUBMITTING"), Replied("SUBMIT", 1, "ERROR", retry_after_ms=40 * S), POLICY, NOW)

    assert call(effects).due_ms == NOW + 40 * S


def test_not_knowing_it_is_believed_only_once_no_submission_can_be_on_its_way_and_then_several_times() -> None:
    spent = payout("POLLING", submissions=POLICY.tries, settled_ms=NOW + M)

    after, effects = advance(spent, Replied("POLL", 1, "NOT_FOUND"), POLICY, NOW)
    assert after.state == "POLLING" and call(effects).due_ms == NOW + M and after.not_found == 0

    for number in range(2, NOT_FOUND_NEEDED + 1):
        after, effects = advance(after, Replied("POLL", number, "NOT_FOUND"), POLICY, NOW + M)
        assert after.state == "POLLING" and after.not_found == number - 1
    after, effects = advance(after, Replied("POLL", NOT_FOUND_NEEDED + 1, "NOT_FOUND"), POLICY, NOW + M)
    assert (after.state, after.reason, names(effects)) == ("VOIDING", "unknown_to_channel", ["Void"])


def test_another_answer_in_between_begins_the_count_anew() -> None:
    spent = payout("POLLING", submissions=POLICY.tries, not_found=NOT_FOUND_NEEDED - 1)

    after, _ = advance(spent, Replied("POLL", 1, "PENDING"), POLICY, NOW)

    assert after.not_found == 0 and after.was_taken


def test_what_a_channel_has_taken_it_cannot_not_know() -> None:
    taken = payout("POLLING", submissions=POLICY.tries, was_taken=True, not_found=9)

    after, effects = advance(taken, Replied("POLL", 1, "NOT_FOUND"), POLICY, NOW)

    assert after.state == "POLLING" and names(effects) == ["Call POLL"]


def test_polls_that_err_follow_the_policy_and_then_the_usual_beat() -> None:
    after, delays = payout("POLLING"), []
    for number in range(1, 8):
        after, effects = advance(after, Replied("POLL", number, "ERROR"), POLICY, NOW)
        delays.append(call(effects).due_ms - NOW)

    assert delays == [2 * S, 4 * S, 8 * S, 16 * S, 15 * S, 15 * S, 15 * S]
    assert after.state == "POLLING"


def test_polls_come_every_15_s_and_after_30_min_a_person_is_asked_and_the_hold_stays() -> None:
    driven = Driven(payout(), available=5_000)
    driven.begin(NOW)
    effects, now_ms, polls = driven.take(Replied("SUBMIT", 1, "ACCEPTED"), NOW), NOW, 0
    deadline = next(effect for effect in effects if isinstance(effect, Wait))
    while call(effects).due_ms < deadline.due_ms:
        now_ms, polls = call(effects).due_ms, polls + 1
        effects = driven.take(Replied("POLL", polls, "PENDING"), now_ms)

    driven.take(Due("deadline", deadline.mark), deadline.due_ms)

    assert (polls, deadline.due_ms) == (119, NOW + 30 * M)
    assert (driven.payout.state, driven.payout.reason) == ("STUCK", "no_final_answer")
    assert driven.balances.held == 1_000


def test_a_late_answer_is_recorded_and_resolves_nothing() -> None:
    after, effects = advance(payout("STUCK"), Replied("POLL", 9, "SUCCESS", reference="ref9"), POLICY, NOW)

    assert (after.state, after.channel_reference, after.history[-1].message, effects) == ("STUCK", "ref9", "late poll 9 success", ())
    assert advance(after, Replied("POLL", 9, "SUCCESS"), POLICY, NOW) == (after, ()), "a second one is no news"


@pytest.mark.parametrize(("said", "answer"), [("FAILED", "SUCCESS"), ("SUCCESS", "FAILED"), ("SUCCESS", "REFUSED")])
def test_an_answer_that_contradicts_a_resolution_is_told_whether_it_comes_before_or_after(said: Any, answer: Any) -> None:
    early, _ = advance(payout("STUCK"), Replied("POLL", 9, answer), POLICY, NOW)
    resolved, effects = advance(early, Resolve("r1", said, "ann", "phoned"), POLICY, NOW)
    assert "Alert payout.discrepancy" in names(effects) and resolved.state in ("POSTING", "VOIDING")

    driven = Driven(payout(), available=5_000)
    driven.begin(NOW)
    driven.payout = msgspec.structs.replace(driven.payout, state="STUCK", under_way_until_ms=0)
    assert names(tuple(driven.take(Resolve("r1", said, "ann", "phoned"), NOW)))[-1] == "Tell payout.resolved"
    assert names(tuple(driven.take(Replied("POLL", 9, answer), NOW))) == ["Alert payout.discrepancy"]
    assert driven.payout.state == said


def test_a_person_s_word_stands_though_the_ledger_has_not_booked_it_yet() -> None:
    word = Resolution("r1", "FAILED", "ann", "", NOW, takes_effect=True)

    after, effects = advance(payout("VOIDING", resolution=word), Replied("POLL", 9, "SUCCESS"), POLICY, NOW)

    assert after.state == "VOIDING" and names(effects) == ["Alert payout.discrepancy"]


def test_with_four_eyes_a_second_person_must_confirm_the_same() -> None:
    first, effects = advance(payout("STUCK"), Resolve("r1", "FAILED", "ann", "phoned", four_eyes=True), POLICY, NOW)
    assert (first.state, effects) == ("STUCK", ()) and first.resolution is not None and not first.resolution.takes_effect

    for refused in (
        Resolve("r2", "FAILED", "ann", confirms="r1", four_eyes=True),
        Resolve("r2", "SUCCESS", "bob", confirms="r1", four_eyes=True),
        Resolve("r2", "FAILED", "bob", confirms="other", four_eyes=True),
    ):
        after, effects = advance(first, refused, POLICY, NOW)
        assert (after.state, effects, after.history[-1].message) == ("STUCK", (), "resolve refused")

    after, effects = advance(first, Resolve("r2", "FAILED", "bob", confirms="r1", four_eyes=True), POLICY, NOW)
    assert after.state == "VOIDING" and names(effects) == ["Void"]
    assert after.resolution is not None and (after.resolution.resolved_by, after.resolution.confirmed_by) == ("ann", "bob")
    assert advance(after, Resolve("r2", "FAILED", "bob", confirms="r1", four_eyes=True), POLICY, NOW) == (after, ())


def test_nobody_can_release_what_may_still_reach_the_channel() -> None:
    lost = payout("SUBMITTING", deadline_ms=NOW)
    hanging, _ = advance(lost, Due("deadline", NOW), POLICY, NOW)

    refused, effects = advance(hanging, Resolve("r1", "FAILED", "ann"), POLICY, NOW)
    assert (refused.state, effects) == ("STUCK", ()) and "may still reach the channel" in (refused.history[-1].detail or "")

    assert advance(hanging, Resolve("r1", "SUCCESS", "ann"), POLICY, NOW)[0].state == "POSTING"
    assert advance(hanging, Resolve("r1", "FAILED", "ann"), POLICY, hanging.under_way_until_ms)[0].state == "VOIDING"
    answered, _ = advance(hanging, Replied("SUBMIT", 1, "NOT_SENT"), POLICY, NOW)
    assert advance(answered, Resolve("r1", "FAILED", "ann"), POLICY, NOW)[0].state == "VOIDING"


def test_the_ledger_is_asked_five_times_and_then_a_person() -> None:
    driven = Driven(payout(), available=5_000)
    driven.begin(NOW)
    driven.ledger_works = False
    effects, delays, now_ms = driven.take(Replied("SUBMIT", 1, "SUCCESS"), NOW), [], NOW
    while driven.payout.state == "POSTING":
        wait = next(effect for effect in effects if isinstance(effect, Wait))
        delays.append(wait.due_ms - now_ms)
        now_ms = wait.due_ms
        effects = driven.take(Due("ledger", wait.mark), now_ms)

    assert delays == list(LEDGER_DELAYS_MS)
    assert (driven.payout.state, driven.payout.reason) == ("STUCK", "ledger_refused")
    assert names(tuple(effects)) == ["Tell payout.stuck", "Alert payout.stuck", "Alert payout.ledger_refused"]
    driven.ledger_works = True
    assert names(tuple(driven.take(Resolve("r1", "SUCCESS", "ann"), now_ms))) == ["Tell payout.success", "Tell payout.resolved"]
    assert driven.balances.held == 0 and driven.balances.total == 0


def test_an_unsent_submission_spends_no_try_and_can_be_cancelled() -> None:
    driven = Driven(payout(), available=5_000)
    driven.begin(NOW)
    driven.take(Replied("SUBMIT", 1, "NOT_SENT"), NOW)
    assert (driven.payout.state, driven.payout.tries) == ("RESERVED", 0)

    driven.take(Cancel("c2", "ann", "not wanted"), NOW)

    assert (driven.payout.state, driven.payout.reason) == ("CANCELLED", "not wanted")
    assert driven.balances.available == 5_000


@pytest.mark.parametrize("state", ["SUBMITTING", "POLLING", "POSTING", "VOIDING", "STUCK", "SUCCESS", "FAILED"])
def test_what_was_submitted_is_not_cancelled_and_the_answer_says_so(state: State) -> None:
    after, effects = advance(payout(state), Cancel("c2", "ann"), POLICY, NOW)

    assert (after.state, effects) == (state, ()) and "only what was never submitted" in (after.history[-1].detail or "")


def test_a_caller_who_repeats_himself_does_not_make_the_history_grow_for_ever() -> None:
    after: Payout = payout("SUCCESS")
    for number in range(NOTES_MAX + 50):
        after, _ = advance(after, Cancel(f"c{number}"), POLICY, NOW)

    assert len(after.history) == NOTES_MAX


@pytest.mark.parametrize("outcome", ["ACCEPTED", "PENDING", "FAILED", "REFUSED", "NOT_FOUND", "ERROR", "LOST", "NOT_SENT"])
def test_an_answer_to_an_earlier_try_decides_nothing_while_another_is_under_way(outcome: Outcome) -> None:
    again = payout("SUBMITTING", submissions=2)

    assert advance(again, Replied("SUBMIT", 1, outcome), POLICY, NOW) == (again, ())
