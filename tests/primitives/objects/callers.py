"""Processes that call shared objects: `python callers.py ROLE < pickled handle`."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
import time

from treadle.primitives.objects import Keepers


def main() -> None:
    role, handle = sys.argv[1], pickle.load(sys.stdin.buffer)
    if role == "count":
        for _ in range(200):
            handle.increment()
    elif role == "hold":
        handle.acquire()
        sys.stdout.write("held\n")
        sys.stdout.flush()
        time.sleep(600)
    elif role == "take":
        sys.stdout.write(f"{handle.size()}\n")
        sys.stdout.flush()
        handle.get()
    elif role == "fork":
        handle.increment()
        child = multiprocessing.get_context("fork").Process(target=handle.increment)
        child.start()
        child.join()
        handle.increment()
    elif role == "start":
        with Keepers(handle) as keepers:
            if not os.fork():
                time.sleep(600)  # holds all descriptors
            sys.stdout.write(f"{list(keepers.processes.values())}\n")
            sys.stdout.flush()
            time.sleep(600)
    elif role == "push":
        for _ in range(200):
            handle.push(slice(None), 1)
        handle.flush()
    elif role == "meet":
        for _ in range(20):
            handle.wait()


if __name__ == "__main__":
    main()
