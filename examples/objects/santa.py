"""The Santa Claus problem (Trono, 1994): `python objects/santa.py`. 20 threads meet at shared objects.

Santa sleeps until nine reindeer or a group of three elves wake him; reindeer come first. The groups, their gates, and
the queue of groups at which Santa sleeps are objects, so the threads could be processes.
"""

import random
import sys
import tempfile
import threading
import time

from treadle.primitives.objects import Keepers, ObjectMissing, PriorityQueue, shared, then, when


@shared
class Group:
    """Gathers members until it is full, and again after it was disbanded."""

    def __init__(self, size):
        self.size, self.members, self.is_open = size, 0, True

    @when(lambda self: self.is_open)
    def join(self):
        """Returns whether the group is full now."""
        self.members += 1
        self.is_open = self.members < self.size
        return not self.is_open

    def disband(self):
        self.members, self.is_open = 0, True


@shared
class Gate:
    """Lets a number of threads pass each time it is operated."""

    def __init__(self, size):
        self.size, self.left = size, 0

    @when(lambda self: self.left > 0)
    def go_through(self):
        self.left -= 1

    def operate(self):
        """Returns when all have passed."""
        self.left = self.size
        return then("end")

    @when(lambda self: self.left == 0)
    def end(self):
        return None


class Team:
    """A group with its gates, and what its members do in turn."""

    def __init__(self, keepers, name, size, rank):
        self.name, self.rank = name, rank
        self.group = keepers.object(f"{name} group", Group, size)
        self.before, self.after = (keepers.object(f"{name} gate {n}", Gate, size) for n in range(2))

    def member(self, waiting, pause):
        while True:
            try:
                time.sleep(random.uniform(0, pause))
                if self.group.join():
                    waiting.put(self.name, self.rank)
                self.before.go_through()
                self.after.go_through()
            except ObjectMissing:  # Santa has closed the workshop
                return

    def serve(self, pause):
        self.before.operate()
        time.sleep(random.uniform(0, pause))
        self.after.operate()
        self.group.disband()

    def close(self, keepers):
        for part in ("group", "gate 0", "gate 1"):
            keepers.drop(f"{self.name} {part}")


def main(deliveries=15, pause=0.05):
    with tempfile.TemporaryDirectory() as folder, Keepers(folder) as keepers:
        waiting = keepers.object("waiting", PriorityQueue)
        reindeer, elves = Team(keepers, "reindeer", 9, rank=0), Team(keepers, "elves", 3, rank=1)
        members = [
            threading.Thread(target=team.member, args=(waiting, pause)) for team in [reindeer] * 9 + [elves] * 10
        ]
        for one in members:
            one.start()
        served = {"reindeer": 0, "elves": 0}
        while served["reindeer"] < deliveries:
            name = waiting.get()
            {"reindeer": reindeer, "elves": elves}[name].serve(pause / 4)
            served[name] += 1
        for team in (reindeer, elves):
            team.close(keepers)
        for one in members:
            one.join()
        print(f"{served['reindeer']} deliveries; elves got help: {served['elves'] > 0}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
