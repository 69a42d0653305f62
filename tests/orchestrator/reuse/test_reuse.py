"""The results that a run takes over from others, in whole runs on slots without Temporal."""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from orchestrator.broken_runs import Counted

from treadle.client.testing import EngineResult
from treadle.client.testing.harness import Harness
from treadle.dsl.model import Spec
from treadle.dsl.validation.inputs import resolve_inputs
from treadle.executors.program import (
    Cut,
    Cuts,
    MapPartition,
    MapRecords,
    Merge,
    Reduce,
    Sample,
    Scatter,
    Sort,
    ToBroadcast,
)
from treadle.orchestrator.dispatcher.tasks import arguments
from treadle.orchestrator.reuse.cache_entries import Entries
from treadle.orchestrator.reuse.key_difference import compare, first_difference
from treadle.orchestrator.run_store.run_files import NO_CACHE
from treadle.primitives.blocks import Blocks
from treadle.primitives.errors import CorruptError
from treadle.primitives.stores.store import Store

HELPERS = "def clean(x):\n    return x + 1\n\n\ndef spare(x):\n    return x\n"
SUMS = '''
import reused_helpers


def first(x):
    """What it does."""
    return reused_helpers.clean(x)  # a comment


def pair(x):
    return x % 3, x


def add(a, b):
    return a + b


def shown(x, *, word):
    return f"{word} {x}"
'''
DOCUMENT: dict[str, Any] = {
    "apiVersion": "treadle/v1",
    "name": "sums",
    "inputs": {"word": {"type": "string", "default": "sum"}},
    "defaults": {"cache": True},
    "stages": {
        "one": {"type": "map", "input": {"range": 20, "partitions": 4}, "uses": "reused_sums:first"},
        "pairs": {"type": "map", "input": "one", "uses": "reused_sums:pair", "needs": ["one"]},
        "group": {"type": "shuffle", "input": "pairs", "by": "key", "partitions": 2},
        "total": {"type": "reduce", "input": "group", "per": "key", "combine": "reused_sums:add"},
        "lines": {
            "type": "map",
            "input": "total",
            "needs": ["total"],
            "uses": "reused_sums:shown",
            "with": {"word": "${{ inputs.word }}"},
            "output": {"uri": "out/${{ run.id }}", "format": "text"},
        },
    },
}
"""`needs` prevents the fusion of stages."""
SOURCES = {"reused_sums": SUMS, "reused_helpers": HELPERS}
MADE = {"one", "group", "total", "lines"}


class Project:
    """A project in files. Its runs share one store, and their outcomes are counted."""

    def __init__(self, harness: Harness, executor: Any, folder: Path, host: Path | None = None) -> None:
        self.folder, self.harness = folder, harness
        self.store = Store.open(f"file://{folder}/store")
        self.executor = Counted(executor, lambda _segment, _outcome: None)
        self.engine = harness.engine(self.store, self.executor, host)
        self.runs: list[str] = []
        self.place = folder / "project"
        self.place.mkdir()

    def write(self, **sources: str) -> None:
        for name, text in sources.items():
            (self.place / f"{name}.py").write_text(text)

    def submit(self, document: Mapping[str, Any], inputs: Mapping[str, Any], **memo: Any) -> str:
        spec = Spec.model_validate(document, by_alias=True, by_name=False)
        self.runs.append(f"r{len(self.runs) + 1}")
        given = resolve_inputs(spec, inputs)
        self.engine.submit(spec, given, base=self.folder, roots=[self.place], run=self.runs[-1], memo=memo)
        return self.runs[-1]

    def run(self, document: Mapping[str, Any] = DOCUMENT, *, again: bool = True, **inputs: Any) -> set[str]:
        """The segments that computed partitions. The run must succeed."""
        self.executor.outcomes.clear()
        run = self.submit(document, inputs, **({} if again else {NO_CACHE: True}))
        found = self.harness.result(self.engine, run)
        assert isinstance(found, EngineResult), found
        self.last = found
        return {segment for segment, _ in self.executor.outcomes}

    def differs(self, one: int = -1, other: int = -2) -> dict[str, str]:
        """Node -> the reason, for nodes that differ between two runs."""
        (plan, submission), (second, beside) = (
            (run.plan, run.submission) for run in (self.engine.site.open(self.runs[index]) for index in (one, other))
        )
        return {found.node: found.reason for found in compare(plan, submission, second, beside) if found.reason}

    def lines(self) -> list[bytes]:
        return [part.read_bytes() for part in sorted((self.folder / "out" / self.runs[-1]).glob("part-*"))]


@pytest.fixture
def projects(
    slots: tuple[Harness, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Project]]:
    """Makes the project. No block travels inline, so every result is a block."""
    monkeypatch.setattr(arguments, "INLINE_LIMIT", 0)

    def make(host: Path | None = None) -> Project:
        harness, executor = slots
        project = Project(harness, harness.local(1, host) if host else executor, tmp_path, host)
        project.write(**SOURCES)
        monkeypatch.syspath_prepend(project.place)
        return project

    yield make
    for name in SOURCES:
        sys.modules.pop(name, None)


@pytest.fixture
def project(projects: Callable[..., Project]) -> Project:
    """The project with its blocks in a store of files only."""
    return projects()


def changed(**stages: Mapping[str, Any]) -> dict[str, Any]:
    """The document with other settings of stages."""
    document = copy.deepcopy(DOCUMENT)
    for name, settings in stages.items():
        document["stages"][name] |= settings
    return document


def test_a_second_run_starts_no_task_but_to_write_its_files(project: Project) -> None:
    assert project.run() == {*MADE, "lines.out"}
    first, data = project.lines(), project.last.datasets
    assert project.run() == {"lines.out"}
    assert project.lines() == first != []
    assert project.last.datasets == data


def test_a_comment_changes_nothing_and_everything_is_reused(project: Project) -> None:
    project.run()
    project.write(reused_sums=SUMS.replace("# a comment", "# another").replace("What it does", "More"))
    project.write(reused_helpers="# new\n" + HELPERS.replace("def spare(x):", "def spare(x, y=0):"))
    assert project.run() == {"lines.out"}
    assert project.differs() == {}


def test_another_helper_has_its_stage_and_what_depends_on_it_run_again(project: Project) -> None:
    project.run()
    project.write(reused_helpers=HELPERS.replace("x + 1", "x + 2"))
    assert project.run() == {*MADE, "lines.out"}
    reasons = project.differs()
    assert reasons["one"] == "code of reused_sums:first: `clean` in reused_helpers.py changed"
    assert reasons["group"] == "reads one, which differs"
    assert reasons["total"] == "reads group, which differs"


def test_another_body_has_exactly_its_stage_and_what_depends_on_it_run_again(project: Project) -> None:
    project.run()
    project.write(reused_sums=SUMS.replace("return a + b", "return a - b"))
    assert project.run() == {"total", "lines", "lines.out"}
    assert project.differs() == {
        "total": "code of reused_sums:add: `add` in reused_sums.py changed",
        "lines": "reads total, which differs",
        "lines.out": "reads lines, which differs",
    }


# -- changes that change the result ----------


@pytest.mark.parametrize(
    ("stage", "setting", "made", "reason"),
    [
        ("total", {"cache": {"version": 2}}, {"total", "lines", "lines.out"}, 'cache version: "" -> "2"'),
        ("group", {"partitions": 3}, MADE - {"one"} | {"lines.out"}, "setting partitions of group (scatter): 2 -> 3"),
        ("one", {"input": {"range": 21, "partitions": 4}}, {*MADE, "lines.out"}, "input range: 20 -> 21"),
        ("one", {"timeout": "1m", "retry": {"maximumAttempts": 7}}, {"lines.out"}, ""),
        (
            "lines",
            {"with": {"word": "total"}},
            {"lines", "lines.out"},
            'parameter word of lines.uses: "sum" -> "total"',
        ),
    ],
)
def test_each_part_of_the_key_counts_for_its_stage(
    project: Project, stage: str, setting: dict[str, Any], made: set[str], reason: str
) -> None:
    project.run()
    assert project.run(changed(**{stage: setting})) == made
    assert project.differs().get(stage, "") == reason


def test_differences_name_settings_by_the_keys_of_documents() -> None:
    for part in (MapRecords, MapPartition, Sort, Reduce, ToBroadcast, Sample, Cuts, Scatter, Merge, Cut):
        for field in {*part.__struct_fields__} - {"non_retryable"}:
            label = f"setting {field} of one"
            assert "_" not in first_difference({label: "1"}, {label: "2"})
    assert first_difference({"setting fan_in of one": "4"}, {"setting fan_in of one": "8"}) == (
        "setting fanIn of one: 8 -> 4"
    )


def test_inputs_and_the_seed_are_part_of_the_key(project: Project) -> None:
    project.run()
    assert project.run(word="total") == {"lines", "lines.out"}
    assert project.differs()["lines"] == 'parameter word of lines.uses: "sum" -> "total"'
    assert project.run(DOCUMENT | {"seed": 7}) == {*MADE, "lines.out"}
    assert project.differs()["one"] == "seed: 0 -> 7"


def test_changed_input_file_is_named(project: Project) -> None:
    for name in ("a", "b"):
        (project.folder / f"{name}.txt").write_text(f"1{name}\n")
    source = {"uri": "*.txt", "format": "text"}
    document = changed(one={"input": source, "uses": "reused_sums:shown", "with": {"word": "w"}})
    del document["stages"]["pairs"], document["stages"]["group"], document["stages"]["total"]
    document["stages"]["lines"] |= {"input": "one", "needs": ["one"]}
    assert project.run(document) == {"one", "lines", "lines.out"}
    assert project.run(document) == {"lines.out"}
    (project.folder / "b.txt").write_text("2b\n2b\n")
    assert project.run(document) == {"one", "lines", "lines.out"}
    assert project.differs()["one"] == f"input file {project.folder}/b.txt changed"
    (project.folder / "c.txt").write_text("3\n")
    project.run(document)
    assert project.differs()["one"] == f"input file {project.folder}/c.txt is new"


def test_results_older_than_the_ttl_are_recomputed(project: Project) -> None:
    project.run()
    entries = Entries(project.store, project.harness.key)
    for key in entries.kept_keys():
        taken = entries.take(key, math.inf)
        assert taken is not None
        entries.keep(replace(taken[0], made=taken[0].made - 30 * 86_400), taken[1])
    assert project.run() == {*MADE, "lines.out"}
    assert project.run() == {"lines.out"}


def test_without_the_cache_everything_runs_and_is_kept_anew(project: Project) -> None:
    project.run()
    assert project.run(again=False) == {*MADE, "lines.out"}
    entries = Entries(project.store, project.harness.key)
    assert {entries.read(key).run for key in entries.kept_keys()} == {"r2"}
    assert project.run() == {"lines.out"}


# -- results that are not cached ----------


def test_stage_after_an_uncached_stage_runs_each_time_with_its_successors(project: Project) -> None:
    document = changed(group={"cache": False})
    assert project.run(document) == {"one", "pairs", "group", "total", "lines"}
    assert project.run(document) == {"group", "total", "lines"}
    plan = project.engine.site.open(project.runs[-1]).plan
    assert plan.not_kept == {
        "total": "it depends on 'group', which is not cached",
        "lines": "it depends on 'group', which is not cached",
    }


def test_a_function_that_asks_for_the_run_is_not_kept(project: Project) -> None:
    project.write(reused_sums=SUMS.replace("def first(x):", "def first(x, context):\n    assert context.run\n"))
    assert project.run() == project.run() == {*MADE}
    plan = project.engine.site.open(project.runs[-1]).plan
    assert plan.not_kept["one"] == "reused_sums:first asks for `context.run`, which differs from run to run"


# -- conditions ----------


COUNTED = "\n\ndef counted(values):\n    return Result(list(values)[0], metrics={'n': 5})\n"


@pytest.mark.parametrize(("limit", "made"), [(1, {"lines.out"}), (99, set[str]())])
def test_a_condition_is_judged_before_anything_is_taken_over(project: Project, limit: int, made: set[str]) -> None:
    project.write(reused_sums="from treadle.executors import Result\n" + SUMS + COUNTED)
    document = changed(
        one={"per": "partition", "uses": "reused_sums:counted", "metrics": {"n": "max"}},
        lines={"when": "stages.one.metrics.n > inputs.limit"},
    )
    document["inputs"]["limit"] = {"type": "integer", "default": 1}
    assert project.run(document) >= {"one", "lines"}
    assert project.run(document, limit=limit) == made
    assert project.last.skipped == (set() if made else {"lines"})


# -- blocks of other runs ----------


def test_cached_result_without_its_blocks_is_recomputed(project: Project) -> None:
    project.run()
    first = project.lines()
    project.store.delete_prefix("runs/r1/blocks/total")
    assert project.run(word="more") == {"total", "lines", "lines.out"}
    assert project.lines() == [part.replace(b"sum", b"more") for part in first]
    assert project.run(word="much") == {"lines", "lines.out"}


def test_results_outlive_the_shared_memory_that_they_were_made_in(
    projects: Callable[..., Project], tmp_path: Path
) -> None:
    project = projects(tmp_path / "host")
    assert project.run() == {*MADE, "lines.out"}
    assert (tmp_path / "host" / "r1" / "group").exists()
    assert project.engine.site.host is not None
    project.engine.site.host.delete_run("r1")
    assert project.run() == {"lines.out"}


def test_third_run_reuses_results_of_the_first_that_the_second_reused(project: Project) -> None:
    for _ in range(3):
        project.run()
    lent = [info.name for info in project.store.list("runs/r1/lent")]
    assert lent == [f"runs/r1/lent/{run}/{segment}" for run in ("r2", "r3") for segment in sorted(MADE)]
    assert not list(project.store.list("runs/r2/blocks"))


def test_an_entry_that_gc_removes_at_the_same_moment_is_not_taken(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry is removed after it was found. By then the borrower has left its mark, and it looks once more."""
    project.run()
    take = Entries.take

    def taken_too_early(self: Entries, key: str, ttl: float) -> Any:
        found = take(self, key, ttl)
        self.remove([key])
        return found

    monkeypatch.setattr(Entries, "take", taken_too_early)
    assert project.run() == {*MADE, "lines.out"}
    assert list(project.store.list("runs/r1/lent"))


def test_cache_entry_of_another_writer_is_ignored(project: Project) -> None:
    project.run()
    for info in list(project.store.list("cache")):
        data = bytearray(project.store.get(info.name))
        data[-1] ^= 1
        project.store.put(info.name, bytes(data))
    assert project.run() == {*MADE, "lines.out"}


def test_blocks_of_another_run_are_read_from_every_kind_of_store(tmp_path: Path) -> None:
    for url in (f"file://{tmp_path}", "memory://lender"):
        store = Store.open(url)
        ref = Blocks(store, "lender").put("s/0.1", "objects", [[1, 2, 3]], "store")
        lent = replace(ref, locations=("store:lender",))
        reader = Blocks(store, "borrower")
        assert reader.get(lent.slice(0)) == [1, 2, 3]
        assert reader.read == {"store": lent.size}
        assert not reader.lost([lent.slice(0)])
        store.put(f"runs/lender/blocks/{ref.name}", b"x" * ref.size)
        with pytest.raises(CorruptError, match="is damaged"):
            Blocks(store, "borrower").get(lent.slice(0))


def test_a_sub_workflow_differs_with_its_document_and_its_functions(project: Project) -> None:
    inner = {
        "apiVersion": "treadle/v1",
        "name": "inner",
        "stages": {"x": {"type": "map", "input": {"range": 2}, "uses": "reused_sums:first"}},
    }
    document = {
        "apiVersion": "treadle/v1",
        "name": "outer",
        "defaults": {"cache": True},
        "stages": {"sub": {"type": "workflow", "uses": inner}},
    }
    project.submit(document, {})
    project.write(reused_helpers=HELPERS.replace("x + 1", "x + 2"))
    project.submit(document, {})
    assert project.differs() == {"sub": "code of reused_sums:first: `clean` in reused_helpers.py changed"}
    inner["stages"]["x"]["input"] = {"range": 3}  # type: ignore[index]
    project.submit(document, {})
    assert project.differs() == {"sub": "document of inner changed"}
