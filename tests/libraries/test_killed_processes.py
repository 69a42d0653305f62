"""A killed process leaves an error, or nothing, and never a process that waits for ever."""

from __future__ import annotations

from pathlib import Path

from libraries.programs import output

HOLD = """
        import multiprocessing, os, signal, sys, time
        from treadle.multiprocessing import HolderLost, WorkerLost

        def hold(lock, held):
            lock.acquire()
            held.set()
            time.sleep(600)

        def killed(target, *arguments):
            begun = multiprocessing.Event()
            process = multiprocessing.Process(target=target, args=(*arguments, begun))
            process.start()
            begun.wait()
            return process
"""


def test_lock_of_a_killed_process_raises_once_and_is_free(tmp_path: Path) -> None:
    program = """
        for kind in ("Lock", "RLock", "BoundedSemaphore", "Semaphore"):
            lock = getattr(multiprocessing, kind)()
            holder = killed(hold, lock)
            holder.kill()
            holder.join()
            try:
                print(kind, holder.exitcode, lock.acquire(timeout=2 if kind == "Semaphore" else 60))
            except HolderLost:
                print(kind, "HolderLost", lock.acquire(timeout=60), lock.release())
    """
    assert output(tmp_path, HOLD + program) == [
        "Lock HolderLost True None",
        "RLock HolderLost True None",
        "BoundedSemaphore HolderLost True None",
        "Semaphore -9 False",
    ]


def test_pipe_ends_whose_process_dies_before_it_has_it(tmp_path: Path) -> None:
    program = """
        class Deadly:
            def __reduce__(self):
                return os._exit, (3,)

        mine, other = multiprocessing.Pipe()
        process = multiprocessing.Process(target=print, args=(Deadly(), other))
        process.start()
        other.close()
        try:
            mine.recv()
        except EOFError:
            process.join()
            print("end", process.exitcode)
    """
    assert output(tmp_path, HOLD + program) == ["end 3"]


def test_lock_may_be_released_by_another_process_after_its_holder_ended(tmp_path: Path) -> None:
    program = """
        lock = multiprocessing.Lock()
        process = multiprocessing.Process(target=lock.acquire)
        process.start()
        process.join()
        time.sleep(1)
        print(lock.release(), lock.acquire())
    """
    assert output(tmp_path, HOLD + program) == ["None True"]


def test_lock_of_a_manager_raises_when_its_holder_is_killed(tmp_path: Path) -> None:
    program = """
        with multiprocessing.Manager() as manager:
            lock = manager.Lock()
            holder = killed(hold, lock)
            holder.kill()
            try:
                lock.acquire()
            except HolderLost:
                print("lost")
    """
    assert output(tmp_path, HOLD + program) == ["lost"]


def test_task_of_a_killed_worker_fails_or_runs_again(tmp_path: Path) -> None:
    program = """
        def work(number, first):
            if number == 3 and first.acquire(False):
                os.kill(os.getpid(), signal.SIGKILL)
            return number

        for retries in (0, 1):
            first = multiprocessing.Semaphore(1)
            with multiprocessing.Pool(2, treadle_retries=retries) as pool:
                results = [pool.apply_async(work, (number, first)) for number in range(8)]
                for result in results:
                    try:
                        print(result.get(60), end=" ")
                    except WorkerLost:
                        print("lost", end=" ")
                print(pool.apply(work, (9, first)))
    """
    assert output(tmp_path, HOLD + program) == ["0 1 2 lost 4 5 6 7 9", "0 1 2 3 4 5 6 7 9"]


def test_queue_goes_on_when_a_reader_is_killed(tmp_path: Path) -> None:
    program = """
        def read(queue, begun):
            begun.set()
            queue.get()

        queue = multiprocessing.JoinableQueue(2)
        waiting = killed(read, queue)
        time.sleep(1)
        waiting.kill()
        waiting.join()
        queue.put("kept")
        print(queue.get(timeout=60), queue.task_done(), queue.join())

        def take(queue, begun):
            queue.get()
            begun.set()
            time.sleep(600)

        queue.put("taken")
        taker = killed(take, queue)
        taker.kill()
        try:
            queue.join()
        except HolderLost:
            print("lost")
        queue.put(1), queue.put(2)
        print(queue.full(), queue.get(), queue.get())
    """
    assert output(tmp_path, HOLD + program) == ["kept None None", "lost", "True 1 2"]


def test_items_of_killed_processes_stay_and_killed_readers_take_no_later_ones(tmp_path: Path) -> None:
    program = """
        def put(queue, count, begun):
            for number in range(count):
                queue.put(number)
            begun.set()
            time.sleep(600)

        def read(queue, begun):
            begun.set()
            queue.get()

        for kind, count in ("Queue", 200), ("SimpleQueue", 200), ("JoinableQueue", 5000):
            queue = getattr(multiprocessing, kind)()
            for process in killed(read, queue), killed(read, queue):
                time.sleep(0.2)
                process.kill()
                process.join()
            writer = killed(put, queue, count)
            writer.kill()
            writer.join()
            print(kind, [queue.get() for _ in range(count)] == list(range(count)), queue.empty())
    """
    assert output(tmp_path, HOLD + program) == ["Queue True True", "SimpleQueue True True", "JoinableQueue True True"]


def test_killed_waiter_does_not_block_notify_and_breaks_a_barrier(tmp_path: Path) -> None:
    program = """
        from threading import BrokenBarrierError

        def wait(condition, begun):
            with condition:
                begun.set()
                condition.wait()

        condition = multiprocessing.Condition()
        waiter = killed(wait, condition)
        with condition:
            waiter.kill()
            waiter.join()
            condition.notify_all()
        print("notified", condition.acquire())

        def arrive(barrier, begun):
            begun.set()
            barrier.wait()

        barrier = multiprocessing.Barrier(2)
        party = killed(arrive, barrier)
        while not barrier.n_waiting:
            time.sleep(0.01)
        party.kill()
        while not barrier.broken:
            time.sleep(0.01)
        try:
            barrier.wait(60)
        except BrokenBarrierError:
            print("broken", barrier.broken)
    """
    assert output(tmp_path, HOLD + program) == ["notified True", "broken True"]


def test_calls_and_results_raise_when_the_keeper_is_killed(tmp_path: Path) -> None:
    program = """
        from treadle.primitives.objects import ObjectLost

        def wait(lock, end):
            end.send("begun")
            try:
                lock.acquire()
            except ObjectLost:
                end.send("lost")

        lock, (mine, other) = multiprocessing.Lock(), multiprocessing.Pipe()
        lock.acquire()
        process = multiprocessing.Process(target=wait, args=(lock, other))
        process.start()
        mine.recv()
        pool = multiprocessing.Pool(2)
        results = [pool.apply_async(time.sleep, (600,)), pool.map_async(time.sleep, [600] * 9)]
        lazy = pool.imap(time.sleep, [600] * 9)
        for child in open("/proc/thread-self/children").read().split():
            if "keeper_process" in open(f"/proc/{child}/cmdline").read():
                os.kill(int(child), signal.SIGKILL)
        for wait in (lock.release, mine.recv, results[0].get, results[1].get, lazy.next):
            try:
                print(wait(), end=" ")
            except ObjectLost:
                print("lost", end=" ")
        process.join()
        pool.terminate()
        pool.join()
        print(process.exitcode)
    """
    assert output(tmp_path, HOLD + program) == ["lost lost lost lost lost 0"]
