"""The executor of docs/executors.md: it conforms, and profiles name it like any other."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import AsyncIterator, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from treadle.client.testing import Engine
from treadle.dsl.model import Spec
from treadle.executors.interface import Executor
from treadle.executors.plugin import Place
from treadle.executors.testing import ExecutorTests
from treadle.executors.testing.workbench import SECRET
from treadle.orchestrator.executor_registry import registry
from treadle.orchestrator.executor_registry.registry import ExecutorRegistry
from treadle.primitives import sealing
from treadle.primitives.errors import UsageError
from treadle.primitives.stores.store import Store

FILE = Path(__file__).parents[2] / "examples" / "executor" / "command.py"


@pytest.fixture
def command() -> Iterator[ModuleType]:
    found = importlib.util.spec_from_file_location("command_executor", FILE)
    assert found is not None
    assert found.loader is not None
    module = sys.modules["command_executor"] = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    yield module
    del sys.modules["command_executor"]


@pytest.mark.chaos  # a minute: each call has a process and its worker
class TestCommandExecutor(ExecutorTests):
    @pytest.fixture
    async def executor(
        self, place: Place, command: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> AsyncIterator[Executor]:
        monkeypatch.setenv("TMPDIR", str(tmp_path))  # for files of a killed command
        name, value = SECRET
        place = Place(place.store, place.key_file, "", {name: value}.__getitem__)
        executor: Executor = command.open(command.settings({"slots": 2, "secrets": [name]}), place)
        yield executor
        await executor.stop()


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


def test_file_is_as_short_as_the_page_says() -> None:
    """Lines of code: all except empty lines, imports, comments and documentation."""
    text = FILE.read_text("utf-8")
    body = text.split('"""', 2)[2]
    code = [line for line in body.splitlines() if line.strip() and not line.startswith(("import ", "from "))]
    assert len([line for line in code if '"""' not in line]) <= 65
