"""Deployed resources belong to a profile. Another profile neither changes nor removes them."""

from __future__ import annotations

import asyncio
import fnmatch
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deployment.test_lambda import did, small
from emulators.iam import Iam
from emulators.lambda_emulator import REGION, LambdaEmulator
from emulators.openwhisk import openwhisk
from emulators.openwhisk_server import OpenWhiskEmulator

from treadle.executors.openwhisk.client import OpenWhiskClient
from treadle.orchestrator.deployment import lambda_functions
from treadle.orchestrator.deployment.aws_keys import KeyPlace
from treadle.orchestrator.deployment.aws_policies import Whose, policy_of
from treadle.orchestrator.deployment.lambda_functions import Clients, LambdaDeployment
from treadle.orchestrator.deployment.openwhisk import OpenWhiskDeployment
from treadle.orchestrator.deployment.owner import Owner, owner_of
from treadle.orchestrator.deployment.request import DeployRequest
from treadle.orchestrator.deployment.settings import LambdaDeploySettings
from treadle.primitives.errors import UsageError

MINE, OTHER = owner_of(bytes(32), "lab"), owner_of(bytes(32), "prod")
STORE = "file:///store"
OWN_ROLE = LambdaDeploySettings()


def request(owner: Owner, *sizes: int, **more: Any) -> DeployRequest:
    known = {"seconds": 60.0, "store": STORE, "variables": {"TREADLE_KEY": "c2VjcmV0"}, "package": small()}
    return DeployRequest("treadle", sizes or (512,), owner=owner, **{**known, **more})


@pytest.fixture
def iam() -> Iterator[Iam]:
    iam = Iam().start()
    yield iam
    iam.stop()


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[LambdaEmulator]:
    emulator = LambdaEmulator(tmp_path / "lambda").start()
    yield emulator
    emulator.stop()


@pytest.fixture
def clients(emulator: LambdaEmulator, iam: Iam, monkeypatch: pytest.MonkeyPatch) -> Clients:
    for name, value in {**emulator.credentials, "AWS_ENDPOINT_URL_IAM": iam.endpoint}.items():
        monkeypatch.setenv(name, value)
    return lambda_functions.open_clients(REGION, emulator.endpoint)


def deploy(clients: Clients, owner: Owner, *sizes: int, prune: bool = False, adopt: bool = False) -> dict[str, str]:
    return did(LambdaDeployment(clients, request(owner, *sizes), OWN_ROLE, adopt=adopt).apply(prune))


def test_owners_differ_by_profile_and_by_deployment_key() -> None:
    assert len({MINE.id, OTHER.id, owner_of(bytes([1] * 32), "lab").id}) == 3
    assert owner_of(bytes(32), "lab") == MINE


def test_functions_of_another_profile_are_refused_before_anything_changes(
    clients: Clients, emulator: LambdaEmulator, iam: Iam
) -> None:
    deploy(clients, OTHER)
    before, policies = len(emulator.functions.calls), dict(iam.roles["treadle-functions"].policies)
    for sizes in ((512,), (1024, 512)):
        with pytest.raises(UsageError, match="belongs to profile 'prod', not to profile 'lab'") as caught:
            deploy(clients, MINE, *sizes)
        assert "--adopt" in caught.value.hint
    assert {method for method, _ in emulator.functions.calls[before:]} <= {"GET"}
    assert iam.roles["treadle-functions"].policies == policies
    assert list(emulator.functions.known) == ["treadle-512"]


def test_function_of_no_profile_is_refused_and_adopted_on_purpose(clients: Clients, emulator: LambdaEmulator) -> None:
    deploy(clients, OTHER)
    for tags in emulator.functions.tags.values():
        tags.clear()
    given = LambdaDeploySettings(role="arn:aws:iam::123456789012:role/given")
    with pytest.raises(UsageError, match="function treadle-512 belongs to no profile of treadle"):
        LambdaDeployment(clients, request(MINE), given).apply(prune=False)
    assert deploy(clients, MINE, adopt=True) == {"role treadle-functions": "changed", "function treadle-512": "changed"}
    assert deploy(clients, MINE) == {"role treadle-functions": "unchanged", "function treadle-512": "unchanged"}
    with pytest.raises(UsageError, match="belongs to profile 'lab'"):
        deploy(clients, OTHER)


def test_prune_leaves_functions_of_other_profiles(clients: Clients, emulator: LambdaEmulator) -> None:
    deploy(clients, MINE, 512, 1024)
    clients.functions.tag_resource(
        Resource=clients.functions.get_function(FunctionName="treadle-1024")["Configuration"]["FunctionArn"],
        Tags=OTHER.tags,
    )
    assert "function treadle-1024" not in deploy(clients, MINE, 512, prune=True)
    assert set(emulator.functions.known) == {"treadle-512", "treadle-1024"}


def test_undeploying_removes_what_belongs_to_the_profile(clients: Clients, emulator: LambdaEmulator, iam: Iam) -> None:
    deploy(clients, MINE, 512, 1024)
    other = LambdaDeployment(clients, request(OTHER), OWN_ROLE)
    assert other.remove(dry_run=False) == []
    mine = LambdaDeployment(clients, request(MINE), OWN_ROLE)
    planned = did(mine.remove(dry_run=True))
    assert planned.keys() == {"function treadle-512", "function treadle-1024", "role treadle-functions"}
    assert len(emulator.functions.known) == 2
    assert did(mine.remove(dry_run=False)) == planned
    assert (emulator.functions.known, iam.roles) == ({}, {})


def test_functions_and_role_have_the_tags_and_network_of_the_table(
    clients: Clients, emulator: LambdaEmulator, iam: Iam
) -> None:
    network = {"subnets": ("subnet-2", "subnet-1"), "security_groups": ("sg-1",)}
    settings = LambdaDeploySettings(tags={"team": "data"}, **network)
    for expected in ("new", "unchanged"):
        done = LambdaDeployment(clients, request(MINE), settings).apply(prune=False)
        assert set(did(done).values()) == {expected}
    found = clients.functions.get_function(FunctionName="treadle-512")
    assert found["Tags"] == {"team": "data", **MINE.tags}
    assert found["Configuration"]["VpcConfig"]["SubnetIds"] == ["subnet-1", "subnet-2"]
    assert iam.roles["treadle-functions"].tags == {"team": "data", **MINE.tags}
    assert "ec2:CreateNetworkInterface" in iam.roles["treadle-functions"].policies["treadle"]
    assert deploy(clients, MINE) == {"role treadle-functions": "changed", "function treadle-512": "changed"}
    assert emulator.functions.known["treadle-512"].network == {"SubnetIds": [], "SecurityGroupIds": []}


@pytest.mark.parametrize(
    "settings", [{"subnets": ["a"]}, {"tags": {"treadle:owner": "x"}}, {"environment": {"AWS_REGION": "x"}}]
)
def test_settings_that_lambda_or_treadle_refuse_are_refused_early(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"subnets|taken|itself"):
        LambdaDeploySettings.model_validate(settings)


def test_key_of_another_deployment_is_not_replaced_unasked() -> None:
    class Secrets:
        def get_secret_value(self, **_: Any) -> dict[str, str]:
            return {"SecretString": "another"}

    place = KeyPlace(Secrets(), "secretsmanager:treadle/key", "mine")
    with pytest.raises(UsageError, match="holds another deployment key"):
        place.compare(adopt=False)
    assert place.compare(adopt=True).did == "changed"


# -- rights


def test_policy_of_the_deployer_allows_every_call_of_a_deployment(clients: Clients, iam: Iam) -> None:
    """API calls have the names of IAM actions (service authorization reference), except Invoke."""
    called: set[str] = set()
    for client, service in ((clients.functions, "lambda"), (clients.roles, "iam")):
        client.meta.events.register(
            "before-call", lambda model, service=service, **_: called.add(f"{service}:{model.name}")
        )
    deploy(clients, MINE, 512, 1024)
    LambdaDeployment(clients, request(MINE, seconds=50.0, package=small(b"2")), OWN_ROLE).apply(prune=True)
    deploy(clients, OTHER, adopt=True)
    LambdaDeployment(clients, request(OTHER), OWN_ROLE).remove(dry_run=False)
    document = policy_of("deployer", "treadle", "s3://bucket/treadle", OWN_ROLE)
    allowed = {action for statement in document["Statement"] for action in statement["Action"]}
    assert called <= allowed
    assert {name for name in allowed if name.startswith(("lambda:", "iam:"))} - called == {"iam:PassRole"}
    (names,) = [each for each in document["Statement"] if each["Action"] == ["lambda:ListFunctions"]]
    assert names["Resource"] == "*"


def test_policy_of_the_driver_allows_calls_and_the_store_alone() -> None:
    settings = LambdaDeploySettings(data=("s3://lake/orders/",))
    document = policy_of("driver", "treadle", "s3://bucket/treadle", settings)
    by_sid = {each["Sid"]: each for each in document["Statement"]}
    assert by_sid["Calls"]["Action"] == ["lambda:InvokeFunction"]
    assert fnmatch.fnmatchcase("arn:aws:lambda:eu-west-1:1:function:treadle-512", by_sid["Calls"]["Resource"])
    assert by_sid["Objects"]["Resource"] == ["arn:aws:s3:::bucket/treadle/*", "arn:aws:s3:::lake/orders/*"]
    assert json.dumps(document).count("s3:ListBucket") == 2


def test_policies_of_the_documentation_equal_the_printed_policies() -> None:
    page = (Path(__file__).parents[2] / "docs/iam.md").read_text()
    settings = LambdaDeploySettings(data=("s3://lake/orders/",))
    shown = [json.loads(block.partition("```")[0]) for block in page.split("```json\n")[1:]]
    parties: tuple[Whose, ...] = ("driver", "deployer", "functions")
    assert shown == [policy_of(whose, "treadle", "s3://bucket/treadle", settings) for whose in parties]


# -- OpenWhisk


@pytest.fixture
def actions(tmp_path: Path) -> Iterator[OpenWhiskEmulator]:
    with openwhisk(tmp_path) as emulator:
        yield emulator


def put(emulator: OpenWhiskEmulator, owner: Owner, *sizes: int, prune: bool = False, adopt: bool = False) -> list[str]:
    async def done() -> list[str]:
        async with OpenWhiskClient(emulator.endpoint, emulator.key) as client:
            wish = request(owner, *(sizes or (256,)), image="me/treadle:1", package=None)
            changes = await OpenWhiskDeployment(client, wish, bytes(32), adopt=adopt).apply(prune)
            return [f"{change.resource}: {change.did}" for change in changes]

    return asyncio.run(done())


def remove(emulator: OpenWhiskEmulator, owner: Owner) -> int:
    async def done() -> int:
        async with OpenWhiskClient(emulator.endpoint, emulator.key) as client:
            wish = request(owner, image="me/treadle:1", package=None)
            return len(await OpenWhiskDeployment(client, wish, bytes(32)).remove(dry_run=False))

    return asyncio.run(done())


def test_action_of_another_profile_is_refused_and_adopted_on_purpose(actions: OpenWhiskEmulator) -> None:
    put(actions, OTHER)
    with pytest.raises(UsageError, match="action treadle-256 belongs to profile 'prod'"):
        put(actions, MINE, 512, 256)
    assert list(actions.actions) == ["treadle-256"]
    assert put(actions, MINE, adopt=True) == ["action treadle-256: changed"]
    assert put(actions, MINE) == ["action treadle-256: unchanged"]


def test_prune_and_undeploy_leave_actions_of_other_profiles(actions: OpenWhiskEmulator) -> None:
    put(actions, OTHER, 512)
    assert put(actions, MINE, 256, prune=True) == ["action treadle-256: new"]
    assert remove(actions, OTHER) == 1
    assert list(actions.actions) == ["treadle-256"]
    assert remove(actions, MINE) == 1
    assert actions.actions == {}
