"""The composition is valid, listens on loopback only, and holds no secret."""

from __future__ import annotations

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
from treadle.orchestrator.places.places import open_places

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docker-compose.yml"
CHOSEN = {"lambda": "lambda", "lambda-names": "lambda", "openwhisk": "openwhisk"}
"""Services that only a Compose profile starts."""
ENDING = {"temporal-schema", "temporal-namespace", "s3-buckets"}
"""Services that prepare something and end."""
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


def test_images_are_of_one_version(composition: dict[str, Any]) -> None:
    images = {service["image"] for service in composition["services"].values()}
    assert all(re.search(r":[\w.-]+$", image) and not image.endswith(":latest") for image in images)


def test_example_of_the_environment_names_what_is_written(prepared: Path) -> None:
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
    """What `uv sync` reads: the workspace and its members."""
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert kept == {"pyproject.toml", "uv.lock", "primitives", "executors", "dsl", "orchestrator", "meta"}
