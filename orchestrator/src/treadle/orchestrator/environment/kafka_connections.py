"""Kafka connections of a profile: librdkafka's settings by their own names, passwords by the names of secrets.

    [lab.kafka.orders]
    bootstrap.servers = "kafka.lab:9093"
    security.protocol = "SASL_SSL"
    sasl.mechanism = "SCRAM-SHA-512"
    sasl.username = "treadle"
    secrets.sasl.password = "kafka-orders"

https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from treadle.executors.program import connection_secret
from treadle.primitives.errors import UsageError

SECRET = (
    "sasl.password",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.password",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config",
)
"""Settings that must not be written into a profile."""
OURS = ("group.", "enable.auto.", "auto.offset.reset", "isolation.level", "partition.assignment.strategy", "plugin.")
"""Settings that decide whether a trigger delivers as documented, or that load code. Not for profiles."""


class KafkaConnection(BaseModel):
    """A Kafka cluster with its credentials."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    settings: dict[str, str | int | float | bool]
    """librdkafka's name -> value. A dotted name may be written as nested tables."""
    secrets: dict[str, str] = {}
    """librdkafka's name -> name of the secret that holds the value."""

    @model_validator(mode="before")
    @classmethod
    def _flat(cls, table: Any) -> Any:
        if not isinstance(table, Mapping):
            return table
        secrets = table.get("secrets", {})
        names = dict(_flattened({name: value for name, value in table.items() if name != "secrets"}))
        return {"settings": names, "secrets": dict(_flattened(secrets)) if isinstance(secrets, Mapping) else secrets}

    @model_validator(mode="after")
    def _allowed(self) -> KafkaConnection:
        if "bootstrap.servers" not in self.settings:
            raise ValueError("give bootstrap.servers")
        for name in (*self.settings, *self.secrets):
            if name.startswith(OURS):
                raise ValueError(f"{name} is set by treadle")
        for name in SECRET:
            if name in self.settings:
                raise ValueError(f'{name} is a secret: write secrets.{name} = "NAME", and the value to a secret')
        return self


def _flattened(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def kafka_settings(
    connections: Mapping[str, KafkaConnection], name: str, secret: Callable[[str], str]
) -> dict[str, str | int | float | bool]:
    """librdkafka's settings for the connection, with secrets resolved by `secret`. Raises UsageError."""
    if name not in connections:
        known = f"There are: {', '.join(sorted(connections))}. " if connections else ""
        raise UsageError(
            f"the profile has no Kafka connection {name!r}",
            f"{known}Add to profiles.toml in the home folder, and choose it with --profile PROFILE:\n"
            f'  [PROFILE.kafka.{name}]\n  bootstrap.servers = "HOST:PORT"',
        )
    found = connections[name]
    return found.settings | {setting: secret(held) for setting, held in found.secrets.items()}


def with_connections(connections: Mapping[str, KafkaConnection], secret: Callable[[str], str]) -> Callable[[str], str]:
    """A look-up of secrets that also resolves connections: the settings as JSON, for tasks that read a range of
    events."""
    prefix = connection_secret("")

    def find(name: str) -> str:
        if not name.startswith(prefix):
            return secret(name)
        return json.dumps(kafka_settings(connections, name.removeprefix(prefix), secret))

    return find
