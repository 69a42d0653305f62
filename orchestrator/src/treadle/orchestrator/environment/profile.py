"""The profile: the Temporal cluster, the store and the executor settings of a command.

The first source that exists wins:
- the table of `<home>/profiles.toml` named by `--profile` or `TREADLE_PROFILE`
- the settings of Temporal's own SDK (`TEMPORAL_ADDRESS`, `TEMPORAL_NAMESPACE`, ..., or its `temporal.toml`)
- the embedded default

    [lab]
    store = "s3://bucket/treadle"
    queue = "treadle"
    slots = 8
    memory = "16GiB"
    peers = "tls://10.0.0.5:0"
    temporal = { address = "temporal.lab:7233", namespace = "jobs", api_key_secret = "temporal-lab" }
    executor = "functions"

    allow = ["s3://lake/orders/"]
    webhook = { address = "127.0.0.1:8088" }
    triggers = { retention = "30d" }
    lifecycle = { kafka = { connection = "prod_kafka", topic = "treadle.lifecycle" } }

    [lab.executors.functions]
    kind = "lambda"

A profile without `temporal` changes the other settings only. `temporal = { config_profile = "NAME" }` takes a profile
of the SDK's own file. `TREADLE_STORE` and `TREADLE_PEERS` replace the store and the address for peers of any profile.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from treadle.dsl.model_base import Identifier
from treadle.dsl.units import Duration, Size
from treadle.executors.worker.environment import is_withheld
from treadle.primitives.errors import UsageError
from treadle.primitives.wire import is_loopback

from .home import Home
from .kafka_connections import KafkaConnection
from .profile_table import QUEUE, CommandSettings, read_table

Slots = Annotated[int, Field(ge=1, le=10_000)]
"""Tasks at a time on one machine. Each is a process."""

LEAST_RETENTION = 3600.0
"""Minimum of `retention` in seconds. A run's files are in the store before Temporal starts the run."""


class Table(BaseModel):
    """A table of `profiles.toml`. An unknown key is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TlsSettings(Table):
    """The same keys as in the SDK's own `temporal.toml`."""

    disabled: bool | None = None
    server_name: str | None = None
    server_ca_cert_path: Path | None = None
    client_cert_path: Path | None = None
    client_key_path: Path | None = None


class TemporalSettings(Table):
    """A Temporal cluster: an address, or a profile of the SDK's own configuration."""

    address: str | None = None
    """`host:port`"""
    namespace: str = "default"
    api_key_secret: str | None = None
    """Name of the secret that holds the API key."""
    tls: TlsSettings | None = None
    config_profile: str | None = None

    @model_validator(mode="after")
    def _one_source(self) -> TemporalSettings:
        own = self.model_fields_set - {"config_profile"}
        if self.config_profile is None and self.address is None:
            raise ValueError("give address, or config_profile")
        if self.config_profile is not None and own:
            raise ValueError(f"config_profile cannot be combined with {', '.join(sorted(own))}")
        return self


class WebhookSettings(Table):
    """The address at which `treadle triggers` accepts requests that start runs."""

    address: Annotated[str, Field(pattern=r"^[^\s/:]+:\d+$|^\[[0-9A-Fa-f:.]+\]:\d+$")] = "127.0.0.1:8088"
    """`host:port`. Plain HTTP: to make it reachable from other hosts, put a proxy with TLS before it."""


class TriggersSettings(Table):
    """The clean-up of `treadle triggers`."""

    retention: Literal["never"] | Duration = Field(default_factory=lambda: 30 * 86_400.0)
    """Seconds from the last write of a finished triggered run until its files are removed from the store."""

    @field_validator("retention")
    @classmethod
    def _long_enough(cls, seconds: Literal["never"] | float) -> Literal["never"] | float:
        if seconds != "never" and seconds < LEAST_RETENTION:
            raise ValueError("at least 1h, so that a run that fails can be looked at")
        return seconds


class LifecycleTopic(Table):
    """A Kafka topic for lifecycle events."""

    connection: str
    """Name of a table of `kafka`."""
    topic: Annotated[str, Field(min_length=1)]


class LifecycleWebhook(Table):
    """An endpoint for lifecycle events over HTTP, signed by Standard Webhooks."""

    url: Annotated[str, Field(pattern=r"^https?://[^/]")]
    secret: str
    """Name of the secret that holds `whsec_...`."""

    @model_validator(mode="after")
    def _private(self) -> LifecycleWebhook:
        if self.url.startswith("http://") and not is_loopback(urlsplit(self.url).hostname or ""):
            raise ValueError("plain http is for this machine only: write https://")
        return self


class LifecycleSettings(Table):
    """The destination of lifecycle events, which drivers send at the start and end of runs and stages."""

    kafka: LifecycleTopic | None = None
    webhook: LifecycleWebhook | None = None

    @model_validator(mode="after")
    def _one_place(self) -> LifecycleSettings:
        if (self.kafka is None) == (self.webhook is None):
            raise ValueError("give kafka or webhook, one of them")
        return self


class Profile(Table):
    """The environment's settings for the planner, the client and `treadle worker`."""

    name: str | None = None
    temporal: TemporalSettings | None = None
    """None: the embedded default."""
    store: str | None = None
    """URL of the store; None: the `store` folder of the home."""
    region: str = ""
    """AWS region of the store, and of functions whose table has none.

    Empty: the region that the functions' tables have in common, else the region of the AWS tools.
    """
    queue: Annotated[str, Field(min_length=1)] = QUEUE
    """Temporal task queue."""
    slots: Slots | None = None
    """Tasks at a time in one local executor. None: the number of processors."""
    memory: Size | None = None
    """Bytes for all slots of one local executor. None: the machine's memory."""
    environment: dict[str, str] = Field(default_factory=dict)
    """Environment variables of tasks that run on this machine."""
    peers: str | None = None
    """The address at which `treadle worker` serves this host's blocks to workers of other hosts.

    `tls://10.0.0.5:0` (port 0: any free port), or `tcp://127.0.0.1:0` between homes of one machine. None: it does not
    serve them, and such runs use the store.
    """

    executor: Annotated[str, Field(min_length=1)] = "local"
    """The default executor of stages for which neither the workflow nor the command names an executor."""
    executors: dict[Identifier, dict[str, Any]] = Field(default_factory=dict)
    """Executor tables by the name that stages use: `kind` (default: the name itself) and the settings of that kind."""

    kafka: dict[str, KafkaConnection] = Field(default_factory=dict)
    """Kafka clusters by the name that triggers use."""
    allow: tuple[Annotated[str, Field(min_length=1)], ...] | None = None
    """URI prefixes that runs started by triggers may use. None: only those below the deployment's folder."""
    webhook: WebhookSettings = WebhookSettings()
    triggers: TriggersSettings = TriggersSettings()
    lifecycle: LifecycleSettings | None = None
    """None: no events are sent."""

    @field_validator("environment")
    @classmethod
    def _seen_by_tasks(cls, variables: dict[str, str]) -> dict[str, str]:
        for name, value in variables.items():
            if not name or "=" in name or "\0" in name + value:
                raise ValueError(f"{name!r} cannot be a variable")
            if is_withheld(name):
                raise ValueError(f"{name} is fixed or withheld: tasks would not see the value")
        return variables

    @property
    def embedded(self) -> bool:
        """Returns whether Temporal is the embedded server of the home."""
        return self.temporal is None

    def store_url(self, home: Home) -> str:
        """The URL of the store for ledgers and blocks."""
        return self.store or home.store.as_uri()

    def for_commands(self, home: Home) -> CommandSettings:
        """The settings that every command needs."""
        return CommandSettings(self.embedded, self.queue, self.store_url(home))

    def use_region(self) -> None:
        """Make this process and its children sign for the profile's region. Does nothing without a region."""
        regions = (
            {self.region} if self.region else {table.get("region", "") for table in self.executors.values()} - {""}
        )
        if len(regions) == 1:
            os.environ["AWS_REGION"] = str(regions.pop())


def load_profile(home: Home, name: str | None = None, environ: Mapping[str, str] = os.environ) -> Profile:
    """The settings in force. Raises UsageError for an unknown profile and for a table that cannot be read."""
    name, table = read_table(home, name, environ)
    try:
        return Profile(name=name, **table)
    except ValidationError as error:
        raise UsageError(f"profile {name!r} of {home.profiles}: {reasons(error)}", "Mend the table.") from None


def reasons(error: ValidationError) -> str:
    """The errors of a table, key by key."""
    said = {"extra_forbidden": "there is no such key"}
    return "; ".join(
        ".".join(map(str, entry["loc"])) + ": " + said.get(entry["type"], entry["msg"].removeprefix("Value error, "))
        for entry in error.errors()
    )
