"""`treadle deploy openwhisk` with an emulated installation: the actions created, changed, kept and refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from emulators.openwhisk import openwhisk
from emulators.openwhisk_actions import DEFAULTS, Action
from emulators.openwhisk_server import OpenWhiskEmulator

from treadle.executors.openwhisk.client import OpenWhiskClient
from treadle.executors.package.build import Package
from treadle.executors.package.target import this_machine
from treadle.orchestrator.deployment.desired_state import Change
from treadle.orchestrator.deployment.openwhisk import OpenWhiskDeployment
from treadle.orchestrator.deployment.request import DeployRequest
from treadle.primitives.errors import StoreError, UsageError

KEY = bytes(32)


def request(
    *,
    sizes: tuple[int, ...] = (256, 512),
    code: str = "d1",
    seconds: float = 60.0,
    secret: str = "s3cret",
    image: str = "",
) -> DeployRequest:
    package = None if image else Package(code.encode(), code, {"a.py": 1}, this_machine())
    return DeployRequest("treadle", sizes, seconds, "s3://bucket", {"TREADLE_KEY": secret}, package, image)


def did(changes: list[Change]) -> dict[str, str]:
    return {change.resource: change.did for change in changes}


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[OpenWhiskEmulator]:
    with openwhisk(tmp_path) as emulator:
        yield emulator


@pytest.fixture
async def client(emulator: OpenWhiskEmulator) -> AsyncIterator[OpenWhiskClient]:
    async with OpenWhiskClient(emulator.endpoint, emulator.key) as client:
        yield client


async def deploy(client: OpenWhiskClient, wish: DeployRequest, prune: bool = False) -> dict[str, str]:
    return did(await OpenWhiskDeployment(client, wish, KEY).apply(prune))


async def test_an_action_of_each_size_is_made(client: OpenWhiskClient, emulator: OpenWhiskEmulator) -> None:
    assert await deploy(client, request()) == {"action treadle-256": "new", "action treadle-512": "new"}
    document = emulator.actions["treadle-512"].document
    assert document["limits"] == {"timeout": 60_000, "memory": 512, "logs": 1, "concurrency": 1}
    assert document["exec"]["binary"] is True
    assert emulator.actions["treadle-512"].given({"size": 1}) == (
        {"TREADLE_KEY": "s3cret", "TREADLE_FUNCTION_MEMORY": "512"},
        {"size": 1},
    )


async def test_a_second_deployment_changes_nothing(client: OpenWhiskClient, emulator: OpenWhiskEmulator) -> None:
    await deploy(client, request())
    assert set((await deploy(client, request())).values()) == {"unchanged"}
    assert {action.version for action in emulator.actions.values()} == {1}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"code": "d2"}, "code: d1 -> d2"),
        ({"seconds": 120.0}, "timeout: 60000 -> 120000"),
        ({"secret": "other"}, "variables' digest: "),
        ({"image": "me/treadle:1"}, "kind: python:"),
    ],
)
async def test_deploy_names_and_deploys_changes(
    client: OpenWhiskClient, emulator: OpenWhiskEmulator, change: dict[str, Any], line: str
) -> None:
    await deploy(client, request(sizes=(256,)))
    wish = request(sizes=(256,), **change)
    (planned,) = await OpenWhiskDeployment(client, wish, KEY).plan()
    assert planned.did == "changed"
    assert any(each.startswith(line) for each in planned.differs)
    assert "s3cret" not in repr(planned)
    assert emulator.actions["treadle-256"].version == 1
    assert await deploy(client, wish) == {"action treadle-256": "changed"}
    assert await deploy(client, wish) == {"action treadle-256": "unchanged"}


async def test_deploy_reports_and_mends_parameters_that_a_caller_could_change(
    client: OpenWhiskClient, emulator: OpenWhiskEmulator
) -> None:
    wish = request(sizes=(256,))
    await deploy(client, wish)
    notes = emulator.actions["treadle-256"].document["annotations"]
    notes[:] = [note for note in notes if note["key"] != "final"]
    (planned,) = await OpenWhiskDeployment(client, wish, KEY).plan()
    assert planned.differs == ("final: nothing -> True",)
    assert await deploy(client, wish) == {"action treadle-256": "changed"}
    assert await deploy(client, wish) == {"action treadle-256": "unchanged"}


async def test_sizes_that_are_not_wanted_are_removed_when_asked(
    client: OpenWhiskClient, emulator: OpenWhiskEmulator
) -> None:
    await deploy(client, request())
    assert (await deploy(client, request(sizes=(512,))))["action treadle-256"] == "left"
    assert (await deploy(client, request(sizes=(512,)), prune=True))["action treadle-256"] == "removed"
    assert list(emulator.actions) == ["treadle-512"]


async def test_actions_of_others_are_not_touched(client: OpenWhiskClient, emulator: OpenWhiskEmulator) -> None:
    """There are more of them than in one listing."""
    document = {"exec": {"kind": "python:3.11"}, "limits": DEFAULTS}
    names = ("other", "treadle-copy", *(f"a{number}" for number in range(250)))
    emulator.actions |= {name: Action(name, document) for name in names}
    await deploy(client, request(), prune=True)
    assert len(emulator.actions) == 254


async def test_a_size_the_installation_does_not_have_is_refused_in_its_words(client: OpenWhiskClient) -> None:
    with pytest.raises(UsageError, match="memory size 4096 MB exceeds allowed threshold of 2048 MB"):
        await deploy(client, request(sizes=(4096,)))


async def test_a_wrong_key_is_refused(emulator: OpenWhiskEmulator) -> None:
    async with OpenWhiskClient(emulator.endpoint, "some:body") as client:
        with pytest.raises(UsageError, match="authentication is invalid") as caught:
            await deploy(client, request())
    assert "key" in caught.value.hint


async def test_an_installation_that_is_away_is_unreachable() -> None:
    async with OpenWhiskClient("http://127.0.0.1:9", "some:body") as client:
        with pytest.raises(StoreError, match="cannot be reached"):
            await deploy(client, request())


async def test_a_package_beyond_the_limit_is_refused_before_it_is_sent(client: OpenWhiskClient) -> None:
    large = Package(bytes(37 << 20), "d", {"pyarrow/lib.so": 90 << 20}, this_machine())
    wish = DeployRequest("treadle", (256,), 60.0, "s3://bucket", {}, large)
    with pytest.raises(UsageError, match=r"37\.0 MiB zipped, Apache OpenWhisk takes 36\.0 MiB.*pyarrow"):
        OpenWhiskDeployment(client, wish, KEY)
