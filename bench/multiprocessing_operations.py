"""Operations of `multiprocessing`, timed: a program that each rival of `multiprocessing_bench.py` runs unmodified.

    python bench/multiprocessing_operations.py OPERATION [SECONDS]

Prints the figures of an operation as JSON. Each figure takes about the given seconds, or the least repetitions.
"""

import json
import multiprocessing
import statistics
import sys
import time

PROCESSES, SLEEP = 8, 0.5
"""Of fork-join: processes, each with a task that sleeps for these seconds."""
ELEMENTS = 1000


def seconds_of(work, *arguments):
    began = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - began


def each(budget, work):
    """Seconds of an item of `work(count)`, after a first one. The count is doubled until half of the budget is used."""
    work(1)
    count = 1
    while (taken := seconds_of(work, count)) < budget / 2:
        count *= 2
    return taken / count


def call(budget, work):
    """Seconds of one call of `work()`, after a first call."""

    def calls(count):
        for _ in range(count):
            work()

    return each(budget, calls)


def middle(budget, once):
    """The median of the seconds that `once()` returns: three times, and until the budget is used."""
    found, ends = [], time.perf_counter() + budget
    while len(found) < 3 or time.perf_counter() < ends:
        found.append(once())
    return statistics.median(found)


def nothing(_): ...


def pass_on(receive, send):
    for item in iter(receive, None):
        send(item)


def round_trip(budget, answer, arguments, send, receive):
    """Microseconds of a character to a process and back. None ends the process."""
    process = multiprocessing.Process(target=answer, args=arguments)
    process.start()

    def both_ways():
        send("x")
        receive()

    found = call(budget, both_ways)
    send(None)
    process.join()
    return found * 1e6


def pipe(budget):
    mine, other = multiprocessing.Pipe()
    found = round_trip(budget, pass_on, (other.recv, other.send), mine.send, mine.recv)
    return {"Pipe, round trip of a character, us": found}


def queue(budget):
    there, back = multiprocessing.Queue(), multiprocessing.Queue()
    found = round_trip(budget, pass_on, (there.get, back.put), there.put, back.get)
    return {"Queue, round trip of a character, us": found}


def drain(end):
    for count in iter(end.recv, None):
        for _ in range(count):
            end.recv()
        end.send(count)


def throughput(budget):
    mine, other = multiprocessing.Pipe()
    process = multiprocessing.Process(target=drain, args=(other,))
    process.start()
    message = bytes(1_000_000)

    def messages(count):
        mine.send(count)
        for _ in range(count):
            mine.send(message)
        mine.recv()

    found = each(budget, messages)
    mine.send(None)
    process.join()
    return {"Pipe, a message of 1 MB, ms": found * 1e3, "Pipe, messages of 1 MB, MB/s": 1 / found}


def lock(budget):
    found = multiprocessing.Lock()

    def both():
        found.acquire()
        found.release()

    return {"Lock, acquire and release, us": call(budget, both) * 1e6}


def manager(budget):
    with multiprocessing.Manager() as found:
        shared, value = found.dict(), bytes(1024)
        put = call(budget, lambda: shared.__setitem__("key", value))
        get = call(budget, lambda: shared["key"])
    return {"Manager().dict(), put of 1 KiB, us": put * 1e6, "Manager().dict(), get of 1 KiB, us": get * 1e6}


def answer(end):
    end.send(1)


def start(budget):
    mine, other = multiprocessing.Pipe()

    def to_answer():
        process = multiprocessing.Process(target=answer, args=(other,))
        found = seconds_of(lambda: (process.start(), mine.recv()))
        process.join()
        return found

    return {"Process, start to first answer, ms": middle(budget, to_answer) * 1e3}


def pool(budget):
    def first_map():
        began = time.perf_counter()
        with multiprocessing.Pool(2) as workers:
            workers.map(nothing, range(8))
            return time.perf_counter() - began

    return {"Pool(2) and its first map of 8, ms": middle(budget, first_map) * 1e3}


def warm_map(budget):
    with multiprocessing.Pool(2) as workers:
        found = call(budget, lambda: workers.map(nothing, range(64)))
    return {"Pool(2), a warm map of 64, ms": found * 1e3}


def by_index(array):
    for index in range(ELEMENTS):
        array[index] += 1


def in_a_view(array):
    import numpy

    with array.get_lock():
        view = numpy.frombuffer(array.get_obj())
        view += 1


def work_on(array, work, budget, barrier, found):
    barrier.wait()
    found.put(call(budget, lambda: work(array)))


def shared_array(budget, work):
    """Microseconds of an element, while two processes read and write all elements."""
    array = multiprocessing.Array("d", ELEMENTS)
    barrier, found = multiprocessing.Barrier(2), multiprocessing.Queue()
    arguments = array, work, budget, barrier, found
    processes = [multiprocessing.Process(target=work_on, args=arguments) for _ in range(2)]
    for process in processes:
        process.start()
    taken = [found.get() for _ in processes]
    for process in processes:
        process.join()
    return statistics.mean(taken) / ELEMENTS * 1e6


def elements(budget):
    return {"Array of 1,000, 2 processes, array[i] += 1, us": shared_array(budget, by_index)}


def view(budget):
    return {"the same with NumPy, an element, us": shared_array(budget, in_a_view)}


def rest(_):
    time.sleep(SLEEP)


def fork_join(budget):
    def once():
        return seconds_of(workers.map, rest, range(PROCESSES)) - SLEEP

    began = time.perf_counter()
    with multiprocessing.Pool(PROCESSES) as workers:
        once()
        first = time.perf_counter() - began - SLEEP
        warm = middle(budget, once)
    began = time.perf_counter()
    with multiprocessing.Pool(PROCESSES) as workers:
        once()
        second = time.perf_counter() - began - SLEEP
    name = f"fork-join of {PROCESSES}, above the sleep, s"
    return {f"{name}: first pool": first, f"{name}: warm pool": warm, f"{name}: second pool": second}


OPERATIONS = {
    "pipe": pipe,
    "throughput": throughput,
    "queue": queue,
    "lock": lock,
    "manager": manager,
    "start": start,
    "pool": pool,
    "map": warm_map,
    "array": elements,
    "view": view,
    "fork-join": fork_join,
}

if __name__ == "__main__":
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    print(json.dumps(OPERATIONS[sys.argv[1]](seconds)))
