"""The policy of the functions' role: the runs in the store, their code and inputs, and the named data; nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from treadle.primitives.run_paths import INPUTS

RUNS = "runs/"
"""The folder in the store with the blocks, reports and bundles of runs. Functions do not need the specs of
workflows."""
CODE = "deployments/bundles/"
"""The folder in the store with the user's code of deployed workflows. Their runs share it."""

TRUST: dict[str, Any] = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"},
    ],
}
"""Lambda developer guide, "Defining Lambda function permissions with an execution role"."""

_INTERFACE = (
    *("CreateNetworkInterface", "DeleteNetworkInterface", "DescribeNetworkInterfaces", "DescribeSubnets"),
    *("AssignPrivateIpAddresses", "UnassignPrivateIpAddresses"),
)
_NETWORK: dict[str, Any] = {
    "Sid": "Network",
    "Effect": "Allow",
    "Action": [f"ec2:{name}" for name in _INTERFACE],
    "Resource": "*",
}
"""The rights of AWSLambdaVPCAccessExecutionRole (AWS managed policy reference)."""


def policy(store: str, data: Sequence[str], prefix: str, key: str = "", *, network: bool = False) -> dict[str, Any]:
    """The policy of functions called `<prefix>-...`.

    `key`: the place of the deployment key. `network`: the functions run in subnets of a VPC.
    Without s3:ListBucket, S3 answers 403 for an object that does not exist (Amazon S3 API reference, GetObject).
    """
    statements = [*_logs(prefix), *_key(key), *([_NETWORK] if network else [])]
    if store.startswith("s3://"):
        places = [place(url) for url in (f"{store.rstrip('/')}/{RUNS}", *data)]
        listings = [listing(number, *one) for number, one in enumerate(places)]
        statements = [objects(places), _shared(store), *listings, *statements]
    return {"Version": "2012-10-17", "Statement": statements}


def place(url: str) -> tuple[str, str]:
    """(bucket, key prefix)."""
    parts = urlsplit(url)
    return parts.netloc, parts.path.lstrip("/")


def objects(places: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Allows to read, write and remove the objects of these buckets below these prefixes."""
    actions = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
    resources = [f"arn:aws:s3:::{bucket}/{prefix}*" for bucket, prefix in places]
    return {"Sid": "Objects", "Effect": "Allow", "Action": actions, "Resource": resources}


def _shared(store: str) -> dict[str, Any]:
    """Allows to read the objects that runs share."""
    places = [place(f"{store.rstrip('/')}/{folder}") for folder in (CODE, f"{INPUTS}/")]
    resources = [f"arn:aws:s3:::{bucket}/{prefix}*" for bucket, prefix in places]
    return {"Sid": "Shared", "Effect": "Allow", "Action": "s3:GetObject", "Resource": resources}


def listing(number: int, bucket: str, prefix: str) -> dict[str, Any]:
    """Allows to list the bucket below the prefix. `number`: the number of the statement."""
    return {
        "Sid": f"Listing{number}",
        "Effect": "Allow",
        "Action": "s3:ListBucket",
        "Resource": f"arn:aws:s3:::{bucket}",
        "Condition": {"StringLike": {"s3:prefix": f"{prefix}*"}},
    }


def key_resource(where: str) -> str:
    """The ARN of a secret or a parameter.

    The ARN of a secret ends in six random characters. The name of a parameter begins with a slash or gets one (service
    authorization reference).
    """
    service, _, name = where.partition(":")
    if service == "ssm":
        return f"arn:aws:ssm:*:*:parameter/{name.lstrip('/')}"
    return f"arn:aws:secretsmanager:*:*:secret:{name}-??????"


def _key(where: str) -> list[dict[str, Any]]:
    """A key of your own in KMS needs `kms:Decrypt` too."""
    if not where:
        return []
    action = "ssm:GetParameter" if where.startswith("ssm:") else "secretsmanager:GetSecretValue"
    return [{"Sid": "Key", "Effect": "Allow", "Action": action, "Resource": key_resource(where)}]


def _logs(prefix: str) -> list[dict[str, Any]]:
    """The rights of AWSLambdaBasicExecutionRole, for these functions only."""
    actions = ["logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"]
    group = f"arn:aws:logs:*:*:log-group:/aws/lambda/{prefix}-*"
    return [{"Sid": "Logs", "Effect": "Allow", "Action": actions, "Resource": [group, f"{group}:*"]}]
