"""What a merchant may rely on besides: duplicates, pauses, changes, 410, poison and TLS, all on one pipeline."""

from collections import Counter
from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests import sink
from tests.pipeline.harness import Pipeline
from topology import topics
from topology.broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def pipeline(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """One for this file: each test has merchants of its own. It trusts one certificate authority, and of another knows nothing."""
    folder = tmp_path_factory.mktemp("deliveries")
    trusted, unknown = folder / "trusted.pem", folder / "unknown.pem"
    made = Pipeline(broker.bootstrap_servers, f"t{uuid4().hex[:10]}.", folder)
    journal = str(folder / "journal")  # of all three servers: each writes a line at once
    with (
        made,
        sink.started("--authority", str(trusted), "--journal", journal) as known,
        sink.started("--authority", str(unknown), "--journal", journal) as stranger,
    ):
        made.environment["SSL_CERT_FILE"] = str(trusted)
        made.subscribe("twice", "/ok/twice")
        made.subscribe("slowly", "/slow/500/slowly")
        made.subscribe("pausing", "/ok/pausing", ordered=True)
        made.subscribe("moving", "/ok/before")
        made.subscribe("leaving", "/ok/leaving")
        made.subscribe("leaving", "/ok/leaving-hears", operational=True, event_types=("subscription.*",))
        made.subscribe("leaving", "/ok/leaving-stays")
        made.subscribe("poisoned", "/ok/poisoned")
        made.subscribe("private", "", url=f"https://127.0.0.1:{known.port}/ok/private")
        made.subscribe("deceived", "", url=f"https://127.0.0.1:{stranger.port}/ok/deceived", overrides={"delays_ms": []})
        made.start()
        yield made


def test_an_event_published_again_is_sent_once(pipeline: Pipeline) -> None:
    [event] = pipeline.send("twice")
    pipeline.until(lambda: pipeline.are("DELIVERED", "sub_twice_0", [event]), "it is delivered")
    pipeline.send_event(pipeline.sent[event])
    [after] = pipeline.send("twice")
    pipeline.until(lambda: pipeline.are("DELIVERED", "sub_twice_0", [after]), "what came after the duplicate is delivered")

    assert [arrival.event for arrival in pipeline.journal.at("/ok/twice")] == [event, after]


def test_an_event_published_again_while_the_first_is_under_way_is_sent_once(pipeline: Pipeline) -> None:
    [event] = pipeline.send("slowly")
    for _ in range(5):
        pipeline.send_event(pipeline.sent[event])
    [after] = pipeline.send("slowly")
    pipeline.until(lambda: pipeline.are("DELIVERED", "sub_slowly_0", [event, after]), "both are delivered")

    assert sorted(arrival.event for arrival in pipeline.journal.at("/slow/500/slowly")) == sorted([event, after])


def test_events_of_a_paused_subscription_wait_and_drain_in_order_when_it_is_resumed(pipeline: Pipeline) -> None:
    name, resources = "sub_pausing_0", ("a", "b", "c")
    pipeline.change(name, state="PAUSED")
    first = pipeline.probe("pausing", name, lambda event: parked(pipeline, name, event), "the pause is current")
    waiting = [first, *pipeline.send("pausing", 60, resources=resources)]
    pipeline.until(lambda: all(parked(pipeline, name, event) for event in waiting), "all that came since wait")
    assert not {arrival.event for arrival in pipeline.journal.at("/ok/pausing")} & set(waiting)

    pipeline.change(name, state="ACTIVE")
    pipeline.until(lambda: pipeline.are("DELIVERED", name, waiting), "they drain")
    arrived = pipeline.journal.at("/ok/pausing")
    for resource in resources:
        sent = [event.id for event in pipeline.sent.values() if event.merchant == "pausing" and event.resource == resource]
        came = [(arrival.event, arrival.sequence) for arrival in arrived if pipeline.sent[arrival.event].resource == resource]
        assert came == [(event, number) for number, event in enumerate(sent, start=1)]


def parked(pipeline: Pipeline, name: str, event: str) -> bool:
    return pipeline.outcome.status.get((event, name), {}).get("waits_for") == "PAUSED"


def test_a_changed_subscription_is_used_from_then_on(pipeline: Pipeline) -> None:
    name = "sub_moving_0"
    pipeline.change(name, path="/ok/after")
    pipeline.probe("moving", name, lambda event: bool(pipeline.journal.of["/ok/after", event]), "the change is current")
    later = pipeline.send("moving", 20)
    pipeline.until(lambda: pipeline.are("DELIVERED", name, later), "all that came since are delivered")

    assert {arrival.event for arrival in pipeline.journal.at("/ok/after")} >= set(later)
    assert not {arrival.event for arrival in pipeline.journal.at("/ok/before")} & set(later)


def test_410_disables_the_subscription_once_and_tells_operators_and_the_merchant(pipeline: Pipeline) -> None:
    pipeline.behave("/ok/leaving", "gone")
    [event] = pipeline.send("leaving")
    pipeline.until(lambda: pipeline.are("DLQ", "sub_leaving_0", [event]), "it is in the DLQ")
    pipeline.until(lambda: bool(pipeline.journal.at("/ok/leaving-hears")), "the merchant's operational subscription is told")

    letter = next(letter for letter in pipeline.outcome.letters if letter["event_id"] == event)
    told = [each for each in pipeline.outcome.told if each["type"] == "subscription.disabled" and each["merchant"] == "leaving"]
    assert (letter["reason"], letter["subscription_id"]) == ("GONE", "sub_leaving_0")
    assert [(each["subscription_id"], each["details"]) for each in told] == [("sub_leaving_0", {"reason": "gone"})]
    before = len(pipeline.journal.at("/ok/leaving"))
    later = pipeline.send("leaving", 5)
    pipeline.until(lambda: pipeline.are("DELIVERED", "sub_leaving_2", later), "what came since is delivered to its other subscription")
    assert len(pipeline.journal.at("/ok/leaving")) == before == 1


@pytest.mark.parametrize("value", [b"\x00\xff garbage", b"not JSON either", b'{"id": "x y", "type": "t"}', b""], ids=repr)
def test_a_record_that_is_no_event_goes_to_the_dlq_with_its_reason_and_stops_nothing(pipeline: Pipeline, value: bytes) -> None:
    letters = len(pipeline.outcome.letters)
    pipeline.produce(topics.EVENTS, b"poisoned", value, ())
    [after] = pipeline.send("poisoned")
    pipeline.until(lambda: pipeline.are("DELIVERED", "sub_poisoned_0", [after]), "the event behind it is delivered")
    pipeline.until(lambda: len(pipeline.outcome.letters) > letters, "it is in the DLQ")

    [letter] = pipeline.outcome.letters[letters:]
    assert (letter["kind"], letter["reason"]) == ("RECORD", "MALFORMED")
    assert letter["payload"] == value
    assert letter["detail"]
    assert letter["origin"]["topic"] == topics.EVENTS.name


def test_tls_is_spoken_with_whom_we_trust_and_fails_as_tls_with_others(pipeline: Pipeline) -> None:
    events = {merchant: pipeline.send(merchant, 3) for merchant in ("private", "deceived")}
    pipeline.until(lambda: pipeline.are("DELIVERED", "sub_private_0", events["private"]), "the trusted one has its events")
    pipeline.until(lambda: pipeline.are("DLQ", "sub_deceived_0", events["deceived"]), "the other one's are dead")

    assert Counter(arrival.event for arrival in pipeline.journal.at("/ok/private")) == Counter(events["private"])
    assert pipeline.journal.at("/ok/deceived") == []
    for event in events["deceived"]:
        [attempt] = pipeline.outcome.status[event, "sub_deceived_0"]["attempts"]
        assert attempt["code"] is None
        assert attempt["error"].startswith("TLS failed")
        assert attempt["ambiguous"] is False
