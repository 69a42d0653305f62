"""Evolution strategies: a pool tries random changes of a policy, which balances a pole (Salimans et al., 2017).

    python evolution.py [ITERATIONS] [PAIRS] [PROCESSES]

The noise is one shared array, of which each task gets an index only.
"""

import multiprocessing
import sys

import numpy as np
from balance import Balance

SIZE, NOISE = 4, 100_000
SIGMA, RATE = 0.2, 0.3
noise = None


def use(table):
    global noise
    noise = np.frombuffer(table)


def reward(policy, seed):
    world = Balance(seed)
    while not world.ended:
        world.step(world.state @ policy > 0)
    return world.steps


def pair(task):
    """The rewards of a change, and of its opposite."""
    policy, start, seed = task
    change = SIGMA * noise[start : start + SIZE]
    return reward(policy + change, seed), reward(policy - change, seed)


def main(iterations=8, pairs=32, processes=2):
    generator = np.random.default_rng(2)
    table = multiprocessing.RawArray("d", generator.standard_normal(NOISE))
    use(table)
    policy = np.zeros(SIZE)
    with multiprocessing.Pool(int(processes), use, (table,)) as pool:
        for iteration in range(int(iterations)):
            starts = generator.integers(NOISE - SIZE, size=int(pairs))
            jobs = [pool.apply_async(pair, ((policy, start, iteration),)) for start in starts]
            rewards = np.array([job.get() for job in jobs], float)
            advantages = (rewards[:, 0] - rewards[:, 1]) / (rewards.std() + 1e-9)
            changes = np.array([noise[start : start + SIZE] for start in starts])
            policy = policy + RATE * advantages @ changes / len(starts)
            print(f"iteration {iteration}: mean reward {rewards.mean():.1f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
