"""Estimate pi with a pool of processes.

python monte_carlo.py [POINTS] [TASKS] [PROCESSES]
"""

import multiprocessing
import random
import sys


def hits(task):
    seed, points = task
    generator = random.Random(seed)
    return sum(generator.random() ** 2 + generator.random() ** 2 <= 1 for _ in range(points))


def main(points=200_000, tasks=16, processes=2):
    points, tasks = int(points), int(tasks)
    with multiprocessing.Pool(int(processes)) as pool:
        inside = sum(pool.imap_unordered(hits, [(seed, points // tasks) for seed in range(tasks)]))
    print(f"pi is about {4 * inside / (points // tasks * tasks):.6f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
