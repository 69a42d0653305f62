"""A small queue of tasks that members pull. Each task is with one member at most.

    offered --Take--> taken --Finished--> finished
    taken --GiveUp, or its member leaves--> offered, behind the others
    taken --its member is lost--> offered, before the others

Each time a task is handed out its epoch rises; what is said of it under another epoch is refused.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from msgspec import Struct

from ..errors import UsageError
from .messages import Accepted, Finished, GiveUp, Task
from .parts import Epochs, Limits, Post, Refusal, check


class _Task(Struct):
    body: bytes
    epoch: int = 0
    holder: str = ""


class Tasks:
    """The tasks of a run that are not finished."""

    def __init__(self, post: Post, epochs: Epochs, limits: Limits) -> None:
        self._post, self._epochs, self._limits = post, epochs, limits
        self._tasks: dict[str, _Task] = {}
        self._offered: deque[str] = deque()
        self._held: dict[str, dict[str, None]] = {}
        self._free: dict[str, int] = {}
        self._finished: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tasks)

    def offer(self, task: str, body: bytes) -> None:
        """A new task. Raises UsageError for one that is here already."""
        if task in self._tasks:
            raise UsageError(f"the task {task} is offered already", "Give every task a name of its own.")
        self._finished.pop(task, None)
        self._tasks[task] = _Task(body)
        self._offered.append(task)
        self._hand_out()

    def take(self, member: str, free: int) -> None:
        """The member can take so many more. Raises Refusal."""
        check(0 <= free <= self._limits.results, member, "it cannot take so many tasks")
        self._free.pop(member, None)
        if free:
            self._free[member] = free
            self._hand_out()

    def _hand_out(self) -> None:
        """Whoever asked first gets its tasks first."""
        while self._offered and self._free:
            member, free = next(iter(self._free.items()))
            if free == 1:
                del self._free[member]
            else:
                self._free[member] = free - 1
            self._give(self._offered.popleft(), member)

    def _give(self, name: str, member: str) -> None:
        task = self._tasks[name]
        task.epoch, task.holder = self._epochs.next(), member
        self._held.setdefault(member, {})[name] = None
        self._post(member, Task(name, task.epoch, task.body))

    def give_up(self, member: str, message: GiveUp) -> None:
        """The holder will not finish it; from anybody else it means nothing."""
        task = self._tasks.get(message.task)
        if task is not None and (task.holder, task.epoch) == (member, message.epoch):
            self._release(message.task)
            self._offered.append(message.task)
            self._hand_out()

    def finish(self, member: str, message: Finished) -> bool:
        """Whether this result is the first of its task. Raises Refusal when the task is not the member's any more."""
        name, epoch = message.task, message.epoch
        if self._finished.get(name) == epoch:
            self._post(member, Accepted(name, epoch))
            return False
        task = self._tasks.get(name)
        if task is None:
            raise Refusal(name[:100], "there is no such task")
        check((task.holder, task.epoch) == (member, epoch), name, "it was handed out again since")
        self._release(name)
        del self._tasks[name]
        self._finished[name] = epoch
        if len(self._finished) > self._limits.results:
            self._finished.popitem(last=False)
        self._post(member, Accepted(name, epoch))
        return True

    def _release(self, name: str) -> None:
        task = self._tasks[name]
        held = self._held[task.holder]
        del held[name]
        if not held:
            del self._held[task.holder]
        task.holder = ""

    def cut(self, member: str) -> None:
        """Its connection ended: it gets no more until it asks again."""
        self._free.pop(member, None)

    def remind(self, member: str) -> None:
        """Say again what it holds: the first time may not have arrived."""
        for name in self._held.get(member, ()):
            self._post(member, Task(name, self._tasks[name].epoch, self._tasks[name].body))

    def drop(self, member: str, *, lost: bool) -> None:
        """The member is gone: somebody else shall have its tasks."""
        self.cut(member)
        names = list(self._held.get(member, ()))
        for name in names:
            self._release(name)
        if lost:
            self._offered.extendleft(reversed(names))
        else:
            self._offered.extend(names)
        self._hand_out()
