"""The CloudFormation template equals the requests to the API, and holds no secret.

Most properties of AWS::Lambda::Function, AWS::Lambda::EventInvokeConfig and AWS::IAM::Role equal the parameters of
CreateFunction, PutFunctionEventInvokeConfig and CreateRole (CloudFormation template reference). So the shapes of
boto3's own service model check them.
"""

from __future__ import annotations

from typing import Any

import boto3
import pytest
import yaml
from botocore.validate import ParamValidator

from treadle.executors.package.build import Package
from treadle.executors.package.target import this_machine
from treadle.orchestrator.deployment.cloudformation import template
from treadle.orchestrator.deployment.request import DeployRequest
from treadle.orchestrator.deployment.settings import LambdaDeploySettings

SECRET = "bm90IGZvciBhIHRlbXBsYXRl"
ATTRIBUTE = "arn:aws:iam::123456789012:role/x"


def request(image: str = "") -> DeployRequest:
    package = None if image else Package(b"zip", "d1", {"a.py": 1}, this_machine())
    variables = {"TREADLE_KEY": SECRET, "TREADLE_SECRET_TOKEN": SECRET}
    return DeployRequest("treadle", (512, 1024), 900.0, "s3://bucket/treadle", variables, package, image)


@pytest.fixture
def made() -> dict[str, Any]:
    """The template as read from the file."""
    loaded: dict[str, Any] = yaml.safe_load(
        yaml.safe_dump(template(request(), LambdaDeploySettings()), sort_keys=False)
    )
    return loaded


def of_type(made: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [each["Properties"] for each in made["Resources"].values() if each["Type"] == kind]


def resolved(value: Any) -> Any:
    """The value with references replaced by possible results."""
    if isinstance(value, dict):
        if set(value) == {"Ref"} or set(value) == {"Fn::GetAtt"}:
            return ATTRIBUTE
        return {key: resolved(each) for key, each in value.items()}
    return [resolved(each) for each in value] if isinstance(value, list) else value


def as_parameters(function: dict[str, Any]) -> dict[str, Any]:
    """Tags are a list in CloudFormation and a map in the API."""
    tags = {each["Key"]: each["Value"] for each in function["Tags"]}
    return {**resolved(function), "Tags": tags}


def assert_takes(service: str, operation: str, parameters: dict[str, Any]) -> None:
    client = boto3.client(service, region_name="eu-central-1")
    shape = client.meta.service_model.operation_model(operation).input_shape
    assert ParamValidator().validate(parameters, shape).generate_report() == ""


def test_functions_are_as_create_function_takes_them(made: dict[str, Any]) -> None:
    functions = of_type(made, "AWS::Lambda::Function")
    assert [function["MemorySize"] for function in functions] == [512, 1024]
    for function in functions:
        assert_takes("lambda", "CreateFunction", as_parameters(function))


def test_asynchronous_retries_are_off(made: dict[str, Any]) -> None:
    events = of_type(made, "AWS::Lambda::EventInvokeConfig")
    assert [each["MaximumRetryAttempts"] for each in events] == [0, 0]
    for each in events:
        assert_takes("lambda", "PutFunctionEventInvokeConfig", resolved(each))


def test_the_role_is_as_create_role_and_put_role_policy_take_it(made: dict[str, Any]) -> None:
    import json

    (role,) = of_type(made, "AWS::IAM::Role")
    trust, (inline,) = json.dumps(role["AssumeRolePolicyDocument"]), role["Policies"]
    assert_takes("iam", "CreateRole", {"RoleName": "made-up", "AssumeRolePolicyDocument": trust})
    document = json.dumps(inline["PolicyDocument"])
    assert_takes(
        "iam", "PutRolePolicy", {"RoleName": "x", "PolicyName": inline["PolicyName"], "PolicyDocument": document}
    )


def test_every_reference_leads_to_a_parameter_or_resource(made: dict[str, Any]) -> None:
    names = {*made["Parameters"], *made["Resources"]}
    found = set(_references(made["Resources"]))
    assert found
    assert found <= names
    assert {*made["Parameters"]} <= found
    assert all(name.isalnum() for name in names)


def _references(value: Any) -> list[str]:
    if isinstance(value, list):
        return [name for each in value for name in _references(each)]
    if not isinstance(value, dict):
        return []
    if set(value) == {"Ref"}:
        return [value["Ref"]]
    if set(value) == {"Fn::GetAtt"}:
        return [value["Fn::GetAtt"][0]]
    return [name for each in value.values() for name in _references(each)]


def test_secrets_are_parameters_that_are_not_echoed(made: dict[str, Any]) -> None:
    assert SECRET not in yaml.safe_dump(made)
    hidden = {name for name, about in made["Parameters"].items() if about.get("NoEcho")}
    assert hidden == {"TreadleKey", "TreadleSecretToken"}


def test_a_given_role_is_used_and_none_is_made() -> None:
    made = template(request(), LambdaDeploySettings(role=ATTRIBUTE))
    assert of_type(made, "AWS::IAM::Role") == []
    assert {function["Role"] for function in of_type(made, "AWS::Lambda::Function")} == {ATTRIBUTE}


def test_an_image_needs_no_bucket() -> None:
    made = template(request("1.dkr.ecr/treadle:1"), LambdaDeploySettings())
    assert "CodeBucket" not in made["Parameters"]
    for function in of_type(made, "AWS::Lambda::Function"):
        assert function["Code"] == {"ImageUri": "1.dkr.ecr/treadle:1"}
        assert_takes("lambda", "CreateFunction", as_parameters(function))
