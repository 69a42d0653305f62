"""Failures of a run: the error messages, the exit code, and the commits that a resume keeps."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from eventually import eventually
from orchestrator.cli.test_documents import check_golden
from orchestrator.commands import Done, Terminal, session

from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home
from treadle.primitives.testing.s3 import seaweedfs

FUNCTIONS = Path(__file__).parents[1] / "cli_functions.py"
HEAD = """
apiVersion: treadle/v1
name: {name}
defaults: {{retry: {{maximumAttempts: 2, initialInterval: 10ms}}}}
stages:
"""
NOTED = """
  kept: {{type: map, input: {{range: 4}}, uses: "functions:noted", with: {{log: "{log}"}}}}
  gate: {{type: barrier, input: kept}}
"""
TAILS = {
    "user_error": '  bad: {type: map, input: gate, uses: functions:fails_while, with: {flag: "FLAG"}}\n',
    "unpicklable_result": "  bad: {type: map, input: gate, uses: functions:unpicklable}\n",
    "over_broadcast_limit": "  big: {type: map, input: gate, uses: functions:large}\n"
    "  bad: {type: broadcast, input: big, limit: 64KiB}\n"
    '  reader: {type: map, input: kept, uses: functions:fails_while, with: {flag: "${{ stages.bad }}"}}\n',
    "over_metrics_limit": "  bad: {type: reduce, input: gate, per: all, uses: functions:wordy,"
    " metrics: {text: string}}\n",
    "refused_key": "  keyed: {type: map, input: gate, uses: functions:bad_key}\n"
    "  bad: {type: shuffle, input: keyed, by: key}\n"
    "  counts: {type: reduce, input: bad, per: key, combine: functions:add}\n",
}
DATA = {
    "truncated_gzip": "  bad: {type: map, input: {uri: 'gzip/*.gz', format: text}, uses: functions:line}\n",
    "undecodable_text": "  bad: {type: map, input: {uri: 'latin/*.txt', format: text}, uses: functions:line}\n",
    "not_parquet": "  bad: {type: map, input: {uri: 'parquet/*.parquet', format: parquet}, uses: functions:line}\n",
    "missing_input": "  bad: {type: map, input: {uri: absent.txt, format: text}, uses: functions:line}\n",
    "empty_glob": "  bad: {type: map, input: {uri: 'absent/*.txt', format: text}, uses: functions:line}\n",
}


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """A folder with functions and data, and one server and driver for all commands in it."""
    root = tmp_path_factory.mktemp("runs")
    work = root / "work"
    for name in ("gzip", "latin", "parquet"):
        (work / name).mkdir(parents=True)
    shutil.copy(FUNCTIONS, work / "functions.py")
    whole = gzip.compress(b"a line\n" * 1000)
    (work / "gzip" / "a.gz").write_bytes(whole)
    (work / "gzip" / "b.gz").write_bytes(whole[:-12])
    (work / "latin" / "a.txt").write_bytes(b"plain\n")
    (work / "latin" / "b.txt").write_bytes("fine\ncaf\u00e9\n".encode("latin-1"))
    (work / "parquet" / "a.parquet").write_bytes(b"this is no Parquet file")
    with Terminal(work, root / "home") as terminal:
        yield terminal


def document(terminal: Terminal, name: str, stages: str) -> str:
    (terminal.folder / f"{name}.yaml").write_text(HEAD.format(name=name) + stages)
    return f"{name}.yaml"


def with_commits(terminal: Terminal, name: str, tail: str) -> str:
    """A workflow whose first stage logs each partition that it runs, and whose second stage is `tail`."""
    log, flag = terminal.folder / f"{name}.log", terminal.folder / f"{name}.flag"
    flag.touch()
    return document(terminal, name, NOTED.format(log=log) + tail.replace("FLAG", str(flag)))


def noted(terminal: Terminal, name: str) -> Counter[str]:
    return Counter((terminal.folder / f"{name}.log").read_text().splitlines())


ONCE = Counter({f"kept {partition}": 1 for partition in range(4)})


@pytest.mark.parametrize("name", TAILS)
def test_failure_has_its_message_and_a_resume_keeps_the_commits(terminal: Terminal, name: str) -> None:
    file = with_commits(terminal, name, TAILS[name])
    ran = terminal.run("run", file, "--id", name)
    again = terminal.run("resume", name)
    assert (ran.code, again.code) == (1, 1)
    assert noted(terminal, name) == ONCE
    check_golden(name, session(terminal, ran, again))


@pytest.mark.parametrize("name", DATA)
def test_data_that_cannot_be_read_has_its_message(terminal: Terminal, name: str) -> None:
    done = terminal.run("run", document(terminal, name, DATA[name]), "--id", name)
    assert done.code == (1 if name in ("truncated_gzip", "undecodable_text") else 2)
    check_golden(name, session(terminal, done))


def test_mended_cause_and_a_resume_give_the_result(terminal: Terminal) -> None:
    file = with_commits(terminal, "mended", TAILS["user_error"])
    failed = terminal.run("run", file, "--id", "mended")
    logs, shown = terminal.run("logs", "mended"), terminal.run("show", "mended")
    plan = terminal.run("resume", "mended", "--explain")
    (terminal.folder / "mended.flag").unlink()
    resumed = terminal.run("resume", "mended")
    result = terminal.run("result", "mended", "--stage", "bad")
    assert [done.code for done in (failed, logs, shown, plan, resumed, result)] == [1, 0, 0, 0, 0, 0]
    assert noted(terminal, "mended") == ONCE
    assert result.out == "0\n1\n2\n3\n"
    check_golden("mended", session(terminal, failed, logs, shown, plan, resumed, result))


def test_resume_runs_the_submitted_code_when_files_changed(terminal: Terminal) -> None:
    file = with_commits(terminal, "pinned", TAILS["user_error"])
    failed = terminal.run("run", file, "--id", "pinned")
    functions = terminal.folder / "functions.py"
    functions.write_text(FUNCTIONS.read_text() + "\n\ndef fails_while(value, flag):\n    return -value\n")
    (terminal.folder / "pinned.flag").unlink()
    try:
        refused = terminal.run("resume", "pinned", "--file", file)
        resumed = terminal.run("resume", "pinned")
        result = terminal.run("result", "pinned", "--stage", "bad")
    finally:
        shutil.copy(FUNCTIONS, functions)
    assert (failed.code, refused.code, resumed.code) == (1, 7, 0)
    assert result.out == "0\n1\n2\n3\n"
    assert noted(terminal, "pinned") == ONCE
    check_golden("pinned", session(terminal, refused, resumed, result))


def test_id_of_another_workflow_is_refused_with_code_7(terminal: Terminal) -> None:
    one = document(terminal, "one", "  a: {type: map, input: {items: [1]}, uses: functions:line}\n")
    two = document(terminal, "two", "  a: {type: map, input: {items: [2]}, uses: functions:line}\n")
    first, same = terminal.run("submit", one, "--id", "taken"), terminal.run("submit", one, "--id", "taken")
    used = terminal.run("submit", one, "--id", "taken", "--if-exists", "use")
    other = terminal.run("submit", two, "--id", "taken", "--if-exists", "use")
    assert [done.code for done in (first, same, used, other)] == [0, 7, 0, 7]
    assert first.out == used.out == "taken\n"
    check_golden("id_conflict", session(terminal, first, same, used, other))


def test_forged_spec_is_refused(terminal: Terminal) -> None:
    file = with_commits(terminal, "forged_spec", TAILS["user_error"])
    failed = terminal.run("run", file, "--id", "forged_spec")
    spec = terminal.home / "store" / "runs" / "forged_spec" / "spec"
    data = spec.read_bytes()
    spec.write_bytes(data.replace(b"functions:fails_while", b"functions:forged_name"))
    assert spec.read_bytes() != data
    resumed = terminal.run("resume", "forged_spec")
    assert (failed.code, resumed.code) == (1, 1)
    check_golden("forged_spec", session(terminal, resumed))


def test_forged_block_is_recomputed_and_never_decoded(terminal: Terminal) -> None:
    name = "forged_block"
    tail = (
        "  big: {type: map, input: kept, uses: functions:large}\n"
        "  held: {type: barrier, input: big}\n"
        '  bad: {type: map, input: held, uses: functions:measured, with: {flag: "FLAG"}}\n'
    )
    file = with_commits(terminal, name, tail)
    text = (terminal.folder / file).read_text()
    (terminal.folder / file).write_text(text.replace("defaults: {", "defaults: {exchange: storage, "))
    failed = terminal.run("run", file, "--id", name)
    blocks = (terminal.home / "store" / "runs" / name / "blocks" / "big").iterdir()
    victim = next(path for path in blocks if path.name.startswith("2."))
    forged = victim.read_bytes()[:-5] + b"EVIL!"
    victim.chmod(0o600)
    victim.write_bytes(forged)
    terminal.run("dev", "down")  # else a worker still holds its decoded blocks
    (terminal.folder / f"{name}.flag").unlink()
    resumed = terminal.run("resume", name)
    result = terminal.run("result", name, "--stage", "bad")
    logs = terminal.run("logs", name, "--stage", "bad", "--attempt", "3", "-o", "json")
    assert (failed.code, resumed.code) == (1, 0), resumed.err
    assert result.out == "".join(f"[100000, {value}]\n" for value in range(4))
    assert noted(terminal, name) == ONCE
    assert {json.loads(line)["failure"] for line in logs.out.splitlines()} == {"data corrupt"}
    check_golden(name, session(terminal, resumed, result))


@pytest.fixture
def small_disk(terminal: Terminal) -> Iterator[Path]:
    """A file system of one MiB."""
    folder = terminal.folder / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)], check=False)
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_full_disk_has_its_message_and_a_resume_on_a_larger_one_keeps_the_commits(
    terminal: Terminal, small_disk: Path
) -> None:
    tail = (
        "  much: {type: map, input: gate, uses: functions:large}\n"
        "  bad: {type: map, input: much, uses: functions:stretched, output: {uri: small/out, format: text}}\n"
    )
    file = with_commits(terminal, "full_disk", tail)
    failed = terminal.run("run", file, "--id", "full_disk")
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    resumed = terminal.run("resume", "full_disk")
    assert (failed.code, resumed.code) == (1, 0), resumed.err
    assert noted(terminal, "full_disk") == ONCE
    assert len(list((small_disk / "out").glob("part-*"))) == 4
    text = re.sub(r"\d partitions? failed", "N partitions failed", session(terminal, failed, resumed))
    check_golden("full_disk", text)


def test_store_that_cannot_be_reached_gives_code_5(terminal: Terminal) -> None:
    """The command fails before it starts a driver, and does not call the driver of the other store."""
    file = document(terminal, "far_store", "  a: {type: map, input: {items: [1]}, uses: functions:line}\n")
    environ = {
        "TREADLE_STORE": "s3://bucket/treadle",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "someone",
        "AWS_SECRET_ACCESS_KEY": "something",
        "AWS_REGION": "us-east-1",
        "TEMPORAL_ADDRESS": server_address(terminal),
        "TEMPORAL_NAMESPACE": "treadle",
    }
    done = terminal.run("submit", file, "--id", "far_store", **environ)
    assert done.code == 5
    check_golden("store_unreachable", session(terminal, done))


def test_wrong_credentials_give_code_5(terminal: Terminal) -> None:
    file = document(terminal, "wrong_key", "  a: {type: map, input: {items: [1]}, uses: functions:line}\n")
    with seaweedfs() as s3:
        environ = {
            **s3.environment,
            "TREADLE_STORE": "s3://treadle/place",
            "AWS_SECRET_ACCESS_KEY": "guessed",
            "TEMPORAL_ADDRESS": server_address(terminal),
            "TEMPORAL_NAMESPACE": "treadle",
        }
        done = terminal.run("submit", file, "--id", "wrong_key", **environ)
    assert done.code == 5
    check_golden("store_credentials", session(terminal, done))


def server_address(terminal: Terminal) -> str:
    server = embedded.ensure_server(Home(terminal.home))
    return server.address


def test_temporal_that_is_down_at_submit_gives_code_5(terminal: Terminal) -> None:
    file = document(terminal, "no_server", "  a: {type: map, input: {items: [1]}, uses: functions:line}\n")
    done = terminal.run("submit", file, "--id", "no_server", TEMPORAL_ADDRESS="127.0.0.1:9")
    assert done.code == 5
    check_golden("temporal_down_at_submit", session(terminal, done))


def test_killed_temporal_and_driver_give_code_5_and_a_resume_keeps_the_commits(terminal: Terminal) -> None:
    tail = '  bad: {type: map, input: gate, uses: functions:waits, with: {flag: "FLAG"}}\n'
    file = with_commits(terminal, "killed", tail)
    running = terminal.start("run", file, "--id", "killed")
    eventually(lambda: "bad: running" in running.err.read_text())
    state = embedded.status(Home(terminal.home))
    assert state.server is not None
    assert state.driver is not None
    os.kill(state.driver.pid, signal.SIGKILL)
    os.kill(state.server.pid, signal.SIGKILL)
    watched = running.wait()
    (terminal.folder / "killed.flag").unlink()
    resumed = terminal.run("resume", "killed")
    assert (watched.code, resumed.code) == (5, 0), watched.err
    assert noted(terminal, "killed") == ONCE
    check_golden("temporal_down_in_mid_run", session(terminal, watched, resumed))


def code(done: Done, expected: int) -> Done:
    assert done.code == expected, done.err
    return done


def test_json_of_show_is_the_same_for_everyone(terminal: Terminal) -> None:
    found = json.loads(code(terminal.run("show", "mended", "-o", "json"), 0).out)
    assert set(found) >= {"run", "workflow", "state", "resumption", "started", "closed", "stages", "errors", "outputs"}
    assert [stage["state"] for stage in found["stages"]] == ["done", "done", "done"]
