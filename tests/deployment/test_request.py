"""The parts of a request: the package or its image, the key, secrets, and a reachable store."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from treadle.executors.package import build
from treadle.executors.package.target import lambda_target, this_machine
from treadle.orchestrator.deployment.request import check_store, code_for, target_of, variables_of, write_image
from treadle.orchestrator.deployment.settings import LambdaDeploySettings, OpenWhiskDeploySettings
from treadle.primitives.errors import UsageError

KEY = bytes(range(32))
SECRETS = {"token": "t0ken", "store-key": "s3cret"}


def test_variables_hold_the_key_secrets_and_settings_of_the_store() -> None:
    settings = OpenWhiskDeploySettings(
        secrets=("token",), environment={"AWS_REGION": "here"}, environment_secrets={"AWS_KEY": "store-key"}
    )
    assert variables_of(settings, KEY, SECRETS.__getitem__) == {
        "TREADLE_KEY": base64.b64encode(KEY).decode(),
        "TREADLE_SECRET_TOKEN": "t0ken",
        "AWS_REGION": "here",
        "AWS_KEY": "s3cret",
    }


def test_the_image_is_the_unpacked_package_and_a_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "fetch_wheels", lambda *_: None)
    package = write_image("openwhisk", this_machine(), OpenWhiskDeploySettings(), {}, tmp_path / "image")
    recipe = (tmp_path / "image" / "Dockerfile").read_text()
    assert recipe.splitlines()[-1].startswith("COPY package/ ")
    assert (tmp_path / "image" / "package" / "treadle" / "executors" / "openwhisk" / "entry.py").is_file()
    assert package.digest in (tmp_path / "image" / "package.json").read_text()


def test_an_image_that_is_named_needs_no_package() -> None:
    assert code_for("lambda", LambdaDeploySettings(image="x:1"), False, {}) is None


def test_functions_of_this_machine_get_its_own_package() -> None:
    assert target_of("lambda", LambdaDeploySettings(machine="aarch64"), True) == this_machine()


def test_functions_elsewhere_get_the_providers() -> None:
    target = target_of("lambda", LambdaDeploySettings(machine="aarch64"), False)
    assert target == lambda_target(machine="aarch64")
    assert target.machine == "aarch64"


@pytest.mark.parametrize("store", ["file:///srv/store", "/srv/store"])
def test_a_store_of_this_machine_is_for_functions_of_this_machine(store: str) -> None:
    check_store(store, files=True)
    with pytest.raises(UsageError, match="which functions cannot see"):
        check_store(store, files=False)
    check_store("s3://bucket/treadle", files=False)
