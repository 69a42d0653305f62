"""A small queue of tasks that members pull. A task is for any member or for one; at most one member holds it.

    offered --Take--> taken --Finished--> finished
    offered, taken --its owner withdraws it--> forgotten; the holder receives Withdrawn
    taken --GiveUp, or its member leaves--> offered, behind the others
    taken --its member is lost--> offered, before the others
    for one member, offered or taken --the member gives it up, leaves or is lost--> returned to its owner

A task for an absent member waits for it. The epoch of a task rises each time it is handed out; messages under another
epoch are refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from msgspec import Struct

from ..errors import UsageError
from .component import CoordinatorLimits, Epochs, Latest, Post, Refusal, check
from .instructions import Returned
from .messages import Accepted, AssignedTask, Finished, GiveUp, Withdrawn


class _Task(Struct):
    body: bytes
    wanted: str
    """The member that the task is for; empty: any."""
    epoch: int = 0
    holder: str = ""


class Tasks:
    """The tasks of a run that are not finished."""

    def __init__(
        self, post: Post, give_back: Callable[[Returned], None], epochs: Epochs, limits: CoordinatorLimits
    ) -> None:
        self._post, self._give_back, self._epochs, self._limits = post, give_back, epochs, limits
        self._tasks: dict[str, _Task] = {}
        self._offered: deque[str] = deque()
        self._own: dict[str, deque[str]] = {}
        """Tasks offered to one member, by the member's name."""
        self._held: dict[str, dict[str, None]] = {}
        self._free: dict[str, int] = {}
        self._finished: Latest[int] = Latest(limits.results)

    def __len__(self) -> int:
        return len(self._tasks)

    def offer(self, task: str, body: bytes, member: str = "") -> None:
        """Add a task, for one member or any. Raises UsageError when a task of this name is already offered."""
        if task in self._tasks:
            raise UsageError(f"the task {task} is offered already", "Give every task a name of its own.")
        self._finished.pop(task, None)
        self._tasks[task] = _Task(body, member)
        if member:
            self._own.setdefault(member, deque()).append(task)
            self._hand_own(member)
        else:
            self._offered.append(task)
            self._hand_out()

    def withdraw(self, name: str) -> None:
        """Remove a task; does nothing when it is unknown."""
        task = self._tasks.get(name)
        if task is None:
            return
        if task.holder:
            self._post(task.holder, Withdrawn(name, task.epoch))
            self._release(name)
        elif task.wanted:
            self._forget_own(task.wanted, name)
        else:
            self._offered.remove(name)
        del self._tasks[name]

    def take(self, member: str, free: int) -> None:
        """Set the number of tasks that the member accepts. Raises Refusal."""
        check(0 <= free <= self._limits.results, member, "it cannot take so many tasks")
        self._free.pop(member, None)
        if free:
            self._free[member] = free
            self._hand_own(member)
            self._hand_out()

    def _hand_own(self, member: str) -> None:
        """Hand out the member's own tasks, which come before tasks for any member."""
        while self._own.get(member) and member in self._free:
            name = self._own[member][0]
            self._forget_own(member, name)
            self._use(member)
            self._give(name, member)

    def _hand_out(self) -> None:
        """Hand out tasks for any member; the member that asked first is served first."""
        while self._offered and self._free:
            member = next(iter(self._free))
            self._use(member)
            self._give(self._offered.popleft(), member)

    def _use(self, member: str) -> None:
        if self._free[member] == 1:
            del self._free[member]
        else:
            self._free[member] -= 1

    def _give(self, name: str, member: str) -> None:
        task = self._tasks[name]
        task.epoch, task.holder = self._epochs.next(), member
        self._held.setdefault(member, {})[name] = None
        self._post(member, AssignedTask(name, task.epoch, task.body))

    def give_up(self, member: str, message: GiveUp) -> None:
        """The holder will not finish the task; ignored from any other member."""
        task = self._tasks.get(message.task)
        if task is None or (task.holder, task.epoch) != (member, message.epoch):
            return
        self._release(message.task)
        if task.wanted:
            self._return(message.task, member, lost=False)
        else:
            self._offered.append(message.task)
            self._hand_out()

    def finish(self, member: str, message: Finished) -> bool:
        """Return whether this is the first result of its task. Raises Refusal when the member does not hold
        the task.
        """
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
        self._post(member, Accepted(name, epoch))
        return True

    def _release(self, name: str) -> None:
        task = self._tasks[name]
        held = self._held[task.holder]
        del held[name]
        if not held:
            del self._held[task.holder]
        task.holder = ""

    def _forget_own(self, member: str, name: str) -> None:
        own = self._own[member]
        own.remove(name)
        if not own:
            del self._own[member]

    def _return(self, name: str, member: str, *, lost: bool) -> None:
        del self._tasks[name]
        self._give_back(Returned(name, member, lost))

    def cut(self, member: str) -> None:
        """The member's connection ended: it receives no tasks until it asks again."""
        self._free.pop(member, None)

    def remind(self, member: str) -> None:
        """Send again the tasks that the member holds: the first messages may not have arrived."""
        for name in self._held.get(member, ()):
            self._post(member, AssignedTask(name, self._tasks[name].epoch, self._tasks[name].body))

    def drop(self, member: str, *, lost: bool) -> None:
        """The member is gone: offer its tasks to other members, and return tasks that were for it alone."""
        self.cut(member)
        names = list(self._held.get(member, ()))
        for name in names:
            self._release(name)
        for name in [name for name in names if self._tasks[name].wanted]:
            self._return(name, member, lost=lost)
        for name in self._own.pop(member, ()):
            self._return(name, member, lost=False)
        anybodys = [name for name in names if name in self._tasks]
        if lost:
            self._offered.extendleft(reversed(anybodys))
        else:
            self._offered.extend(anybodys)
        self._hand_out()
