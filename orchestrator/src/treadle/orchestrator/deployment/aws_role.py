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


def policy(store: str, data: Sequence[str], prefix: str, key: str = "") -> dict[str, Any]:
    """What functions called `<prefix>-...` may do; `key`: where they read the deployment key.

    Without s3:ListBucket, S3 answers 403 for an object that is not there (Amazon S3 API reference, GetObject).
    """
    statements = [*_logs(prefix), *_key(key)]
    if store.startswith("s3://"):
        places = [_place(url) for url in (f"{store.rstrip('/')}/{RUNS}", *data)]
        statements = [_objects(places), _code(store), *_listings(places), *statements]
    return {"Version": "2012-10-17", "Statement": statements}


def _place(url: str) -> tuple[str, str]:
    """(bucket, key prefix)."""
    parts = urlsplit(url)
    return parts.netloc, parts.path.lstrip("/")


def _objects(places: Sequence[tuple[str, str]]) -> dict[str, Any]:
    actions = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
    resources = [f"arn:aws:s3:::{bucket}/{prefix}*" for bucket, prefix in places]
    return {"Sid": "Objects", "Effect": "Allow", "Action": actions, "Resource": resources}


def _code(store: str) -> dict[str, Any]:
    bucket, prefix = _place(f"{store.rstrip('/')}/{CODE}")
    resource = f"arn:aws:s3:::{bucket}/{prefix}*"
    return {"Sid": "Code", "Effect": "Allow", "Action": "s3:GetObject", "Resource": resource}


def _listings(places: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    return [
        {
            "Sid": f"Listing{number}",
            "Effect": "Allow",
            "Action": "s3:ListBucket",
            "Resource": f"arn:aws:s3:::{bucket}",
            "Condition": {"StringLike": {"s3:prefix": f"{prefix}*"}},
        }
        for number, (bucket, prefix) in enumerate(places)
    ]


def _key(where: str) -> list[dict[str, Any]]:
    """Service authorization reference: ARNs of secrets end in six random characters; a parameter's name begins with a
    slash or gets one. With a KMS key of one's own `kms:Decrypt` is needed too."""
    service, _, name = where.partition(":")
    if not service:
        return []
    if service == "ssm":
        action, resource = "ssm:GetParameter", f"arn:aws:ssm:*:*:parameter/{name.lstrip('/')}"
    else:
        action, resource = "secretsmanager:GetSecretValue", f"arn:aws:secretsmanager:*:*:secret:{name}-??????"
    return [{"Sid": "Key", "Effect": "Allow", "Action": action, "Resource": resource}]


def _logs(prefix: str) -> list[dict[str, Any]]:
    """As AWSLambdaBasicExecutionRole allows, for these functions only."""
    actions = ["logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"]
    group = f"arn:aws:logs:*:*:log-group:/aws/lambda/{prefix}-*"
    return [{"Sid": "Logs", "Effect": "Allow", "Action": actions, "Resource": [group, f"{group}:*"]}]
