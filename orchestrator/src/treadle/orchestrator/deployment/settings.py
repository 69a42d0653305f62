"""The table `deploy` of an executor's table: settings for the creation of its functions.

[lab.executors.functions.deploy]
secrets = ["token"]
data = ["s3://lake/orders/"]
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from ..environment.profile import Table

_RESERVED = {
    *("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
    *("AWS_SESSION_TOKEN", "AWS_EXECUTION_ENV", "AWS_LAMBDA_RUNTIME_API", "_HANDLER", "_X_AMZN_TRACE_ID"),
}
"""Lambda developer guide, "Defined runtime environment variables"."""


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
    """The settings that both providers share."""

    secrets: tuple[str, ...] = ()
    """Names of the secrets that tasks may use. Their values become variables of the functions."""
    environment: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], str] = Field(default_factory=dict)
    """Further variables, for example AWS_ENDPOINT_URL of a store outside Amazon."""
    arrow: bool = False
    """Put Arrow into the package. Tables and Parquet need it."""
    kafka: bool = False
    """Put the client for Kafka into the package. Ranges of events need it."""
    image: str = ""
    """A container image that holds the package, instead of a zip."""


class LambdaDeploySettings(DeploySettings):
    data: tuple[Annotated[str, AfterValidator(_s3)], ...] = ()
    """Tasks may read and write below these URLs. The store is always added."""
    role: str = ""
    """ARN of an existing role. Empty: treadle creates one, limited to the store and to `data`."""
    key: Annotated[str, AfterValidator(_where)] = ""
    """The place of the deployment key, `secretsmanager:NAME` or `ssm:NAME`. Empty: a variable of the functions."""
    machine: Literal["x86_64", "aarch64"] = "x86_64"
    temporary: Annotated[int, Field(ge=512, le=10_240)] = 512
    """Megabytes of /tmp."""
    tags: dict[Annotated[str, Field(min_length=1, max_length=128)], Annotated[str, Field(max_length=256)]] = Field(
        default_factory=dict
    )
    """Tags of the functions and their role, such as a cost centre. Their other tags stay."""
    subnets: tuple[str, ...] = ()
    """IDs of VPC subnets for the functions. They then reach S3 only through an endpoint of the VPC."""
    security_groups: tuple[str, ...] = ()
    """IDs of the functions' security groups in the VPC."""

    @model_validator(mode="after")
    def _network(self) -> LambdaDeploySettings:
        if bool(self.subnets) != bool(self.security_groups):
            raise ValueError("give subnets and security_groups together")
        if wrong := [name for name in self.tags if name.startswith(("aws:", "treadle:"))]:
            raise ValueError(f"tags: names that begin with aws: or treadle: are taken, such as {wrong[0]!r}")
        if taken := _RESERVED.intersection(self.environment):
            raise ValueError(f"environment: Lambda sets {', '.join(sorted(taken))} itself")
        return self


class OpenWhiskDeploySettings(DeploySettings):
    environment_secrets: dict[str, str] = Field(default_factory=dict)
    """Variable -> name of the secret that holds its value, such as AWS_SECRET_ACCESS_KEY of the store."""
