"""The entry point that AWS Lambda calls: `treadle.executors.aws.entry.handler`.

Reads the deployment key inside a function, from AWS Secrets Manager or a parameter of Systems Manager.

API references: Secrets Manager, GetSecretValue; Systems Manager, GetParameter. boto3 is part of Lambda's runtimes for
Python and of their base images (Lambda developer guide, "Building Lambda functions with Python").
"""

from __future__ import annotations

import os
from typing import Any, Protocol

import msgspec

from ..function_handler import Handler, hide_memory
from ..functions.payload import Request

_SECONDS, _TRIES = 3.0, 2
"""Timeout in seconds, and number of tries. Without a route to the service a connection gets no answer, and
initialisation may take 10 s in all (Lambda developer guide, "Understanding the Lambda execution environment
lifecycle")."""


def fetch_key(where: str) -> str:
    """Return the value of `secretsmanager:NAME` or `ssm:NAME`. Any boto3 error passes through."""
    import boto3.session
    from botocore.config import Config

    service, _, name = where.partition(":")
    patience = Config(connect_timeout=_SECONDS, read_timeout=_SECONDS, retries={"total_max_attempts": _TRIES})
    client = boto3.session.Session().client(service, config=patience)
    if service == "ssm":
        return str(client.get_parameter(Name=name, WithDecryption=True)["Parameter"]["Value"])
    return str(client.get_secret_value(SecretId=name)["SecretString"])


_MEMORY_VARIABLE = "AWS_LAMBDA_FUNCTION_MEMORY_SIZE"
"""Megabytes of this function (Lambda developer guide, defined runtime environment variables)."""


class LambdaContext(Protocol):
    """The used part of the context object (Lambda developer guide, Python context object)."""

    def get_remaining_time_in_millis(self) -> int: ...


def handler(event: Any, context: LambdaContext) -> Any:
    """Serve one call. Lambda decodes the event from JSON and encodes the result."""
    request = msgspec.convert(event, Request)
    response = _handler.handle(request, context.get_remaining_time_in_millis() / 1000, _memory)
    return msgspec.to_builtins(response)


hide_memory()
_memory = int(os.environ.get(_MEMORY_VARIABLE, "0")) << 20
_handler = Handler(fetch_key=fetch_key)
_handler.start(_memory)
