"""The joblib backend: joblib's batches as calls of a session, against the embedded server."""

from __future__ import annotations

import io
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import as_completed
from operator import add
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from eventually import eventually
from joblib import Parallel, delayed, parallel_config
from tqdm import tqdm

from treadle.client import Client, Session, WorkerTraceback, register_joblib, session
from treadle.client.environment import ClientEnvironment
from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.run_store.call_log import CallLog, ValueAdded
from treadle.primitives.errors import UsageError

PATIENCE = 90


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("joblib") / "home"
    folder.mkdir()
    (folder / "profiles.toml").write_text("[three]\nslots = 3\n")
    yield folder
    embedded.down(Home(folder))


@pytest.fixture(scope="module")
def shared(home: Path) -> Iterator[Session]:
    register_joblib()
    with session("shared", home=home, profile="three") as found:
        yield found


@pytest.fixture
def calls(shared: Session) -> Iterator[Session]:
    """A session, which the backend uses unless a call names another one."""
    with parallel_config(backend="treadle", session=shared):
        yield shared


class Refusal(Exception):
    """An exception of the test's own."""


def refuse(number: int) -> int:
    raise Refusal(number)


# -- results


def nested(count: int) -> list[int]:
    with parallel_config(backend="treadle"):
        return list(Parallel(n_jobs=2)(delayed(abs)(-number) for number in range(count)))


def test_backend_inside_a_call_runs_its_batches_there(calls: Session) -> None:
    before = sum(called.calls for called in calls._link.calls())  # private: the calls of all clients
    assert Parallel(n_jobs=2, batch_size=1)(delayed(nested)(count) for count in range(3)) == [[], [0], [0, 1]]
    assert sum(called.calls for called in calls._link.calls()) - before == 3


def test_results_are_in_the_order_of_the_calls(calls: Session) -> None:
    assert Parallel()(delayed(add)(number, 1) for number in range(50)) == list(range(1, 51))


def test_batches_are_calls_of_the_session(calls: Session) -> None:
    known = len(calls.futures())
    pids = set(Parallel(batch_size=1)(delayed(os.getpid)() for _ in range(5)))
    assert len(calls.futures()) == known + 5
    assert os.getpid() not in pids


def test_brief_calls_are_batched(calls: Session) -> None:
    known = len(calls.futures())
    Parallel()(delayed(add)(number, 1) for number in range(500))
    assert len(calls.futures()) - known < 250


@pytest.mark.parametrize("return_as", ["generator", "generator_unordered"])
def test_generator_yields_results_while_calls_run(calls: Session, return_as: str, tmp_path: Path) -> None:
    def wait_for(flag: Path | None, value: int) -> int:
        while flag is not None and not flag.exists():
            time.sleep(0.01)
        return value

    flags = [None, tmp_path / "go"]
    found = Parallel(return_as=return_as)(delayed(wait_for)(flag, number) for number, flag in enumerate(flags))
    assert next(found) == 0
    (tmp_path / "go").touch()
    assert list(found) == [1]


def test_results_and_small_arguments_are_writable_as_with_loky(calls: Session) -> None:
    def doubled(array: Any) -> Any:
        array *= 2
        return array

    found = Parallel()(delayed(doubled)(np.arange(3)) for _ in range(4))
    found[0] += 1
    np.testing.assert_array_equal(found[0], [1, 3, 5])


# -- large arrays


def sent_arrays(home: Path, calls: Session) -> int:
    log = CallLog(ClientEnvironment(home=home).files(calls.id))
    return len({one.key for one in log.read() if isinstance(one, ValueAdded)})


def test_large_array_is_sent_once_for_all_batches(home: Path, calls: Session) -> None:
    known, array = sent_arrays(home, calls), np.ones(200_000)
    found = Parallel(batch_size=1)(
        delayed(lambda given, number: (given["x"].sum() + number, given["x"].flags.writeable))({"x": array}, number)
        for number in range(6)
    )
    assert found == [(200_000 + number, False) for number in range(6)]
    assert sent_arrays(home, calls) == known + 1


def test_large_array_is_sent_as_it_is_at_the_parallel_call(calls: Session) -> None:
    array = np.ones(200_000)
    with Parallel() as parallel:
        assert parallel(delayed(np.sum)(array) for _ in range(2)) == [200_000] * 2
        array += 1
        assert parallel(delayed(np.sum)(array) for _ in range(2)) == [400_000] * 2


@pytest.mark.parametrize("setting", [{"max_nbytes": None}, {"max_nbytes": "10M"}, {"mmap_mode": "c"}])
def test_array_below_joblibs_limit_is_sent_with_each_batch(home: Path, calls: Session, setting: Any) -> None:
    known, array = sent_arrays(home, calls), np.ones(200_000)
    found = Parallel(**setting)(delayed(lambda given: given.flags.writeable)(array) for _ in range(2))
    assert found == [True, True]
    assert sent_arrays(home, calls) == known


def test_array_that_workers_shall_write_is_refused(calls: Session) -> None:
    with pytest.raises(UsageError, match="share no memory"):
        Parallel(mmap_mode="r+")(delayed(abs)(number) for number in range(2))


# -- the number of jobs


@pytest.mark.parametrize(("n_jobs", "expected"), [(None, 3), (-1, 3), (-2, 2), (-9, 1), (1, 1), (7, 7)])
def test_number_of_jobs_is_that_of_the_slots(calls: Session, n_jobs: int | None, expected: int) -> None:
    assert joblib.effective_n_jobs(n_jobs) == expected


def test_number_of_jobs_without_a_session_is_that_of_the_profile(home: Path) -> None:
    register_joblib()
    with parallel_config(backend="treadle", home=home, profile="three"):
        assert joblib.effective_n_jobs(-1) == 3
    with parallel_config(backend="treadle", home=home, executor="moon"):
        with pytest.raises(UsageError, match="no executor 'moon'"):
            joblib.effective_n_jobs(-1)
        with pytest.raises(UsageError, match="no executor 'moon'"):
            Parallel(n_jobs=2)(delayed(abs)(number) for number in range(2))


def test_zero_jobs_have_no_meaning(calls: Session) -> None:
    with pytest.raises(ValueError, match="n_jobs == 0"):
        Parallel(n_jobs=0)(delayed(abs)(number) for number in range(2))


def test_one_job_runs_here(calls: Session) -> None:
    assert set(Parallel(n_jobs=1)(delayed(os.getpid)() for _ in range(3))) == {os.getpid()}


def test_fewer_jobs_than_slots_limit_the_calls_at_a_time(calls: Session, tmp_path: Path) -> None:
    def others(folder: Path, number: int) -> int:
        mark = folder / str(number)
        mark.touch()
        time.sleep(0.05)
        count = len(list(folder.iterdir()))
        mark.unlink()
        return count

    assert calls.slots == 3
    every, two = (
        Parallel(n_jobs=n_jobs, batch_size=1)(delayed(others)(tmp_path, number) for number in range(12))
        for n_jobs in (3, 2)
    )
    assert (max(every), max(two)) == (3, 2)


# -- failures


def test_exception_has_its_class_and_the_workers_traceback(calls: Session) -> None:
    with pytest.raises(Refusal) as caught:
        Parallel()(delayed(refuse)(number) for number in range(10))
    assert isinstance(caught.value.__cause__, WorkerTraceback)
    assert "in refuse" in str(caught.value.__cause__)


def test_after_a_failure_no_further_batch_begins(calls: Session, tmp_path: Path) -> None:
    def late(folder: Path, number: int) -> None:
        (folder / str(number)).touch()
        if number == 0:
            raise Refusal(number)
        time.sleep(0.3)

    with pytest.raises(Refusal):
        Parallel(pre_dispatch="all", batch_size=1)(delayed(late)(tmp_path, number) for number in range(40))
    assert Parallel()(delayed(add)(number, 1) for number in range(4)) == [1, 2, 3, 4]
    assert len(list(tmp_path.iterdir())) < 10


@pytest.mark.parametrize("managed", [True, False])
def test_parallel_call_after_a_failure_has_its_results(calls: Session, managed: bool) -> None:
    parallel = Parallel()
    with parallel if managed else warnings.catch_warnings():
        with pytest.raises(Refusal):
            parallel(delayed(refuse)(number) for number in range(4))
        assert parallel(delayed(add)(number, 1) for number in range(4)) == [1, 2, 3, 4]


@pytest.mark.parametrize("position", [0, 30])
def test_argument_that_cannot_be_pickled_fails_the_parallel_call(calls: Session, position: int) -> None:
    with pytest.raises(TypeError, match=r"cannot pickle '_thread\.lock'"):
        Parallel()(delayed(id)(threading.Lock() if number == position else number) for number in range(40))


def test_result_that_cannot_be_pickled_fails_the_parallel_call(calls: Session) -> None:
    with pytest.raises(TypeError, match=r"cannot pickle '_thread\.lock'"):
        Parallel()(delayed(threading.Lock)() for _ in range(4))


def test_call_that_takes_too_long_fails_the_parallel_call(calls: Session) -> None:
    with pytest.raises(multiprocessing.TimeoutError):
        Parallel(timeout=0.2)(delayed(time.sleep)(1) for _ in range(2))


def test_dropped_generator_withdraws_its_calls(calls: Session) -> None:
    found = Parallel(return_as="generator", pre_dispatch="all", batch_size=1)(
        delayed(time.sleep)(0.3) for _ in range(40)
    )
    next(found)
    with pytest.warns(UserWarning, match="have been cancelled"):
        del found
    begun = time.monotonic()
    assert Parallel()(delayed(add)(number, 1) for number in range(4)) == [1, 2, 3, 4]
    assert time.monotonic() - begun < 5


# -- sessions


def open_sessions() -> int:
    return [one.name for one in threading.enumerate()].count("treadle-session")


def test_session_of_its_own_ends_with_the_parallel_call(home: Path) -> None:
    register_joblib()
    before = open_sessions()
    with Client(home=home) as client:
        known = {run.run for run in client.list()}
        with parallel_config(backend="treadle", home=home, profile="three", name="own"):
            assert Parallel()(delayed(add)(number, 1) for number in range(4)) == [1, 2, 3, 4]
            with pytest.raises(Refusal):
                Parallel()(delayed(refuse)(number) for number in range(4))
        own = {run.run for run in client.list()} - known
        assert len(own) == 2
        eventually(lambda: {client.show(run).state for run in own} == {"succeeded", "cancelled"})
    assert open_sessions() == before


def test_options_of_a_session_are_given_with_it(shared: Session) -> None:
    brief = shared.with_options(timeout=0.2)
    with pytest.raises(TimeoutError, match="timed out"):
        Parallel(backend="treadle", session=brief)(delayed(time.sleep)(60) for _ in range(2))
    with pytest.raises(UsageError, match="a session is given, and executor"):
        Parallel(backend="treadle", session=shared, n_jobs=2, executor="local")(delayed(abs)(one) for one in range(2))


def test_unknown_parameter_is_refused(home: Path) -> None:
    with pytest.raises(TypeError, match="colour"):
        Parallel(backend="treadle", n_jobs=2, home=home, colour=1)(delayed(abs)(number) for number in range(2))


def test_threads_of_a_worker_are_not_set_by_joblib(shared: Session) -> None:
    with pytest.raises(AssertionError, match="inner_max_num_threads"):
        parallel_config(backend="treadle", session=shared, inner_max_num_threads=2)


def test_parallel_calls_of_a_worker_use_its_threads(calls: Session) -> None:
    def inner(level: int) -> list[Any]:
        backend, _ = joblib.parallel.get_active_backend()
        found = Parallel(n_jobs=2)(delayed(inner)(level + 1) for _ in range(2)) if level < 2 else []
        return [type(backend).__name__, os.getpid(), found]

    for name, pid, nested in Parallel()(delayed(inner)(0) for _ in range(2)):
        assert name == "ThreadingBackend"
        assert [(one[0], one[1]) for one in nested] == [("SequentialBackend", pid)] * 2


# -- libraries


def test_grid_search_scores_as_in_one_process(calls: Session) -> None:
    from sklearn.datasets import load_iris  # a second of import, in each process that collects the tests
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV

    x, y = load_iris(return_X_y=True)
    grid = {"C": [0.1, 1.0, 10.0], "fit_intercept": [True, False]}
    search = GridSearchCV(LogisticRegression(max_iter=500), grid, cv=3)  # n_jobs=None: the backend's number
    ours = search.fit(x, y).cv_results_
    with parallel_config(backend="sequential"):
        theirs = search.fit(x, y).cv_results_
    for name in ("mean_test_score", "std_test_score", "rank_test_score", "split0_test_score"):
        np.testing.assert_array_equal(ours[name], theirs[name])


def test_tqdm_counts_results_and_completed_futures(calls: Session) -> None:
    futures = calls.map(add, range(8), range(8))
    assert list(tqdm(futures.results(PATIENCE), total=8, file=io.StringIO())) == list(range(0, 16, 2))
    bar = tqdm(as_completed(futures, PATIENCE), total=len(futures), file=io.StringIO())
    assert sorted(one.result() for one in bar) == list(range(0, 16, 2))
    assert bar.n == 8


def test_import_of_the_client_does_not_import_joblib() -> None:
    code = "import sys, treadle.client; treadle.client.session; print('joblib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_registration_without_joblib_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "joblib", None)
    with pytest.raises(UsageError, match="joblib is not installed") as refused:
        register_joblib()
    assert "treadle-orchestrator[joblib]" in refused.value.hint
