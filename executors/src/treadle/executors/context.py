"""The context of the current attempt, passed to user functions that ask for it: `def f(record, *, context:
Context)`."""

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

    from treadle.primitives.channels import GangContext
    from treadle.primitives.objects.effects import StageObject, StageObjects
    from treadle.primitives.sealing import SealedStore
    from treadle.primitives.stores.store import Store


_PROGRESS_INTERVAL = 1.0
"""Minimum seconds between two lines of progress in the log."""


class Checkpoint:
    """A few bytes that outlive the attempt. The next attempt at the same partition of the same stage loads them.

    The last `save` wins. A function that uses checkpoints must return the same result from every checkpoint it saves.
    """

    def __init__(self, objects: SealedStore, name: str) -> None:
        self._objects, self._name = objects, name

    def load(self) -> bytes | None:
        """The bytes saved last, or None. Raises CorruptError when they differ from the bytes that `save` wrote, or
        StoreError."""
        try:
            return bytes(self._objects.get(self._name))
        except MissingError:
            return None

    def save(self, data: bytes) -> None:
        """Store `data` durably, replacing the bytes saved before. Raises StoreError."""
        self._objects.put(self._name, data)


class Context:
    """The view that one stage has of one attempt at one partition."""

    def __init__(self, job: Job, stage: str, partition: int, attempt: int, store: Store, key: bytes) -> None:
        self.run = job.run
        self.workflow = job.workflow
        self.started = job.started
        """Time of the run's first start, RFC 3339, UTC. It is the same for every attempt and after every resumption."""
        self.seed = job.seed
        self.stage = stage
        """Includes the iteration path, for example `lloyd[3].assign`."""
        self.partition = partition
        self.attempt = attempt
        self.find_record: Callable[[], RecordPlace] = RecordPlace
        """Finds the place that `record` returns; the runtime sets it."""
        self.used_objects: dict[str, StageObject] = {}
        """The objects that the stage names; the runtime sets them."""
        self._store, self._key = store, key
        self._reported = 0.0

    @property
    def record(self) -> RecordPlace:
        """The place in its source of the record that the function was called with. It is computed on access.

        Raises StoreError or DataError when finding the line or row needs a file that can no longer be read.
        """
        return self.find_record()

    @property
    def objects(self) -> StageObjects:
        """The shared objects that the stage names in `objects`, as attributes."""
        from treadle.primitives.objects.effects import StageObjects

        return StageObjects(self.used_objects)

    @cached_property
    def gang(self) -> GangContext:
        """The gang in which the function runs, with its checkpoints. Raises UsageError outside of a gang."""
        from .attempt_gang import AttemptGang

        return AttemptGang()

    @cached_property
    def rng(self) -> Generator:
        """A NumPy generator. Its seed depends on the spec's seed, the stage, the iteration path and the partition
        only."""
        from treadle.primitives.shuffling import seeds

        return seeds.rng(self.seed, self.stage, self.partition)

    @cached_property
    def logger(self) -> logging.Logger:
        """Writes to the log of the attempt."""
        from .attempt_log import attempt_logger

        return attempt_logger(f"{self.stage}[{self.partition}]")

    def progress(self, done: int, total: int | None = None) -> None:
        """Write the progress of the function to the log, at most once a second."""
        now = time.monotonic()
        if now - self._reported >= _PROGRESS_INTERVAL:
            self._reported = now
            self.logger.info("progress %d%s", done, "" if total is None else f"/{total}")

    @cached_property
    def tmp(self) -> Path:
        """An empty folder for this attempt alone, removed after the attempt."""
        import tempfile
        from pathlib import Path

        return Path(tempfile.mkdtemp(prefix=f"treadle-{os.getpid()}-"))  # found by the orphan guard

    @cached_property
    def checkpoint(self) -> Checkpoint:
        from treadle.primitives.sealing import SealedStore

        name = f"runs/{run_folder(self.run)}/checkpoints/{self.stage}/{self.partition}"
        return Checkpoint(SealedStore(self._store, self._key), name)

    def close(self) -> None:
        """Remove the temporary folder if it exists."""
        if "tmp" in self.__dict__:
            from shutil import rmtree

            rmtree(self.tmp, ignore_errors=True)
