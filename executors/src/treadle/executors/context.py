"""What a user function may ask about the attempt it is part of: `def f(record, *, context: Context)`."""

from __future__ import annotations

import os
import time
from functools import cached_property
from typing import TYPE_CHECKING

from treadle.primitives.errors import MissingError
from treadle.primitives.record_location import RecordPlace
from treadle.primitives.run_paths import run_folder

from .program import Job

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable
    from pathlib import Path

    from numpy.random import Generator

    from treadle.primitives.sealing import SealedStore
    from treadle.primitives.stores.store import Store


_PROGRESS_INTERVAL = 1.0
"""Seconds between two lines of progress in the log."""


class Checkpoint:
    """A few bytes that outlive the attempt: the next attempt at the same partition of the same stage loads them.

    The last `save` wins. A function that uses it must give the same result from every checkpoint it saves.
    """

    def __init__(self, objects: SealedStore, name: str) -> None:
        self._objects, self._name = objects, name

    def load(self) -> bytes | None:
        """What was saved last, or None. Raises CorruptError when it is not what `save` wrote, or StoreError."""
        try:
            return bytes(self._objects.get(self._name))
        except MissingError:
            return None

    def save(self, data: bytes) -> None:
        """Keep `data` durably, instead of what was saved before. Raises StoreError."""
        self._objects.put(self._name, data)


class Context:
    """One stage's view of one attempt at one partition."""

    def __init__(self, job: Job, stage: str, partition: int, attempt: int, store: Store, key: bytes) -> None:
        self.run = job.run
        self.workflow = job.workflow
        self.started = job.started
        """First start of the run, RFC 3339, UTC; the same on every attempt and resumption."""
        self.seed = job.seed
        self.stage = stage
        """With its iteration path, such as `lloyd[3].assign`."""
        self.partition = partition
        self.attempt = attempt
        self.find_record: Callable[[], RecordPlace] = RecordPlace
        """What `record` asks; the runtime sets it."""
        self._store, self._key = store, key
        self._reported = 0.0

    @property
    def record(self) -> RecordPlace:
        """Where the record stands that the function was called with: worked out when it is asked for.

        Raises StoreError or DataError when the line or row must be looked up in a file that cannot be read any more.
        """
        return self.find_record()

    @cached_property
    def rng(self) -> Generator:
        """A NumPy generator seeded by (seed of the spec; stage, iteration path, partition) and nothing else."""
        from treadle.primitives.shuffling import seeds

        return seeds.rng(self.seed, self.stage, self.partition)

    @cached_property
    def logger(self) -> logging.Logger:
        """Writes to the log of the attempt."""
        from .attempt_log import attempt_logger

        return attempt_logger(f"{self.stage}[{self.partition}]")

    def progress(self, done: int, total: int | None = None) -> None:
        """Note in the log, at most once a second, how far the function is."""
        now = time.monotonic()
        if now - self._reported >= _PROGRESS_INTERVAL:
            self._reported = now
            self.logger.info("progress %d%s", done, "" if total is None else f"/{total}")

    @cached_property
    def tmp(self) -> Path:
        """An empty folder of this attempt's own, removed after it."""
        import tempfile
        from pathlib import Path

        return Path(tempfile.mkdtemp(prefix=f"treadle-{os.getpid()}-"))  # known to the guard of this process

    @cached_property
    def checkpoint(self) -> Checkpoint:
        from treadle.primitives.sealing import SealedStore

        name = f"runs/{run_folder(self.run)}/checkpoints/{self.stage}/{self.partition}"
        return Checkpoint(SealedStore(self._store, self._key), name)

    def close(self) -> None:
        """Remove the temporary folder, if there is one."""
        if "tmp" in self.__dict__:
            from shutil import rmtree

            rmtree(self.tmp, ignore_errors=True)
