"""The composition is valid, listens on loopback only, and holds no secret."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.environment.profile import load_profile
from treadle.orchestrator.executor_registry.registry import open_places

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docker-compose.yml"
CHOSEN = {"lambda": "lambda", "lambda-names": "lambda", "openwhisk": "openwhisk"}
"""Services that only a Compose profile starts."""
ENDING = {"temporal-schema", "temporal-namespace", "s3-buckets"}
"""Services that prepare something and then end."""
SERVICES = {"postgres", "temporal", "temporal-ui", "s3", "kafka", "worker", "triggers", *ENDING, *CHOSEN}
SECRET = re.compile(r"PASSWORD|PWD|SECRET|KEY")


@pytest.fixture(scope="module")
def composition() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(FILE.read_text("utf-8"))
    return loaded


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """A copy in which `prepare.sh` was run."""
    shutil.copy(FILE, tmp_path)
    shutil.copytree(ROOT / "compose", tmp_path / "compose", ignore=shutil.ignore_patterns("private"))
    subprocess.run([tmp_path / "compose" / "prepare.sh"], check=True, capture_output=True)
    return tmp_path


def variables(folder: Path) -> dict[str, str]:
    lines = (folder / ".env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_ports_are_bound_to_loopback(composition: dict[str, Any]) -> None:
    assert set(composition["services"]) == SERVICES
    ports = [port for service in composition["services"].values() for port in service.get("ports", [])]
    assert ports
    assert all(str(port).startswith("127.0.0.1:") for port in ports)


def test_values_of_secrets_come_from_the_environment(composition: dict[str, Any]) -> None:
    for name, service in composition["services"].items():
        for variable, value in service.get("environment", {}).items():
            if SECRET.search(variable):
                assert str(value).startswith("${"), f"{name}: {variable}"


def test_services_wait_for_services_that_tell_their_health(composition: dict[str, Any]) -> None:
    services = composition["services"]
    for service in services.values():
        for needed, how in service.get("depends_on", {}).items():
            assert (needed in ENDING) == (how["condition"] == "service_completed_successfully")
    assert all(("healthcheck" in services[name]) == (name not in ENDING) for name in SERVICES)


def images(composition: dict[str, Any]) -> dict[str, str]:
    """The image of each service, without `.env`."""
    named = {name: service["image"] for name, service in composition["services"].items()}
    return {name: re.sub(r"\$\{\w+:-(.*)\}", r"\1", image) for name, image in named.items()}


def test_images_have_exact_versions(composition: dict[str, Any]) -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    bases = [line.split()[1] for line in lines if line.startswith("FROM ")]
    for image in [*images(composition).values(), *bases]:
        assert re.search(r"(:\d+\.\d+[\w.-]*|@sha256:[0-9a-f]{64})$", image), image
        assert not re.search(r"postgres:16-|python:3\.12(-slim)?$", image), image


def test_services_have_no_capability_that_they_do_not_name(composition: dict[str, Any]) -> None:
    for name, service in composition["services"].items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not service.get("privileged"), name
        assert not {"ALL", "SYS_ADMIN", "DAC_READ_SEARCH", "NET_ADMIN"} & set(service.get("cap_add", [])), name


def test_socket_of_the_engine_is_given_only_when_it_is_asked_for(composition: dict[str, Any]) -> None:
    services = composition["services"]
    given = {name for name, each in services.items() if any("docker.sock" in one for one in each.get("volumes", []))}
    assert given == {"openwhisk"}
    assert services["openwhisk"]["profiles"] == ["openwhisk"]


def test_pinning_names_every_image_by_its_digest(composition: dict[str, Any], prepared: Path) -> None:
    folder = prepared / "bin"
    folder.mkdir()
    docker = folder / "docker"
    docker.write_text(
        '#!/bin/sh\nfor image in "$@"; do :; done\nprintf sha256:; printf %s "$image" | sha256sum | cut -c1-64\n'
    )
    docker.chmod(0o755)
    environ = {"PATH": f"{folder}:{os.environ['PATH']}"}
    command = [prepared / "compose" / "pin.sh"]
    subprocess.run(command, env=environ, check=True, capture_output=True)
    pinned = yaml.safe_load((prepared / "docker-compose.override.yml").read_text())["services"]
    wanted = {name: image for name, image in images(composition).items() if not image.startswith("treadle:")}
    assert pinned == {
        name: {"image": f"{image}@sha256:{hashlib.sha256(image.encode()).hexdigest()}"}
        for name, image in wanted.items()
    }
    assert subprocess.run(command, env=environ, check=False, capture_output=True).returncode == 1


def test_example_of_the_environment_names_the_written_variables(prepared: Path) -> None:
    example = (ROOT / "compose" / "env.example").read_text().splitlines()
    named = [line.split("=")[0] for line in example if not line.startswith("#")]
    assert named == list(variables(prepared))
    wanted = set(re.findall(r"\$\{(\w+)", FILE.read_text("utf-8")))
    assert wanted == set(named)


def test_secrets_are_made_once_and_kept_from_others(prepared: Path) -> None:
    private = prepared / "compose" / "private"
    for file in (prepared / ".env", private / "key", private / "home" / "key"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert (private / "key").read_bytes() == (private / "home" / "key").read_bytes()
    assert len((private / "key").read_bytes()) == 32
    known = variables(prepared)
    assert str((private / "key").stat().st_uid) == known["TREADLE_UID"] != "0"
    identities = yaml.safe_load((private / "s3.json").read_text())["identities"]
    credentials = {"accessKey": known["AWS_ACCESS_KEY_ID"], "secretKey": known["AWS_SECRET_ACCESS_KEY"]}
    assert identities[0]["credentials"] == [credentials]
    again = subprocess.run([prepared / "compose" / "prepare.sh"], check=False, capture_output=True)
    assert again.returncode == 1
    assert variables(prepared) == known


def test_profiles_lead_to_the_broker_from_inside_and_from_the_host(composition: dict[str, Any], prepared: Path) -> None:
    environment = composition["services"]["kafka"]["environment"]
    advertised = dict(one.split("://") for one in environment["KAFKA_ADVERTISED_LISTENERS"].split(","))
    home = Home(prepared / "compose" / "private" / "home")
    for profile, listener in (("compose", "INSIDE"), ("host", "OUTSIDE")):
        known = load_profile(home, profile, {}).kafka["orders"].settings
        assert known["bootstrap.servers"] == advertised[listener]
    for name in ("worker", "triggers"):
        assert composition["services"][name]["environment"]["TREADLE_PROFILE"] == "compose"


def test_providers_of_functions_are_started_by_their_profiles_only(composition: dict[str, Any]) -> None:
    chosen = {name: each["profiles"] for name, each in composition["services"].items() if "profiles" in each}
    assert chosen == {name: [profile] for name, profile in CHOSEN.items()}


def test_profiles_lead_to_the_providers_of_functions(
    composition: dict[str, Any], prepared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(prepared / "compose" / "private" / "home")
    services = composition["services"]
    ports = {name: services[name]["ports"][0].split(":") for name in ("lambda-names", "openwhisk")}
    for kind, service in (("lambda", "lambda-names"), ("openwhisk", "openwhisk")):
        _, outside, inside = ports[service]
        for profile, host, port in (("compose", service, inside), ("host", "127.0.0.1", outside)):
            monkeypatch.setenv("TREADLE_SECRET_OPENWHISK", variables(prepared)["TREADLE_SECRET_OPENWHISK"])
            place = open_places(Home(home.path), load_profile(home, profile, {}))
            assert place[kind].capabilities.name == kind
            table = load_profile(home, profile, {}).executors[kind]
            assert table["endpoint"].removesuffix(":80") == f"http://{host}:{port}".removesuffix(":80")


@pytest.mark.skipif(
    shutil.which("docker-compose") is None, reason="needs docker-compose, which `make system-packages` installs"
)
def test_compose_accepts_the_file(prepared: Path) -> None:
    done = subprocess.run(["docker-compose", "config", "-q"], cwd=prepared, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_image_is_built_from_all_that_it_needs_and_no_more() -> None:
    """The files that `uv sync` reads: the workspace and its members."""
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert kept == {"pyproject.toml", "uv.lock", "primitives", "executors", "dsl", "orchestrator", "meta"}
