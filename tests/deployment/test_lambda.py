"""`treadle deploy lambda` with an emulated Lambda and stubs of IAM: the resources created, changed, kept and
refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import boto3
import msgspec
import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber
from emulators.lambda_emulator import REGION, LambdaEmulator
from emulators.packages import local_package

from treadle.executors.package.build import Package
from treadle.executors.package.target import this_machine
from treadle.orchestrator.deployment import lambda_functions
from treadle.orchestrator.deployment.desired_state import Change
from treadle.orchestrator.deployment.lambda_desired_state import functions
from treadle.orchestrator.deployment.lambda_functions import Clients, LambdaDeployment, aws_errors
from treadle.orchestrator.deployment.owner import Owner
from treadle.orchestrator.deployment.request import DeployRequest
from treadle.orchestrator.deployment.role_policies import TRUST, policy
from treadle.orchestrator.deployment.settings import LambdaDeploySettings
from treadle.primitives.errors import StoreError, UsageError
from treadle.primitives.stores.store import Store

ROLE = "arn:aws:iam::123456789012:role/given"
STORE = "s3://bucket/treadle"
GIVEN = LambdaDeploySettings(role=ROLE)


def request(*, sizes: tuple[int, ...] = (512, 1024), package: Package | None = None, **more: Any) -> DeployRequest:
    known = {"seconds": 900.0, "store": STORE, "variables": {"TREADLE_KEY": "c2VjcmV0"}}
    return DeployRequest("treadle", sizes, package=package or small(), **{**known, **more})


def small(content: bytes = b"zip") -> Package:
    """A zip with one file."""
    import io
    import zipfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("treadle.txt"), content)  # dated 1980
    return Package(buffer.getvalue(), f"digest of {content!r}", {"treadle.txt": len(content)}, this_machine())


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LambdaEmulator]:
    emulator = LambdaEmulator(tmp_path_factory.mktemp("emulator")).start()
    yield emulator
    emulator.stop()


@pytest.fixture
def clients(emulator: LambdaEmulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clients]:
    for name, value in emulator.credentials.items():
        monkeypatch.setenv(name, value)
    clients = lambda_functions.open_clients(REGION, emulator.endpoint)
    yield clients
    for name in list(emulator.functions.known):
        clients.functions.delete_function(FunctionName=name)


def did(changes: list[Change]) -> dict[str, str]:
    return {change.resource: change.did for change in changes}


# -- functions


def test_a_function_of_each_size_is_made_with_provider_retries_off(clients: Clients) -> None:
    done = LambdaDeployment(clients, request(), GIVEN).apply(prune=False)
    assert did(done) == {"function treadle-512": "new", "function treadle-1024": "new"}
    for size in (512, 1024):
        found = clients.functions.get_function_configuration(FunctionName=f"treadle-{size}")
        assert (found["MemorySize"], found["Timeout"], found["Role"]) == (size, 900, ROLE)
        assert found["Handler"] == "treadle.executors.aws.entry.handler"
        assert found["Environment"]["Variables"] == {"TREADLE_KEY": "c2VjcmV0"}
        events = clients.functions.get_function_event_invoke_config(FunctionName=f"treadle-{size}")
        assert (events["MaximumRetryAttempts"], events["MaximumEventAgeInSeconds"]) == (0, 60)


def test_a_second_deployment_changes_nothing(clients: Clients, emulator: LambdaEmulator) -> None:
    LambdaDeployment(clients, request(), GIVEN).apply(prune=True)
    before = len(emulator.functions.calls)
    done = LambdaDeployment(clients, request(), GIVEN).apply(prune=True)
    assert set(did(done).values()) == {"unchanged"}
    assert {method for method, _ in emulator.functions.calls[before:]} == {"GET"}


def test_planning_says_what_deploying_does_and_changes_nothing(clients: Clients, emulator: LambdaEmulator) -> None:
    LambdaDeployment(clients, request(sizes=(512, 2048)), GIVEN).apply(prune=False)
    wish = request(package=small(b"other"), seconds=600.0)
    before = len(emulator.functions.calls)
    planned = LambdaDeployment(clients, wish, GIVEN).plan()
    assert {method for method, _ in emulator.functions.calls[before:]} == {"GET"}
    assert did(planned) == {
        "function treadle-512": "changed",
        "function treadle-1024": "new",
        "function treadle-2048": "left",
    }
    (changed,) = [change for change in planned if change.did == "changed"]
    assert "Timeout: 900 -> 600" in changed.differs
    assert any(line.startswith("CodeSha256: ") for line in changed.differs)
    assert did(LambdaDeployment(clients, wish, GIVEN).apply(prune=False)) == did(planned)


def test_sizes_that_are_not_wanted_are_removed_when_asked(clients: Clients, emulator: LambdaEmulator) -> None:
    LambdaDeployment(clients, request(sizes=(512, 2048)), GIVEN).apply(prune=False)
    done = LambdaDeployment(clients, request(sizes=(512,)), GIVEN).apply(prune=True)
    assert did(done) == {"function treadle-512": "unchanged", "function treadle-2048": "removed"}
    assert list(emulator.functions.known) == ["treadle-512"]


def test_a_changed_secret_is_deployed_and_not_told(clients: Clients) -> None:
    LambdaDeployment(clients, request(sizes=(512,)), GIVEN).apply(prune=False)
    wish = request(sizes=(512,), variables={"TREADLE_KEY": "bmV3IHNlY3JldA=="})
    (change,) = LambdaDeployment(clients, wish, GIVEN).apply(prune=False)
    assert change.differs == ("variable TREADLE_KEY: changed",)
    found = clients.functions.get_function_configuration(FunctionName="treadle-512")
    assert found["Environment"]["Variables"] == {"TREADLE_KEY": "bmV3IHNlY3JldA=="}


def test_the_real_package_is_taken_and_its_size_is_within_bounds(clients: Clients, emulator: LambdaEmulator) -> None:
    LambdaDeployment(clients, request(sizes=(512,), package=local_package()), GIVEN).apply(prune=False)
    assert emulator.functions.known["treadle-512"].zipped == len(local_package().data)


def test_a_package_beyond_250_mb_is_refused_before_anything_is_called() -> None:
    nobody = Clients(None, None)
    large = small()._replace(sizes={"pyarrow/lib.so": 251 << 20})
    with pytest.raises(UsageError, match=r"251\.0 MiB unzipped, AWS Lambda takes 250\.0 MiB"):
        LambdaDeployment(nobody, request(package=large), GIVEN)


def test_variables_beyond_4_kb_are_refused() -> None:
    with pytest.raises(UsageError, match="Lambda takes 4096"):
        functions(request(variables={"A": "x" * 5000}), GIVEN, ROLE)


def test_a_package_too_large_to_be_sent_goes_through_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    put: dict[str, bytes] = {}

    class Kept:
        def put(self, name: str, data: bytes) -> None:
            put[name] = data

    monkeypatch.setattr(Store, "open", lambda _: Kept())
    large = Package(bytes(51 << 20), "d1", {}, this_machine())
    # private: the code is sent to AWS only
    code = LambdaDeployment(Clients(None, None), request(package=large), GIVEN)._code()
    assert code == {"S3Bucket": "bucket", "S3Key": "treadle/functions/d1.zip"}
    assert len(put["functions/d1.zip"]) == 51 << 20


def test_an_image_needs_no_package() -> None:
    wish = msgspec.structs.replace(request(), package=None, image="1.dkr.ecr/treadle:1")
    (wanted,) = functions(msgspec.structs.replace(wish, sizes=(512,)), GIVEN, ROLE).values()
    assert (wanted["PackageType"], wanted["ImageUri"]) == ("Image", "1.dkr.ecr/treadle:1")
    assert "Handler" not in wanted
    assert LambdaDeployment(Clients(None, None), wish, GIVEN)._code() == {"ImageUri": "1.dkr.ecr/treadle:1"}


# -- the role


@pytest.fixture
def roles() -> Iterator[tuple[Any, Stubber]]:
    client = boto3.client("iam", region_name=REGION, aws_access_key_id="a", aws_secret_access_key="b")
    with Stubber(client) as stubber:
        yield client, stubber


def _role(arn: str = "arn:aws:iam::123456789012:role/treadle-functions") -> dict[str, Any]:
    about = {"Path": "/", "RoleName": "treadle-functions", "RoleId": "A" * 16, "Arn": arn, "CreateDate": 0}
    tags = [{"Key": key, "Value": value} for key, value in Owner().tags.items()]
    return {"Role": about | {"AssumeRolePolicyDocument": json.dumps(TRUST), "Tags": tags}}


def _inline(document: dict[str, Any]) -> dict[str, Any]:
    return {"RoleName": "treadle-functions", "PolicyName": "treadle", "PolicyDocument": json.dumps(document)}


def test_a_role_is_made_before_its_functions_which_wait_until_it_is_known(
    clients: Clients, roles: tuple[Any, Stubber], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, stubber = roles
    document = policy(STORE, (), "treadle")
    stubber.add_client_error("get_role", "NoSuchEntity", http_status_code=404)
    stubber.add_response("create_role", _role())
    wanted = {"RoleName": "treadle-functions", "PolicyName": "treadle", "PolicyDocument": json.dumps(document)}
    stubber.add_response("put_role_policy", {}, wanted)
    create, refusals = clients.functions.create_function, [2]

    def unknown_at_first(**options: Any) -> Any:
        if refusals[0]:
            refusals[0] -= 1
            text = "The role defined for the function cannot be assumed by Lambda."
            raise ClientError({"Error": {"Code": "InvalidParameterValueException", "Message": text}}, "CreateFunction")
        return create(**options)

    monkeypatch.setattr(clients.functions, "create_function", unknown_at_first)
    pauses: list[float] = []
    wish = request(sizes=(512,))
    deployment = LambdaDeployment(Clients(clients.functions, client), wish, LambdaDeploySettings(), pauses.append)
    done = deployment.apply(prune=False)
    assert did(done) == {"role treadle-functions": "new", "function treadle-512": "new"}
    assert pauses == [1.0, 2.0]
    stubber.assert_no_pending_responses()


def test_a_role_as_wanted_is_left_alone(roles: tuple[Any, Stubber], clients: Clients) -> None:
    client, stubber = roles
    stubber.add_response("get_role", _role())
    stubber.add_response("get_role_policy", _inline(policy(STORE, (), "treadle")))
    planned = LambdaDeployment(Clients(clients.functions, client), request(), LambdaDeploySettings()).plan()
    assert did(planned)["role treadle-functions"] == "unchanged"


def test_more_data_changes_the_role(roles: tuple[Any, Stubber], clients: Clients) -> None:
    client, stubber = roles
    stubber.add_response("get_role", _role())
    stubber.add_response("get_role_policy", _inline(policy(STORE, (), "treadle")))
    settings = LambdaDeploySettings(data=("s3://lake/orders/",))
    planned = LambdaDeployment(Clients(clients.functions, client), request(), settings).plan()
    assert did(planned)["role treadle-functions"] == "changed"


def allowed(document: dict[str, Any], action: str, resource: str) -> bool:
    """Returns whether a statement allows it, by IAM's globs."""
    import fnmatch

    return any(
        any(fnmatch.fnmatchcase(action, each) for each in _list(statement["Action"]))
        and any(fnmatch.fnmatchcase(resource, each) for each in _list(statement["Resource"]))
        for statement in document["Statement"]
    )


def _list(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]


def test_the_role_reaches_runs_and_named_data_and_nothing_else() -> None:
    document = policy(STORE, ("s3://lake/orders/",), "treadle")
    for action in ("s3:GetObject", "s3:PutObject", "s3:DeleteObject"):
        assert allowed(document, action, "arn:aws:s3:::bucket/treadle/runs/r1/blocks/x")
        assert allowed(document, action, "arn:aws:s3:::lake/orders/2026/a.csv")
        assert not allowed(document, action, "arn:aws:s3:::bucket/treadle/deployments/w/1")
        assert not allowed(document, action, "arn:aws:s3:::bucket/other")
        assert not allowed(document, action, "arn:aws:s3:::lake/secret")
    listings = [each for each in document["Statement"] if each["Action"] == "s3:ListBucket"]
    prefixes = {each["Resource"]: each["Condition"]["StringLike"]["s3:prefix"] for each in listings}
    assert prefixes == {"arn:aws:s3:::bucket": "treadle/runs/*", "arn:aws:s3:::lake": "orders/*"}
    assert not allowed(document, "iam:PassRole", "*")
    for name in ("deployments/bundles/x", "inputs/d.npy"):
        shared = f"arn:aws:s3:::bucket/treadle/{name}"
        assert allowed(document, "s3:GetObject", shared)
        assert not any(allowed(document, action, shared) for action in ("s3:PutObject", "s3:DeleteObject"))


# -- errors


@pytest.mark.parametrize(
    ("status", "kind"), [(403, UsageError), (400, UsageError), (503, StoreError), (429, StoreError)]
)
def test_errors_of_aws_are_classified_by_status(status: int, kind: type[Exception]) -> None:
    response: Any = {"Error": {"Code": "X", "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    with pytest.raises(kind, match="no"), aws_errors():
        raise ClientError(response, "CreateFunction")
