"""The table `deploy` of an executor's table: what is said about its functions when they are made.

[lab.executors.functions.deploy]
secrets = ["token"]
data = ["s3://lake/orders/"]
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from ..environment.profile import Table


def _s3(url: str) -> str:
    if not url.startswith("s3://") or not url.removeprefix("s3://").strip("/"):
        raise ValueError(f"{url!r} is no s3:// URL")
    return url


def _where(text: str) -> str:
    service, _, name = text.partition(":")
    if text and (service not in ("secretsmanager", "ssm") or not name):
        raise ValueError(f"{text!r} is neither secretsmanager:NAME nor ssm:NAME")
    return text


class DeploySettings(Table):
    """What both providers know."""

    secrets: tuple[str, ...] = ()
    """Names of the secrets that tasks may use; their values become variables of the functions."""
    environment: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], str] = Field(default_factory=dict)
    """More variables, such as AWS_ENDPOINT_URL of a store that is not Amazon's."""
    arrow: bool = False
    """Put Arrow into the package, which tables and Parquet need."""
    kafka: bool = False
    """Put the client for Kafka into the package, which ranges of events need."""
    image: str = ""
    """A container image that holds the package, instead of a zip."""


class LambdaDeploySettings(DeploySettings):
    data: tuple[Annotated[str, AfterValidator(_s3)], ...] = ()
    """Below these, tasks may read and write; the store is added by itself."""
    role: str = ""
    """ARN of a role that exists; empty: one is made, limited to the store and to `data`."""
    key: Annotated[str, AfterValidator(_where)] = ""
    """Where functions read the deployment key, `secretsmanager:NAME` or `ssm:NAME`; empty: in a variable of theirs."""
    machine: Literal["x86_64", "aarch64"] = "x86_64"
    temporary: Annotated[int, Field(ge=512, le=10_240)] = 512
    """Megabytes of /tmp."""


class OpenWhiskDeploySettings(DeploySettings):
    environment_secrets: dict[str, str] = Field(default_factory=dict)
    """Variable -> name of the secret that holds its value, such as AWS_SECRET_ACCESS_KEY of the store."""
