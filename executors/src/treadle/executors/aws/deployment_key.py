"""Reads the deployment key inside a function, from AWS Secrets Manager or a parameter of Systems Manager.

API references: Secrets Manager, GetSecretValue; Systems Manager, GetParameter. boto3 is part of Lambda's runtimes for
Python and of their base images (Lambda developer guide, "Building Lambda functions with Python").
"""

from __future__ import annotations

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
