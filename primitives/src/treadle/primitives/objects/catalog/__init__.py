"""The library of shared objects. Each is a class of a few lines; read them as examples of your own classes.

values        Counter, Number, Boolean, Reference
collections   List, Set, Map
locks         Lock, ReadWriteLock, Semaphore, Condition
meetings      Barrier, Latch, Event, Future
queues        Queue, PriorityQueue
rates         RateLimiter
"""

from .collections import List, Map, Set
from .locks import Condition, Lock, ReadWriteLock, Semaphore
from .meetings import CyclicBarrier, Flag, Latch, Promise
from .queues import PriorityQueue, Queue
from .rates import RateLimit
from .values import Boolean, Counter, Number, Reference

__all__ = [
    "Boolean",
    "Condition",
    "Counter",
    "CyclicBarrier",
    "Flag",
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
]
