"""The functions and classes of Python's `multiprocessing`, on treadle.

    from treadle.multiprocessing import Pool

    with Pool(4) as pool:
        print(pool.map(square, range(10)))

`python -m treadle.multiprocessing program.py` runs a program that imports the standard module. docs/multiprocessing.md
has the differences. Layout:

    context                  the functions of this module
    processes, pool, queues, synchronize    subclasses of the standard library's
    socket_ends, keeper_connections, pipes  where the items of queues and the messages of pipes are
    popen, remote            start a process, on this machine or at a worker
    state, places            shared classes, the keeper that holds their objects, and the workers
    by_value                 pickles with the definitions of `__main__`
    installation             replaces the standard module
    files                    `open` and `os` for objects of a store
"""

from typing import TYPE_CHECKING, Any

from .context import default as _default
from .errors import HolderLost as HolderLost
from .errors import WorkerLost as WorkerLost
from .installation import install as install
from .places import set_executor as set_executor

__all__ = ["HolderLost", "WorkerLost", "install", "set_executor"]
__all__ += [name for name in dir(_default) if not name.startswith("_") and name != "reducer"]
globals().update((name, getattr(_default, name)) for name in __all__[4:])

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
