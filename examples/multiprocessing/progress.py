"""Count primes in a process pool of tqdm, which shows its progress in a terminal.

python progress.py [NUMBERS] [TASKS] [PROCESSES]
"""

import sys

from tqdm.contrib.concurrent import process_map


def primes(low, high):
    """How many primes there are from `low` to `high`."""
    return sum(all(number % factor for factor in range(2, int(number**0.5) + 1)) for number in range(max(low, 2), high))


def main(numbers=200_000, tasks=32, processes=2):
    bounds = [int(numbers) * task // int(tasks) for task in range(int(tasks) + 1)]
    counts = process_map(primes, bounds, bounds[1:], max_workers=int(processes), disable=None)
    print(f"{sum(counts)} primes below {numbers}")


if __name__ == "__main__":
    main(*sys.argv[1:])
