"""The IAM policies that treadle needs on AWS, for drivers, deployers and functions. Pure.

Actions and resource types follow the service authorization reference (AWS Lambda, AWS IAM, Amazon S3, AWS Secrets
Manager, AWS Systems Manager, Amazon EC2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from .role_policies import key_resource, listing, objects, place, policy
from .settings import LambdaDeploySettings

Whose = Literal["driver", "deployer", "functions"]

_FUNCTION = (
    *("CreateFunction", "DeleteFunction", "GetFunction", "UpdateFunctionCode", "UpdateFunctionConfiguration"),
    *("GetFunctionEventInvokeConfig", "PutFunctionEventInvokeConfig", "ListTags", "TagResource"),
)
_ROLE = (
    *("CreateRole", "DeleteRole", "GetRole", "TagRole", "UpdateAssumeRolePolicy"),
    *("DeleteRolePolicy", "GetRolePolicy", "PutRolePolicy"),
)
_NETWORK = ("DescribeSecurityGroups", "DescribeSubnets", "DescribeVpcs")


def policy_of(whose: Whose, prefix: str, store: str, settings: LambdaDeploySettings) -> dict[str, Any]:
    """A policy document for functions called `<prefix>-...` and a store at `store`."""
    if whose == "functions":
        return policy(store, settings.data, prefix, settings.key, network=bool(settings.subnets))
    statements = _driver(prefix, store, settings.data) if whose == "driver" else _deployer(prefix, store, settings)
    return {"Version": "2012-10-17", "Statement": statements}


def statements_for(whose: Whose, prefix: str, store: str, settings: LambdaDeploySettings) -> list[dict[str, Any]]:
    """The statements of `policy_of`."""
    return list(policy_of(whose, prefix, store, settings)["Statement"])


def _driver(prefix: str, store: str, data: Sequence[str]) -> list[dict[str, Any]]:
    """Covers commands too: `run`, `show` and `gc` read, write and delete in the store."""
    calls = _statement("Calls", ["lambda:InvokeFunction"], _functions(prefix))
    places = [place(url) for url in (f"{store.rstrip('/')}/", *data) if url.startswith("s3://")]
    listings = [listing(number, *one) for number, one in enumerate(places)]
    return [calls, *([objects(places)] if places else []), *listings]


def _deployer(prefix: str, store: str, settings: LambdaDeploySettings) -> list[dict[str, Any]]:
    statements = [
        _statement("Functions", [f"lambda:{name}" for name in _FUNCTION], _functions(prefix)),
        _statement("Names", ["lambda:ListFunctions"], "*"),  # has no resource type
    ]
    role = settings.role or f"arn:aws:iam::*:role/{prefix}-functions"
    if not settings.role:
        statements.append(_statement("Role", [f"iam:{name}" for name in _ROLE], role))
    passing = _statement("Pass", ["iam:PassRole"], role)
    passing["Condition"] = {"StringEquals": {"iam:PassedToService": "lambda.amazonaws.com"}}
    statements.append(passing)
    if store.startswith("s3://"):
        packages = place(f"{store.rstrip('/')}/functions/")
        statements += [objects([packages]), listing(0, *packages)]
    if settings.key:
        statements.append(_statement("Key", _key_actions(settings.key), key_resource(settings.key)))
    if settings.subnets:
        statements.append(_statement("Network", [f"ec2:{name}" for name in _NETWORK], "*"))
    return statements


def _functions(prefix: str) -> str:
    return f"arn:aws:lambda:*:*:function:{prefix}-*"


def _key_actions(where: str) -> list[str]:
    if where.startswith("ssm:"):
        return ["ssm:GetParameter", "ssm:PutParameter"]
    return [f"secretsmanager:{name}" for name in ("CreateSecret", "GetSecretValue", "PutSecretValue")]


def _statement(sid: str, actions: list[str], resource: str) -> dict[str, Any]:
    return {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resource}
