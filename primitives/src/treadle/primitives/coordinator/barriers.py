"""Barriers: in each generation either all parties pass or none does.

The parties of a barrier are the first `parties` members that arrive at it, for good. In each generation a party is
`away` until it sends Wait with that generation; then it is `waiting`:

    event                                    effect
    all parties are waiting                  Released to all; the next generation begins with all parties away
    a party is lost or leaves                Broken to waiting parties, and to parties that arrive later; final
    Wait of an earlier generation            Released again: the first answer was lost with a connection
    Wait of the next generation, from a new  an earlier coordinator released this generation: Released to waiting
    party                                    parties, and the next generation begins

Parties that meet `elsewhere` send Wait once, with generation 0. The coordinator never releases them and sends them only
Broken.
"""

from __future__ import annotations

from collections import OrderedDict

from .component import GREATEST_EPOCH, CoordinatorLimits, Post, Timing, check
from .messages import Broken, Released, Wait


class _Barrier:
    def __init__(self, wait: Wait) -> None:
        self.parties, self.generation = wait.parties, wait.generation
        self.elsewhere = wait.elsewhere
        self.waiting: dict[str, bool] = {}
        """Maps each known party to whether it waits."""
        self.lost: tuple[str, ...] = ()
        self.forget_at: float | None = None

    def known(self, member: str) -> bool:
        return member in self.waiting

    @property
    def whole(self) -> bool:
        """All parties are known."""
        return len(self.waiting) + len(self.lost) == self.parties


class Barriers:
    """All barriers of a run."""

    def __init__(self, post: Post, timing: Timing, limits: CoordinatorLimits) -> None:
        self._post, self._timing, self._limits = post, timing, limits
        self._barriers: dict[str, _Barrier] = {}
        self._of: dict[str, set[str]] = {}
        self._broken: OrderedDict[str, None] = OrderedDict()
        self._idle: OrderedDict[str, None] = OrderedDict()
        """Barriers with all parties known and no party waiting, the longest unused first."""

    def __len__(self) -> int:
        return len(self._barriers)

    def wait(self, member: str, wait: Wait) -> None:
        """A party arrives, or repeats its Wait. Raises Refusal."""
        name = wait.barrier
        barrier = self._barriers.get(name)
        self._check(member, barrier, wait)
        if barrier is None:
            barrier = self._make(wait)
        if not barrier.known(member) and not barrier.lost:
            self._enter(barrier, member, wait)
        if wait.generation < barrier.generation:
            self._post(member, Released(name, wait.generation))
        elif barrier.lost:
            self._post(member, Broken(name, wait.generation, barrier.lost))
        else:
            barrier.waiting[member] = True
            self._idle.pop(name, None)
            self._release_if_all(barrier, name)

    def _check(self, member: str, barrier: _Barrier | None, wait: Wait) -> None:
        name, limits = wait.barrier, self._limits
        check(len(name) <= limits.name, name, "the name is too long")
        check(0 < wait.parties <= limits.parties, name, f"parties must be 1 to {limits.parties}")
        latest = 0 if wait.elsewhere else GREATEST_EPOCH - 1
        check(0 <= wait.generation <= latest, name, "it cannot have been passed so often")
        if barrier is None:
            room = len(self._barriers) < limits.barriers or bool(self._idle)
            check(room, name, f"members wait at {limits.barriers} barriers already")
            return
        known = barrier.known(member)
        check(barrier.parties == wait.parties, name, f"others wait for {barrier.parties} parties")
        check(barrier.elsewhere == wait.elsewhere, name, "others wait for it in another way")
        is_party = known or not barrier.whole or member in barrier.lost
        check(is_party, name, f"it has its {barrier.parties} parties, and this member is none of them")
        latest = barrier.generation + (not known)
        check(wait.generation <= latest, name, f"nobody has passed it {wait.generation} times")

    def _make(self, wait: Wait) -> _Barrier:
        """Add a barrier, and delete the longest unused one when the limit is reached. Its parties create it again, as
        after a restart.
        """
        if len(self._barriers) >= self._limits.barriers:
            self._delete(next(iter(self._idle)))
        barrier = self._barriers[wait.barrier] = _Barrier(wait)
        return barrier

    def _delete(self, name: str) -> None:
        self._idle.pop(name, None)
        self._broken.pop(name, None)
        for party in self._barriers.pop(name).waiting:
            self._of[party].discard(name)
            if not self._of[party]:
                del self._of[party]

    def _enter(self, barrier: _Barrier, member: str, wait: Wait) -> None:
        if wait.generation > barrier.generation:
            self._release(barrier, wait.barrier)
        barrier.waiting[member] = False
        self._of.setdefault(member, set()).add(wait.barrier)

    def _release_if_all(self, barrier: _Barrier, name: str) -> None:
        if barrier.whole and not barrier.elsewhere and all(barrier.waiting.values()):
            self._release(barrier, name)

    def _release(self, barrier: _Barrier, name: str) -> None:
        released = Released(name, barrier.generation)
        barrier.generation += 1
        for member, waits in barrier.waiting.items():
            if waits:
                barrier.waiting[member] = False
                self._post(member, released)
        self._idle[name] = None

    def drop(self, member: str, now: float) -> None:
        """Break the barriers of a member that left or was lost."""
        for name in sorted(self._of.pop(member, ())):
            barrier = self._barriers[name]
            barrier.lost += (member,)
            del barrier.waiting[member]
            broken = Broken(name, barrier.generation, barrier.lost)
            for party, waits in barrier.waiting.items():
                if waits:
                    barrier.waiting[party] = False
                    self._post(party, broken)
            self._remember(barrier, name, now)

    def _remember(self, barrier: _Barrier, name: str, now: float) -> None:
        """Delete a broken barrier once all its parties are gone. Until then keep it for a while, to answer parties that
        arrive late.
        """
        self._idle.pop(name, None)
        if len(barrier.lost) == barrier.parties:
            self._delete(name)
        elif barrier.forget_at is None:
            barrier.forget_at = now + self._timing.broken
            self._broken[name] = None

    def count(self, name: str) -> tuple[int, int] | None:
        """Return the number of members waiting at a barrier, and its number of parties; None for an unknown barrier."""
        barrier = self._barriers.get(name)
        return (sum(barrier.waiting.values()), barrier.parties) if barrier else None

    def wakes_at(self) -> float | None:
        """Return the time at which the next broken barrier is forgotten; None without one."""
        for name in self._broken:
            return self._barriers[name].forget_at
        return None

    def forget(self, now: float) -> None:
        """Forget barriers whose time as broken ones is over."""
        while (due := self.wakes_at()) is not None and due <= now:
            self._delete(next(iter(self._broken)))
