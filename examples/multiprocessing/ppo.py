"""Proximal policy optimisation (Schulman et al., 2017) of a small network, with environments in processes of their own.

    python ppo.py [ITERATIONS] [ENVIRONMENTS] [STEPS]

Each environment is a process behind a pipe, as in the vectorised environments of OpenAI's baselines.
"""

import multiprocessing
import sys

import numpy as np
from balance import Balance

HIDDEN, EPOCHS, CLIP, DISCOUNT, DECAY, RATE = 32, 8, 0.2, 0.98, 0.95, 0.01


def serve(end, seed):
    """An environment: gets actions, sends states and whether an episode ended."""
    world = Balance(seed)
    end.send(world.state)
    for right in iter(end.recv, None):
        state, ended = world.step(right)
        end.send((world.reset() if ended else state, ended))


class Worlds:
    """Environments that step together."""

    def __init__(self, count):
        self._ends, self._processes = [], []
        for seed in range(count):
            mine, other = multiprocessing.Pipe()
            process = multiprocessing.Process(target=serve, args=(other, seed), daemon=True)
            process.start()
            other.close()
            self._ends.append(mine)
            self._processes.append(process)
        self.states = np.array([end.recv() for end in self._ends])

    def step(self, actions):
        for end, action in zip(self._ends, actions, strict=True):
            end.send(bool(action))
        states, ended = zip(*(end.recv() for end in self._ends), strict=True)
        self.states = np.array(states)
        return np.array(ended)

    def close(self):
        for end in self._ends:
            end.send(None)
        for process in self._processes:
            process.join()


class Network:
    """A hidden layer, the probability of a push to the right, and the value of a state. It learns with Adam."""

    def __init__(self, generator):
        shapes = [(4, HIDDEN), (HIDDEN,), (HIDDEN,), (HIDDEN,)]
        self.weights = [generator.standard_normal(shape) * 0.3 for shape in shapes]
        self._means = [np.zeros(shape) for shape in shapes]
        self._squares = [np.zeros(shape) for shape in shapes]
        self._steps = 0

    def run(self, states):
        """The hidden layer, the probabilities, and the values."""
        inner, offset, policy, value = self.weights
        hidden = np.tanh(states @ inner + offset)
        return hidden, 1 / (1 + np.exp(-hidden @ policy)), hidden @ value

    def learn(self, states, actions, before, advantages, returns):
        hidden, right, values = self.run(states)
        ratio = np.where(actions, right, 1 - right) / before
        clipped = (ratio > 1 + CLIP) & (advantages > 0) | (ratio < 1 - CLIP) & (advantages < 0)
        slope = np.where(clipped, 0, -advantages * ratio) * (actions - right) / len(states)
        error = 0.05 * (values - returns) / len(states)
        back = (np.outer(slope, self.weights[2]) + np.outer(error, self.weights[3])) * (1 - hidden**2)
        self._change([states.T @ back, back.sum(0), hidden.T @ slope, hidden.T @ error])

    def _change(self, gradients):
        self._steps += 1
        for weight, mean, square, gradient in zip(self.weights, self._means, self._squares, gradients, strict=True):
            mean += 0.1 * (gradient - mean)
            square += 0.001 * (gradient**2 - square)
            step = mean / (1 - 0.9**self._steps)
            weight -= RATE * step / (np.sqrt(square / (1 - 0.999**self._steps)) + 1e-8)


def collect(worlds, network, generator, steps):
    """States, actions, their probabilities, values and ends; each has a row for each step."""
    rows = []
    for _ in range(steps):
        states = worlds.states
        _, right, values = network.run(states)
        actions = generator.random(len(right)) < right
        rows.append((states, actions, np.where(actions, right, 1 - right), values, worlds.step(actions)))
    return [np.array(column) for column in zip(*rows, strict=True)]


def advantages_of(values, ended, last):
    """Generalised advantage estimates (Schulman et al., 2016). Each step has the reward 1."""
    found, sums, following = np.zeros_like(values), np.zeros(values.shape[1]), last
    for step in reversed(range(len(values))):
        stays = ~ended[step]
        sums = 1 + DISCOUNT * following * stays - values[step] + DISCOUNT * DECAY * stays * sums
        found[step], following = sums, values[step]
    return found


def main(iterations=20, environments=2, steps=128):
    generator = np.random.default_rng(3)
    network, worlds = Network(generator), Worlds(int(environments))
    for iteration in range(int(iterations)):
        states, actions, before, values, ended = collect(worlds, network, generator, int(steps))
        gains = advantages_of(values, ended, network.run(worlds.states)[2])
        returns, scaled = gains + values, (gains - gains.mean()) / (gains.std() + 1e-8)
        for _ in range(EPOCHS):
            network.learn(states.reshape(-1, 4), actions.ravel(), before.ravel(), scaled.ravel(), returns.ravel())
        print(f"iteration {iteration}: {ended.size / max(1, ended.sum()):.1f} steps for an episode")
    worlds.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
