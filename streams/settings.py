"""The one settings class: the only reader of the environment, and the place where each setting is explained."""

from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from streams.errors import ConfigurationError


class ChannelSettings(BaseModel, frozen=True, extra="forbid"):
    """A payment channel: where it is, who we are there, and how patient we are with it where that differs from the usual."""

    url: str
    key_id: str
    secret: SecretStr
    available: bool = True
    in_flight_max: int = Field(100, ge=1)
    timeout_s: float | None = Field(None, gt=0)
    tries: int | None = Field(None, ge=1)
    delay_first_s: float | None = Field(None, gt=0)
    delay_most_s: float | None = Field(None, gt=0)


class LimitSettings(BaseModel, frozen=True, extra="forbid"):
    """What a payout may come to, as decimals."""

    least: str | None = None
    most: str | None = None


class FeeSettings(BaseModel, frozen=True, extra="forbid"):
    """What a payout costs: decimals, and basis points of its amount."""

    fixed: str | None = None
    basis_points: int = 0
    least: str | None = None
    most: str | None = None


class Settings(BaseSettings):
    """Read from `HOOKLINE_*` variables; every default is safe for a laptop."""

    model_config = SettingsConfigDict(env_prefix="HOOKLINE_", frozen=True, extra="ignore")

    # The cluster
    bootstrap_servers: str | None = Field(
        None, description="An existing cluster, as host:port,host:port. Unset: a local broker is started."
    )
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="How to speak to the brokers."
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None = Field(
        None, description="With SASL_*: the mechanism."
    )
    sasl_username: str | None = Field(None, description="With SASL: who we are.")
    sasl_password: SecretStr | None = Field(None, description="With SASL: and how we show it.")
    ssl_ca_location: Path | None = Field(None, description="CA certificates that the brokers' certificates are checked against.")
    ssl_certificate_location: Path | None = Field(None, description="Our client certificate, where the brokers ask for one.")
    ssl_key_location: Path | None = Field(None, description="The private key of our client certificate.")
    schema_registry_url: str | None = Field(None, description="A schema registry. Unset: the built-in schema ids are used.")

    # The topology
    topic_prefix: str = Field("", pattern=r"^[a-zA-Z0-9._-]*$", max_length=100, description="Put before every topic and group name.")
    events_kept_days: int = Field(30, ge=1, description="How far back a merchant that was disabled can be given its events again.")
    partitions: int = Field(6, ge=1, le=1000, description="Partitions of every topic that is partitioned by merchant.")
    replication: int = Field(1, ge=1, le=9, description="Copies of each partition. 3 in production.")

    # The worker
    state_dir: Path = Field(Path(".hookline"), description="Where the local broker, the workers' identities and RocksDB keep their files.")
    session_timeout_ms: int = Field(10_000, ge=6_000, description="A worker silent for this long loses its partitions.")
    heartbeat_interval_ms: int = Field(1_000, ge=100, description="A rebalance takes as long as the slowest member's heartbeat.")
    commit_interval_ms: int = Field(
        20, ge=0, description="Least time from one commit's start to the next; a commit after a quiet moment starts at once."
    )
    in_flight_max: int = Field(800, ge=1, le=800, description="Records of one partition handed out and unfinished; a commit names each.")
    uncommitted_max: int = Field(5_000, ge=1, description="Records of one partition read and not yet committed, finished or not.")
    record_bytes_max: int = Field(
        1_000_000, ge=1_000, le=1_040_000, description="A larger record is dead-lettered by reference; topics take 1,048,576."
    )
    rocksdb_block_cache_mb: int = Field(64, ge=1, description="RocksDB's read cache, shared by all partitions of a worker.")
    rocksdb_write_buffer_mb: int = Field(8, ge=1, description="RocksDB's write buffer, for each partition.")
    store_age_max_h: int = Field(
        12, ge=1, description="Older local files are rebuilt. At most half of the changelogs' delete.retention.ms (24 h)."
    )
    warm_stores_max: int = Field(64, ge=0, description="Local files of lost partitions that are kept as a warm start.")

    # Deliveries
    secret_keys: SecretStr | None = Field(
        None,
        description="Keys that signing secrets are encrypted under, as id:base64,id2:base64, the newest first; the same for all processes. "
        "Unset: with a local broker, one is made in the state folder.",
    )
    allow_loopback: bool = Field(False, description="Let webhooks go to this machine, over http too: for tests and demonstrations.")
    time_scale: float = Field(
        1.0,
        ge=1,
        allow_inf_nan=False,
        description="Divides every delay of the ladder and of the schedules, for all roles alike: for tests and demonstrations.",
    )

    events_remembered_h: int = Field(
        168, ge=1, description="How long a second event of the same source and id is recognised, after the first was delivered."
    )
    disable_failures_max: int = Field(100, ge=1, description="More failed attempts in a row than this disable a subscription,")
    disable_least_min: int = Field(60, ge=0, description="once they have lasted for so long (profile wf: at once).")
    disable_tls_failures_max: int = Field(20, ge=1, description="As many TLS errors in a row disable it,")
    disable_tls_least_h: int = Field(24, ge=0, description="once they have lasted for so long.")
    brake_merchants_least: int = Field(
        20, ge=1, le=10_000, description="Deliveries are held when, of at least so many merchants tried within the window,"
    )
    brake_fraction: float = Field(0.5, gt=0, le=1, description="this part could not be connected to: the fault is then ours.")
    brake_window_s: int = Field(60, ge=5, description="And the window.")
    posts_in_flight_max: int = Field(
        512,
        ge=2,
        description="Posts of a worker under way at once, each counted for its first second, for what hangs holds up nobody; "
        "half of them for endpoints that have not shown to be quick.",
    )
    idle_connections_max: int = Field(100, ge=0, description="Connections to merchants that are kept open, in all.")
    idle_connections_per_endpoint_max: int = Field(10, ge=0, description="And for each of them.")
    idle_connection_s: float = Field(90, gt=0, description="And for so long.")

    replay_per_s: float = Field(
        50, gt=0, allow_inf_nan=False, description="How many a replay sends a second, over all partitions, where it is not asked for less."
    )

    # Payouts
    channels: dict[str, ChannelSettings] = Field(
        {},
        description='The payment channels, as JSON: {"mobile_wallet": {"url": …, "key_id": …, "secret": …}}. One that is not here is not '
        "available; `available: false` takes one out for new payouts while those under way are still asked about.",
    )
    payout_limits: dict[str, LimitSettings] = Field(
        {},
        description='What a payout may come to, as JSON by channel and currency: {"mobile_wallet/PKR": {"least": "1", "most": "50000"}}.',
    )
    payout_fees: dict[str, FeeSettings] = Field(
        {}, description='What it costs, likewise: {"mobile_wallet/PKR": {"fixed": "5", "basis_points": 50}}. Taken out of the amount.'
    )
    payout_four_eyes: bool = Field(False, description="Whether a second person must confirm how a stuck payout is resolved.")

    # What people see
    http_host: str = Field("127.0.0.1", description="Where the API and dashboard listen.")
    http_port: int = Field(8080, ge=0, le=65_535, description="Their port; 0 takes a free one.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="The least important line that is logged.")
    log_format: Literal["auto", "console", "json"] = Field("auto", description="auto: readable on a terminal, JSON otherwise.")

    def kafka(self, bootstrap_servers: str | None = None) -> dict[str, str | int]:
        """What every Kafka client is configured with; `bootstrap_servers` names a local broker where none is set."""
        servers = self.bootstrap_servers or bootstrap_servers
        if not servers:
            raise ConfigurationError("no Kafka cluster is configured: set HOOKLINE_BOOTSTRAP_SERVERS, or run `hookline broker start`")
        given: dict[str, str | int | Path | None] = {
            "bootstrap.servers": servers,
            "security.protocol": self.security_protocol,
            "sasl.mechanism": self.sasl_mechanism,
            "sasl.username": self.sasl_username,
            "sasl.password": self.sasl_password.get_secret_value() if self.sasl_password else None,
            "ssl.ca.location": self.ssl_ca_location,
            "ssl.certificate.location": self.ssl_certificate_location,
            "ssl.key.location": self.ssl_key_location,
        }
        return {name: value if isinstance(value, int) else str(value) for name, value in given.items() if value is not None}


@lru_cache
def settings() -> Settings:
    """The settings of this process; a bad one is told by its name."""
    try:
        return Settings()
    except ValidationError as error:
        reasons = "; ".join(f"HOOKLINE_{'_'.join(str(part) for part in e['loc']).upper()}: {e['msg']}" for e in error.errors())
        raise ConfigurationError(f"settings refused: {reasons}") from None
