"""The executor of docs/plugins.md: it conforms, and profiles name it like any other."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from doc_pages import ROOT, run_tests

from treadle.client.testing import Engine
from treadle.dsl.model import Spec
from treadle.executors import Place
from treadle.orchestrator.executor_registry import registry
from treadle.orchestrator.executor_registry.registry import ExecutorRegistry
from treadle.primitives import sealing
from treadle.primitives.errors import UsageError
from treadle.primitives.stores.store import Store

FILE = ROOT / "examples" / "executor" / "command.py"
PAGE = ROOT / "docs" / "plugins.md"


@pytest.fixture
def command() -> Iterator[ModuleType]:
    found = importlib.util.spec_from_file_location("command_executor", FILE)
    assert found is not None
    assert found.loader is not None
    module = sys.modules["command_executor"] = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    yield module
    del sys.modules["command_executor"]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["-k", "each_partition or secrets"], id="some"),
        pytest.param([], id="all", marks=pytest.mark.chaos),  # a minute: each call has a process and its worker
    ],
)
def test_executor_passes_the_tests_of_the_page(options: list[str], tmp_path: Path) -> None:
    temporary = str(tmp_path)  # for files of a killed command
    passed, shown = run_tests(PAGE, tmp_path, *options, PYTHONPATH=str(FILE.parent), TMPDIR=temporary)
    assert passed == shown or (options and 0 < int(passed) < int(shown))


async def test_profile_names_it_and_a_run_goes_over_it(
    command: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = EntryPoint("command", "command_executor", "treadle.executors")
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    store, key_file = f"file://{tmp_path}/store", str(tmp_path / "key")
    key = sealing.load_or_create_key(key_file)
    found = ExecutorRegistry({"mine": {"kind": "command", "slots": 2}}, Place(store, key_file, ""))
    engine = Engine(Store.open(store), found, key, None)
    document: dict[str, Any] = {
        "apiVersion": "treadle/v1",
        "name": "w",
        "defaults": {"executor": "mine"},
        "stages": {"words": {"type": "map", "input": {"items": ["a b", "c"], "partitions": 2}, "uses": "builtins:len"}},
    }
    run = engine.submit(Spec.model_validate(document), {}, base=tmp_path, roots=[tmp_path])
    done = await engine.run(run)
    assert [value for _, value in done.datasets["words"]] == [[3], [1]]
    await engine.site.pools.stop()


def test_wrong_key_of_its_table_is_reported(command: ModuleType) -> None:
    with pytest.raises(UsageError, match="slotz"):
        command.settings({"slotz": 2})


def test_secret_that_does_not_exist_is_reported(command: ModuleType, tmp_path: Path) -> None:
    place = Place(f"file://{tmp_path}/store", str(tmp_path / "key"), "")
    with pytest.raises(UsageError, match="no secret 'token'"):
        command.open(command.settings({"secrets": ["token"]}), place)


def test_file_is_as_short_as_the_page_says() -> None:
    """Lines of code: all except empty lines and documentation."""
    body = FILE.read_text("utf-8").split('"""', 2)[2]
    assert len([line for line in body.splitlines() if line.strip() and '"""' not in line]) <= 60
