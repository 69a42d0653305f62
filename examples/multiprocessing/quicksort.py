"""Quicksort in many processes: in a shared array, in copies of its parts, or with pipes.

    python quicksort.py [in-place|copies|pipes] [NUMBERS] [DEPTH]

2 ** DEPTH processes sort a part each. The program of the thesis "Lithops multiprocessing" (URV, 2021).
"""

import contextlib
import multiprocessing
import random
import sys


def split(numbers, low, high):
    """Move numbers so that no number before the returned place is above one after it (Hoare, 1961)."""
    pivot = numbers[(low + high - 1) // 2]
    left, right = low, high - 1
    while True:
        while numbers[left] < pivot:
            left += 1
        while numbers[right] > pivot:
            right -= 1
        if left >= right:
            return right + 1
        numbers[left], numbers[right] = numbers[right], numbers[left]
        left += 1
        right -= 1


def sort(numbers, low, high):
    parts = [(low, high)]
    while parts:
        low, high = parts.pop()
        if high - low > 1:
            middle = split(numbers, low, high)
            parts += [(low, middle), (middle, high)]


def in_place(numbers, low, high, depth):
    if depth == 0 or high - low < 2:
        sort(numbers, low, high)
        return
    middle = split(numbers, low, high)
    other = multiprocessing.Process(target=in_place, args=(numbers, low, middle, depth - 1))
    other.start()
    in_place(numbers, middle, high, depth - 1)
    finish(other)


def copies(numbers, low, high, depth):
    part = numbers[low:high]
    if depth == 0 or high - low < 2:
        sort(part, 0, len(part))
        numbers[low:high] = part
        return
    middle = low + split(part, 0, len(part))
    numbers[low:high] = part
    other = multiprocessing.Process(target=copies, args=(numbers, low, middle, depth - 1))
    other.start()
    copies(numbers, middle, high, depth - 1)
    finish(other)


def pipes(end, depth):
    numbers = end.recv()
    if depth == 0 or len(numbers) < 2:
        sort(numbers, 0, len(numbers))
        end.send(numbers)
        return
    middle = split(numbers, 0, len(numbers))
    with contextlib.ExitStack() as ends:  # when one of the processes is lost, the other one must not wait for this one
        others = [started(part, depth - 1, ends) for part in (numbers[:middle], numbers[middle:])]
        end.send([number for other in others for number in received(*other)])


def started(numbers, depth, ends):
    mine, other = multiprocessing.Pipe()
    ends.enter_context(mine)
    process = multiprocessing.Process(target=pipes, args=(other, depth))
    process.start()
    other.close()
    mine.send(numbers)
    return mine, process


def received(mine, process):
    try:
        return mine.recv()
    finally:
        finish(process)


def finish(process):
    process.join()
    if process.exitcode:
        raise RuntimeError(f"{process.name} ended with {process.exitcode}")


def main(variant="in-place", count=20_000, depth=2):
    generator = random.Random(1)
    numbers = [generator.randrange(1 << 30) for _ in range(int(count))]
    if variant == "pipes":
        with contextlib.ExitStack() as ends:
            found = received(*started(numbers, int(depth), ends))
    else:
        shared = multiprocessing.RawArray("i", numbers)
        {"in-place": in_place, "copies": copies}[variant](shared, 0, len(shared), int(depth))
        found = shared[:]
    print(len(found), "numbers,", "sorted" if found == sorted(numbers) else "not sorted")


if __name__ == "__main__":
    main(*sys.argv[1:])
