"""The channel to try things with: a person starts it, pastes its setting, and names payouts by how they shall go."""

import signal
import socket
import subprocess

import msgspec
import pytest

from streams.payouts.channels.demo_cli import behaviour_of
from streams.settings import ChannelSettings
from tests.hookline_run import COMMAND, ROOT


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("m1/never-final-7", "never final"), ("m1/failure-1", "failure"), ("m1/lost-answer-x", "lost answer"), ("m1/salary-1", "accepted"),
        ("failure-1/p1", "accepted"), ("m1/failure", "accepted"),
    ],
)  # fmt: skip
def test_a_payout_s_id_says_how_it_goes(key: str, expected: str) -> None:
    assert behaviour_of(key, "accepted") == expected


def demo(*options: str) -> "subprocess.Popen[str]":
    command = [*COMMAND, "payouts", "demo-channel", *options]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.timeout(60)
def test_it_prints_the_setting_that_reaches_it_and_ends_when_asked() -> None:
    with demo("--port", "0", "--channel", "bank_transfer") as running:
        try:
            assert running.stdout is not None
            name, _, value = running.stdout.readline().strip().partition("=")
        finally:
            running.send_signal(signal.SIGINT)
        assert running.wait(30) == 0

    channels = msgspec.json.decode(value.strip("'"))
    assert name == "HOOKLINE_CHANNELS" and ChannelSettings(**channels["bank_transfer"]).url.startswith("http://127.0.0.1:")


@pytest.mark.timeout(60)
def test_a_port_that_is_taken_is_told_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, demo("--port", str(taken.getsockname()[1])) as refused:
        said = refused.communicate(timeout=30)[1]
    assert refused.returncode == 1 and "Give another with --port" in said, said
