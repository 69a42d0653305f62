"""A test call of a deployed function, with every refused right: `treadle deploy lambda --hello`."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from treadle.executors.hello import hello, try_store
from treadle.executors.interface import Executor
from treadle.executors.program import (
    Call,
    Failure,
    ItemSplit,
    Job,
    Keep,
    MapRecords,
    Outcome,
    Partition,
    Program,
    Report,
    Task,
    Value,
)
from treadle.primitives.blocks import Blocks
from treadle.primitives.errors import FailureClass
from treadle.primitives.stores.store import Store

_SECONDS = 60.0
_ACTIONS = {"write": "s3:PutObject", "read": "s3:GetObject", "list": "s3:ListBucket", "remove": "s3:DeleteObject"}


class Met(Struct, frozen=True):
    """The result of one step."""

    what: str
    milliseconds: float
    error: str = ""
    whose: str = "driver"
    """The party whose rights the step needs: `driver` or `functions`."""

    @property
    def action(self) -> str:
        """The IAM action that allows the step."""
        return _ACTIONS.get(self.what.rpartition(": ")[2], "")


async def say_hello(executor: Executor, store_url: str) -> list[Met]:
    """Try the store from here, call the function twice (the first call may be cold), and try the store from the
    function.

    Raises UsageError, with the remedy, if the function cannot be called.
    """
    run = f"hello-{secrets.token_hex(4)}"
    store, name = Store.open(store_url), f"runs/{run}/hello"
    found = [_met("store from here", one, "driver") for one in await asyncio.to_thread(try_store, store, name)]
    if any(one.error for one in found):
        return found
    try:
        await executor.start()
        cold = await _called(executor, store_url, run, name, 0)
        warm = await _called(executor, store_url, run, name, 1)
    finally:
        await executor.stop()
        await asyncio.to_thread(store.delete_prefix, f"runs/{run}")
    return [*found, *_told("first call", cold, store, run), *_told("second call", warm, store, run)]


async def _called(executor: Executor, store: str, run: str, name: str, number: int) -> tuple[Report, float]:
    reports: list[Report] = []
    begun = time.monotonic()
    await executor.slots[0].run(_task(store, run, name, number), reports.append)
    return reports[0], (time.monotonic() - begun) * 1000


def _task(store: str, run: str, name: str, number: int) -> Task:
    call = Call(f"{hello.__module__}:{hello.__name__}", {"store": Value(store)})
    program = Program("hello", (MapRecords("hello", call),), Keep(), put="store", inline_limit=1 << 14)
    job = Job(run, "hello", "2026-01-01T00:00:00Z", 0, store, "")
    return Task(f"hello/{number}", job, program, (Partition(number, ItemSplit((name,)), 1),), _SECONDS, 0)


def _told(what: str, called: tuple[Report, float], store: Store, run: str) -> Iterator[Met]:
    report, milliseconds = called
    if isinstance(report, Failure):
        whose = "functions" if report.failure is FailureClass.UNREACHABLE else "driver"
        yield Met(what, round(milliseconds, 1), report.text or report.how, whose)
        return
    about = _about(report, store, run)
    place = f"Python {about['python']}, {about['machine']}{', ' + about['region'] if about['region'] else ''}"
    yield Met(f"{what} ({place})", round(milliseconds, 1))
    for one in about["store"]:
        yield _met("store from the function", one, "functions")


def _about(outcome: Outcome, store: Store, run: str) -> dict[str, Any]:
    assert outcome.block is not None
    (about,) = Blocks(store, run, None).get(outcome.block.slice(0))
    return dict(about)


def _met(where: str, one: dict[str, Any], whose: str) -> Met:
    return Met(f"{where}: {one['what']}", one["milliseconds"], one["error"], whose)
