"""The task runtime: the same code in a local process, a Lambda function and an OpenWhisk action.

For each partition of a task it reads the input, runs the program's operations, and writes the result as a block (and an
output part). It then reports the Outcome. If the partition fails, it reports the Failure and continues with the next
one.

`input_cache` reads inputs, the package `operations` runs the program on a flow of records, and `sink` and
`partition_output` make parts of the result. `failures` classifies exceptions, `process_setup` measures, `context` is
the user functions' view of the attempt, and the package `bundle` provides their code.
"""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple

import msgspec

from treadle.primitives import formats, functions, run_keys
from treadle.primitives.blocks import Blocks, Peers
from treadle.primitives.channels.gang import Gang
from treadle.primitives.channels.member_scope import taking_part
from treadle.primitives.encoding.references import BlockRef
from treadle.primitives.encoding.tabular import type_name
from treadle.primitives.errors import FailureClass, UsageError
from treadle.primitives.stores import request_counts
from treadle.primitives.stores.atomic_files import Buffer
from treadle.primitives.stores.shared_memory import HostFolder
from treadle.primitives.stores.store import Store

from ..context import Context
from ..failures import (
    FROM_ANOTHER_MEMBER,
    InputFailed,
    StageFailed,
    classify,
    full_traceback,
    message_of,
)
from ..memory_limit import uncounted
from ..operations.apply import apply, keeps_inputs_apart
from ..operations.attempt_state import Attempt, Function, Services
from ..program import (
    Discard,
    EventSplit,
    Failure,
    Job,
    MapPartition,
    Outcome,
    Partition,
    PartOutput,
    PartRef,
    Program,
    Report,
    Task,
)
from ..redaction import Redactor
from ..spill.memory_budget import MemoryBudget, room_of
from ..spill.part_spill import SpilledBytes
from .input_cache import InputCache, expect_input, read_input
from .process_setup import Meter, give_back_memory, prepare_blas
from .sink import Made, make
from .split_reader import SplitReader

_CACHE_SHARE = 8
"""Cached decoded blocks have at most this fraction of the room in encoded bytes."""


_AT_ONCE = 32
"""A file is read in pieces of at most this fraction of the room: one is decoded while the next is read."""


class ProcessUsed(BaseException):
    """An earlier run imported the module in this process, so it cannot be imported again. The task needs a new
    process."""


class _Run(NamedTuple):
    """State that the tasks of one run share in this process."""

    job: Job
    key: bytes
    store: Store
    blocks: Blocks


class Runtime:
    """Kept for the life of a worker process, which serves one bundle. Not thread-safe."""

    def __init__(self, host_root: str | None, cache_bytes: int, secrets: Callable[[str], str], room: int = 0) -> None:
        """`host_root`: folder for blocks of this host, if it has one; `secrets`: name -> value.

        `room`: bytes of records that may wait in memory before they are spilled, for tasks that do not set their
        memory; 0: no limit.
        """
        self._host = HostFolder(host_root) if host_root else None
        self._cache = InputCache(cache_bytes)
        self._imports = cache_bytes
        """Bytes that the import of a function may allocate beside the task's memory: as in a process that is used
        again, see `Worker`."""
        self._room = room
        self._secrets = secrets
        self._meter = Meter()
        self._requests = request_counts.made()
        self._run: _Run | None = None
        self._functions: dict[str, Function] = {}
        self._captured: dict[str, bytes] = {}

    def run(self, task: Task, key: bytes, report: Callable[[Report], None]) -> None:
        """Run the partitions in order, and `report` each as it ends. `key` is the run's.

        Raises only ProcessUsed and the errors of `report`.
        """
        try:
            services = self._services(task, key)
            services.blocks.forget()
            expect_input(task.partitions[0].input, services)
        except Exception as error:  # noqa: BLE001  an error in the task is an error of each partition
            for partition in task.partitions:
                report(self._with_requests(_failure(partition, error, "", Redactor({}))))
            return
        self._meter.start_task()
        for partition, following in zip_longest(task.partitions, task.partitions[1:]):
            gang = self._gang(task.gang, key)
            report(self._with_requests(self._partition(services, partition, following, gang)))

    def _with_requests(self, report: Report) -> Report:
        """Add the requests made since the last report. A task's initial requests thus count for its first partition."""
        made, self._requests = request_counts.since(self._requests), request_counts.made()
        return msgspec.structs.replace(report, requests=made) if made else report

    def rest(self) -> None:
        """Release memory and blocks that were kept for another task."""
        self._cache.clear()
        if self._run is not None:
            self._run.blocks.forget()
        gc.collect()
        give_back_memory()

    # -- the task

    def _services(self, task: Task, key: bytes) -> Services:
        run = self._open(task.job, key)
        secrets = {name: self._secret(name) for name in task.program.secrets}

        def context(stage: str, partition: Partition) -> Context:
            return Context(task.job, stage, partition.index, partition.attempt, run.store, key)

        first = task.program.ops[0] if task.program.ops else None
        room = room_of(task.memory) or self._room
        self._cache.keep_within(room // _CACHE_SHARE)
        return Services(
            program=task.program,
            inputs_apart=keeps_inputs_apart(task.program.ops),
            files=SplitReader(
                max(1, (room or sys.maxsize) // _AT_ONCE), whole_text=isinstance(first, MapPartition) and first.whole
            ),
            expect=lambda slices: run.blocks.expect(self._cache.missing(slices)),
            seed=task.job.seed,
            function=self._function,
            load=lambda slice, shared: self._cache.load(slice, partial(run.blocks.get, shared=shared)),
            pieces=run.blocks.pieces,
            room=room,
            blocks=run.blocks,
            events=lambda split: _read_events(split, run.store, task.job.run, key, secrets),
            secrets=secrets,
            redactor=Redactor(secrets),
            context=context,
        )

    def _open(self, job: Job, key: bytes) -> _Run:
        run = self._run
        if run is None or run.job != job or run.key != key:
            if run is not None:
                run.blocks.close()
                run_keys.let_go(run.job.run)
            run_keys.hold(job.run, key)
            store = Store.open(job.store)
            self._cache.clear()
            self._functions.clear()
            self._captured = _prepare_bundle(store, job, key)
            run = self._run = _Run(job, key, store, self._blocks(store, job.run, key))
        return run

    def _blocks(self, store: Store, run: str, key: bytes) -> Blocks:
        def peers() -> Peers:
            from treadle.primitives.peers.hosts import HostPeers

            return HostPeers(store, run, key, self._host, blocks.read)

        blocks = Blocks(store, run, self._host, peers)
        return blocks

    def _secret(self, name: str) -> str:
        try:
            return self._secrets(name)
        except LookupError as error:
            raise UsageError(f"the secret {name!r} is not given", "Set it where the driver runs.") from error

    def _function(self, reference: str) -> Function:
        known = self._functions.get(reference)
        if known is None:
            with uncounted(self._imports):
                known = self._functions[reference] = _load(reference, self._captured)
        prepare_blas()
        return known

    # -- a partition

    def _gang(self, gang: Gang | None, key: bytes) -> AbstractContextManager[None]:
        """The context in which a gang member's channels work."""
        return taking_part(gang, key, self._run.blocks) if gang and self._run else nullcontext()

    def _partition(
        self, services: Services, partition: Partition, following: Partition | None, gang: AbstractContextManager[None]
    ) -> Report:
        self._meter.start()
        services.blocks.read.clear()
        attempt = Attempt(services, partition)
        try:
            if following is not None:
                expect_input(following.input, services)
            with gang:
                return self._outcome(attempt)
        except (Exception, StageFailed, InputFailed) as error:  # noqa: BLE001  a failed partition does not end the task
            return self._failed(attempt, attempt.error or error)
        finally:
            attempt.close()

    def _outcome(self, attempt: Attempt) -> Outcome:
        program, partition = attempt.services.program, attempt.partition
        made = _run_program(program, attempt)
        part = _write_part(program.output, partition.index, made, attempt.room) if program.output else None
        block = None if isinstance(program.tail, Discard) else _put_made(attempt, made)
        failed = _put_beside(attempt, "failed", attempt.failed_items)
        effects = [(stage, effect) for stage, made in attempt.effects.items() for effect in made.calls]
        return Outcome(
            partition=partition.index,
            attempt=partition.attempt,
            kind=made.kind,
            rows=made.rows,
            block=block,
            part=part,
            metrics={stage: metrics.values for stage, metrics in attempt.metrics.items() if metrics.values},
            values=attempt.values,
            counts=attempt.counts,
            first_failed=attempt.first_failed,
            failed_items=failed,
            effects=_put_beside(attempt, "effects", effects),
            started=self._meter.started,
            seconds=self._meter.seconds(),
            cpu_seconds=self._meter.cpu_seconds(),
            peak_memory=self._meter.peak_memory(),
            bytes_in=attempt.bytes_in,
            read=dict(attempt.services.blocks.read),
            spilled=attempt.room.spilled,
        )

    def _failed(self, attempt: Attempt, error: BaseException) -> Failure:
        peak = self._meter.peak_memory()
        failure = _failure(attempt.partition, error, attempt.stage, attempt.services.redactor, peak)
        failure = msgspec.structs.replace(failure, started=self._meter.started)
        attempt.error = None
        for one in (error, error.__cause__):
            traceback.clear_frames(one.__traceback__ if one else None)  # frames refer to the partition
        if failure.failure is FailureClass.OUT_OF_MEMORY:
            self._cache.clear()
            gc.collect()
        return failure


def _read_events(
    split: EventSplit, store: Store, run: str, key: bytes, secrets: Mapping[str, str]
) -> Iterator[list[Any]]:
    from .event_source import EventReader

    return EventReader(store, run, key, secrets).read(split)


def _prepare_bundle(store: Store, job: Job, key: bytes) -> dict[str, bytes]:
    if not job.bundle:
        return {}
    from ..bundle.unpack import prepare

    return prepare(store, job.run, job.bundle, key, job.shared)


def _load(reference: str, captured: dict[str, bytes]) -> Function:
    try:
        function = functions.load(reference, captured)
    except (SystemExit, KeyboardInterrupt) as error:
        raise UsageError(
            f"importing {reference} ended the interpreter ({type_name(error)})",
            "Keep what a script does under `if __name__ == '__main__':`.",
        ) from error
    except UsageError as error:
        from ..bundle.unpack import imported_before

        if imported_before(reference.partition(":")[0]):
            raise ProcessUsed(str(error)) from error
        raise
    info = functions.describe(function)
    return Function(function, info.takes_context, info.vectorized)


def _run_program(program: Program, attempt: Attempt) -> Made:
    attempt.stage = program.ops[0].stage if program.ops else ""
    flow = read_input(attempt.partition.input, attempt)
    for op in program.ops:
        flow = apply(op, flow, attempt)
    return make(program.tail, flow, attempt, want_whole=program.output is not None)


def _put_made(attempt: Attempt, made: Made) -> BlockRef:
    name, blocks, program = _block_name(attempt), attempt.services.blocks, attempt.services.program
    if made.spilled:
        return blocks.put_encoded(name, made.kind, made.parts, program.put)
    return blocks.put(name, made.kind, made.parts, program.put, program.inline_limit, checksums=program.checksums)


def _put_beside(attempt: Attempt, what: str, records: list[Any]) -> BlockRef | None:
    """A list that is committed with the block of the partition. It goes to the store: if it were lost with its host,
    the partition would not run again."""
    services = attempt.services
    name, limit = f"{_block_name(attempt)}.{what}", services.program.inline_limit
    return services.blocks.put(name, "objects", [records], "store", limit) if records else None


def _block_name(attempt: Attempt) -> str:
    return f"{attempt.services.program.segment}/{attempt.partition.index}.{attempt.partition.attempt}"


def _write_part(output: PartOutput, index: int, made: Made, room: MemoryBudget) -> PartRef:
    kind, rows, options = made.whole_kind, made.whole_rows, output.options
    if made.spilled:
        buffers: Iterable[Buffer] = SpilledBytes(room, formats.encode_pieces(kind, made.whole, rows, options))
    else:
        (value,) = made.whole
        buffers = formats.encode_part(kind, value, options)
    part = formats.write_part(output.uri, index, buffers, formats.suffix(options.format))
    return PartRef(part.name, part.size, rows, part.digest)


def _failure(
    partition: Partition, error: BaseException, stage: str, redactor: Redactor, peak_memory: int = 0
) -> Failure:
    failure, how, retryable = classify(error)
    cause = error.error if isinstance(error, StageFailed | InputFailed) else error
    return Failure(
        partition=partition.index,
        attempt=partition.attempt,
        failure=failure,
        how=redactor.text(how),
        stage=error.stage if isinstance(error, StageFailed) else stage,
        error=redactor.text(type_name(cause)),
        message=message_of(cause, redactor) + redactor.text(_remedy(cause)),
        traceback=redactor.text(_where(error) + full_traceback(cause) + _elsewhere()),
        retryable=retryable,
        lost=error.lost if isinstance(error, InputFailed) else (),
        peak_memory=peak_memory,
        followed=isinstance(cause, FROM_ANOTHER_MEMBER),
        place=redactor.text(error.place) if isinstance(error, StageFailed) else "",
    )


def _where(error: BaseException) -> str:
    if not isinstance(error, StageFailed) or (error.position is None and not error.place):
        return ""
    if error.position is None:
        return f"At {error.place}:\n"
    return f"At record {error.position} of the input of {error.stage}{error.place and f' ({error.place})'}:\n"


def _remedy(error: BaseException) -> str:
    """A second line, as errors of treadle have it."""
    from ..bundle.unpack import missing_file_hint

    hint = missing_file_hint(error)
    return f"\n  {hint}" if hint else ""


def _elsewhere() -> str:
    """A note on the environment, which may explain a failure that occurs nowhere else."""
    from ..bundle.unpack import differences

    found = ""
    with suppress(OSError):  # user code may have removed the bundle
        found = differences()
    return f"Where it ran: {found}.\n" if found else ""
