"""k-means: `python objects/kmeans.py`. Workers keep their points, and meet at a shared object in every round.

The object has the sums of each worker of this round by the worker's number. So a worker that died and runs again goes
on with the round of the others, and the result is the same.
"""

import numpy as np

from treadle.client import session
from treadle.primitives.objects import read, shared, then, when

CENTERS = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
ROUNDS = 10


@shared
class Centroids:
    def __init__(self, centers, workers):
        self.centers, self.workers = centers, workers
        self.turn, self.sums = 0, {}

    @read
    def get(self):
        return self.turn, self.centers

    def add(self, turn, worker, sums):
        """Returns the next turn and its centers, once all workers have added their sums."""
        if turn == self.turn:
            self.sums[worker] = sums
        if len(self.sums) == self.workers:
            total = sum(self.sums[one] for one in range(self.workers))
            self.turn, self.centers, self.sums = self.turn + 1, total[:, :2] / total[:, 2:], {}
        return then("after", turn)

    @when(lambda self, turn: self.turn > turn)
    def after(self, _turn):
        return self.get()


def points(worker, count=10_000):
    random = np.random.default_rng(worker)
    return CENTERS[random.integers(0, 3, count)] + random.normal(0, 1, (count, 2))


def sums_of(mine, centers):
    """For each center the sums of the coordinates of its points, and their number."""
    nearest = np.argmin(((mine[:, None] - centers) ** 2).sum(axis=2), axis=1)
    counted = np.column_stack([mine, np.ones(len(mine))])
    return np.array([counted[nearest == center].sum(axis=0) for center in range(len(centers))])


def work(worker, model):
    mine = points(worker)
    turn, centers = model.get()
    while turn < ROUNDS:
        turn, centers = model.add(turn, worker, sums_of(mine, centers))
    return centers


def main():
    with session("kmeans") as s:
        workers = s.slots  # they wait for each other, so all must run at the same time
        model = s.keepers().object("model", Centroids, points(0)[:3], workers)
        for center in sorted(s.starmap(work, [(worker, model) for worker in range(workers)])[0].result().tolist()):
            print(f"{center[0]:6.2f} {center[1]:6.2f}")


if __name__ == "__main__":
    main()
