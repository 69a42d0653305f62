"""Each example, run on local processes and compared with a computation independent of treadle."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import hashlib
import json
import os
import re
import runpy
import sqlite3
import subprocess
import sys
import sysconfig
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from treadle.client.testing import Engine, EngineResult
from treadle.dsl.document.workflow_files import load
from treadle.dsl.normalise import normalise
from treadle.dsl.validation.inputs import resolve_inputs
from treadle.executors.local.executor import LocalExecutor
from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home
from treadle.primitives import sealing
from treadle.primitives.stores.store import Store

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ["etl", "gang", "join", "kmeans", "logistic", "orders_etl", "pi", "terasort", "wordcount"]
WORD = re.compile(r"[^\W\d_]+")


@pytest.fixture(autouse=True)
def own_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each example has its own functions on the path, and leaves none of them behind."""
    path, known = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(EXAMPLES)):
            del sys.modules[name]


Floats = NDArray[np.float64]
Run = Callable[..., EngineResult]


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the files that secrets name."""
    return tmp_path_factory.mktemp("private")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, private: Path) -> Iterator[Run]:
    """run(example, base, **inputs): on two processes shared by all tests. A relative `out/` is made in `base`."""
    folder = tmp_path_factory.mktemp("examples")
    key = sealing.load_or_create_key(folder / "key")
    host = folder / "host"
    with asyncio.Runner() as runner:
        executor = LocalExecutor(
            run_key=lambda run: sealing.run_key(key, run),
            slots=2,
            memory=1 << 30,
            host_root=str(host),
            secrets=lambda name: str(private / name),
        )
        runner.run(executor.start())
        engine = Engine(Store.open(f"file://{folder}/store"), executor, key, host)

        def run(name: str, base: Path, **inputs: Any) -> EngineResult:
            sys.path.insert(0, str(EXAMPLES / name))
            spec = load(EXAMPLES / name / f"{name}.yaml").require()
            run_id = engine.submit(spec, resolve_inputs(spec, inputs), base=base, roots=[EXAMPLES / name])
            return runner.run(engine.run(run_id))

        yield run
        runner.run(executor.stop())


def generator(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / name / "generate.py"))


def parts(folder: str | Path) -> list[Path]:
    return sorted(Path(str(folder).removeprefix("file://")).glob("part-*"))


def table(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def rows(folder: str | Path) -> list[dict[str, str]]:
    return [row for part in parts(folder) for row in table(part)]


@pytest.mark.parametrize("name", NAMES)
def test_python_twin_is_the_same_document(name: str) -> None:
    sys.path.insert(0, str(EXAMPLES / name))
    twin = runpy.run_path(str(EXAMPLES / name / "workflow.py"))["wf"]
    assert twin.captured == {}
    assert normalise(twin.spec()) == normalise(load(EXAMPLES / name / f"{name}.yaml").require())


def counted(texts: list[Path]) -> Counter[str]:
    found: Counter[str] = Counter()
    for file in texts:
        found.update(word.lower() for word in WORD.findall(file.read_text("utf-8")))
    return found


def check_counts(folder: str, top: list[dict[str, Any]], expected: Counter[str]) -> None:
    pairs = [(row["word"], row["count"]) for part in parts(folder) for row in pq.read_table(part).to_pylist()]
    assert len(pairs) == len(dict(pairs))
    assert dict(pairs) == expected
    best = sorted(expected.items(), key=lambda item: (-item[1], item[0]))[:10]
    assert top == [{"word": word, "count": count} for word, count in best]


def test_wordcount_of_a_generated_corpus_equals_counter(run: Run, tmp_path: Path) -> None:
    generator("wordcount")["write_corpus"](tmp_path / "corpus", 2.5, 2)
    done = run("wordcount", tmp_path, corpus=f"{tmp_path}/corpus/*.txt", partitions=5)
    [(_, top)] = done.datasets["top"]
    check_counts(done.outputs["counts"], top, counted(sorted(tmp_path.glob("corpus/*.txt"))))


def test_terasort_is_the_sorted_array_with_the_checksum_of_its_input(run: Run, tmp_path: Path) -> None:
    generator("terasort")["write_records"](tmp_path / "data", 3, 7_001)
    done = run("terasort", tmp_path, source=f"{tmp_path}/data/rec-*", target=str(tmp_path / "sorted"))
    given = b"".join(file.read_bytes() for file in sorted(tmp_path.glob("data/rec-*")))
    records = np.frombuffer(given, "S10,V90")
    expected = records[np.argsort(records["f0"], kind="stable")].tobytes()
    assert b"".join(file.read_bytes() for file in parts(tmp_path / "sorted")) == expected
    assert len(parts(tmp_path / "sorted")) == 8
    assert done.outputs["records"] == 21_003
    assert done.outputs["checksum"] == sum(zlib.crc32(given[i : i + 100]) for i in range(0, len(given), 100))


def test_terasort_check_detects_records_out_of_order() -> None:
    sys.path.insert(0, str(EXAMPLES / "terasort"))
    import terasort  # type: ignore[import-not-found]

    row = np.full((2, 100), ord("b"), np.uint8)
    row[1, 0] = ord("a")
    with pytest.raises(ValueError, match="not sorted"):
        terasort.summary(row)
    with pytest.raises(ValueError, match="not in order"):
        terasort.follow(terasort.summary(row[:1]), terasort.summary(row[1:]))
    assert terasort.summary(row[::-1])[2] == 2


def lloyd(points: Floats, centroids: Floats, tolerance: float) -> tuple[Floats, int]:
    """The textbook algorithm: every distance, every mean, until nothing moves."""
    iterations, shift = 0, np.inf
    while shift >= tolerance:
        nearest = ((points[:, None, :] - centroids[None]) ** 2).sum(axis=2).argmin(axis=1)
        groups = [points[nearest == index] for index in range(len(centroids))]
        moved = np.array(
            [group.mean(axis=0) if len(group) else old for group, old in zip(groups, centroids, strict=True)]
        )
        iterations, shift, centroids = iterations + 1, np.abs(moved - centroids).max(), moved
    return centroids, iterations


def test_kmeans_follows_plain_lloyd_from_the_same_seeds(run: Run, tmp_path: Path) -> None:
    generator("kmeans")["write_points"](tmp_path / "points", 3, 1_500, 4)
    done = run("kmeans", tmp_path, points=f"{tmp_path}/points/*.npy", k=6)
    points = np.concatenate([np.load(file) for file in sorted(tmp_path.glob("points/*.npy"))])
    [(_, [seeds])] = done.datasets["seed"]
    expected, iterations = lloyd(points, seeds, 1e-4)
    found = np.empty_like(expected)
    for row in rows(done.outputs["model"]):
        found[int(row["centroid"]), int(row["dimension"])] = float(row["value"])
    assert done.outputs["iterations"] == iterations > 10
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
    assert all((points == seed).all(axis=1).any() for seed in seeds)


def averaged_descent(parts: list[Floats], epochs: int) -> Floats:
    """Each partition alone, one row block after the other, then the mean."""
    weights: Floats = np.zeros(parts[0].shape[1])
    for epoch in range(1, epochs + 1):
        ends = []
        for index, part in enumerate(parts):
            text = f"treadle seed 1\n7\ntrain[{epoch}].descend\n{index}"
            seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")
            order = np.random.Generator(np.random.PCG64(seed)).permutation(len(part))
            own: Floats = weights.copy()
            for chosen in np.split(part[order], range(100, len(part), 100)):
                design = np.hstack([chosen[:, :-1], np.ones((len(chosen), 1))])
                slope = design.T @ (1 / (1 + np.exp(-design @ own)) - chosen[:, -1])
                own = own - 0.5 / epoch * slope / len(chosen)
            ends.append(own)
        weights = np.average(ends, axis=0, weights=[len(part) for part in parts])
    return weights


def test_logistic_is_the_mean_of_descents_that_the_documented_seeds_order(run: Run, tmp_path: Path) -> None:
    generator("logistic")["write_rows"](tmp_path / "rows", 3, 1_050, 4)
    done = run("logistic", tmp_path, rows=f"{tmp_path}/rows/*.npy", batch=100, epochs=6, tol=0.0)
    expected = averaged_descent([np.load(file) for file in sorted(tmp_path.glob("rows/*.npy"))], 6)
    found = np.array([float(row["weight"]) for row in rows(done.outputs["model"])])
    assert done.outputs["epochs"] == 6
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
    truth = np.random.default_rng(1).normal(size=4)
    np.testing.assert_allclose(found[:-1], truth, atol=0.3)


def test_gang_descends_as_one_process_would(run: Run, tmp_path: Path) -> None:
    done = run("gang", tmp_path, rows=1_000, steps=30)
    truth, drawn = np.array([2.0, -1.0, 0.5]), []
    for partition in range(2):
        seed = hashlib.sha256(f"treadle seed 1\n5\ndraw\n{partition}".encode()).digest()[:16]
        rng = np.random.Generator(np.random.PCG64(int.from_bytes(seed, "big")))
        features = rng.normal(size=(1_000, 3))
        drawn.append((features, features @ truth + rng.normal(scale=0.1, size=1_000)))
    weights = np.zeros(3)
    for _ in range(30):
        weights -= 0.2 * sum(features.T @ (features @ weights - values) for features, values in drawn) / 2_000
    [(_, [found])] = done.datasets["model"]
    np.testing.assert_allclose(found, weights, rtol=0, atol=1e-12)
    assert done.outputs["error"] == np.abs(weights - truth).max() < 0.05


def test_pi_is_the_ratio_of_the_points_that_the_documented_seeds_draw(run: Run, tmp_path: Path) -> None:
    done = run("pi", tmp_path, throws=9, points=20_000)
    inside = 0
    for partition in range(9):
        seed = hashlib.sha256(f"treadle seed 1\n314\nthrow\n{partition}".encode()).digest()[:16]
        x, y = np.random.Generator(np.random.PCG64(int.from_bytes(seed, "big"))).random((2, 20_000))
        inside += int(np.count_nonzero(x * x + y * y < 1))
    assert done.outputs["pi"] == 4 * inside / 180_000
    assert abs(done.outputs["pi"] - np.pi) < 0.02, "five standard deviations"


def test_etl_totals_the_good_orders_and_lists_every_bad_one(run: Run, tmp_path: Path) -> None:
    totals, broken = generator("etl")["write_orders"](tmp_path / "orders", 3, 400)
    done = run("etl", tmp_path)
    found = {row["customer"]: int(row["cents"]) for row in rows(tmp_path / done.outputs["totals"])}
    assert found == totals
    assert done.outputs["cents"] == sum(totals.values())
    assert done.metrics["parse"]["orders"] == 1200 - broken
    listed = [
        json.loads(line)
        for file in parts(tmp_path / done.outputs["rejected"])
        for line in file.read_text().splitlines()
    ]
    assert len(listed) == broken > 0


def warehouse(file: Path) -> dict[str, int]:
    """Order -> cents."""
    with contextlib.closing(sqlite3.connect(file)) as database:
        return dict(database.execute("SELECT order_id, cents FROM orders"))


def test_orders_are_in_the_warehouse_once_however_often_they_are_loaded(
    run: Run, tmp_path: Path, private: Path
) -> None:
    orders = [{"order_id": str(i), "customer": f"c{i % 7}", "cents": i} for i in range(60)]
    for given in (orders[:40], orders[20:]):
        done = run("orders_etl", tmp_path, orders=[*given, {"order_id": "x", "cents": 1}])
        assert done.outputs["loaded"] == 40
    assert warehouse(private / "warehouse") == {str(i): i for i in range(60)}


def test_join_is_the_inner_join_of_its_two_files(run: Run, tmp_path: Path) -> None:
    for name in ("people.csv", "visits.csv"):
        (tmp_path / name).write_bytes((EXAMPLES / "join" / name).read_bytes())
    done = run("join", tmp_path)
    names = {row["id"]: row["name"] for row in table(tmp_path / "people.csv")}
    visits = table(tmp_path / "visits.csv")
    expected = Counter((row["id"], names[row["id"]], row["city"]) for row in visits if row["id"] in names)
    found = Counter((row["id"], row["name"], row["city"]) for row in rows(done.outputs["joined"]))
    assert found == expected


def treadle(home: Path, *arguments: str) -> str:
    known = {name: value for name, value in os.environ.items() if not name.startswith(("TREADLE_", "TEMPORAL_"))}
    done = subprocess.run(
        [Path(sys.executable).with_name("treadle"), *arguments],
        env={**known, "TREADLE_HOME": str(home)},
        cwd=home.parent,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_wordcount_of_the_standard_library_through_the_command_line(tmp_path: Path) -> None:
    """The embedded default from end to end: its server, its driver, the stored result."""
    home = tmp_path / "home"
    (tmp_path / "project").mkdir()
    for name in ("wordcount.yaml", "wordcount.py"):
        (tmp_path / "project" / name).write_bytes((EXAMPLES / "wordcount" / name).read_bytes())
    corpus = Path(sysconfig.get_path("stdlib"), "a*.py")
    try:
        treadle(home, "run", str(tmp_path / "project" / "wordcount.yaml"), "-i", f"corpus={corpus}")
        outputs = json.loads(treadle(home, "result", "@last"))
        top = [json.loads(line) for line in treadle(home, "result", "@last", "--stage", "top").splitlines()]
        check_counts(outputs["counts"], top, counted(sorted(corpus.parent.glob("a*.py"))))
    finally:
        embedded.down(Home(home))
