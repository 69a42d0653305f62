"""OpenWhisk's endpoint behind a private certificate authority."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from emulators.authority import Authority
from emulators.openwhisk import openwhisk
from emulators.openwhisk_server import OpenWhiskEmulator
from orchestrator.commands import Terminal

from treadle.executors import Place
from treadle.executors.openwhisk.client import OpenWhiskClient
from treadle.executors.openwhisk.invoker import OpenWhiskInvoker
from treadle.orchestrator.executor_registry.builtin_executors import KINDS
from treadle.primitives.errors import UsageError


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[OpenWhiskEmulator]:
    with openwhisk(tmp_path_factory.mktemp("openwhisk"), certificate=authority.issue()) as emulator:
        yield emulator


async def test_client_reaches_an_endpoint_that_its_ca_signed(emulator: OpenWhiskEmulator, authority: Authority) -> None:
    async with OpenWhiskClient(emulator.endpoint, emulator.key, ca=authority.certificate) as client:
        assert (await client.request("GET", "actions")).status == 200


async def test_client_refuses_a_strangers_certificate_and_names_the_setting(
    emulator: OpenWhiskEmulator, tmp_path: Path
) -> None:
    other = Authority(tmp_path).certificate
    async with OpenWhiskClient(emulator.endpoint, emulator.key, ca=other) as client:
        with pytest.raises(UsageError, match=r"is refused: .*`ca` is .*ca\.pem") as caught:
            await client.request("GET", "actions")
    assert "`ca`" in caught.value.hint


async def test_call_through_a_strangers_certificate_is_a_usage_error_and_no_retry(emulator: OpenWhiskEmulator) -> None:
    invoker = OpenWhiskInvoker(OpenWhiskClient(emulator.endpoint, emulator.key))
    try:
        with pytest.raises(UsageError, match="certificate of OpenWhisk's endpoint is refused") as caught:
            await invoker.invoke(b"{}", 0, 1.0)
    finally:
        await invoker.close()
    assert "Add `ca`" in caught.value.hint


async def test_client_refuses_a_certificate_for_another_address_and_names_the_endpoint(
    authority: Authority, tmp_path: Path
) -> None:
    with openwhisk(tmp_path, certificate=authority.issue("127.0.0.2")) as elsewhere:
        async with OpenWhiskClient(elsewhere.endpoint, elsewhere.key, ca=authority.certificate) as client:
            with pytest.raises(UsageError) as caught:
                await client.request("GET", "actions")
    assert "`endpoint`" in caught.value.hint


@pytest.mark.parametrize("text", [None, "no certificate"])
def test_ca_that_holds_no_certificate_is_refused_before_a_call(text: str | None, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    if text is not None:
        file.write_text(text)
    kind = KINDS["openwhisk"]
    settings = kind.settings({"endpoint": "https://openwhisk.example.com", "ca": str(file)})
    place = Place(f"file://{tmp_path}", str(tmp_path / "key"), "", lambda name: "uuid:key")
    with pytest.raises(UsageError, match="`ca` of the OpenWhisk executor names"):
        kind.open(settings, place)


def test_deploy_goes_through_the_ca_of_the_profile(
    emulator: OpenWhiskEmulator, authority: Authority, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    (home / "secrets").mkdir(parents=True, mode=0o700)
    home.chmod(0o700)
    secret = home / "secrets" / "openwhisk"
    secret.touch(mode=0o600)
    secret.write_text(emulator.key)
    table = f'[lab.executors.openwhisk]\nendpoint = "{emulator.endpoint}"\nsizes = [256]\nfiles = true\n'
    (home / "profiles.toml").write_text(table)
    terminal = Terminal(tmp_path, home, {"TREADLE_PROFILE": "lab"})
    refused = terminal.run("deploy", "openwhisk")
    assert refused.code != 0
    assert "Add `ca`" in refused.err
    (home / "profiles.toml").write_text(f'{table}ca = "{authority.certificate}"\n')
    done = terminal.run("deploy", "openwhisk")
    assert (done.code, done.out) == (0, "action treadle-256: new\n"), done.err
