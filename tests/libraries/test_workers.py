"""Programs whose processes run at the workers of an executor: of this machine, or emulated functions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from libraries import test_library_programs, test_thesis_programs
from libraries.programs import cluster, output, run
from libraries.test_thesis_programs import NAMES, RUNS, expected
from orchestrator.client.test_sessions_on_functions import Functions, emulated_lambda, emulated_openwhisk

from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home

pytestmark = pytest.mark.timeout(600)
LOCAL = """
[functions]
slots = 4
"""


class Workers(NamedTuple):
    """Where processes run."""

    executor: str
    environ: Mapping[str, str]

    def output(self, folder: Path, program: str) -> list[str]:
        return output(folder, program, self.environ, self.executor)

    def output_of_example(self, run: tuple[str, ...]) -> str:
        ours = "-m", "treadle.multiprocessing", "--executor", self.executor
        return test_thesis_programs.output(run, *ours, **self.environ)


@contextmanager
def local(home: Home, folder: Path) -> Iterator[Functions]:
    yield Functions("local", LOCAL, {}, int)


@pytest.fixture(
    scope="module", params=[local, emulated_lambda, emulated_openwhisk], ids=["local", "lambda", "openwhisk"]
)
def workers(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Workers]:
    home = Home(tmp_path_factory.mktemp("home"))
    with TemporaryDirectory() as folder, request.param(home, Path(folder)) as found:  # short: names of sockets are, too
        home.profiles.write_text(found.profile)
        try:
            yield Workers(found.executor, {**cluster(home, "functions"), **found.environment})
        finally:
            embedded.down(home)


def test_processes_share_locks_and_queues(workers: Workers, tmp_path: Path) -> None:
    (tmp_path / "numbers_of_project.py").write_text("def doubled(number):\n    return 2 * number\n")
    program = """
        import multiprocessing, os, sys
        from numbers_of_project import doubled

        def work(number, lock, found, data):
            with lock:
                found.put((doubled(number), len(data), os.getpid() == parent))
            sys.exit(number)

        parent = os.getpid()
        lock, found = multiprocessing.Lock(), multiprocessing.Queue()
        processes = [multiprocessing.Process(target=work, args=(n, lock, found, bytes(n * 100_000))) for n in range(3)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        print([process.exitcode for process in processes], sorted(found.get() for _ in processes))
    """
    expected = "[0, 1, 2] [(0, 0, False), (2, 100000, False), (4, 200000, False)]"
    assert workers.output(tmp_path, program) == [expected]


def test_pool_has_a_worker_for_each_slot(workers: Workers, tmp_path: Path) -> None:
    program = """
        import multiprocessing

        def reciprocal(number):
            return 1 / number

        with multiprocessing.Pool() as pool:
            print(pool._processes, pool.map(reciprocal, [1, 2, 4]), sum(map(len, pool.imap(bytes, [100_000] * 3))))
            try:
                pool.apply(reciprocal, [0])
            except ZeroDivisionError as error:
                print("in reciprocal" in str(error.__cause__))
    """
    first, second = workers.output(tmp_path, program)
    slots, _, others = first.partition(" ")
    assert int(slots) == (4 if workers.executor == "local" else 2)
    assert (others, second) == ("[1.0, 0.5, 0.25] 300000", "True")


def test_process_dies_of_a_signal_and_of_its_own(workers: Workers, tmp_path: Path) -> None:
    program = """
        import multiprocessing, os, signal, time

        def hold(lock, held):
            lock.acquire()
            held.set()
            time.sleep(600)

        lock, held = multiprocessing.Lock(), multiprocessing.Event()
        process = multiprocessing.Process(target=hold, args=(lock, held))
        process.start()
        held.wait()
        process.terminate()
        process.join()
        print(process.exitcode, process.is_alive(), multiprocessing.active_children())
        process = multiprocessing.Process(target=os.abort)
        process.start()
        process.join()
        print(process.exitcode)
    """
    assert workers.output(tmp_path, program) == ["-15 False []", "-6"]


def test_later_processes_of_a_worker_have_a_folder(workers: Workers, tmp_path: Path) -> None:
    program = """
        import multiprocessing, pathlib

        def write():
            pathlib.Path("notes").write_text("")

        for _ in range(3):
            process = multiprocessing.Process(target=write)
            process.start()
            process.join()
            print(process.exitcode)
    """
    assert workers.output(tmp_path, program) == ["0", "0", "0"]


def test_process_that_a_worker_starts_runs_beside_it(workers: Workers, tmp_path: Path) -> None:
    program = """
        import multiprocessing, os

        def inner(found):
            found.put(os.getppid() != os.getpid())

        def outer(found):
            process = multiprocessing.Process(target=inner, args=(found,))
            process.start()
            process.join()
            found.put(process.exitcode)

        found = multiprocessing.SimpleQueue()
        process = multiprocessing.Process(target=outer, args=(found,))
        process.start()
        print(found.get(), found.get())
        process.join()
    """
    assert workers.output(tmp_path, program) == ["True 0"]


def test_pipes_end_and_values_are_shared(workers: Workers, tmp_path: Path) -> None:
    program = """
        import multiprocessing
        from multiprocessing import connection

        def work(end, hits, cells, name):
            for message in iter(end.recv, None):
                with hits.get_lock():
                    hits.value += 1
                end.send_bytes(message * 2)
            cells[1:3] = [7.5, 8]
            name.value = b"worker"

        mine, other = multiprocessing.Pipe()
        hits, cells = multiprocessing.Value("i", 40), multiprocessing.RawArray("d", 4)
        name = multiprocessing.Array("c", 10)
        process = multiprocessing.Process(target=work, args=(other, hits, cells, name))
        process.start()
        other.close()
        for message in (b"a", b"b" * 100_000):
            mine.send(message)
            print(connection.wait([mine], 60) == [mine], len(mine.recv_bytes()))
        mine.send(None)
        try:
            mine.recv()
        except EOFError:
            print("end", hits.value, cells[:], name.value)
        try:
            mine.send(1)
        except BrokenPipeError:
            print("broken")
        process.join()
    """
    assert workers.output(tmp_path, program) == [
        "True 2",
        "True 200000",
        "end 42 [0.0, 7.5, 8.0, 0.0] b'worker'",
        "broken",
    ]


def test_memory_of_this_machine_is_refused(workers: Workers, tmp_path: Path) -> None:
    if workers.executor != "local":
        pytest.skip("the program's side is the same for all executors")
    program = """
        import multiprocessing
        from multiprocessing import heap

        multiprocessing.Process(target=print, args=(heap.BufferWrapper(8),)).start()
    """
    done = run(tmp_path, program, environ=workers.environ, executor=workers.executor)
    assert done.returncode == 1
    assert "memory" in done.stderr.splitlines()[-2]


def test_executor_that_needs_ids_of_processes_is_refused(workers: Workers, tmp_path: Path) -> None:
    program = """
        from concurrent.futures import ProcessPoolExecutor

        with ProcessPoolExecutor(1, max_tasks_per_child=2) as executor:
            executor.submit(abs, -1)
    """
    done = run(tmp_path, program, environ=workers.environ, executor=workers.executor)
    assert done.returncode == 1
    assert "max_tasks_per_child" in done.stderr.splitlines()[-2]


def test_killed_worker_is_an_exit_code(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    program = """
        import multiprocessing, os, signal, time

        def die(begun):
            begun.append(1)
            os.killpg(0, signal.SIGKILL)  # with the fork server and the worker

        begun = []
        process = multiprocessing.Process(target=die, args=(begun,))
        process.start()
        process.join()
        print(process.exitcode)
    """
    home = tmp_path_factory.mktemp("home")
    try:
        assert output(tmp_path, program, {**os.environ, "TREADLE_HOME": str(home)}, "local")[-1:] == ["-9"]
    finally:
        embedded.down(Home(home))


def test_views_and_parts_of_memory_are_shared(workers: Workers, tmp_path: Path) -> None:
    program = """
        import ctypes, multiprocessing
        import numpy as np

        class Point(ctypes.Structure):
            _fields_ = [("x", ctypes.c_double), ("hits", ctypes.c_int)]

        def work(number, point, cells, large, barrier):
            view = np.frombuffer(large, np.int32).reshape(2, -1)
            for _ in range(5):
                with point.get_lock():
                    point.x += 0.5
                    point.hits += 1
                cells[number] += 1
                view[number] += number + 1
                barrier.wait()
                assert view[0, 0] == cells[0] and view[1, -1] == 2 * cells[1], (view, cells[:])
                barrier.wait()

        if __name__ == "__main__":
            point, cells = multiprocessing.Value(Point, 1.0, 0), multiprocessing.RawArray("B", 2)
            large = multiprocessing.RawArray("i", 5_000_000)
            barrier = multiprocessing.Barrier(2)
            processes = [
                multiprocessing.Process(target=work, args=(number, point, cells, large, barrier)) for number in range(2)
            ]
            for process in processes:
                process.start()
            for process in processes:
                process.join()
            print([process.exitcode for process in processes], point.x, point.hits, cells[:])
            print(np.frombuffer(large, np.int32)[[0, 2_499_999, 2_500_000, -1]].tolist(), sum(large[::100_000]))
    """
    assert workers.output(tmp_path, program) == ["[0, 0] 6.0 10 [5, 5]", "[5, 5, 10, 10] 375"]


def test_process_that_only_looks_sees_a_change(workers: Workers, tmp_path: Path) -> None:
    program = """
        import multiprocessing, time

        def work(asked, answered):
            while not asked.value:
                time.sleep(0.01)
            answered.value = 2
            time.sleep(3600)

        if __name__ == "__main__":
            asked, answered = multiprocessing.RawValue("i"), multiprocessing.RawValue("i")
            process = multiprocessing.Process(target=work, args=(asked, answered))
            process.start()
            asked.value = 1
            while not answered.value:
                time.sleep(0.01)
            process.kill()
            process.join()
            print(process.exitcode, answered.value)
    """
    assert workers.output(tmp_path, program) == ["-9 2"]


@pytest.mark.parametrize("run", RUNS, ids=NAMES)
def test_program_prints_the_same_as_on_the_standard_library(workers: Workers, run: tuple[str, ...]) -> None:
    if workers.executor == "openwhisk" and run[0] == "grid_search.py":
        pytest.skip("the package of the functions has no scikit-learn")
    assert workers.output_of_example(run) == expected(run)


@pytest.mark.parametrize("workers", [local, emulated_lambda], ids=["local", "lambda"], indirect=True)
@pytest.mark.parametrize("run", test_library_programs.RUNS, ids=test_library_programs.NAMES)
def test_library_program_prints_the_same(workers: Workers, run: tuple[str, ...]) -> None:
    if workers.executor == "lambda" and run[0] == "sentiment.py":
        pytest.skip("pandarallel writes to /dev/shm, which functions do not share")
    assert workers.output_of_example(run) == expected(run)
