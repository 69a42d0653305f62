"""A client that is killed: `python session_client.py HOME ID FOLDER CALLS` maps a function that leaves a mark."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from treadle.client import session


def mark(number: int, folder: str, seconds: float) -> int:
    """Adds a line to a file of its number, and takes a while."""
    with (Path(folder) / str(number)).open("a") as file:
        file.write("begun\n")
    time.sleep(seconds)
    return number * number


def main() -> None:
    home, run, folder, count = sys.argv[1:]
    with session("killed", id=run, home=home) as s:
        numbers = range(int(count))
        futures = s.map(mark, numbers, [folder] * len(numbers), [0.02] * len(numbers), chunk=1)
        total = s.submit(sum, futures)
        sys.stdout.write("called\n")
        sys.stdout.flush()
        total.result()


if __name__ == "__main__":
    main()
