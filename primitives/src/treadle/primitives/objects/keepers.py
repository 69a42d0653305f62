"""Keepers as child processes of this one, and their supervision."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

from ..addresses import Address
from ..errors import CorruptError, InternalError, TreadleError, UsageError
from ..run_paths import run_folder
from ..sealing import load_or_create_key
from ..wire.connect import listen
from ..wire.errors import NotAuthentic, WireError
from .catalog.arrays import UpdateRule
from .client_session import RUN, Access, ClientSession, access, close_sessions
from .handle import Handle, create, drop
from .messages import ShardView, host_of
from .sharded_array import ShardedArray, create_array
from .views import is_abandoned, newest_number

T = TypeVar("T")
_FOLDER = "objects"
_WATCH = 0.05
"""Seconds between two looks at the children."""
_LOOK = 3.0
"""Seconds between two looks at keepers of other hosts."""
_DIAL = 1.0
"""Seconds in which such a keeper must answer."""
_AGAIN = 1.0
ABANDONED = 10.0
"""Seconds without a primary after which a shard is given to a new one, although a backup lives."""
_log = logging.getLogger(__name__)


class Keepers:
    """Starts keepers on this machine, replaces keepers that end, and ends all with this process.

    - `folder`: for the key and the store. Other processes of this user find the objects there.
    - `replicas`: keepers that hold each object. Answered calls survive the end of all but one of them at a time.
    - `durability`: `store` answers a call once it is in the store (files in `folder`, or `store`); with one replica.
    - `keepers`: processes; default: `replicas`. The shards are spread over them.
    - `shards`: parts into which the objects are divided by their names. It must stay as it is for a folder.
    - `store`: URL of another store.
    - `session`: seconds of silence after which the locks of a process are released.
    - `host`: address of this machine. Its keepers then work together with keepers of other machines that have the same
      key, store and settings; the replicas of an object are on different machines. Connections use TLS.
    - `run`: take the key of this run, and its folder in `store`: see `Session.keepers`. `folder` is for certificates.

    Raises UsageError for settings that contradict each other and for a `run` whose key this process does not hold, and
    WireError for a `host` that is not this one.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        replicas: int = 1,
        durability: Literal["memory", "store"] = "memory",
        keepers: int = 0,
        shards: int = 1,
        store: str = "",
        session: float = 30.0,
        host: str = "",
        run: str = "",
    ) -> None:
        keepers = keepers or (1 if host else replicas)
        if replicas < 1 or keepers < (1 if host else replicas) or shards < 1:
            raise UsageError(
                f"{keepers} keepers cannot hold {replicas} replicas of {shards} shards", "Use more keepers."
            )
        if durability == "store" and replicas > 1:
            raise UsageError("objects in the store have one replica", 'Leave out `replicas`, or durability="store".')
        path = Path(folder).absolute()
        path.mkdir(parents=True, exist_ok=True)
        if not run:
            load_or_create_key(path / "key")
        if host:
            _check_host(host, path)
        place = (f"{RUN}{run}", f"runs/{run_folder(run)}/{_FOLDER}") if run else (str(path / "key"), _FOLDER)
        self.access: Access = access(store or (path / "store").as_uri(), *place, shards)
        self._certificates = path
        self._durability, self._replicas, self._shards, self._session = durability, replicas, shards, session
        self._wanted, self._host = keepers, host
        self._children: dict[str, subprocess.Popen[str]] = {}
        self._unplaced = dict.fromkeys(range(shards), 0.0)
        """Shards whose primary may have ended, and since when."""
        self._views: dict[int, ShardView] = {}
        self._written: dict[int, int] = {}
        """The newest objects of the logs of shards whose primary is silent."""
        self._looks_at = time.monotonic() + _LOOK
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        try:
            self._supervise()
        except CorruptError as error:
            text = f"the objects in {self.access.place[0]} belong to keepers with another key than {path / 'key'}"
            raise UsageError(text, "Copy their key to this file, with mode 600, or use another store.") from error
        self._watcher = threading.Thread(target=self._watch, name="treadle-keepers", daemon=True)
        self._watcher.start()

    def object(self, name: str, cls: type[T], *arguments: Any, **keywords: Any) -> Handle[T]:
        """Return the object of this name, which is made with the arguments unless it exists; see `create`."""
        return create(self.access, name, cls, arguments, keywords)

    def array(
        self,
        name: str,
        shape: int | tuple[int, ...],
        *,
        dtype: str = "float32",
        fill: float = 0.0,
        rule: UpdateRule | None = None,
        parts: int = 0,
    ) -> ShardedArray:
        """Return the array of this name, which is made unless it exists.

        - `shape`: the number of rows, or the rows and the shape of one row.
        - `fill`: the value of all elements at first.
        - `rule`: how pushed values change rows; default: `Addition`.
        - `parts`: of consecutive rows, spread over the shards; default: one for each shard.

        Raises UsageError for an empty shape, a part beyond 60 MiB with what the rule keeps, and an array of this name
        with other settings.
        """
        return create_array(self.access, name, shape, dtype, fill, rule, parts or self._shards)

    def drop(self, name: str) -> bool:
        """Remove an object; returns whether it existed."""
        return drop(self.access, name)

    def copies(self, name: str) -> int:
        """Return the number of keepers that have the object now, with all answered calls.

        `replicas`, or fewer until a keeper that was lost is replaced. Raises KeepersUnreachable.
        """
        return len(ClientSession(self.access, self.access.shard_of(name)).holders())

    def close(self) -> None:
        """End the keepers. Objects in memory are gone, unless other hosts have replicas; those in the store are there
        for the next Keepers.
        """
        close_sessions(self.access)
        self._stopping.set()
        self._watcher.join()
        while self._children:
            _close(self._children.popitem()[1])

    def __enter__(self) -> Keepers:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    @property
    def processes(self) -> dict[str, int]:
        """The process ids of the keepers, by name."""
        with self._lock:
            return {name: child.pid for name, child in self._children.items()}

    # -- supervision

    def _start(self) -> str:
        """Start a keeper; returns its name."""
        url, _, folder, shards = self.access.place
        settings = {
            "url": url, "key": self.access.key.hex(), "folder": folder, "shards": shards,
            "host": self._host, "certificates": str(self._certificates), "copies": self._replicas,
            "parent": os.getpid(), "durability": self._durability, "session": self._session, "path": sys.path,
        }  # fmt: skip
        child = subprocess.Popen(
            [sys.executable, "-m", "treadle.primitives.objects.keeper_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": "0", "TZ": "UTC"},  # replicas compute the same
        )
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps(settings) + "\n")
        child.stdin.flush()
        name = child.stdout.readline().strip()
        if not name:
            raise InternalError("a keeper did not start; its error is above")
        with self._lock:
            self._children[name] = child
        return name

    def _watch(self) -> None:
        while not self._stopping.wait(_WATCH):
            try:
                self._supervise()
            except TreadleError:
                _log.exception("keepers that have ended are not replaced yet")
                self._stopping.wait(_AGAIN)

    def _supervise(self) -> None:
        """Replace children that have ended, and give their shards to others."""
        with self._lock:
            ended = [name for name, child in self._children.items() if child.poll() is not None]
            gone = [self._children.pop(name) for name in ended]
        for child in gone:
            _close(child)
        now = time.monotonic()
        if gone or (self._host and now > self._looks_at):
            self._looks_at = now + _LOOK
            self._unplaced = {shard: self._unplaced.get(shard, now) for shard in range(self._shards)}
        self._place_all()
        while len(self._children) < self._wanted:
            self._start()
        self._place_all()

    def _place_all(self) -> None:
        lives = functools.cache(self._lives)  # one look at each keeper
        for shard, since in list(self._unplaced.items()):
            if self._is_placed(shard, since, lives):
                del self._unplaced[shard]

    def _is_placed(self, shard: int, since: float, lives: Callable[[str], bool | None]) -> bool:
        """Return whether the primary of a shard lives. Writes a new view when no keeper will continue the last one."""
        chain = self.access.chain(shard)
        view = self._views[shard] = chain.newest(self._views.get(shard))
        primary = lives(view.primary)
        if primary is True:
            return True
        kept = self._durability == "store" and view.incarnation > 0
        if primary is None and kept and self._has_written(shard):
            self._unplaced[shard] = time.monotonic()
            return False
        waited = time.monotonic() - since > ABANDONED
        if self._children and is_abandoned(primary, map(lives, view.backups), kept=kept, waited=waited):
            first, *others = self._chosen(shard)
            chain.create(ShardView(view.epoch + 1, first, tuple(others), view.incarnation + (not kept)))
        return False

    def _has_written(self, shard: int) -> bool:
        """Return whether the log in the store has grown since the last look: then the primary lives."""
        before = self._written.get(shard)
        now = self._written[shard] = newest_number(self.access.store, f"{self.access.place[2]}/{shard}/log")
        return before is not None and now != before

    def _lives(self, keeper: str) -> bool | None:
        """Return whether a keeper lives; None: another host does not answer."""
        if keeper in self._children:
            return True
        if not keeper or not host_of(keeper):
            return False
        try:
            self.access.connect(keeper, _DIAL).close()
        except NotAuthentic:  # another process has its address
            return False
        except WireError as error:
            return False if isinstance(error.__cause__, ConnectionRefusedError) else None
        return True

    def _chosen(self, shard: int) -> list[str]:
        """The members of a new view, one of each host: keepers of other hosts will join by themselves."""
        names = list(self._children)
        size = 1 if self._host else min(self._replicas, len(names))
        return [names[(shard + turn) % len(names)] for turn in range(size)]


def _check_host(host: str, folder: Path) -> None:
    from ..wire.tls import tls_identity  # imports ssl

    if host in ("0.0.0.0", "::"):
        raise UsageError(f"{host} is not an address for other machines", "Name the address of this one.")
    listen(str(Address("tls", host, 0))).close()
    tls_identity(folder)


def _close(child: subprocess.Popen[str]) -> None:
    """End a child by a line of input, and wait for it."""
    assert child.stdin is not None
    assert child.stdout is not None
    with contextlib.suppress(OSError):  # it has ended already
        child.stdin.write("end\n")
        child.stdin.close()
    child.wait()
    child.stdout.close()
