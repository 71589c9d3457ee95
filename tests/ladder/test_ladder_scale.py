"""One scale for who sends to the ladder and for who lets go."""

from pathlib import Path

import pytest

from streams.delivery.agent import deliver, subscriptions_of
from streams.delivery.delivery import Delivery
from streams.delivery.lane import Lane
from streams.delivery.sealing import Keyring
from streams.delivery.state import ShardMemory
from streams.delivery.subscription import Subscription
from streams.delivery.subscription_changes import NewSecret, Wanted, created, sealed
from streams.delivery.tasks import Post, PutOff
from streams.ladder.handler import DUE, RETURN
from streams.log.records import Record
from streams.log.simulated.log import SimulatedStore
from streams.log.state import State
from streams.roles import Equipment
from streams.settings import Settings
from streams.world import SystemWorld
from topology.ladder import RUNGS
from topology.topics import DELIVERIES, EVENTS, Topic

NOW = 1_700_000_000_000
KEYRING = Keyring({"k": bytes(32)})


def sent_to(settings: Settings, due_in_ms: int) -> Topic:
    """Where the deliver agent sends what comes back in so long."""
    agent, memory = deliver(settings, subscriptions_of(settings)), ShardMemory(State(SimulatedStore()), SystemWorld())
    secret = sealed(NewSecret(id="sec_1", algorithm="hmac-sha256", text="whsec_" + "a" * 32), "sub", KEYRING, bytes(12), NOW)
    wanted = Wanted(url="https://m.example/", event_types=("*",))
    subscription = Subscription(created("sub", "m", wanted, secret, NOW, allow_loopback=False, disabled=False), KEYRING)
    origin = {"topic": EVENTS.name, "partition": 0, "offset": 0, "timestamp_ms": NOW}
    delivery = Delivery(
        event_id="e", event_type="payin.success", source="s", merchant="m", subscription_id="sub", event_time_ms=NOW, origin=origin
    )
    assert agent.conclude is not None
    lane = Lane(subscription.pace_limits, None, SystemWorld())
    return agent.conclude(Post(delivery, subscription, lane), PutOff(NOW + due_in_ms, "HELD"), memory, NOW).writes[0].topic


def held_ms(settings: Settings, rung: Topic) -> int:
    """How long the ladder agent holds what has just come to a rung and is not due for long."""
    (agent,) = Equipment(["ladder"], settings, {}).agents
    headers = [(DUE, b"%d" % (NOW + 10**12)), (RETURN, DELIVERIES.name.encode())]
    (work,) = agent.plan(Record(rung, 0, 0, b"k", b"v", headers, NOW), State(SimulatedStore()), NOW)  # type: ignore[misc]
    return int(work.task.wait_ms)


@pytest.mark.parametrize("scale", [1, 60])
def test_the_deliver_and_the_ladder_agent_of_the_same_settings_have_the_same_ladder(scale: float, tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path, time_scale=scale, secret_keys="k:" + "A" * 43 + "=")
    for rung in RUNGS[2:]:
        delay_ms = int(rung.delay_ms / scale)

        assert sent_to(settings, delay_ms) is rung.topic
        assert held_ms(settings, rung.topic) == delay_ms
