"""The role that functions on Lambda run under: the store's runs and the data named, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

RUNS = "runs/"
"""Of the store: blocks, reports and bundles of runs. Specs of deployed workflows are none of a function's business."""
CODE = "deployments/bundles/"
"""Of the store: what deployed workflows have of the user's code, which their runs share."""

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
"""As AWSLambdaVPCAccessExecutionRole allows (AWS managed policy reference)."""


def policy(store: str, data: Sequence[str], prefix: str, key: str = "", *, network: bool = False) -> dict[str, Any]:
    """What functions called `<prefix>-...` may do; `key`: where they read the deployment key; `network`: they run in
    subnets of a VPC.

    Without s3:ListBucket, S3 answers 403 for an object that is not there (Amazon S3 API reference, GetObject).
    """
    statements = [*_logs(prefix), *_key(key), *([_NETWORK] if network else [])]
    if store.startswith("s3://"):
        places = [place(url) for url in (f"{store.rstrip('/')}/{RUNS}", *data)]
        listings = [listing(number, *one) for number, one in enumerate(places)]
        statements = [objects(places), _code(store), *listings, *statements]
    return {"Version": "2012-10-17", "Statement": statements}


def place(url: str) -> tuple[str, str]:
    """(bucket, key prefix)."""
    parts = urlsplit(url)
    return parts.netloc, parts.path.lstrip("/")


def objects(places: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """May read, write and remove the objects of these buckets below these prefixes."""
    actions = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
    resources = [f"arn:aws:s3:::{bucket}/{prefix}*" for bucket, prefix in places]
    return {"Sid": "Objects", "Effect": "Allow", "Action": actions, "Resource": resources}


def _code(store: str) -> dict[str, Any]:
    bucket, prefix = place(f"{store.rstrip('/')}/{CODE}")
    resource = f"arn:aws:s3:::{bucket}/{prefix}*"
    return {"Sid": "Code", "Effect": "Allow", "Action": "s3:GetObject", "Resource": resource}


def listing(number: int, bucket: str, prefix: str) -> dict[str, Any]:
    """May list the bucket below the prefix. `number`: of the statement."""
    return {
        "Sid": f"Listing{number}",
        "Effect": "Allow",
        "Action": "s3:ListBucket",
        "Resource": f"arn:aws:s3:::{bucket}",
        "Condition": {"StringLike": {"s3:prefix": f"{prefix}*"}},
    }


def key_resource(where: str) -> str:
    """The ARN of a secret or a parameter. ARNs of secrets end in six random characters; a parameter's name begins with
    a slash or gets one (service authorization reference)."""
    service, _, name = where.partition(":")
    if service == "ssm":
        return f"arn:aws:ssm:*:*:parameter/{name.lstrip('/')}"
    return f"arn:aws:secretsmanager:*:*:secret:{name}-??????"


def _key(where: str) -> list[dict[str, Any]]:
    """With a KMS key of one's own `kms:Decrypt` is needed too."""
    if not where:
        return []
    action = "ssm:GetParameter" if where.startswith("ssm:") else "secretsmanager:GetSecretValue"
    return [{"Sid": "Key", "Effect": "Allow", "Action": action, "Resource": key_resource(where)}]


def _logs(prefix: str) -> list[dict[str, Any]]:
    """As AWSLambdaBasicExecutionRole allows, for these functions only."""
    actions = ["logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"]
    group = f"arn:aws:logs:*:*:log-group:/aws/lambda/{prefix}-*"
    return [{"Sid": "Logs", "Effect": "Allow", "Action": actions, "Resource": [group, f"{group}:*"]}]
