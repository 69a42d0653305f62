"""Every command of the two first-run pages, run unchanged by a shell in an empty home folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from emulators.cloud import Cloud, cloud
from emulators.openwhisk import GENEROUS, openwhisk
from emulators.openwhisk_server import OpenWhiskEmulator

from treadle.orchestrator.embedded import down
from treadle.orchestrator.environment.home import Home

DOCS = Path(__file__).parents[2] / "docs"


class Person:
    """Follows a page exactly, as a user would."""

    def __init__(self, root: Path, page: str, environ: dict[str, str]) -> None:
        self.root, self.work, self.text = root, root / "work", (DOCS / page).read_text()
        self.work.mkdir()
        tools = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        known = {name: value for name, value in os.environ.items() if not name.startswith(("TREADLE_", "AWS_"))}
        self.environ = {**known, "HOME": str(root), "PATH": tools, "XDG_CACHE_HOME": str(root / "cache"), **environ}

    @property
    def commands(self) -> list[str]:
        return re.findall(r"^    \$ (.*)$", self.text, re.MULTILINE)

    def block(self, language: str) -> str:
        (found,) = re.findall(rf"```{language}\n(.*?)```", self.text, re.DOTALL)
        return str(found)

    def write_files(self, **replaced: str) -> None:
        """`replaced`: replacements in the profile. Functions get the package for this machine, as the emulators run on
        it."""
        profile = re.sub(r"^(sizes = .*)$", r"\1\nfiles = true", self.block("toml"), flags=re.MULTILINE)
        for old, new in replaced.items():
            profile = profile.replace(f"https://{old}.example.com", new)
        home = self.root / ".treadle"
        home.mkdir(mode=0o700, exist_ok=True)
        (home / "profiles.toml").write_text(profile)
        (self.work / "words.yaml").write_text(self.block("yaml"))
        (self.work / "words.py").write_text(self.block("python"))

    def do(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", command],
            cwd=self.work,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def do_all(self) -> dict[str, str]:
        """Command -> its output. All must succeed."""
        said: dict[str, str] = {}
        for command in self.commands:
            done = self.do(command)
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
            said[command] = done.stdout + done.stderr
        return said

    def leave(self) -> None:
        down(Home(self.root / ".treadle"))


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Cloud]:
    with cloud(tmp_path / "cloud") as made:
        yield made


@pytest.fixture
def newcomer(account: Cloud, tmp_path: Path) -> Iterator[Person]:
    """A user with nothing but `~/.aws`."""
    (tmp_path / "person" / ".aws").mkdir(parents=True)
    person = Person(tmp_path / "person", "first-run-aws.md", account.environment)
    (person.root / ".aws/config").write_text("[default]\nregion = eu-central-1\n")
    keys = (account.s3.access_key, account.s3.secret_key)
    (person.root / ".aws/credentials").write_text(
        "[default]\naws_access_key_id = {}\naws_secret_access_key = {}\n".format(*keys)
    )
    yield person
    person.leave()


def said_of(said: dict[str, str], *words: str) -> str:
    (found,) = (text for command, text in said.items() if all(word in command for word in words))
    return found


def right_total(text: str) -> bool:
    """Numbers below twelve by their letters: one, two, six, ten have three; zero, four, five, nine have four; ..."""
    return sorted(re.findall(r"\d+", text)) == sorted(["3", "4", "4", "4", "5", "3", "6", "1"])


@pytest.mark.timeout(300)
def test_every_command_of_the_aws_page_works(newcomer: Person, account: Cloud) -> None:
    newcomer.write_files()
    said = newcomer.do_all()
    assert "all of it works" in said_of(said, "--hello")
    assert "store from the function: write" in said_of(said, "--hello")
    assert right_total(said_of(said, "treadle result"))
    assert "USD" in said_of(said, "--cost")
    assert len(account.functions.invocations) > 2
    assert (account.functions.functions.known, account.iam.roles) == ({}, {})
    assert account.s3.secret_key not in "".join(said.values())


@pytest.mark.timeout(300)
def test_hello_names_the_statement_that_the_functions_role_lacks(newcomer: Person, account: Cloud) -> None:
    newcomer.write_files()
    create, *_ = newcomer.commands
    assert newcomer.do(create).returncode == 0
    account.functions.functions.role_environment["AWS_SECRET_ACCESS_KEY"] = "another"
    done = newcomer.do("treadle deploy lambda --profile aws --hello")
    assert done.returncode != 0
    assert "store from the function: write" in done.stderr
    assert "the role of the functions" in done.stderr
    assert '"s3:PutObject"' in done.stderr
    assert "arn:aws:s3:::my-treadle/treadle/runs/*" in done.stderr


@pytest.fixture
def whisk(tmp_path: Path) -> Iterator[OpenWhiskEmulator]:
    with openwhisk(tmp_path / "openwhisk", GENEROUS) as emulator:
        yield emulator


@pytest.mark.timeout(300)
def test_every_command_of_the_openwhisk_page_works(whisk: OpenWhiskEmulator, account: Cloud, tmp_path: Path) -> None:
    (tmp_path / "person").mkdir()
    environ = {"AWS_ENDPOINT_URL_S3": account.counter.url, **account.credentials}
    person = Person(tmp_path / "person", "first-run-openwhisk.md", environ)
    (person.root / ".wskprops").write_text(f"APIHOST={whisk.endpoint}\nAUTH={whisk.key}\n")
    account.s3.make_bucket("my-treadle")
    person.write_files(openwhisk=whisk.endpoint, s3=account.counter.url)
    try:
        said = person.do_all()
    finally:
        person.leave()
    assert "all of it works" in said_of(said, "--hello")
    assert right_total(said_of(said, "treadle result"))
    assert whisk.actions == {}
