"""`hookline subscriptions` as a person types it, on a real broker; what its options say; and where its keys come from."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from structlog.testing import capture_logs
from typer.testing import CliRunner

import schemas
from streams.cli import app
from streams.commands import terminal
from streams.delivery import subscription_changes as changes
from streams.delivery.keys import keyring
from streams.delivery.sealing import Keyring
from streams.delivery.subscription import Subscription, changed, encoded
from streams.delivery.subscription_changes import Verb
from streams.delivery.subscriptions_cli import filters_of, headers_of
from streams.errors import ConfigurationError, HooklineError
from streams.settings import Settings, settings
from tests.log.clients import create, read_to_end
from topology.broker import Broker
from topology.topics import SUBSCRIPTIONS

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "from streams.cli import main; main()", "subscriptions"]
KEYS = f"k1:{base64.b64encode(bytes(32)).decode()}"
URL = "https://example.com/hook"


class Ground:
    """A topic of its own, and the command with settings that name it."""

    def __init__(self, bootstrap_servers: str, prefix: str, folder: Path) -> None:
        self.kafka: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, "log_level": 0}
        self.topic = prefix + SUBSCRIPTIONS.name
        self.environment = {
            "HOOKLINE_BOOTSTRAP_SERVERS": bootstrap_servers,
            "HOOKLINE_TOPIC_PREFIX": prefix,
            "HOOKLINE_STATE_DIR": str(folder),
            "HOOKLINE_SECRET_KEYS": KEYS,
        }
        create(AdminClient(self.kafka), prefix, 1, SUBSCRIPTIONS)

    def run(self, *arguments: str) -> str:
        """What it says; what it refuses is raised, as `main` tells it."""
        result = CliRunner().invoke(app, ["subscriptions", *arguments], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json"))

    def records(self) -> list[tuple[bytes, bytes]]:
        return read_to_end(self.kafka, self.topic, 1)

    def write(self, fields: Mapping[str, Any]) -> None:
        producer = Producer(self.kafka)
        producer.produce(self.topic, encoded(fields), fields["id"].encode())
        assert producer.flush(30) == 0


@pytest.fixture
def ground(broker: Broker, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    ground = Ground(broker.bootstrap_servers, prefix, tmp_path)
    for name, value in ground.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(terminal, "configure_logs", lambda *_: None)  # it is for a whole process, which here is the tests'
    settings.cache_clear()
    with capture_logs():
        yield ground
    settings.cache_clear()


# A subscription's life


@pytest.mark.kafka
def test_a_subscription_is_created_shown_rotated_paused_resumed_disabled_and_deleted(ground: Ground) -> None:
    made = ground.json("create", "--merchant", "m1", "--url", URL, "--event", "payin.*", "--filter", 'currency="PKR"')
    name, secret = made["id"], made["new_secret"]["secret"]
    assert secret.startswith("whsec_")
    assert (made["merchant"], made["state"], made["revision"], made["event_types"]) == ("m1", "ACTIVE", 1, ["payin.*"])

    assert name in ground.run("list")
    assert [each["id"] for each in ground.json("list", "--merchant", "m1", "--state", "active")] == [name]
    assert ground.json("list", "--merchant", "m2") == ground.json("list", "--state", "paused") == []
    shown = ground.run("show", name)
    assert URL in shown and "currency" in shown
    assert secret not in shown + ground.run("list") + json.dumps([ground.json("show", name), ground.json("list")])

    rotated = ground.json("rotate-secret", name, "--overlap", "1h")
    assert [each["expires_ms"] is None for each in rotated["secrets"]] == [False, True]
    assert rotated["secrets"][0]["expires_ms"] - rotated["updated_ms"] == 3_600_000
    assert rotated["new_secret"]["secret"] not in secret + ground.run("show", name)

    assert ground.json("pause", name, "--reason", "merchant asked")["state_reason"] == "merchant asked"
    assert ground.run("resume", name) == f"{name} is ACTIVE (by hand)\n"
    assert ground.json("disable", name)["state"] == "DISABLED"
    with pytest.raises(ConfigurationError, match=r"cannot resume .* enable it first"):
        ground.run("resume", name)
    enabled = ground.json("enable", name)
    assert (enabled["state"], enabled["state_reason"], enabled["revision"]) == ("ACTIVE", "by hand", 6)

    assert ground.run("delete", name, "--yes") == f"{name} deleted\n"
    with pytest.raises(ConfigurationError, match=f"there is no subscription '{name}'"):
        ground.run("show", name)
    assert ground.records()[-1] == (name.encode(), b"")
    assert all(secret.encode() not in value for _, value in ground.records())


@pytest.mark.kafka
def test_what_was_written_signs_with_the_secret_that_was_shown(ground: Ground) -> None:
    made = ground.json("create", "--merchant", "m1", "--url", URL, "--algorithm", "ed25519")
    (_, value) = ground.records()[0]
    fields = schemas.decode(value, schemas.SUBSCRIPTION)
    kept = fields["secrets"][0]

    opened = Keyring.parse(KEYS).open(kept["encryption_key_id"], kept["nonce"], kept["ciphertext"], made["id"], kept["id"])
    assert opened == made["new_secret"]["secret"]
    assert made["new_secret"]["public_key"].startswith("whpk_")
    assert b"v1a," in Subscription(fields, Keyring.parse(KEYS)).signer(kept["created_ms"]).headers("e", "t", 1, 1, b"{}", None)
    assert ground.json("rotate-secret", made["id"])["new_secret"]["algorithm"] == "ed25519"


@pytest.mark.kafka
def test_every_option_is_kept_and_an_update_changes_only_what_it_names(ground: Ground) -> None:
    made = ground.json(
        "create", "--merchant", "m1", "--url", URL, "--profile", "wf", "--rate", "2.5", "--burst", "3", "--in-flight", "4", "--ordered",
        "--hold", "--on-ambiguous", "dead-letter", "--header", "X-Token: hush", "--operational", "--contact", "ops@example.com",
        "--description", "A shop", "--version", "2024-01-01", "--destination", "http", "--disabled", "--signature-of", "jitter",
        "--headers-of", "jitter", "--schedule-of", "core", "--delays", "1s,30s,5m", "--jitter-percent", "7", "--connect-timeout", "900ms",
        "--answer-timeout", "9s",
    )  # fmt: skip
    expected: dict[str, Any] = {
        "profile": "wf", "rate_per_s": 2.5, "burst": 3, "in_flight_max": 4, "ordered": True, "behind_dead_letter": "HOLD",
        "on_ambiguous": "DEAD_LETTER", "headers": {"X-Token": "…"}, "operational": True, "contact": "ops@example.com",
        "description": "A shop", "payload_version": "2024-01-01", "destination": "HTTP", "state": "DISABLED", "state_reason": "created",
        "event_types": ["*"], "filters": [],
        "overrides": {
            "headers_of": "jitter", "signature_of": "jitter", "schedule_of": "core", "delays_ms": [1_000, 30_000, 300_000],
            "jitter_percent": 7, "connect_timeout_ms": 900, "answer_timeout_ms": 9_000,
        },
    }  # fmt: skip
    shown = ground.json("show", made["id"])
    assert {name: shown[name] for name in expected} == expected
    assert schemas.decode(ground.records()[0][1], schemas.SUBSCRIPTION)["headers"] == {"X-Token": "hush"}

    updated = ground.json("update", made["id"], "--unordered", "--delays", "none", "--clear", "headers", "--clear", "contact")
    changed_parts = {"ordered": False, "headers": {}, "contact": None, "overrides": {**expected["overrides"], "delays_ms": []}}
    assert {name: updated[name] for name in expected} == {**expected, **changed_parts}
    assert updated["revision"] == 2


@pytest.mark.kafka
def test_of_two_who_change_it_at_once_the_second_changes_what_the_first_one_left(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    name = ground.json("create", "--merchant", "m1", "--url", URL)["id"]
    with_state, calls = changes.with_state, 0

    def overtaken(fields: Mapping[str, Any], verb: Verb, reason: str, now_ms: int) -> dict[str, Any]:
        nonlocal calls
        calls += 1
        if calls == 1:
            ground.write(changed(fields, now_ms, burst=7))
        return with_state(fields, verb, reason, now_ms)

    monkeypatch.setattr(changes, "with_state", overtaken)
    ground.run("pause", name)

    shown = ground.json("show", name)
    assert (shown["burst"], shown["state"], shown["revision"], calls) == (7, "PAUSED", 3, 2)


# What is refused


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--url", "http://example.com/hook"], "error: the URL cannot be used: http is not encrypted: use https\n"),
        (
            ["--url", URL, "--filter", "currency"],
            "error: the filter 'currency' has no value: write path=json, such as currency='\"PKR\"'\n",
        ),
    ],
)
def test_bad_input_is_told_on_one_line_and_nothing_is_written(ground: Ground, arguments: list[str], reason: str) -> None:
    """In a process of its own, which is what a person sees of it."""
    environment = {**os.environ, **ground.environment, "PYTHONPATH": str(ROOT)}
    command = [*COMMAND, "create", "--merchant", "m1", *arguments]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)

    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", reason)
    assert ground.records() == []


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["show", "sub_x"], "there is no subscription 'sub_x'"),
        (["pause", "sub_x"], "there is no subscription 'sub_x'"),
        (["delete", "sub_x"], "there is no subscription 'sub_x'"),
        (["rotate-secret", "sub_x", "--overlap", "soon"], "'soon' is not a time"),
        (["update", "sub_x", "--clear", "secrets"], "'secrets' cannot be cleared"),
        (["update", "sub_x", "--clear", "contact", "--contact", "x"], "asked to clear the contact and to set it"),
        (["create", "--merchant", "m1", "--url", "http://localhost:1/"], "localhost is this machine"),
    ],
)
def test_what_cannot_be_done_is_told(ground: Ground, arguments: list[str], reason: str) -> None:
    with pytest.raises(HooklineError, match=reason):
        ground.run(*arguments)
    assert ground.records() == []


@pytest.mark.kafka
def test_a_cluster_without_the_keys_is_told_what_to_set(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOOKLINE_SECRET_KEYS")
    settings.cache_clear()

    assert ground.json("list") == []
    with pytest.raises(ConfigurationError, match="HOOKLINE_SECRET_KEYS is not set"):
        ground.run("create", "--merchant", "m1", "--url", URL)


# What the options say


def test_filters_on_the_same_path_are_alternatives_and_a_value_may_have_an_equals_sign() -> None:
    assert filters_of(['a.b="x=y"', "c=1", "a.b=null"]) == [{"path": "a.b", "values": ['"x=y"', "null"]}, {"path": "c", "values": ["1"]}]


def test_a_header_is_a_name_and_a_value_that_may_have_a_colon() -> None:
    assert headers_of(["X-A: b:c", "X-D:"]) == {"X-A": "b:c", "X-D": ""}


@pytest.mark.parametrize("texts", [["Bearer hush"], ["X-A:hush", "X-A:hush"]])
def test_a_header_that_is_refused_is_not_told(texts: list[str]) -> None:
    with pytest.raises(ConfigurationError) as raised:
        headers_of(texts)
    assert "hush" not in str(raised.value)


# Where the keys come from


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Settings]:
    for name in ("HOOKLINE_BOOTSTRAP_SERVERS", "HOOKLINE_SECRET_KEYS"):
        monkeypatch.delenv(name, raising=False)
    return lambda **others: Settings(**{"state_dir": tmp_path / "state", **others})


def test_beside_a_local_broker_a_key_is_made_once_that_only_its_user_reads(local: Callable[..., Settings], tmp_path: Path) -> None:
    sealed = keyring(local()).seal("whsec_x", "sub_1", "sec_1", b"twelve bytes")

    assert keyring(local()).open(*sealed, "sub_1", "sec_1") == "whsec_x"
    assert (tmp_path / "state" / "secret-keys").stat().st_mode & 0o777 == 0o600


def test_processes_that_start_at_once_agree_on_the_key(local: Callable[..., Settings], tmp_path: Path) -> None:
    together = Barrier(8)

    def start(_: int) -> Keyring:
        together.wait()
        return keyring(local())

    with ThreadPoolExecutor(8) as threads:
        rings = list(threads.map(start, range(8)))
    sealed = rings[0].seal("whsec_x", "sub_1", "sec_1", b"twelve bytes")

    assert [ring.open(*sealed, "sub_1", "sec_1") for ring in rings] == ["whsec_x"] * 8
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["secret-keys"]


def test_the_settings_keys_come_first_and_no_file_is_made(local: Callable[..., Settings], tmp_path: Path) -> None:
    assert keyring(local(secret_keys=KEYS)).current == "k1"
    assert not (tmp_path / "state").exists()


def test_a_cluster_has_no_key_of_one_machine(local: Callable[..., Settings], tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"set it to id:key with a key from `openssl rand -base64 32`"):
        keyring(local(bootstrap_servers="kafka:9092"))
    assert not (tmp_path / "state").exists()


def test_a_file_that_holds_no_key_is_told_by_its_place(local: Callable[..., Settings], tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "secret-keys").write_text("local:short\n")

    with pytest.raises(ConfigurationError, match=r"reading the local keys in .*secret-keys.*Put the file back"):
        keyring(local())


def test_keys_are_not_shown_with_the_settings(local: Callable[..., Settings]) -> None:
    assert KEYS not in repr(local(secret_keys=KEYS))
