"""Programs of `multiprocessing`: the definitions and values of their processes, and the modules that they import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from libraries.programs import output, run


def test_functions_of_the_program_share_the_globals_of_their_process(tmp_path: Path) -> None:
    program = """
        import multiprocessing

        lock, offset, table = multiprocessing.Lock(), 100, None

        def fill(values):
            global table
            table = values

        def look_up(number):
            with lock:
                return table[number] + offset

        with multiprocessing.Pool(2, fill, ({1: 10, 2: 20},)) as pool:
            print(pool.map(look_up, [1, 2, 1]), table)
        offset = 1000
        with multiprocessing.Pool(1, fill, ({1: 11},)) as pool:
            print(pool.map(look_up, [1]))
    """
    assert output(tmp_path, program) == ["[110, 120, 110] None", "[1011]"]


def test_functions_of_the_program_that_call_each_other_find_each_other(tmp_path: Path) -> None:
    program = """
        import multiprocessing

        def even(number, found):
            found.put(number)
            if number:
                start(odd, number - 1, found)

        def odd(number, found):
            start(even, number - 1, found)

        def start(target, number, found):
            process = multiprocessing.Process(target=target, args=(number, found))
            process.start()
            process.join()

        found = multiprocessing.SimpleQueue()
        start(even, 4, found)
        print([found.get() for _ in range(3)])
    """
    assert output(tmp_path, program) == ["[4, 2, 0]"]


def test_definitions_of_the_program_are_the_same_on_the_way_back(tmp_path: Path) -> None:
    program = """
        from multiprocessing import Manager, Pipe, Pool, Process

        class Point:
            def __init__(self, x):
                self.x = x

            def moved(self, by):
                return Point(self.x + by)

        def send(end, found):
            end.send((Point(1), send, lambda x: x + 1))
            found["point"] = Point(2)

        mine, other = Pipe()
        with Manager() as manager:
            found = manager.dict()
            process = Process(target=send, args=(other, found))
            process.start()
            point, function, successor = mine.recv()
            process.join()
            print(type(point) is Point, function is send, successor(1), type(found["point"]) is Point)
        with Pool(1) as pool:
            print([point.x for point in pool.map(Point(5).moved, range(3))])
    """
    assert output(tmp_path, program) == ["True True 2 True", "[5, 6, 7]"]


def test_large_values_pass_through_queues_and_pools(tmp_path: Path) -> None:
    program = """
        import multiprocessing, os
        import numpy as np

        weights = np.arange(2_000_000)

        def total(values):
            return (values + weights).sum()

        def echo(one, two):
            two.put(one.get())

        one, two = multiprocessing.Queue(), multiprocessing.SimpleQueue()
        process = multiprocessing.Process(target=echo, args=(one, two))
        process.start()
        one.put(weights)
        print((two.get() == weights).all())
        process.join()
        with multiprocessing.Pool(2) as pool:
            print(set(pool.map(total, [weights] * 4)) == {2 * weights.sum()})
    """
    assert output(tmp_path, program) == ["True", "True"]


def test_large_and_small_items_of_a_queue_keep_their_order(tmp_path: Path) -> None:
    program = """
        import multiprocessing

        queue = multiprocessing.Queue()
        sizes = [1, 100_000, 2, *200 * [40_000], 3, 8_000_000, *range(200), 4]
        for size in sizes:
            queue.put(bytes(size))
        print([len(queue.get()) for _ in sizes] == sizes)
    """
    assert output(tmp_path, program) == ["True"]


def test_executors_of_the_standard_library_use_these_processes(tmp_path: Path) -> None:
    program = """
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing.pool import Pool, ThreadPool
        from multiprocessing.queues import SimpleQueue
        import multiprocessing

        def square(number):
            return number**2

        with ProcessPoolExecutor(2) as executor:
            print(list(executor.map(square, range(50)))[-1])
        with Pool(1) as pool, ThreadPool(1) as threads:
            print(pool.apply(square, (3,)), threads.apply(square, (4,)))
        print(Pool.__module__, type(multiprocessing.SimpleQueue()) is SimpleQueue)
    """
    assert output(tmp_path, program) == ["2401", "9 16", "treadle.multiprocessing.pool True"]


def test_processes_begin_with_the_libraries_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed" / "locking_library.py").write_text(
        "import multiprocessing\nlock = multiprocessing.Lock()\n"
    )
    program = """
        import multiprocessing, sys
        import locking_library, numpy, sqlite3

        def look(found):
            with locking_library.lock:
                found.put(("sqlite3" in sys.modules, numpy.random.random()))

        found = multiprocessing.SimpleQueue()
        for _ in range(2):
            process = multiprocessing.Process(target=look, args=(found,))
            process.start()
            process.join()
        (first, one), (second, other) = found.get(), found.get()
        print(first, second, one == other)
    """
    environ = {"PYTHONPATH": str(tmp_path / "installed")}
    assert output(tmp_path, program, environ) == ["True True False"]


def test_queue_takes_all_items_before_any_is_read(tmp_path: Path) -> None:
    program = """
        import multiprocessing
        from queue import Empty

        def fill(queue, first):
            for number in range(first, first + 3000):
                queue.put(number)

        queue, other = multiprocessing.Queue(), multiprocessing.Queue()
        fill(queue, 0)
        process = multiprocessing.Process(target=fill, args=(queue, 3000))
        process.start()
        found = [queue.get() for _ in range(6000)]
        process.join()
        own, others = [n for n in found if n < 3000], [n for n in found if n >= 3000]
        print(own == list(range(3000)), others == list(range(3000, 6000)))
        queue.put(1)
        print(queue.qsize(), queue.get(timeout=5), queue.qsize(), queue.empty())
        try:
            queue.get(timeout=0.1)
        except Empty:
            mine, theirs = multiprocessing.Pipe()
            mine.send(other)  # a queue in a message
            theirs.recv().put(7)
            print("empty", other.get(), other.qsize())
    """
    assert output(tmp_path, program) == ["True True", "1 1 0 True", "empty 7 0"]


def test_wait_finds_items_of_a_process_that_has_ended(tmp_path: Path) -> None:
    program = """
        import multiprocessing
        from multiprocessing.connection import wait

        queue = multiprocessing.SimpleQueue()
        process = multiprocessing.Process(target=queue.put, args=(1,))
        process.start()
        process.join()
        wait([process.sentinel])
        ready = wait([queue._reader, process.sentinel])
        print(queue._reader in ready, process.sentinel in ready, queue.get(), wait([queue._reader], 0.2))
    """
    assert output(tmp_path, program) == ["True True 1 []"]


def test_threads_of_executors_end_with_them(tmp_path: Path) -> None:
    program = """
        import threading, time
        from concurrent.futures import ProcessPoolExecutor

        for _ in range(3):
            with ProcessPoolExecutor(1) as executor:
                executor.submit(abs, -1).result()
        del executor
        names = lambda: [thread.name for thread in threading.enumerate()]
        while "treadle-object-watch" in names():
            time.sleep(0.1)
        print(names())
    """
    threads = "['MainThread', 'treadle-keepers', 'treadle-object-sessions']"
    assert output(tmp_path, program) == [threads]


def test_program_gets_its_arguments_and_processes_get_the_environment(tmp_path: Path) -> None:
    program = """
        import multiprocessing, os, sys

        def show(queue):
            queue.put((os.environ.get("COLOUR"), sys.argv, multiprocessing.parent_process().pid, os.getcwd()))

        queue = multiprocessing.SimpleQueue()
        for colour in ("red", "blue"):
            os.environ["COLOUR"] = colour
            process = multiprocessing.Process(target=show, args=(queue,))
            process.start()
            found = queue.get()
            process.join()
            print(found[0], found[1:] == (sys.argv, os.getpid(), os.getcwd()))
        print(sys.argv, __name__, __file__)
        sys.exit(7)
    """
    done = run(tmp_path, program, "one", "--two")
    assert done.stdout.splitlines() == [
        "red True",
        "blue True",
        "['program.py', 'one', '--two'] __main__ program.py",
    ]
    assert (done.returncode, done.stderr) == (7, "")


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    program = "python -m treadle.multiprocessing [--executor NAME] PROGRAM [ARGUMENT...]"
    usage, lost = f"usage: {program}", "cannot read the program lost.py"
    for arguments, message in (([], usage), (["--executor"], usage), (["lost.py"], lost)):
        command = [sys.executable, "-m", "treadle.multiprocessing", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert message in done.stderr


def test_processes_of_processes_come_from_one_server_and_from_another_when_it_dies(tmp_path: Path) -> None:
    program = """
        import multiprocessing, os, signal

        def nest(depth, end):
            end.send(os.getppid())
            if depth:
                process = multiprocessing.Process(target=nest, args=(depth - 1, end))
                process.start()
                process.join()

        def kill(end):
            os.kill(os.getppid(), signal.SIGKILL)
            while os.getppid() == server:
                pass
            nest(1, end)

        mine, other = multiprocessing.Pipe(False)
        process = multiprocessing.Process(target=nest, args=(2, other))
        process.start()
        process.join()
        servers = [mine.recv() for _ in range(3)]
        server = servers[0]
        process = multiprocessing.Process(target=kill, args=(other,))
        process.start()
        print(len(set(servers)), server in [mine.recv() for _ in range(2)])
    """
    done = run(tmp_path, program)  # it does not wait for a process whose server died, which may then print errors
    assert done.stdout == "1 False\n", done.stderr


def test_items_that_wait_when_the_program_ends_arrive(tmp_path: Path) -> None:
    program = """
        import multiprocessing, time

        def read(queue):
            time.sleep(2)
            print(sum(len(queue.get()) for _ in range(100)))

        queue = multiprocessing.Queue()
        multiprocessing.Process(target=read, args=(queue,)).start()
        for _ in range(100):
            queue.put(bytes(60_000))
        time.sleep(1)  # the keeper has as many items as it takes, and the next one waits
    """
    assert output(tmp_path, program) == ["6000000"]
