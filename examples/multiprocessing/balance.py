"""The pole on a cart of Barto, Sutton and Anderson (1983): each step pushes the cart to one side."""

import math

import numpy as np

GRAVITY, CART, POLE, HALF_LENGTH, FORCE, SECONDS = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
STEPS = 200


class Balance:
    """One episode. `state`: place, speed, angle and angular speed."""

    def __init__(self, seed):
        self._generator = np.random.default_rng(seed)
        self.reset()

    def reset(self):
        self.state = self._generator.uniform(-0.05, 0.05, 4)
        self.steps = 0
        self.ended = False
        return self.state

    def step(self, right):
        """Push; returns the new state and whether the episode has ended."""
        _, speed, angle, turn = self.state
        mass = CART + POLE
        push = (FORCE if right else -FORCE) + POLE * HALF_LENGTH * turn**2 * math.sin(angle)
        lift = HALF_LENGTH * (4 / 3 - POLE * math.cos(angle) ** 2 / mass)
        faster = (GRAVITY * math.sin(angle) - math.cos(angle) * push / mass) / lift
        ahead = (push - POLE * HALF_LENGTH * faster * math.cos(angle)) / mass
        change = np.array([speed, ahead, turn, faster])
        self.state = self.state + SECONDS * change
        self.steps += 1
        self.ended = abs(self.state[0]) > 2.4 or abs(self.state[2]) > math.radians(12) or self.steps == STEPS
        return self.state, self.ended
