"""The public surface, and the rules of the tree that no other tool checks."""

from __future__ import annotations

import ast
import doctest
import importlib
import json
import multiprocessing
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import doc_pages
import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("primitives", "executors", "dsl", "orchestrator", "libraries/multiprocessing")
STANDARD = "libraries/multiprocessing"
"""Its classes have the names of the standard library's, whose place they take."""
DISPATCHER = "orchestrator/src/treadle/orchestrator/dispatcher"
MAXIMUM_LINES = 400
NAMES = {
    "treadle.client": (
        "AsyncClient AsyncRun AsyncStage AttemptRecord CallFailed CallOutOfMemory CallTimedOut Client Future Futures "
        "InvalidDocument InvalidInputs NoSuchRun Run RunConflict RunEnd RunFailed RunFailure RunStatus RunView Session "
        "SessionCalls SessionEnded Stage StageCheckpoint StageView Unreachable WorkerError WorkerTraceback attach "
        "register_joblib "
        "session"
    ),
    "treadle.dsl": (
        "Loop Result Spec Workflow batch contains csv ends_with event expr fixed has is_in items jsonl kafka matches "
        "npy objects parquet range_ run schedule size starts_with task text trigger webhook"
    ),
    "treadle.dsl.reference": "ReferenceFailure ReferencePartition ReferenceResult run_reference",
    "treadle.executors": (
        "Answer Capabilities Context Executor ExecutorKind Failure FunctionExecutor Handler Invoker Limits NotRun "
        "Outcome Place Result Slot Task Throttled convert_table"
    ),
    "treadle.executors.testing": "ExecutorTests Workbench",
    "treadle.multiprocessing": (
        "Array AuthenticationError Barrier BoundedSemaphore BufferTooShort Condition Event HolderLost "
        "JoinableQueue Lock Manager Pipe Pool Process ProcessError Queue RLock RawArray RawValue Semaphore "
        "SimpleQueue TimeoutError Value WorkerLost active_children allow_connection_pickling cpu_count "
        "current_process freeze_support get_all_start_methods get_context get_logger get_start_method install "
        "log_to_stderr parent_process set_executable set_executor set_forkserver_preload set_start_method"
    ),
    "treadle.multiprocessing.files": "open os",
    "treadle.primitives": "",
    "treadle.primitives.channels": (
        "Barrier BroadcastChannel DeadlinePassed Gang GangContext GangEnded MemberLost ReduceChannel ReduceFailed "
        "ShuffleChannel current_gang"
    ),
    "treadle.primitives.objects": (
        "Adagrad Adam Addition Boolean CallContext CallOutcomeUnknown CallRefused CallWaitExpired Condition Counter "
        "CyclicBarrier Flag GradientDescent Handle Keepers KeepersUnreachable Latch List Lock Map MethodTraceback "
        "Number ObjectLost ObjectMissing PriorityQueue Promise Queue RateLimit ReadWriteLock Reference Semaphore Set "
        "ShardedArray StaleClock UpdateRule current merges read removes shared then when"
    ),
    "treadle.primitives.errors": (
        "CorruptError DataError FailureClass InternalError MissingError StoreError TreadleError UsageError"
    ),
    "treadle.cli": "",
    "treadle.orchestrator": "",
    "treadle.triggers": "",
}
VERBS = (
    "cancel convert deploy deploy-lambda deploy-openwhisk dev dlq doctor gc init limit list logs pause plan "
    "report rerun result resume run schema show submit terminate trigger triggers undeploy undeploy-lambda "
    "undeploy-openwhisk unpause validate watch worker"
)
TRIGGER_VERBS = "backfill fire list pause seek show test unpause"
DLQ_VERBS = "drop list replay show"
DEV_VERBS = "down status up"


def sources() -> list[Path]:
    return [file for room in ROOMS for file in sorted((ROOT / room / "src").rglob("*.py"))]


def project(member: str) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / member / "pyproject.toml").read_text("utf-8"))["project"]
    return found


PUBLIC = {
    module: importlib.import_module(module).__all__
    for page in sorted((ROOT / "docs" / "api").glob("*.md"))
    for module in re.findall(r"^```\{public-api\} (\S+)$", page.read_text("utf-8"), re.M)
}
"""Each documented module, and its public names."""


@pytest.mark.parametrize("module", NAMES)
def test_module_offers_these_names(module: str) -> None:
    offered = importlib.import_module(module)
    assert sorted(offered.__all__) == NAMES[module].split()
    assert [name for name in NAMES[module].split() if getattr(offered, name, None) is None] == []
    with pytest.raises(AttributeError):
        _ = offered.not_there


def test_packages_and_documented_modules_say_what_is_public() -> None:
    packages = {
        f"treadle.{init.parent.name}" for room in ROOMS for init in ROOT.glob(f"{room}/src/treadle/*/__init__.py")
    }
    assert set(NAMES) == packages | set(PUBLIC)
    assert {module for module in NAMES if NAMES[module]} == set(PUBLIC)


def internal_imports(source: str) -> list[str]:
    """The names of treadle that the code imports, and that are not public."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            offered = PUBLIC.get(node.module or "", [])
            found += [f"{node.module}.{alias.name}" for alias in node.names if alias.name not in offered]
    return [name for name in found if name.startswith("treadle.") and name not in PUBLIC]


def example_code() -> Iterator[tuple[str, str]]:
    """The code of examples, notebooks and pages: its place, and its text."""
    for file in sorted((ROOT / "examples").rglob("*.py")):
        yield file.name, file.read_text("utf-8")
    for file in sorted((ROOT / "examples").rglob("*.ipynb")):
        cells = json.loads(file.read_text("utf-8"))["cells"]
        yield file.name, "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    for page in doc_pages.pages():
        for block in doc_pages.blocks(page, "python"):
            yield f"{page.name}:{block.line}", block.text
        for block in doc_pages.blocks(page, "pycon"):
            examples = doctest.DocTestParser().get_examples(block.text)
            yield f"{page.name}:{block.line}", "".join(example.source for example in examples)


def test_examples_and_docs_import_public_names_only() -> None:
    code = list(example_code())
    assert {"command.py", "squares.ipynb"} < {place for place, source in code if "from treadle" in source}
    assert [(place, found) for place, source in code if (found := internal_imports(source))] == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("from treadle.executors.interface import Executor", ["treadle.executors.interface.Executor"]),
        ("from treadle.primitives import sealing", ["treadle.primitives.sealing"]),
        ("from treadle.executors import Context, context", ["treadle.executors.context"]),
        ("import treadle.orchestrator.planner", ["treadle.orchestrator.planner"]),
        ("import treadle.client, json\nfrom treadle.dsl import reference, task", []),
        ("from treadle.dsl.reference import run_reference", []),
    ],
)
def test_import_of_an_internal_name_is_found(line: str, found: list[str]) -> None:
    assert internal_imports(line) == found


def test_command_line_has_these_verbs() -> None:
    import typer.main

    from treadle.cli.commands import app

    root = typer.main.get_command(app)
    commands: dict[str, Any] = root.commands  # type: ignore[attr-defined]
    assert sorted(commands) == VERBS.split()
    assert sorted(commands["dev"].commands) == DEV_VERBS.split()
    assert sorted(commands["trigger"].commands) == TRIGGER_VERBS.split()
    assert sorted(commands["dlq"].commands) == DLQ_VERBS.split()


def test_namespace_has_no_init() -> None:
    assert [file for file in sources() if file.parent.name == "treadle" and file.name == "__init__.py"] == []


@pytest.mark.parametrize("room", ROOMS)
def test_room_says_that_it_is_typed(room: str) -> None:
    assert (ROOT / room / "src" / "treadle" / Path(room).name / "py.typed").is_file()


def test_members_have_one_version_and_pin_each_other_to_it() -> None:
    members = [*ROOMS, "meta"]
    versions = {project(member)["version"] for member in members} | {project(".")["version"]}
    assert len(versions) == 1
    wanted = f"=={versions.pop()}"
    for member in members:
        for requirement in project(member)["dependencies"]:
            if requirement.startswith("treadle"):
                assert requirement.endswith(wanted), f"{member}: {requirement}"


def test_meta_installs_all_rooms() -> None:
    named = {re.split(r"[\[=]", requirement)[0] for requirement in project("meta")["dependencies"]}
    assert named == {f"treadle-{Path(room).name}" for room in ROOMS}


def test_modules_are_short() -> None:
    long = {str(file.relative_to(ROOT)): len(file.read_text("utf-8").splitlines()) for file in sources()}
    assert {name: lines for name, lines in long.items() if lines > MAXIMUM_LINES} == {}


def test_public_class_name_has_one_meaning() -> None:
    """A name alone says which class it is: in a traceback, a search, or an import."""
    homes: dict[str, list[str]] = {}
    for file in sources():
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not is_standard(file, node.name):
                homes.setdefault(node.name, []).append(f"{file.relative_to(ROOT)}:{node.lineno}")
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def is_standard(file: Path, name: str) -> bool:
    """Return whether the class takes the place of one of the standard library."""
    if not file.is_relative_to(ROOT / STANDARD):
        return False
    modules = ("connection", "context", "managers", "popen_forkserver", "synchronize")
    found = [multiprocessing, *(importlib.import_module(f"multiprocessing.{module}") for module in modules)]
    return any(hasattr(module, name) for module in found)


def documents() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def test_files_named_in_documents_and_sources_exist() -> None:
    """`docs/...`, `examples/...` and `tests/...` in running text or a comment."""
    named = re.compile(r"\b(?:docs|examples|tests)/[\w./-]*\w\.(?:md|py|yaml|json|sh)\b")
    lost = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in [*documents(), *sources(), ROOT / "Makefile"]
        for name in named.findall(file.read_text("utf-8"))
        if not (ROOT / name).exists()
    ]
    assert lost == []


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    tool = str(Path(sys.executable).with_name("lint-imports"))
    path = ":".join(str(root / room / "src") for room in ROOMS)
    return subprocess.run(
        [tool, "--no-cache"], cwd=root, env={"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("file", "line", "contract"),
    [
        ("primitives/src/treadle/primitives/keys.py", "import treadle.dsl.model", "arrows point down"),
        ("executors/src/treadle/executors/runtime/input_cache.py", "import treadle.dsl.model", "arrows point down"),
        ("executors/src/treadle/executors/runtime/input_cache.py", "import pydantic", "what ships to a function"),
        ("orchestrator/src/treadle/orchestrator/plan/plan.py", "import temporalio", "knows nothing of Temporal"),
        (f"{DISPATCHER}/ledger/ledger.py", "from ..segments import loop", "dispatcher's folders point one way"),
    ],
)
def test_a_wrong_import_is_found(file: str, line: str, contract: str, tmp_path: Path) -> None:
    """Checks the check: a linter that reads nothing would pass."""
    for room in ROOMS:
        shutil.copytree(ROOT / room / "src", tmp_path / room / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with open(tmp_path / file, "a", encoding="utf-8") as source:
        source.write(f"\n{line}\n")
    done = lint_imports(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(rf"{contract}.* BROKEN", done.stdout), done.stdout


SPAWN = "primitives/src/treadle/primitives/asyncio_tasks.py"
WORKFLOW = tuple(
    f"orchestrator/src/treadle/orchestrator/temporal/{name}.py" for name in ("workflow", "child_workflows")
)
"""These modules run on Temporal's own event loop, which must make its tasks itself."""
STARTS = {"create_task", "ensure_future", "TaskGroup", "Task", "start_soon"}


def bare_tasks(source: str, *, in_workflow: bool = False) -> list[str]:
    """Functions of a module that start an asyncio task without `spawn`. In a workflow: tasks without a callback."""
    functions = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    found = []
    for function in functions:
        calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
        of_asyncio = [one for one in calls if isinstance(one, ast.Attribute) and one.attr in STARTS]
        watched = any(isinstance(one, ast.Attribute) and one.attr == "add_done_callback" for one in calls)
        if of_asyncio and not (in_workflow and watched):
            found.append(function.name)
    return found


def test_every_asyncio_task_enters_its_coroutine() -> None:
    """A plain task that is cancelled before its first step skips every clean-up in its coroutine."""
    found = {
        name: functions
        for file in sources()
        if (name := str(file.relative_to(ROOT))) != SPAWN
        and (functions := bare_tasks(file.read_text("utf-8"), in_workflow=name in WORKFLOW))
    }
    assert found == {}, "start these tasks with treadle.primitives.asyncio_tasks.spawn"


@pytest.mark.parametrize(
    "start", ["asyncio.create_task(g())", "loop.create_task(g())", "asyncio.ensure_future(g())", "asyncio.Task(g())"]
)
def test_bare_asyncio_task_is_found(start: str) -> None:
    source = f"async def f():\n    task = {start}\n"
    assert bare_tasks(source) == bare_tasks(source, in_workflow=True) == ["f"]
    assert bare_tasks(f"{source}    task.add_done_callback(print)\n", in_workflow=True) == []
