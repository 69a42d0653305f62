"""The library of shared objects. Each is a class of a few lines; read them as examples of your own classes.

values        Counter, Number, Boolean, Reference
collections   List, Set, Map
locks         Lock, ReadWriteLock, Semaphore, Condition
meetings      CyclicBarrier, Latch, StaleClock, Flag, Promise
queues        Queue, PriorityQueue
rates         RateLimit
arrays        the parts of a ShardedArray, and its rules
memory        the memory of `memory_copies`
"""

from .arrays import Adagrad, Adam, Addition, GradientDescent, UpdateRule
from .collections import List, Map, Set
from .locks import Condition, Lock, ReadWriteLock, Semaphore
from .meetings import CyclicBarrier, Flag, Latch, Promise, StaleClock
from .queues import PriorityQueue, Queue
from .rates import RateLimit
from .values import Boolean, Counter, Number, Reference

__all__ = [
    "Adagrad",
    "Adam",
    "Addition",
    "Boolean",
    "Condition",
    "Counter",
    "CyclicBarrier",
    "Flag",
    "GradientDescent",
    "Latch",
    "List",
    "Lock",
    "Map",
    "Number",
    "PriorityQueue",
    "Promise",
    "Queue",
    "RateLimit",
    "ReadWriteLock",
    "Reference",
    "Semaphore",
    "Set",
    "StaleClock",
    "UpdateRule",
]
