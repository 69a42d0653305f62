"""The deployment key of functions in AWS Secrets Manager or in a parameter: stored, read at a cold start, never shown.

The function is the real one, in a sandbox of the emulated Lambda. The services are emulated (`emulators.aws_keys`).
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from emulators.aws_keys import KeyServices
from emulators.lambda_emulator import REGION
from emulators.lambda_place import FUNCTION, SIZES, LambdaPlace, lambda_place

from treadle.executors import Place
from treadle.executors.aws.invoker import function_name
from treadle.executors.program import Outcome
from treadle.executors.testing import Workbench
from treadle.executors.worker.environment import KEY_FROM_VARIABLE, KEY_VARIABLE
from treadle.orchestrator.deployment.aws_keys import KeyPlace
from treadle.orchestrator.deployment.cloudformation import template
from treadle.orchestrator.deployment.lambda_functions import LambdaDeployment, open_clients
from treadle.orchestrator.deployment.request import DeployRequest, key_text, variables_of
from treadle.orchestrator.deployment.role_policies import policy
from treadle.orchestrator.deployment.settings import LambdaDeploySettings
from treadle.primitives import sealing
from treadle.primitives.errors import UsageError

PLACES = ["secretsmanager:treadle/key", "ssm:/treadle/key"]
ROLE = "arn:aws:iam::123456789012:role/given"


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> Iterator[KeyServices]:
    services = KeyServices().start()
    for name, value in services.environment.items():
        monkeypatch.setenv(name, value)
    yield services
    services.stop()


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LambdaPlace]:
    with lambda_place(tmp_path_factory.mktemp("lambda")) as place:
        yield place


def settings(where: str) -> LambdaDeploySettings:
    return LambdaDeploySettings(key=where, role=ROLE)


def deploy(functions: LambdaPlace, services: KeyServices, where: str) -> None:
    """Deploy the functions without the key in a variable."""
    for size in SIZES:
        environment = {KEY_FROM_VARIABLE: where, "PYTHONDONTWRITEBYTECODE": "1", **services.environment}
        name = function_name(FUNCTION, size)
        functions.emulator.deploy(name, functions.code, memory=size, environment=environment, timeout=60)


@pytest.mark.parametrize("where", PLACES)
def test_the_key_is_put_once_and_then_unchanged(where: str, services: KeyServices) -> None:
    key = key_text(bytes(range(32)))
    clients = open_clients(REGION, "http://127.0.0.1:9", where, key)
    assert clients.keys is not None
    kinds = {"secretsmanager": "secret treadle/key", "ssm": "parameter /treadle/key"}
    resource = kinds[where.partition(":")[0]]
    known = services.secrets if resource.startswith("secret") else services.parameters
    assert (clients.keys.compare().did, known) == ("new", {})
    assert [clients.keys.apply().did for _ in range(2)] == ["new", "unchanged"]
    assert list(known.values()) == [key]
    known[where.partition(":")[2]] = "another"
    changed = clients.keys.apply()
    assert (changed.resource, changed.did) == (resource, "changed")
    assert key not in repr(changed)
    assert list(known.values()) == [key]


def test_a_secret_of_bytes_is_another_value() -> None:
    client = SimpleNamespace(get_secret_value=lambda **_: {"SecretBinary": b"x"})
    assert KeyPlace(client, PLACES[0], "a2V5").compare().did == "changed"


@pytest.mark.parametrize("where", PLACES)
async def test_a_function_reads_its_key_at_the_cold_start(
    where: str, services: KeyServices, functions: LambdaPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in functions.emulator.credentials.items():
        monkeypatch.setenv(name, value)
    key_file = str(tmp_path / "key")
    key = key_text(sealing.load_or_create_key(key_file))
    known = services.secrets if where.startswith("secrets") else services.parameters
    deploy(functions, services, where)
    executor = functions.executor(key_file)
    bench = Workbench(executor, Place(f"file://{tmp_path}/store", key_file, ""), tmp_path)
    try:
        with pytest.raises(UsageError, match="cannot read its deployment key"):
            await bench.run(bench.task("same", [[1]]))
        known[where.partition(":")[2]] = key
        for _ in range(3):
            (report,) = await bench.run(bench.task("environment", [[1]]))
            assert isinstance(report, Outcome)
            assert key not in bench.records(report)[0].values()
        assert services.reads <= 1 + 2 * 2, "warm sandboxes know it"
    finally:
        await executor.stop()


def test_the_key_is_in_no_variable_and_no_template() -> None:
    key = bytes(range(32))
    variables = variables_of(settings(PLACES[0]), key, str)
    assert (variables.get(KEY_VARIABLE), variables[KEY_FROM_VARIABLE]) == (None, PLACES[0])
    made = template(DeployRequest("treadle", (512,), 900.0, "s3://b", variables, None, "image"), settings(PLACES[0]))
    assert base64.b64encode(key).decode() not in repr(made)
    there = made["Resources"]["Function512"]["Properties"]["Environment"]["Variables"]
    assert there == {KEY_FROM_VARIABLE: PLACES[0]}, "nobody has to be asked for it"
    assert made["Parameters"] == {}


@pytest.mark.parametrize(
    ("where", "action", "resource"),
    [
        (PLACES[0], "secretsmanager:GetSecretValue", "arn:aws:secretsmanager:*:*:secret:treadle/key-??????"),
        (PLACES[1], "ssm:GetParameter", "arn:aws:ssm:*:*:parameter/treadle/key"),
    ],
)
def test_the_role_may_read_this_key_and_no_other(where: str, action: str, resource: str) -> None:
    (found,) = [one for one in policy("s3://b", (), "treadle", where)["Statement"] if one["Sid"] == "Key"]
    assert (found["Action"], found["Resource"]) == (action, resource)
    assert not [one for one in policy("s3://b", (), "treadle")["Statement"] if one["Sid"] == "Key"]


@pytest.mark.parametrize("where", ["vault:key", "ssm:", "key"])
def test_another_place_for_the_key_is_refused(where: str) -> None:
    with pytest.raises(ValueError, match="neither secretsmanager:NAME nor ssm:NAME"):
        LambdaDeploySettings(key=where)


def test_deployment_names_the_key_before_all_other_changes(services: KeyServices, functions: LambdaPlace) -> None:
    clients = open_clients(REGION, functions.emulator.endpoint, PLACES[0], "a2V5")
    request = DeployRequest("keyed", (512,), 900.0, "s3://b", {KEY_FROM_VARIABLE: PLACES[0]}, None, "image")
    planned = LambdaDeployment(clients, request, settings(PLACES[0])).plan()
    assert [(one.resource, one.did) for one in planned] == [
        ("secret treadle/key", "new"),
        ("function keyed-512", "new"),
    ]
    assert services.secrets == {}
