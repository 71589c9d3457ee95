"""Each fault once or twice against real Kafka; `make prove` does each twenty times."""

from pathlib import Path

import pytest

from tests.faults.cases import faults
from tests.faults.prove import run_fault
from topology import broker as brokers
from topology.broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]

ON_ONE_BROKER = [name for name, fault in faults().items() if fault.brokers == 1]
SEED = 20_261_118


@pytest.mark.parametrize("name", ON_ONE_BROKER)
def test_output_and_state_are_exact_whatever_happens_to_workers(name: str, broker: Broker, tmp_path: Path) -> None:
    fault = faults()[name]

    verdict = run_fault(fault, 2 if name == "kill" else 1, SEED, tmp_path / name, broker.bootstrap_servers)

    assert verdict.exact, f"{verdict}; the workers' logs are in {tmp_path / name}"


def test_output_and_state_are_exact_when_the_leading_broker_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "brokers"
    cluster = brokers.ensure(folder, nodes=3, port=0)
    try:
        verdict = run_fault(faults()["kill_leading_broker"], 1, SEED, tmp_path / "run", cluster.bootstrap_servers)
    finally:
        brokers.stop(folder)

    assert verdict.exact, f"{verdict}; the workers' logs are in {tmp_path / 'run'}"
