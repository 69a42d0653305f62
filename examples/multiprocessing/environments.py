"""Search a policy that balances a pole, in environments of Gymnasium, each in a process of its own.

    python environments.py [POLICIES] [ENVIRONMENTS]

Their observations are in shared memory.
"""

import functools
import sys

import gymnasium
import numpy as np


def lengths(worlds, policy):
    """The steps of the first episode of each environment."""
    states, _ = worlds.reset(seed=8)
    running, steps = np.ones(worlds.num_envs, bool), np.zeros(worlds.num_envs, int)
    while running.any():
        states, _, ended, truncated, _ = worlds.step((states @ policy > 0).astype(int))
        steps += running
        running &= ~(ended | truncated)
    return steps


def main(policies=20, environments=2):
    generator = np.random.default_rng(9)
    make = functools.partial(gymnasium.make, "CartPole-v1", max_episode_steps=200)
    worlds = gymnasium.vector.AsyncVectorEnv([make] * int(environments))
    found = [lengths(worlds, policy).mean() for policy in generator.standard_normal((int(policies), 4))]
    worlds.close()
    print(f"policy {np.argmax(found)} is the best: {max(found):.1f} steps for an episode")


if __name__ == "__main__":
    main(*sys.argv[1:])
