"""The precedence of settings, and the messages of failed connections."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from treadle.orchestrator.environment.connection_errors import Unreachable, unreachable
from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.environment.profile import Profile, TemporalSettings, load_profile
from treadle.orchestrator.environment.profile_table import default_settings
from treadle.orchestrator.temporal.connect import connect
from treadle.primitives.errors import UsageError

TABLES = """
[lab]
store = "s3://bucket/treadle"
queue = "blue"
slots = 3
memory = "2GiB"
temporal = { address = "temporal.lab:7233", namespace = "jobs", api_key_secret = "lab", tls = { server_name = "t" } }
[small]
slots = 1
[sdk]
temporal = { config_profile = "prod" }
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home", {})
    home.profiles.write_text(TABLES)
    return home


@pytest.fixture
def nowhere(tmp_path: Path) -> dict[str, str]:
    """An environment without any of the SDK's own settings."""
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "TEMPORAL_CONFIG_FILE": str(tmp_path / "none.toml")}


def test_default_is_embedded_with_the_store_of_the_home(home: Home, nowhere: dict[str, str]) -> None:
    profile = load_profile(home, environ=nowhere)
    assert profile == Profile()
    assert profile.embedded
    assert profile.store_url(home) == home.store.as_uri()


def test_user_without_a_home_folder_has_no_config_of_the_sdk_there(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(_: int) -> None:
        raise KeyError

    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", nobody)
    assert load_profile(home, environ={}).embedded


def test_named_profile_gives_every_setting(home: Home, nowhere: dict[str, str]) -> None:
    profile = load_profile(home, environ=nowhere | {"TREADLE_PROFILE": "lab"})
    assert (profile.name, profile.queue, profile.slots, profile.memory) == ("lab", "blue", 3, 2 << 30)
    assert profile.temporal is not None
    assert (profile.temporal.address, profile.temporal.namespace) == ("temporal.lab:7233", "jobs")
    assert profile.store_url(home) == "s3://bucket/treadle"


def test_argument_wins_over_variable_and_store_variable_over_the_table(home: Home, nowhere: dict[str, str]) -> None:
    environ = nowhere | {"TREADLE_PROFILE": "small", "TREADLE_STORE": "file:///elsewhere"}
    assert load_profile(home, environ=environ).slots == 1
    lab = load_profile(home, "lab", environ)
    assert (lab.slots, lab.store) == (3, "file:///elsewhere")


@pytest.mark.parametrize("variable", ["TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE", "TEMPORAL_API_KEY"])
def test_any_setting_of_the_sdk_leaves_the_embedded_default(home: Home, nowhere: dict[str, str], variable: str) -> None:
    environ = nowhere | {variable: "value"}
    assert not load_profile(home, environ=environ).embedded
    assert not load_profile(home, "small", environ).embedded


def test_variables_that_do_not_choose_a_cluster_keep_the_embedded_default(home: Home, nowhere: dict[str, str]) -> None:
    assert load_profile(home, environ=nowhere | {"TEMPORAL_DEBUG": "1", "TEMPORAL_ADDRESS": ""}).embedded


def test_config_file_of_the_sdk_leaves_the_embedded_default(home: Home, nowhere: dict[str, str]) -> None:
    file = Path(nowhere["TEMPORAL_CONFIG_FILE"])
    file.write_text('[profile.other]\naddress = "x:1"\n')
    assert load_profile(home, environ=nowhere).embedded
    assert not load_profile(home, environ=nowhere | {"TEMPORAL_PROFILE": "other"}).embedded
    file.write_text('[profile.default]\naddress = "x:1"\n')
    assert not load_profile(home, environ=nowhere).embedded


def test_address_of_a_named_profile_wins_over_the_variable(home: Home, nowhere: dict[str, str]) -> None:
    profile = load_profile(home, "lab", nowhere | {"TEMPORAL_ADDRESS": "other:1"})
    assert profile.temporal is not None
    assert profile.temporal.address == "temporal.lab:7233"


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("slots = 0", "slots: .*greater than or equal to 1"),
        ("slots = 1000000000", "slots: .*less than or equal to 10000"),
        ("memory = 5", "a size needs a unit"),
        ("colour = 1", "colour: there is no such key"),
        ('temporal = { namespace = "x" }', "give address, or config_profile"),
        ('temporal = { config_profile = "a", address = "x:1" }', "cannot be combined with address"),
        ('temporal = { address = "x:1", tls = { ca = "f" } }', "temporal.tls.ca: there is no such key"),
        ("slots = ", "cannot be read"),
        ('name = "worse"', "profile 'bad' of .*: name: the table itself has it"),
    ],
)
def test_wrong_table_is_refused_with_the_reason(home: Home, nowhere: dict[str, str], table: str, reason: str) -> None:
    home.profiles.write_text(f"[bad]\n{table}\n")
    with pytest.raises(UsageError, match=reason):
        load_profile(home, "bad", nowhere)


@pytest.mark.parametrize(
    ("profile", "region"),
    [
        (Profile(region="eu-west-1", executors={"lambda": {"region": "eu-west-2"}}), "eu-west-1"),
        (Profile(executors={"lambda": {"region": "eu-west-2"}, "local": {}}), "eu-west-2"),
        (Profile(executors={"a": {"region": "eu-west-2"}, "b": {"region": "eu-west-3"}}), "of-the-shell"),
        (Profile(), "of-the-shell"),
    ],
)
def test_region_of_the_profile_wins_over_the_variable(
    profile: Profile, region: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "of-the-shell")
    profile.use_region()
    assert os.environ["AWS_REGION"] == region


def test_unknown_profile_lists_the_known_ones(home: Home, nowhere: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"no profile 'labb'(.|\n)*lab, sdk, small"):
        load_profile(home, "labb", nowhere)
    home.profiles.unlink()
    with pytest.raises(UsageError, match="does not exist"):
        load_profile(home, "lab", nowhere)


async def test_missing_profile_of_the_sdk_is_a_usage_error(home: Home, nowhere: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="Temporal's own configuration is refused"):
        await connect(load_profile(home, "sdk", nowhere), home, environ=nowhere)


async def test_missing_api_key_is_named_before_any_connection(home: Home, nowhere: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="TREADLE_SECRET_LAB"):
        await connect(load_profile(home, "lab", nowhere), home)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections and never sends a byte."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def at(address: str, **settings: str) -> Profile:
    return Profile(temporal=TemporalSettings(address=address, **settings))


async def test_closed_port_is_reported_as_such(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(
        Unreachable, match=rf"cannot use Temporal at 127.0.0.1:{port}: nobody listens there\n.*try again"
    ):
        await connect(at(f"127.0.0.1:{port}"), home)


async def test_sdk_variable_chooses_the_address(home: Home, nowhere: dict[str, str]) -> None:
    environ = nowhere | {"TEMPORAL_ADDRESS": "127.0.0.1:1"}
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1: nobody listens"):
        await connect(load_profile(home, environ=environ), home, environ=environ)


async def test_silent_server_is_given_up(home: Home, silent_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.orchestrator.temporal.connect.CONNECT_TIMEOUT", 0.3)
    with pytest.raises(Unreachable, match="does not answer in time"):
        await connect(at(f"127.0.0.1:{silent_port}"), home)


async def test_unusable_address_is_named(home: Home) -> None:
    with pytest.raises(Unreachable, match="cannot use Temporal at foo bar: invalid target URL"):
        await connect(at("foo bar"), home)


STATUS = "Failed client connect: `get_system_info` call error after connection: Status { code: "


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        (STATUS + 'Unauthenticated, message: "Request unauthorized." }', r"refuses this client\n.*TEMPORAL_API_KEY"),
        (STATUS + 'PermissionDenied, message: "Request unauthorized." }', r"refuses this client\n.*api_key_secret"),
        (STATUS + 'Unknown, message: "transport error", source: ConnectionReset', r"wants TLS does\n.*TEMPORAL_TLS"),
        (STATUS + 'Unimplemented, message: "mapped from HTTP status code 404" }', r"not Temporal\n.*7233"),
        ("InvalidCertificate(UnknownIssuer)", r"certificate is refused\n.*server_ca_cert_path"),
        ('ConnectError("dns error", Custom', "host name is not known"),
        ("something new", r"something new\n"),
    ],
)
def test_text_of_the_sdk_becomes_a_reason_and_a_remedy(text: str, meaning: str) -> None:
    with pytest.raises(Unreachable, match=meaning):
        raise unreachable("host:7233", text)


def test_settings_of_commands_equal_the_loaded_profile(home: Home, nowhere: dict[str, str]) -> None:
    elsewhere = nowhere | {"TREADLE_STORE": "file:///elsewhere"}
    for environ in (nowhere, elsewhere):
        assert default_settings(home, None, environ) == load_profile(home, None, environ).for_commands(home)
    for environ in (nowhere | {"TREADLE_PROFILE": "lab"}, nowhere | {"TEMPORAL_ADDRESS": "x:1"}):
        assert default_settings(home, None, environ) is None
