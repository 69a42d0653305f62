"""Mistakes that are found before a run: the error messages and exit codes."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
from orchestrator.commands import Terminal, session

from treadle.cli.commands import SECTIONS, app
from treadle.cli.common.exit_codes import Exit
from treadle.orchestrator.environment.profile import Profile, TemporalSettings

GOLDEN = Path(__file__).parents[1] / "golden"
HEAD = "apiVersion: treadle/v1\nname: bad\n"
STAGE = 'a: {type: map, input: {items: ["x"]}, uses: "functions:upper"}'

FUNCTIONS = """
def upper(text):
    return text.upper()

def two(a, b):
    return a

def until(value):
    return value
"""

DOCUMENTS = {
    "unknown_key": f"stages:\n  {STAGE[:-1]}, retires: {{maximumAttempts: 2}}}}\n",
    "duplicate_key": f"stages:\n  {STAGE}\n  {STAGE}\n",
    "wrong_type": "stages:\n  a: {type: map, input: {items: word}, uses: functions:upper}\n",
    "cycle": "stages:\n  a: {type: map, input: b, uses: functions:upper}\n"
    "  b: {type: map, input: a, uses: functions:upper}\n",
    "missing_function": "stages:\n  a: {type: map, input: {items: [1]}, uses: functions:uper}\n",
    "unimportable_function": "stages:\n  a: {type: map, input: {items: [1]}, uses: broken:f}\n",
    "wrong_arity": "stages:\n  a: {type: map, input: {items: [1]}, uses: functions:two}\n",
    "unbounded_loop": "stages:\n  l:\n    type: loop\n    state: {n: 0}\n    until: state.n > 3\n    stages:\n"
    "      a: {type: map, input: {items: [1]}, uses: functions:until}\n    next: {n: '${{ state.n + 1 }}'}\n",
}


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    """A folder with functions. No test here starts a run."""
    root = tmp_path_factory.mktemp("documents")
    work = root / "work"
    work.mkdir()
    (work / "functions.py").write_text(FUNCTIONS)
    (work / "broken.py").write_text("import no_such_package_at_all\n\ndef f(x):\n    return x\n")
    for name, text in DOCUMENTS.items():
        (work / f"{name}.yaml").write_text(HEAD + text)
    (work / "good.yaml").write_text(HEAD + f"stages:\n  {STAGE}\n")
    return Terminal(work, root / "home")


def check_golden(name: str, text: str) -> None:
    """UPDATE_GOLDEN=1 rewrites the golden sessions. Read the difference before committing it."""
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_mistake_in_a_document_has_its_message_and_code_3(terminal: Terminal, name: str) -> None:
    validated, ran = terminal.run("validate", f"{name}.yaml"), terminal.run("run", f"{name}.yaml")
    assert (validated.code, ran.code) == (3, 3)
    assert "Traceback" not in validated.err + ran.err
    check_golden(name, session(terminal, validated, ran))


def test_nothing_was_started_by_all_these_commands(terminal: Terminal) -> None:
    terminal.run("run", "good.yaml", "--dry-run")
    assert "none" in terminal.run("dev", "status").out
    assert not list((terminal.home / "store").rglob("*"))


def test_dry_run_prints_the_plan_on_stderr_and_nothing_on_stdout(terminal: Terminal) -> None:
    done = terminal.run("submit", "good.yaml", "--dry-run", "--id", "dry")
    assert (done.code, done.out) == (0, "")
    assert "would start run dry; nothing was started" in done.err


def test_output_of_imported_modules_does_not_reach_stdout(terminal: Terminal) -> None:
    (terminal.folder / "loud.py").write_text("print('hello from loud')\n\ndef upper(text):\n    return text.upper()\n")
    (terminal.folder / "loud.yaml").write_text(HEAD + "stages:\n  " + STAGE.replace("functions:", "loud:") + "\n")
    done = terminal.run("submit", "loud.yaml", "--dry-run")
    assert (done.code, done.out, "hello from loud" in done.err) == (0, "", True)


def test_no_import_leaves_functions_alone(terminal: Terminal) -> None:
    assert terminal.run("validate", "missing_function.yaml", "--no-import").code == 0


def test_several_files_give_one_list_and_the_worst_code(terminal: Terminal) -> None:
    done = terminal.run("validate", "good.yaml", "cycle.yaml", "unknown_key.yaml", "--format", "json")
    assert done.code == 3
    assert {one["file"] for one in json.loads(done.out)} == {"cycle.yaml", "unknown_key.yaml"}


def test_sarif_and_github_forms_are_made(terminal: Terminal) -> None:
    sarif = json.loads(terminal.run("validate", "cycle.yaml", "--format", "sarif").out)
    assert sarif["runs"][0]["results"]
    assert terminal.run("validate", "cycle.yaml", "--format", "github").out.startswith("::error file=cycle.yaml")


def test_strict_counts_warnings(terminal: Terminal) -> None:
    text = HEAD + f"inputs: {{unused: {{type: integer, default: 1}}}}\nstages:\n  {STAGE}\n"
    (terminal.folder / "warned.yaml").write_text(text)
    assert terminal.run("validate", "warned.yaml").code == 0
    assert terminal.run("validate", "warned.yaml", "--strict").code == 3


def test_plan_names_segments_and_reasons(terminal: Terminal) -> None:
    found = json.loads(terminal.run("plan", "good.yaml", "-o", "json").out)
    assert [node["node"] for node in found["nodes"]] == ["a"]
    assert found["nodes"][0]["reasons"]
    assert terminal.run("plan", "good.yaml", "--graph", "mermaid").out.startswith("flowchart TD")
    assert terminal.run("plan", "good.yaml", "--graph", "dot").out.startswith("digraph")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "good.yaml", "-i", "x"], "-i x gives no value"),
        (["run", "good.yaml", "-i", "x=1"], "no input 'x'"),
        (["run", "good.yaml", "--id", "a/b"], "cannot be a run id"),
        (["run", "good.yaml", "--timeout", "5"], "a duration needs a unit"),
        (["run", "good.yaml", "--executor", "moon"], "no executor 'moon'"),
        (["run", "good.yaml", "--profile", "none"], "none"),
        (["run", "good.yaml", "--inputs", "absent.yaml"], "absent.yaml"),
        (["list", "--since", "yesterday"], "neither a duration nor a date"),
        (["list", "--status", "lost"], "no such status"),
        (["no-such-verb"], "No such command"),
    ],
)
def test_usage_error_has_a_message_and_code_2(terminal: Terminal, arguments: list[str], said: str) -> None:
    done = terminal.run(*arguments)
    assert done.code == 2
    assert said in done.err
    assert "Traceback" not in done.err


BUILT = "from treadle.dsl import Workflow, items\nfrom functions import upper\n\nwf = Workflow('built')\n"
MAPPED = "a = wf.map('a', items(['x']), uses=upper"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{BUILT}wf.map('a')\n", "built.py:5:1: error[T019] it fails when it is run: TypeError: "),
        (f"{BUILT}def f():\n    return 1 / 0\n\nf()\n", "built.py:6:5: error[T019] it fails when it is run: ZeroDiv"),
        (f"{BUILT}{MAPPED}, timeout=30)\n", "built.py:5:1: error[T019] stage 'a': timeout: a duration needs a unit, "),
        (f"{BUILT}{MAPPED}, trys=3)\n", "built.py:5:1: error[T019] stage 'a': trys is not an option here\n  5 | a = "),
        (f"{BUILT}{MAPPED})\n\n{MAPPED})\n", "built.py:7:1: error[T019] there is already a stage 'a'\n"),
        ("x = (\n", "built.py:1:1: error[T019] it fails when it is run: SyntaxError: '(' was never closed (built.py, "),
        ("x = 1\n", "built.py: error[T019] it defines no workflow\n  = define one at module level"),
        (f"{BUILT}other = Workflow('b')\n", "built.py: error[T019] it defines several workflows: wf, other\n"),
    ],
)
def test_mistake_in_a_python_file_has_its_line(terminal: Terminal, text: str, said: str) -> None:
    (terminal.folder / "built.py").write_text(text)
    validated, ran = terminal.run("validate", "built.py"), terminal.run("run", "built.py")
    assert (validated.code, ran.code, ran.out) == (3, 3, "")
    assert said in validated.out
    assert said in ran.err


def test_mistakes_in_python_files_are_findings_among_others(terminal: Terminal) -> None:
    (terminal.folder / "built.py").write_text("1 / 0\n")
    done = terminal.run("validate", "built.py", "absent.py", "cycle.yaml", "--format", "json")
    found = [(one["file"], one["code"], one["line"]) for one in json.loads(done.out)]
    assert found == [("built.py", "T019", 1), ("absent.py", "T009", 0), ("cycle.yaml", "T103", 4)]
    assert done.code == 3


def test_missing_file_ending_is_suggested(terminal: Terminal) -> None:
    done = terminal.run("run", "good")
    assert done.code == 4
    assert "For the file good.yaml write its ending too." in done.err


@pytest.mark.parametrize(
    ("more", "code"),
    [("", 2), (", ifExists: replace", 0), ("}, when: 1 > 2, metrics: {", 0)],
    ids=["", "replaced", "when"],
)
def test_output_of_another_run_is_reported_before_the_run(terminal: Terminal, more: str, code: int) -> None:
    (terminal.folder / "taken").mkdir(exist_ok=True)
    (terminal.folder / "taken" / "_owner.json").write_text('{"run": "other"}')
    text = f"{HEAD}stages:\n  {STAGE[:-1]}, output: {{uri: taken, format: jsonl{more}}}}}\n"
    (terminal.folder / "taken.yaml").write_text(text)
    done = terminal.run("run", "taken.yaml", "--dry-run")
    assert done.code == code
    assert (f"{terminal.folder}/taken already holds the output of run other" in done.err) == bool(code)
    assert terminal.run("plan", "taken.yaml").code == 0


def test_output_that_this_machine_does_not_reach_is_left_to_the_run(terminal: Terminal) -> None:
    (terminal.folder / "far.yaml").write_text(
        f"{HEAD}stages:\n  {STAGE[:-1]}, output: {{uri: functions.py/out, format: jsonl}}}}\n"
    )
    assert terminal.run("run", "far.yaml", "--dry-run").code == 0


def test_options_are_read_from_the_environment(terminal: Terminal) -> None:
    done = terminal.run("run", "good.yaml", TREADLE_RUN_DRY_RUN="1", TREADLE_RUN_ID="from-environment")
    assert "would start run from-environment" in done.err


def test_schema_command_prints_the_published_schema(terminal: Terminal) -> None:
    assert json.loads(terminal.run("schema").out)["title"] == "treadle workflow"


def test_page_of_the_command_line_names_every_command_and_code() -> None:
    page = (Path(__file__).parents[3] / "docs" / "cli.md").read_text("utf-8")
    assert [name for names in SECTIONS.values() for name in names if f"`{name}" not in page] == []
    assert [code for code in Exit if f"| {int(code)} |" not in page] == []


def test_page_of_settings_names_every_key_of_a_profile() -> None:
    page = (Path(__file__).parents[3] / "docs" / "operating.md").read_text("utf-8")
    keys = {*Profile.model_fields, *TemporalSettings.model_fields} - {"name"}
    assert [key for key in sorted(keys) if f"`{key}`" not in page] == []


def test_every_command_is_in_a_section_of_the_help() -> None:
    shown = {name.replace(" ", "-") for names in SECTIONS.values() for name in names}
    known = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    assert known == shown


def test_help_names_only_variables_that_have_names_of_their_own(terminal: Terminal) -> None:
    for command in ("run", "resume", "deploy lambda", "trigger fire"):
        shown = re.findall(r"env\s+var:\s+(TREADLE_\w+)", terminal.run(*command.split(), "--help").out)
        assert "TREADLE_PROFILE" in shown
        assert [name for name in shown if name.startswith("TREADLE_" + command.upper().replace(" ", "_"))] == (
            ["TREADLE_RESUME_FROM"] if command == "resume" else []
        )


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from treadle.cli.commands import app; app(['--help'], standalone_mode=False);"
        "heavy = ('temporalio', 'pyarrow', 'numpy', 'pydantic', 'rich', 'yaml', 'treadle.executors');"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")


def test_looking_at_runs_imports_neither_planner_nor_dispatcher() -> None:
    engine = ["planner", "scheduler.scheduler", "dispatcher.segments.segment", "deployment", "executor_registry"]
    unwanted = [*(f"treadle.orchestrator.{name}" for name in engine), "treadle.triggers", "treadle.dsl.model"]
    assert all(importlib.util.find_spec(name) for name in unwanted)
    code = (
        "import sys, treadle.cli.commands, treadle.client.client;"
        f"print([name for name in {unwanted} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_start_of_a_command_imports_no_other_command() -> None:
    code = (
        "import sys; from treadle.cli.commands import app; app(['list', '--help'], standalone_mode=False);"
        "print(sorted(name.removeprefix('treadle.cli.') for name in sys.modules if name.startswith('treadle.cli.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(ast.literal_eval(done.stdout.splitlines()[-1]))
    modules = {module.partition(":")[0] for names in SECTIONS.values() for module in names.values()}
    assert loaded & modules == {"show"}


def test_help_has_no_types_of_python() -> None:
    root: Any = typer.main.get_command(app)
    found = [(name, root.get_command(root.context_class(root), name)) for name in root.commands]
    found += [(f"{name} {each}", one) for name, group in found for each, one in getattr(group, "commands", {}).items()]
    for name, command in found:
        shown = command.get_help(command.context_class(command, info_name=name))
        assert re.findall(r"<(?:str|int|float|path|file|list|bool)\b[^>]*>", shown) == [], name


def test_commands_of_two_words_are_called_so(terminal: Terminal) -> None:
    assert terminal.run("deploy", "lambda", "--help").out.startswith("Usage: treadle deploy lambda [OPTIONS]\n")
    asked = terminal.run("deploy", "lambda", "--dry-run", TREADLE_DEPLOY_LAMBDA_EXECUTOR="moon")
    assert "no executor moon" in asked.err


@pytest.mark.parametrize("template", ["wordcount", "etl"])
def test_skeleton_is_valid_and_nothing_is_overwritten(terminal: Terminal, template: str) -> None:
    folder = terminal.folder / f"new-{template}"
    assert terminal.run("init", folder, "--template", template).code == 0
    assert (folder / f"{template}.yaml").read_text().startswith("# yaml-language-server: $schema=")
    assert terminal.run("validate", folder / f"{template}.yaml", "--strict").code == 0
    assert terminal.run("plan", folder / f"{template}.yaml").code == 0
    assert terminal.run("init", folder, "--template", template).code == 2
    assert terminal.run("init", folder, "--template", template, "--force").code == 0


def test_producer_of_the_skeleton_says_that_no_broker_answers(terminal: Terminal) -> None:
    assert terminal.run("init", terminal.folder / "alone", "--template", "etl").code == 0
    produce = [sys.executable, str(terminal.folder / "alone" / "produce.py")]
    done = subprocess.run(produce, env=os.environ | {"KAFKA": "127.0.0.1:1"}, capture_output=True, text=True)
    assert done.stderr == "no broker answers at 127.0.0.1:1. Start one there, or name another: KAFKA=HOST:PORT\n"
    assert done.returncode == 1
