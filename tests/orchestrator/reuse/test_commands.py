"""Reuse on the command line: plan, resume and gc in separate processes, and runs through Temporal."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from orchestrator.commands import Terminal

from treadle.primitives.errors import MissingError
from treadle.primitives.stores.store import Store

HELPERS = "def clean(text):\n    return text.lower()\n"
WORDS = '''
import reuse_helpers


def noted(log, what):
    with open(log, "a", encoding="utf-8") as file:
        file.write(f"{what}\\n")


def split(line, *, log):
    """A comment."""
    noted(log, "split")
    return [(word, 1) for word in reuse_helpers.clean(line).split()]


def add(a, b):
    return a + b
'''
WORKFLOW = """
apiVersion: treadle/v1
name: counted
inputs: {log: {type: string, required: true}}
defaults: {cache: {ttl: 10d}, exchange: storage}
stages:
  words:
    type: map
    input: {uri: "*.txt", format: text}
    uses: reuse_words:split
    flat: true
    with: {log: "${{ inputs.log }}"}
  group: {type: shuffle, input: words, by: key, partitions: 2, needs: [words]}
  count:
    {type: reduce, input: group, per: key, combine: reuse_words:add, output: {uri: "out/${{ run.id }}", format: jsonl}}
"""
DAY = 86_400.0


class Desk(Terminal):
    def write(self, words: str = WORDS, helpers: str = HELPERS) -> None:
        (self.folder / "reuse_words.py").write_text(words)
        (self.folder / "reuse_helpers.py").write_text(helpers)

    def noted(self) -> int:
        """Calls of `split` since the last request."""
        log = self.folder / "log"
        found = log.read_text().count("split") if log.exists() else 0
        log.unlink(missing_ok=True)
        return found

    def go(self, run: str) -> int:
        """Runs `run` and returns its calls of `split`."""
        done = self.run("run", "counted.yaml", "-i", f"log={self.folder}/log", "--id", run)
        assert done.code == 0, done.err
        return self.noted()

    def counts(self, run: str) -> dict[str, int]:
        parts = sorted((self.folder / "out" / run).glob("part-*"))
        return {word: count for part in parts for word, count in map(json.loads, part.read_text().splitlines())}

    def plan(self, *arguments: str) -> str:
        done = self.run("plan", "counted.yaml", "-i", f"log={self.folder}/log", *arguments)
        assert done.code == 0, done.err
        return done.out


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A home with one run, `first`, of three lines in two files."""
    root = tmp_path_factory.mktemp("reuse")
    work = root / "work"
    work.mkdir()
    (work / "counted.yaml").write_text(WORKFLOW)
    (work / "a.txt").write_text("The cat\nthe dog\n")
    (work / "b.txt").write_text("A dog\n")
    with Desk(work, root / "home") as desk:
        desk.write()
        assert desk.go("first") == 3
        yield desk


def test_an_edited_comment_leaves_everything_to_be_reused(desk: Desk) -> None:
    desk.write(WORDS.replace("A comment.", "Another comment."), "# more\n" + HELPERS)
    told = desk.plan("--against", "first")
    assert told.partition("beside run first:\n")[2].splitlines() == [
        "words: the same as in first",
        "group: the same as in first",
        "count: the same as in first",
        "count (out): the same as in first",
    ]
    assert told.count("cache: does not run, run first made it ") == 3
    assert desk.go("second") == 0
    assert desk.counts("second") == desk.counts("first") == {"the": 2, "cat": 1, "dog": 2, "a": 1}
    stages = {one["node"]: one for one in json.loads(desk.run("show", "second", "-o", "json").out)["stages"]}
    assert {one["state"] for one in stages.values()} == {"done"}
    assert {name: one["origin"] for name, one in stages.items() if one["origin"]} == dict.fromkeys(
        ("words", "group", "count"), "first"
    )


def test_an_edited_helper_has_its_stage_and_what_depends_on_it_run_again(desk: Desk) -> None:
    desk.write(helpers=HELPERS.replace("lower", "upper"))
    told = desk.plan("--against", "first", "-o", "json")
    beside = {one["node"]: one for one in json.loads(told)["against"]}
    assert beside["words"]["reason"] == "code of reuse_words:split: `clean` in reuse_helpers.py changed"
    assert beside["count"]["reason"] == "reads group, which differs"
    assert json.loads(told)["kept"] == {"words": None, "group": None, "count": None}
    assert desk.go("third") == 3
    assert desk.counts("third") == {"THE": 2, "CAT": 1, "DOG": 2, "A": 1}
    desk.write(WORDS.replace("a + b", "b + a"), HELPERS.replace("lower", "upper"))
    assert [line for line in desk.plan("--against", "third").splitlines() if "runs, nothing" in line] != []
    assert desk.go("fourth") == 0


def test_resume_explains_what_changed_since(desk: Desk) -> None:
    desk.write(WORDS.replace("a + b", "a - b"))
    log = f"log={desk.folder}/log"
    told = desk.run("resume", "first", "--explain", "--file", "counted.yaml", "-i", log)
    lines = told.out.splitlines()
    assert told.code == 0
    assert "  changed since: code of reuse_words:add: `add` in reuse_words.py changed" in lines
    assert lines[0].startswith("words: kept")
    refused = desk.run("resume", "first", "--file", "counted.yaml", "-i", log)
    assert refused.code == 7
    assert "the code changed since (code of reuse_words:add: `add` in reuse_words.py changed)" in refused.err
    (desk.folder / "b.txt").write_text("Another dog\n")
    again = desk.run("resume", "first", "--explain")
    assert f"  changed since: input file {desk.folder}/b.txt changed" in again.out.splitlines()
    (desk.folder / "b.txt").write_text("A dog\n")


def test_a_rerun_without_the_cache_makes_everything(desk: Desk) -> None:
    assert desk.run("rerun", "first", "--id", "plain", "--watch").code in (0, 1)
    desk.noted()
    assert desk.run("rerun", "second", "--id", "anew", "--no-cache", "--watch").code == 0
    assert desk.noted() == 3


OUTER = """
apiVersion: treadle/v1
name: outer
inputs: {log: {type: string, required: true}}
stages: {sub: {type: workflow, uses: ./counted.yaml, with: {log: "${{ inputs.log }}"}}}
"""


def test_plan_and_rerun_see_cached_results_of_a_child(desk: Desk) -> None:
    (desk.folder / "outer.yaml").write_text(OUTER)
    desk.write(WORDS.replace("(word, 1)", "(word, 3)"))
    given = ("outer.yaml", "-i", f"log={desk.folder}/log")
    assert desk.run("plan", *given).out.count("cache: runs, nothing is kept under its key") == 3
    assert desk.run("run", *given, "--id", "outer").code == 0
    assert desk.noted() == 3
    told = json.loads(desk.run("plan", *given, "-o", "json").out)["kept"]
    assert {node: found["run"] for node, found in told.items()} == dict.fromkeys(
        ("sub/words", "sub/group", "sub/count"), "outer/_sub"
    )
    assert desk.run("plan", *given).out.count("cache: does not run, run outer/_sub made it ") == 3
    assert desk.run("rerun", "outer", "--id", "outer2", "--watch").code == 0
    assert desk.noted() == 0
    assert desk.run("rerun", "outer", "--id", "outer3", "--no-cache", "--watch").code == 0
    assert desk.noted() == 3


def test_against_a_run_that_is_not_there(desk: Desk) -> None:
    assert desk.run("plan", "counted.yaml", "-i", "log=x", "--against", "nothing").code == 4


STEPS = """
def first(x, *, log):
    noted(log, "first")
    return x


def second(x, *, log, flag):
    noted(log, "second")
    if x > 1 and not open(flag).read():
        raise ValueError("not yet")
    return x


def last(x, *, log):
    noted(log, "last")
    return x


def noted(log, what):
    with open(log, "a", encoding="utf-8") as file:
        file.write(f"{what}\\n")
"""
STEPPED = """
apiVersion: treadle/v1
name: stepped
inputs: {log: {type: string, required: true}, flag: {type: string, required: true}}
defaults: {retry: {maximumAttempts: 1}}
stages:
  first:
    {type: map, input: {range: 4, partitions: 4}, uses: "reuse_steps:first", with: {log: "${{ inputs.log }}"}}
  second:
    type: map
    input: first
    needs: [first]
    uses: reuse_steps:second
    with: {log: "${{ inputs.log }}", flag: "${{ inputs.flag }}"}
  last: {type: map, input: second, needs: [second], uses: "reuse_steps:last", with: {log: "${{ inputs.log }}"}}
"""


def test_resume_goes_on_with_what_failed_only_or_from_a_stage_on(desk: Desk) -> None:
    (desk.folder / "reuse_steps.py").write_text(STEPS)
    (desk.folder / "stepped.yaml").write_text(STEPPED)
    flag, log = desk.folder / "flag", desk.folder / "steps"
    flag.touch()

    def noted() -> list[str]:
        found = sorted(log.read_text().split())
        log.unlink()
        return found

    given = ("-i", f"log={log}", "-i", f"flag={flag}")
    assert desk.run("run", "stepped.yaml", *given, "--id", "steps").code == 1
    assert noted() == ["first"] * 4 + ["second"] * 4
    flag.write_text("go")
    told = desk.run("resume", "steps", "--explain", "--only-failed")
    assert [line.partition(" (")[0] for line in told.out.splitlines()] == [
        "first: kept",
        "second: 2 of 4 partitions kept",
        "last: does not begin",
    ]
    done = desk.run("resume", "steps", "--only-failed")
    assert done.code == 0, done.err
    assert done.err.endswith("what had failed is done; not begun: last\n  Go on with the rest: treadle resume steps\n")
    assert noted() == ["second"] * 2
    told = desk.run("resume", "steps", "--explain", "--from", "second")
    assert [line.partition(" (")[0] for line in told.out.splitlines()] == [
        "first: kept",
        "second: runs again",
        "last: runs again",
    ]
    assert desk.run("resume", "steps", "--from", "third").code == 2
    done = desk.run("resume", "steps", "--from", "second")
    assert done.code == 0, done.err
    assert noted() == ["last"] * 4 + ["second"] * 4
    for option in (("--from", "second"), ("--from", "second", "--explain"), ("--only-failed",)):
        refused = desk.run("resume", "steps", *option)
        assert refused.code == 2
        assert "has succeeded already" in refused.err


def test_gc_keeps_cached_results_as_long_as_a_run_needs_them(desk: Desk) -> None:
    desk.write(WORDS.replace("(word, 1)", "(word, 2)"))
    assert desk.go("lender") == 3
    assert desk.go("borrower") == 0
    store = Store.open(f"file://{desk.home}/store")

    def age(*runs: str, days: float) -> None:
        for place in (desk.home / "store" / "runs" / run for run in runs):
            for file in place.rglob("*"):
                os.utime(file, (time.time() - days * DAY,) * 2)

    def left(run: str) -> set[str]:
        return {info.name.split("/")[2] for info in store.list(f"runs/{run}")}

    age("lender", days=40)
    assert desk.run("gc").code == 0
    assert left("lender") == {"blocks", "lent"}
    assert desk.go("later") == 0
    for entry in Path(desk.home, "store", "cache").iterdir():
        entry.unlink()
    age("lender", days=40)
    assert desk.run("gc").code == 0
    assert left("lender") == {"blocks", "lent"}
    assert desk.run("result", "borrower", "--stage", "count").code == 0
    age("lender", "borrower", "later", days=40)
    assert desk.run("gc").code == 0
    assert desk.run("gc").code == 0
    assert left("lender") == left("borrower") == set()
    with pytest.raises(MissingError):
        store.get("runs/lender/spec")
