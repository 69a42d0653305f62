"""The reported usage of a run on functions, compared with the counts of the S3 server and the emulated Lambda."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from e2e.project import HERE, Project, project
from emulators.cloud import Cloud, cloud, profile
from emulators.lambda_emulator import Invocation

from treadle.primitives.stores.store import Store

WORDCOUNT = HERE.parents[1] / "examples/wordcount"
TOLERANCE = 0.1


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud(tmp_path_factory.mktemp("cloud")) as made:
        yield made


@pytest.fixture(scope="module")
def deployed(account: Cloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    environ = {**account.environment, **account.credentials, "TREADLE_PROFILE": "aws"}
    with project(tmp_path_factory.mktemp("project"), **environ) as here:
        here.home.profiles.write_text(profile())
        done = here.treadle("deploy", "lambda")
        assert done.returncode == 0, done.stderr
        yield here


def words(account: Cloud, lines: int) -> None:
    store = Store.open("s3://treadle", **account.s3.options)
    for number in range(6):
        text = "".join(f"the quick brown fox {index % 97} jumps\n" for index in range(lines))
        store.put(f"corpus/{number}.txt", text.encode())


def cost_of(here: Project, run: str) -> dict[str, Any]:
    done = here.treadle("show", run, "--cost", "-o", "json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout)["cost"])


def test_requests_and_seconds_equal_the_counts_of_the_servers(account: Cloud, deployed: Project) -> None:
    words(account, 20_000)
    source = {"uri": "s3://treadle/corpus/*.txt", "format": "text", "split": "256KiB"}
    stages = {
        "read": {"type": "map", "input": source, "uses": "functions:words"},
        "group": {"type": "shuffle", "input": "read", "by": "key", "partitions": 5, "combine": "functions:add"},
        "count": {"type": "reduce", "input": "group", "per": "key", "combine": "functions:add"},
    }
    before, calls = account.counter.kinds.copy(), len(account.functions.invocations)
    done = deployed.run("words", stages)
    assert done.returncode == 0, done.stderr
    seen = account.counter.kinds - before
    made = account.functions.invocations[calls:]
    usage = cost_of(deployed, "words")["usage"]
    near = {"puts": seen["put"], "lists": seen["list"], "gets": seen["get"] + seen["head"], "calls": len(made)}
    assert {name: usage[name] for name in near} == pytest.approx(near, rel=TOLERANCE)
    billed = sum(billed_seconds(one) for one in made) * 512 / 1024
    assert usage["gigabyteSeconds"] == pytest.approx(billed, rel=TOLERANCE)


def billed_seconds(one: Invocation) -> float:
    """Billed by the millisecond, rounded up, with initialisation (the emulator's REPORT line)."""
    return (int((one.seconds + one.initial) * 1000) + 1) / 1000
