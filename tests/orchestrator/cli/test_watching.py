"""Watching and steering of runs: the same code serves finished runs and running ones."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from eventually import eventually
from orchestrator.commands import Done, Terminal

from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home
from treadle.primitives.stores.shared_memory import HostFolder

TREADLE = str(Path(sys.executable).with_name("treadle"))
HEAD = "apiVersion: treadle/v1\nname: looked\ninputs: {flag: {type: string, default: none}}\nstages:\n"
WAITS = (
    "labels: {team: counts, tier: two}\n" + HEAD + "  first: {type: map, input: {range: 2}, uses: functions:line}\n"
    "  held: {type: barrier, input: first}\n"
    '  waits: {type: map, input: held, uses: functions:waits, with: {flag: "${{ inputs.flag }}"}}\n'
    "  total: {type: reduce, input: {range: 5}, per: all, uses: functions:total, metrics: {total: integer}}\n"
    'outputs: {total: "${{ stages.total.metrics.total }}"}\n'
)
FAILS = (
    HEAD + '  bad: {type: map, input: {range: 4}, uses: functions:fails_while, with: {flag: "${{ inputs.flag }}"},'
    " retry: {maximumAttempts: 1}}\n"
)
SLOW = HEAD + '  slow: {type: map, input: {range: 6}, uses: functions:slow, with: {log: "${{ inputs.flag }}"}}\n'


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """One server and driver, and three finished runs: `good`, `bad` and `gone`."""
    root = tmp_path_factory.mktemp("watching")
    work = root / "work"
    work.mkdir()
    shutil.copy(Path(__file__).parents[1] / "cli_functions.py", work / "functions.py")
    for name, text in {"waits": WAITS, "fails": FAILS, "slow": SLOW}.items():
        (work / f"{name}.yaml").write_text(text)
    (work / "always").touch()
    with Terminal(work, root / "home") as terminal:
        assert terminal.run("run", "waits.yaml", "--id", "good").code == 0
        assert terminal.run("run", "fails.yaml", "--id", "bad", "-i", f"flag={work / 'always'}").code == 1
        assert terminal.run("submit", "waits.yaml", "--id", "gone", "-i", f"flag={work / 'always'}").code == 0
        assert terminal.run("terminate", "gone", "--reason", "enough").code == 0
        yield terminal


def test_timed_out_run_names_its_remedy(terminal: Terminal) -> None:
    late = f'with: {{flag: "{terminal.folder}/always"}}, timeout: 200ms, retry: {{maximumAttempts: 1}}'
    text = f"{HEAD}  waits: {{type: map, input: {{range: 1}}, uses: functions:waits, {late}}}\n"
    (terminal.folder / "late.yaml").write_text(text)
    done = terminal.run("run", "late.yaml", "--id", "late")
    assert done.code == 1
    remedy = "  Give the stage a longer `timeout`, or its input more partitions: that takes a new run.\n"
    assert done.err.partition(remedy)[2].startswith("  Once the surroundings are mended: treadle resume late.")


@pytest.fixture
def held(terminal: Terminal, request: pytest.FixtureRequest) -> Iterator[tuple[str, Callable[[], None]]]:
    """A run that waits until it is released."""
    name = f"held-{terminal.count}"
    flag = terminal.folder / f"{name}.flag"
    flag.touch()
    assert terminal.run("submit", "waits.yaml", "--id", name, "-i", f"flag={flag}").code == 0
    yield name, lambda: flag.unlink(missing_ok=True)
    flag.unlink(missing_ok=True)
    terminal.run("terminate", name)


def ok(done: Done) -> Done:
    assert done.code == 0, done.err
    return done


def test_run_that_takes_an_id_over_is_the_new_one_to_a_driver_that_knows_the_old(
    terminal: Terminal, held: tuple[str, Callable[[], None]]
) -> None:
    name, _ = held

    def stages() -> list[dict[str, Any]]:
        return list(json.loads(ok(terminal.run("show", name, "-o", "json")).out)["stages"])

    eventually(lambda: any(stage["running"] for stage in stages()))
    assert terminal.run("submit", "fails.yaml", "--id", name).code == 7
    ok(terminal.run("run", "fails.yaml", "--id", name, "--if-exists", "terminate"))
    assert ok(terminal.run("result", name, "--stage", "bad")).out == "0\n1\n2\n3\n"
    assert [stage["node"] for stage in stages()] == ["bad"]


@pytest.mark.parametrize(("run", "code"), [("good", 0), ("bad", 1), ("gone", 6), ("never-was", 4)])
@pytest.mark.parametrize("verb", ["watch", "result"])
def test_run_that_is_over_gives_the_code_of_its_end(terminal: Terminal, verb: str, run: str, code: int) -> None:
    assert terminal.run(verb, run).code == code


def test_no_exit_status_forgives_a_failed_run_but_not_an_unknown_one(terminal: Terminal) -> None:
    assert terminal.run("watch", "bad", "--no-exit-status").code == 0
    assert terminal.run("watch", "never-was", "--no-exit-status").code == 4


@pytest.mark.parametrize(
    "verb", ["show", "logs", "watch", "result", "resume", "cancel", "terminate", "pause", "unpause"]
)
def test_unknown_run_gives_code_4_for_every_command(terminal: Terminal, verb: str) -> None:
    done = terminal.run(verb, "never-was")
    assert (done.code, done.out) == (4, "")
    assert "there is no run never-was\n  See: treadle list" in done.err


def test_run_is_named_by_prefix_last_temporal_run_id_or_url(terminal: Terminal) -> None:
    last = json.loads(ok(terminal.run("list", "--limit", "1", "-o", "json")).out)[0]["run"]
    assert json.loads(ok(terminal.run("show", "@last", "-o", "json")).out)["run"] == last
    assert json.loads(ok(terminal.run("show", "goo", "-o", "json")).out)["run"] == "good"
    url = "http://127.0.0.1:8233/namespaces/treadle/workflows/good/8b2c7f3e-0000-4000-8000-000000000000/history"
    assert json.loads(ok(terminal.run("show", url, "-o", "json")).out)["run"] == "good"
    ambiguous = terminal.run("show", "go")
    assert ambiguous.code == 2
    assert "2 runs begin with go: gone, good" in ambiguous.err
    nothing = terminal.run("show", "")
    assert (nothing.code, nothing.err.splitlines()[0]) == (2, "treadle: no run is named")


def test_list_filters_by_status_and_time(terminal: Terminal) -> None:
    def runs(*options: str) -> set[str]:
        return {one["run"] for one in json.loads(ok(terminal.run("list", "-o", "json", *options)).out)}

    assert {"good", "bad", "gone"} <= runs()
    assert "bad" in runs("--status", "failed")
    assert runs("--status", "terminated") & {"good", "bad", "gone"} == {"gone"}
    assert {"good", "bad"} <= runs("--status", "failed", "--status", "succeeded", "--since", "1h")
    assert runs("--since", "2099-01-01") == set()


def test_list_and_show_know_the_labels_of_a_workflow(terminal: Terminal) -> None:
    def runs(*options: str) -> set[str]:
        return {one["run"] for one in json.loads(ok(terminal.run("list", "-o", "json", *options)).out)}

    both = runs("--label", "team=counts", "--label", "tier=two")
    assert both & {"good", "bad", "gone"} == {"good", "gone"}
    assert runs("--label", "team=counts", "--label", "tier=one") == set()
    assert "labels    team=counts, tier=two" in ok(terminal.run("show", "good")).out
    assert terminal.run("list", "--label", "team").code == 2


def test_result_is_json_on_stdout_alone(terminal: Terminal) -> None:
    done = ok(terminal.run("result", "good"))
    assert json.loads(done.out) == {"total": 10}
    assert json.loads(ok(terminal.run("watch", "good")).out) == {"total": 10}


def test_records_of_a_stage_are_json_lines(terminal: Terminal) -> None:
    done = ok(terminal.run("result", "good", "--stage", "waits", "--limit", "1"))
    assert json.loads(done.out).startswith("0:xxx")
    fused = terminal.run("result", "good", "--stage", "nothing")
    assert fused.code == 2
    assert "has no stage nothing" in fused.err


def test_stage_without_data_says_why(terminal: Terminal) -> None:
    text = """
  big: {type: map, input: {range: 2, partitions: 2}, uses: functions:large}
  size: {type: reduce, input: big, per: all, uses: functions:everything}
  within: {type: map, input: size, uses: "builtins:len"}
  rounds:
    type: loop
    state: {n: 0}
    maxIterations: 1
    stages: {inner: {type: map, input: {range: 1}, uses: "functions:pair"}}
    next: {n: 1}
  below: {type: workflow, uses: good.yaml}
"""
    (terminal.folder / "kept.yaml").write_text(HEAD + text)
    (terminal.folder / "good.yaml").write_text(
        "apiVersion: treadle/v1\nname: good\nstages: {a: {type: map, input: {range: 1}, uses: functions:pair}}\n"
    )
    ok(terminal.run("run", "kept.yaml", "--id", "kept"))
    HostFolder(Home(terminal.home).host_root).delete_run("kept")  # as the driver does later
    told = {
        "big": "the data of big is not kept: block ",
        "size": "size leaves no data of its own: it runs within within\n  Stages with data: big, within.",
        "rounds": "rounds leaves no data of its own: of a loop the last state is kept",
        "inner": "inner leaves no data of its own: of a loop the last state is kept",
        "below": "below leaves no data of its own: it is a run of its own",
    }
    for stage, why in told.items():
        done = terminal.run("result", "kept", "--stage", stage)
        assert (done.code, done.out) == (2, "")
        assert why in done.err


def test_jsonl_ends_with_the_end(terminal: Terminal) -> None:
    events = [json.loads(line) for line in terminal.run("watch", "bad", "-o", "jsonl").out.splitlines()]
    assert [event["type"] for event in events] == ["progress", "end"]
    assert events[-1]["state"] == "failed"
    assert events[-1]["failure"]["failure"] == "user error"


def test_equal_errors_are_shown_once(terminal: Terminal) -> None:
    out = ok(terminal.run("logs", "bad")).out
    assert out.count("RuntimeError: the warehouse is closed") == 2  # the head of the group, and its traceback
    assert "2 attempts, 2 final; partitions 2, 3" in out
    records = [json.loads(line) for line in ok(terminal.run("logs", "bad", "-p", "3", "-o", "json")).out.splitlines()]
    assert [record["partition"] for record in records] == [3]
    assert terminal.run("logs", "bad", "-p", "9").err == "no attempt of those asked for failed or printed anything\n"


def test_result_of_a_run_that_failed_says_where_to_look(terminal: Terminal) -> None:
    done = terminal.run("result", "bad")
    assert (done.out, done.err.splitlines()[-1]) == ("", "  See: treadle show bad")


def test_error_explains_a_function_that_ends_its_process(terminal: Terminal) -> None:
    (terminal.folder / "ends.yaml").write_text(f"{HEAD}  a: {{type: map, input: {{items: [3]}}, uses: 'os:_exit'}}\n")
    done = terminal.run("run", "ends.yaml", "--id", "ends")
    assert (done.code, "run ends failed" in done.err) == (1, True)
    assert "poison: a: 1 partition failed" in done.err
    assert (
        "\n  Each attempt ended its process: by a crash in native code, os._exit, or for want of memory.\n" in done.err
    )


def test_timeout_ends_watching_with_124_and_the_run_goes_on(
    terminal: Terminal, held: tuple[str, Callable[[], None]]
) -> None:
    name, let_go = held
    done = terminal.run("watch", name, "--timeout", "1s")
    assert done.code == 124
    assert f"treadle watch {name}" in done.err
    let_go()
    waited = ok(terminal.run("result", name, "--wait"))
    assert json.loads(waited.out) == {"total": 10}


def test_interrupt_leaves_the_run_alone_and_says_how_to_watch_it(
    terminal: Terminal, held: tuple[str, Callable[[], None]]
) -> None:
    name, _ = held
    watching = terminal.start("watch", name)
    eventually(lambda: "waits" in watching.err.read_text())
    assert watching.process.pid is not None
    os.kill(watching.process.pid, signal.SIGINT)
    done = watching.wait()
    assert done.code == 130
    assert f"goes on. Watch it again:\n  treadle watch {name}" in done.err
    assert json.loads(terminal.run("show", name, "-o", "json").out)["state"] == "running"


def test_second_interrupt_on_a_terminal_cancels(terminal: Terminal, held: tuple[str, Callable[[], None]]) -> None:
    name, _ = held
    master, slave = pty.openpty()
    environ = {**os.environ, "TREADLE_HOME": str(terminal.home), "TERM": "xterm"}
    with subprocess.Popen([TREADLE, "watch", name], env=environ, stdin=slave, stdout=slave, stderr=slave) as process:
        os.close(slave)
        for text in (b"waits", b"again within"):
            read_until(master, text)
            process.send_signal(signal.SIGINT)
        read_until(master, b"cancelled after")
        assert process.wait(30) == 6
    os.close(master)


def test_terminal_that_cannot_draw_gets_lines(terminal: Terminal) -> None:
    master, slave = pty.openpty()
    environ = {**os.environ, "TREADLE_HOME": str(terminal.home), "TERM": "dumb"}
    with subprocess.Popen([TREADLE, "watch", "good"], env=environ, stdin=slave, stdout=slave, stderr=slave) as process:
        os.close(slave)
        seen = read_until(master, b"succeeded after")
        assert process.wait(30) == 0
    assert b"first: done 2/2" in seen
    assert b"\x1b" not in seen
    os.close(master)


def read_until(descriptor: int, text: bytes) -> bytes:
    seen = b""
    while text not in seen:
        seen += os.read(descriptor, 65536)
    return seen


def test_pause_unpause_and_limit_reach_a_run(terminal: Terminal, held: tuple[str, Callable[[], None]]) -> None:
    name, let_go = held
    ok(terminal.run("pause", name))
    assert terminal.run("pause", name).code == 2
    paused = terminal.run("watch", name, "--timeout", "1s")
    assert paused.code == 124
    assert f"is paused; go on with: treadle unpause {name}" in paused.err
    ok(terminal.run("unpause", name))
    ok(terminal.run("limit", name, "waits", "1"))
    refused = terminal.run("limit", name, "nothing", "1")
    assert refused.code == 2
    assert "there is no stage nothing" in refused.err
    let_go()
    ok(terminal.run("watch", name))
    late = terminal.run("pause", name)
    assert late.code == 2
    assert f"run {name} is over: it succeeded" in late.err


def test_cancelled_run_is_gone_on_with_by_resume(terminal: Terminal, held: tuple[str, Callable[[], None]]) -> None:
    name, let_go = held
    ok(terminal.run("cancel", name, "--reason", "a test"))
    assert terminal.run("watch", name).code == 6
    let_go()
    done = ok(terminal.run("resume", name))
    assert "resumption 2" in done.err
    again = ok(terminal.run("resume", name))
    assert "has succeeded already" in again.err
    assert json.loads(again.out) == {"total": 10}


def test_what_attempts_print_is_followed(terminal: Terminal) -> None:
    log = terminal.folder / "slow.log"
    ok(terminal.run("submit", "slow.yaml", "--id", "slow", "-i", f"flag={log}"))
    followed = ok(terminal.run("logs", "slow", "-f"))
    assert sum("record" in line for line in followed.out.splitlines()) == 6
    watched = ok(terminal.run("watch", "slow", "--logs"))
    assert "record 5" in watched.err


def test_delayed_run_says_when_it_starts(terminal: Terminal) -> None:
    ok(terminal.run("submit", "waits.yaml", "--id", "later", "--start-delay", "1h"))
    assert "delayed" in ok(terminal.run("list")).out
    assert "starts    " in ok(terminal.run("show", "later")).out
    ok(terminal.run("terminate", "later", "-y"))


def test_driver_that_was_killed_is_missed_at_once(terminal: Terminal, held: tuple[str, Callable[[], None]]) -> None:
    name, let_go = held
    driver = embedded.status(Home(terminal.home)).driver
    assert driver is not None
    watching = terminal.start("watch", name)
    eventually(lambda: "waits" in watching.err.read_text())
    os.kill(driver.pid, signal.SIGKILL)
    eventually(
        lambda: f"no driver is alive, so nothing happens. Start one: treadle resume {name}" in watching.err.read_text()
    )
    assert f"none is alive; start one: treadle resume {name}" in ok(terminal.run("show", name)).out
    let_go()
    ok(terminal.run("resume", name))
    assert watching.wait().code == 0


def test_show_and_resume_after_the_driver_is_gone(terminal: Terminal, held: tuple[str, Callable[[], None]]) -> None:
    """The last test in this module, since it ends the shared driver."""
    name, let_go = held
    ok(terminal.run("dev", "down"))
    shown = ok(terminal.run("show", name))
    assert f"none is alive; start one: treadle resume {name}" in shown.out
    assert "first" in shown.out
    assert "none" in ok(terminal.run("dev", "status")).out, "looking leaves no server behind"
    let_go()
    resumed = ok(terminal.run("resume", name))
    assert "was without a driver" in resumed.err


def test_doctor_starts_nothing_and_finds_all_well(terminal: Terminal) -> None:
    found = json.loads(ok(terminal.run("doctor", "-o", "json")).out)
    assert {one["name"] for one in found} >= {"python", "versions", "key", "temporal", "store", "shared memory"}
    assert all(one["state"] == "ok" for one in found)


def test_doctor_names_problems_and_exits_with_code_5(terminal: Terminal) -> None:
    done = terminal.run("doctor", TEMPORAL_ADDRESS="127.0.0.1:9", TREADLE_STORE="file:///proc/none")
    assert done.code == 5
    assert "2 checks failed: temporal, store" in done.err
