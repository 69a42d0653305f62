"""The workloads of the bench: their checks find wrong answers, and their runner survives failing rivals."""

from __future__ import annotations

import importlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

checks: Any = importlib.import_module("workloads.checks")
data: Any = importlib.import_module("workloads.data")
measuring: Any = importlib.import_module("workloads.measuring")
report: Any = importlib.import_module("workloads.report")
settings: Any = importlib.import_module("workloads.settings")
growth: Any = importlib.import_module("workloads.growth")
jobs = data.jobs
Entry = settings.Entry
SIZES = settings.SMALL


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The inputs of the small sizes."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("data")
        patch.setattr(data, "DATA", folder)
        data.make(SIZES)
        yield folder


# -- checks


def write_words(target: Path) -> None:
    parts = [jobs.count_file(str(path), 2) for path in data.text(SIZES).glob("text-*")]
    for index in range(2):
        jobs.write_counts([part[index] for part in parts], str(target / f"part-{index}"))


def write_sorted(target: Path) -> None:
    records = np.concatenate([data.tera.read(path) for path in data.tera.files(data.records(SIZES))])
    keys = np.ascontiguousarray(records[:, :10]).view("S10")[:, 0]
    records[np.argsort(keys, kind="stable")].tofile(target / "part-0")


def k_means() -> Any:
    centroids = np.load(data.points(SIZES) / "start.npy")
    points = np.concatenate([np.load(path) for path in sorted(data.points(SIZES).glob("points-*"))])
    for _ in range(SIZES.iterations):
        centroids = jobs.moved(jobs.nearest(points, centroids), centroids)
    return centroids


def shuffled(count: int) -> list[list[int]]:
    drawn = np.concatenate([jobs.draw(index, count) for index in range(SIZES.tasks)])
    return [jobs.count_and_sum([drawn[drawn % SIZES.tasks == part]]) for part in range(SIZES.tasks)]


RIGHT: dict[str, Any] = {
    "fan_out": lambda: list(reversed(range(SIZES.items))),
    "broadcast": lambda: [float(data.array(SIZES).sum())] * SIZES.tasks,
    "reduce": lambda: jobs.facts(sum(jobs.ramp(index, SIZES.array) for index in range(SIZES.tasks))),
    "shuffle": lambda: shuffled(SIZES.shuffled),
    "shuffle_large": lambda: shuffled(SIZES.shuffled_large),
    "k_means": k_means,
    "pipeline": lambda: 20,
}
WRONG: dict[str, Any] = {
    "fan_out": lambda answer: [0, *answer[1:]],
    "broadcast": lambda answer: answer[1:],
    "reduce": lambda answer: [answer[0] + 1, *answer[1:]],
    "shuffle": lambda answer: answer[::-1],
    "shuffle_large": lambda answer: [[count, total + 1] for count, total in answer],
    "k_means": lambda answer: answer + 1e-3,
    "pipeline": lambda answer: answer - 1,
}


@pytest.mark.parametrize("workload", RIGHT)
def test_check_tells_right_from_wrong(workload: str, made: Path, tmp_path: Path) -> None:
    answer = RIGHT[workload]()
    checks.check(workload, SIZES, answer, tmp_path)
    with pytest.raises(AssertionError):
        checks.check(workload, SIZES, WRONG[workload](answer), tmp_path)


def test_word_counts_are_checked_word_by_word(made: Path, tmp_path: Path) -> None:
    write_words(tmp_path)
    checks.check("words", SIZES, None, tmp_path)
    (tmp_path / "_manifest.json").write_text("not a word")
    checks.check("words", SIZES, None, tmp_path)
    (tmp_path / "part-1").unlink()
    with pytest.raises(AssertionError):
        checks.check("words", SIZES, None, tmp_path)


def test_sorted_records_are_checked_for_order_and_loss(made: Path, tmp_path: Path) -> None:
    write_sorted(tmp_path)
    checks.check("sort", SIZES, None, tmp_path)
    records = np.fromfile(tmp_path / "part-0", np.uint8).reshape(-1, 100)
    records[[0, -1]] = records[[-1, 0]]
    records.tofile(tmp_path / "part-0")
    with pytest.raises(AssertionError, match="order"):
        checks.check("sort", SIZES, None, tmp_path)


def test_both_ways_to_count_words_agree(made: Path) -> None:
    path = str(next(data.text(SIZES).glob("text-*")))
    assert jobs.count_lines(path, 3) == jobs.count_file(path, 3)


# -- goals and report


def test_every_goal_is_about_entries_that_are_measured() -> None:
    assert {entry for goal in settings.GOALS for entry in (goal.ours, goal.other)} <= set(settings.ENTRIES)


def figures(**seconds: float) -> Any:
    about = dict.fromkeys(("date", "cores", "processor", "memory GB", "kernel", "python", "load"), "")
    lines = [
        {"workload": "pipeline", "rival": rival, "variant": "", "seconds": [took, 9 * took, took], "spent": []}
        for rival, took in seconds.items()
    ]
    broken = {"workload": "words", "rival": "Ray", "variant": "", "seconds": [], "spent": [], "error": "it broke"}
    return report.Figures([{**about, "versions": {}, "packages": []}, *lines, broken])


@pytest.mark.parametrize(("treadle", "verdict"), [(1.0, "met"), (2.0, "met"), (2.1, "**not met**")])
def test_a_goal_is_judged_by_medians(treadle: float, verdict: str) -> None:
    (seen,) = [one for one in report.judged(figures(treadle=treadle, Temporal=2.0)) if one.ours is not None]
    assert (seen.verdict, seen.ratio) == (verdict, treadle / 2)


def test_report_names_workloads_without_a_figure_and_keeps_remarks() -> None:
    text = report.render(figures(treadle=1.0), "\n\nSomebody's own words.\n")
    assert "| treadle | 1.00 s | 1.00 s | 3 |" in text
    assert "- Ray, words: it broke" in text
    assert "not measured" in text
    assert text.endswith("Somebody's own words.\n")


def test_picture_of_growth_has_every_point() -> None:
    series = growth.SERIES[0]
    points = [growth.Point(1000, 0.5), growth.Point(10_000, 0.6)]
    picture = growth.drawn([(series, points)])
    assert picture.count("<circle") == 2
    assert "500 us" in picture
    assert "| 10,000 | 600 ms | 60 us |" in growth.rendered(
        [(series, points)], {"cores": 2, "processor": "", "memory GB": 1}, "g.svg"
    )


# -- the runner


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name, since sockets are made below it."""
    with tempfile.TemporaryDirectory(prefix="w") as name:
        yield Path(name)


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch, folder: Path, made: Path) -> Iterator[dict[str, Any]]:
    """One rival that answers and fails as its module defines, and the real programs, all on small sizes."""
    (folder / "tmp").mkdir()
    shutil.copytree(made, folder / "workloads")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    monkeypatch.setattr(measuring, "BENCH_DIR", folder)
    monkeypatch.setitem(settings.RIVALS, "odd", settings.Rival("rivals_for_tests", "project"))
    limits = measuring.Limits(answer=60.0)
    started = {name: measuring.Child(name, SIZES, limits, {}) for name in ("odd", "floor", "treadle")}
    yield started
    for child in started.values():
        child.end()
    assert list((folder / "tmp").iterdir()) == []


def sleepers(folder: Path) -> list[int]:
    found: list[int] = measuring.marked(f"TMPDIR={folder / 'tmp'}")
    return found


@pytest.mark.timeout(300)
def test_rival_that_hangs_or_dies_costs_only_its_own_figure(children: dict[str, Any], folder: Path) -> None:
    odd = children["odd"]
    odd._limits.answer = 15.0  # private: the limit of an answer is not a setting
    seen = {}
    for workload in ("words", "sort", "fan_out", "pipeline"):
        (seen[workload],) = measuring.measure([Entry(workload, "odd")], children, measuring.Limits(rounds=2))
    assert "no answer within 15 s" in seen["words"]["error"]
    assert seen["sort"]["error"] == "its process ended"
    assert "AssertionError" in seen["fan_out"]["error"]
    assert len(seen["pipeline"]["seconds"]) == 2
    odd.end()
    assert sleepers(folder) == []


def test_rival_whose_environment_is_missing_is_left_out_with_the_reason() -> None:
    child = measuring.Child("Ray", SIZES, measuring.Limits(), {"rivals": "no wheel for this machine"})
    (record,) = measuring.measure([Entry("words", "Ray")], {"Ray": child}, measuring.Limits())
    assert record["error"] == "not installed: no wheel for this machine"


@pytest.mark.timeout(300)
def test_treadle_and_the_floor_are_right_on_every_workload(children: dict[str, Any], folder: Path) -> None:
    ready = [
        entry
        for entry in settings.ENTRIES
        if entry.rival in ("floor", "treadle") and entry.variant not in (settings.POLARS, settings.DUCKDB)
    ]
    records = [one for entry in ready for one in measuring.measure([entry], children, measuring.Limits(rounds=0))]
    assert {measuring.Entry(one["workload"], one["rival"], one["variant"]): one.get("error") for one in records} == (
        dict.fromkeys(ready)
    )
    for child in children.values():
        child.end()
    assert sleepers(folder) == []
