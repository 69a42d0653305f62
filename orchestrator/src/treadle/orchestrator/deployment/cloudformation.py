"""The same functions as a CloudFormation template, for infrastructure that is kept as code. Pure."""

from __future__ import annotations

from typing import Any

from treadle.executors.worker.environment import KEY_FROM_VARIABLE

from .lambda_desired_state import EVENTS, functions, settings_of, tags_of
from .request import DeployRequest
from .role_policies import TRUST, policy
from .settings import LambdaDeploySettings

_ROLE = {"Fn::GetAtt": ["Role", "Arn"]}


def template(request: DeployRequest, settings: LambdaDeploySettings) -> dict[str, Any]:
    """Resources by the CloudFormation template reference (AWS::IAM::Role, AWS::Lambda::Function,
    AWS::Lambda::EventInvokeConfig).

    Values of variables are parameters with NoEcho, so the template holds no secret. The package is read from a bucket:
    the stack's owner uploads the zip that is written next to the template.
    """
    role: Any = settings.role or _ROLE
    resources: dict[str, Any] = {} if settings.role else {"Role": _role(request, settings)}
    for name, wanted in functions(request, settings, "").items():
        logical = f"Function{wanted['MemorySize']}"
        resources[logical] = _function(name, wanted, request, role)
        resources[f"{logical}Events"] = {
            "Type": "AWS::Lambda::EventInvokeConfig",
            "Properties": {"FunctionName": {"Ref": logical}, "Qualifier": "$LATEST", **EVENTS},
        }
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": request.description,
        "Parameters": _parameters(request),
        "Resources": resources,
    }


def _role(request: DeployRequest, settings: LambdaDeploySettings) -> dict[str, Any]:
    document = policy(request.store, settings.data, request.prefix, settings.key, network=bool(settings.subnets))
    properties = {
        "AssumeRolePolicyDocument": TRUST,
        "Policies": [{"PolicyName": "treadle", "PolicyDocument": document}],
        "Tags": _tags(tags_of(request, settings)),
    }
    return {"Type": "AWS::IAM::Role", "Properties": properties}


def _function(name: str, wanted: dict[str, Any], request: DeployRequest, role: Any) -> dict[str, Any]:
    variables: dict[str, Any] = {variable: {"Ref": _parameter(variable)} for variable in _secret(request)}
    if KEY_FROM_VARIABLE in request.variables:
        variables[KEY_FROM_VARIABLE] = request.variables[KEY_FROM_VARIABLE]  # the place of the key is not secret
    code: dict[str, Any] = {"S3Bucket": {"Ref": "CodeBucket"}, "S3Key": {"Ref": "CodeKey"}}
    properties = {
        **settings_of(wanted),
        "FunctionName": name,
        "Description": request.description,
        "Architectures": wanted["Architectures"],
        "PackageType": wanted["PackageType"],
        "Code": code if request.package else {"ImageUri": request.image},
        "Role": role,
        "Environment": {"Variables": variables},
        "Tags": _tags(wanted["Tags"]),
    }
    if not wanted["VpcConfig"]["SubnetIds"]:
        del properties["VpcConfig"]
    return {"Type": "AWS::Lambda::Function", "Properties": properties}


def _tags(tags: dict[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def _parameters(request: DeployRequest) -> dict[str, Any]:
    code: dict[str, Any] = {
        "CodeBucket": {"Type": "String", "Description": "Bucket of the package."},
        "CodeKey": {"Type": "String", "Description": "Name of the package's zip in it."},
    }
    secret = {
        _parameter(name): {"Type": "String", "NoEcho": True, "Description": f"Value of {name}."}
        for name in _secret(request)
    }
    return (code if request.package else {}) | secret


def _secret(request: DeployRequest) -> list[str]:
    """Names of the variables whose values must not be in a template."""
    return [name for name in request.variables if name != KEY_FROM_VARIABLE]


def _parameter(variable: str) -> str:
    """The CloudFormation parameter of a variable. Names of parameters are alphanumeric."""
    return "".join(word.capitalize() for word in variable.split("_"))
