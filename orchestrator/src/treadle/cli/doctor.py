"""doctor: checks the prerequisites of a run."""

from __future__ import annotations

import asyncio
import os
import platform
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal

import typer

from treadle.client.environment import silence_core
from treadle.primitives.errors import TreadleError

from .common import formatting
from .common.environment import Environment
from .common.exit_codes import Exit, complain, say_json
from .common.hints import advice
from .common.options import ProfileOption, TextOrJson
from .doctor_triggers import Check, hooks, kafka, retention, search_attribute, triggers_deployed

if TYPE_CHECKING:
    from temporalio.client import Client

    from treadle.executors.interface import Capabilities

SHARED_MEMORY_LEAST = 256 << 20
"""Bytes; Docker's default is 64 MiB."""
HOME_LEAST = 16 << 20
"""Bytes; a new database and the ledger of a small run need about half of it."""
_PARTS = (
    "treadle-orchestrator",
    "treadle-dsl",
    "treadle-executors",
    "treadle-primitives",
    "temporalio",
    "pyarrow",
    "numpy",
)


def doctor(output: TextOrJson = "text", profile: ProfileOption = None) -> None:
    """Check Temporal, store, key, shared memory, versions, and the prerequisites of triggers. Starts nothing."""
    env = Environment(profile)
    found: list[Check] = []
    for check in (_python, _versions, _home, _settings, _temporal, _store, _executors, _memory, kafka, hooks):
        found += _guarded(check, env)
    if output == "json":
        say_json(found)
    else:
        for one in found:
            _print(one)
    raise typer.Exit(int(_verdict(found)))


def _guarded(check: Callable[[Environment], Iterator[Check]], env: Environment) -> list[Check]:
    name = check.__name__.strip("_")
    try:
        return list(check(env))
    except TreadleError as error:
        return [Check(name, "failed", error.message, error.hint)]
    except OSError as error:
        return [Check(name, "failed", str(error), "Free some space, or mend the rights of the file.")]


def _print(check: Check) -> None:
    typer.echo(f"{check.state:8} {check.name:14} {check.about}")
    for line in advice(check.hint).splitlines():
        typer.echo(f"{'':24}{line}")


def _verdict(found: list[Check]) -> Exit:
    failed = [one.name for one in found if one.state == "failed"]
    if not failed:
        return Exit.SUCCESS
    complain(f"{formatting.counted(len(failed), 'check')} failed: {', '.join(failed)}")
    return Exit.UNREACHABLE if {"temporal", "store", "kafka"} & set(failed) else Exit.USAGE


def _python(_: Environment) -> Iterator[Check]:
    text = f"{platform.python_version()} at {sys.executable}"
    old = sys.version_info < (3, 11)
    yield Check("python", "failed" if old else "ok", text, "treadle needs 3.11 or newer." if old else "")


def _versions(_: Environment) -> Iterator[Check]:
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, str] = {}
    for part in _PARTS:
        try:
            found[part] = version(part)
        except PackageNotFoundError:
            found[part] = "missing"
    text = ", ".join(f"{part} {number}" for part, number in found.items())
    mixed = len({number for part, number in found.items() if part.startswith("treadle")}) > 1
    hint = "Install one version of all treadle packages." if mixed else ""
    yield Check("versions", "failed" if mixed else "ok", text, hint)


def _home(env: Environment) -> Iterator[Check]:
    free = shutil.disk_usage(env.home.path).free
    full = free < HOME_LEAST
    hint = "Free some space: databases, ledgers and blocks are written there." if full else ""
    yield Check("home", "failed" if full else "ok", f"{env.home.path}, {formatting.size(free)} free", hint)
    if not env.home.key.exists():
        yield Check("key", "ok", "made at the first submit")
        return
    mode = stat.S_IMODE(os.stat(env.home.key).st_mode)
    assert env.key
    yield Check("key", "ok", f"{env.home.key}, mode {mode:04o}")


def _settings(env: Environment) -> Iterator[Check]:
    profile = env.profile
    where = "the embedded Temporal server" if profile.embedded else "a Temporal cluster"
    name = f"profile {profile.name}" if profile.name else "no profile"
    yield Check("settings", "ok", f"{name}: {where}, queue {env.queue}, store {profile.store_url(env.home)}")


def _temporal(env: Environment) -> Iterator[Check]:
    if env.profile.embedded:
        from treadle.orchestrator import embedded
        from treadle.orchestrator.embedded.server import has_unfinished_database
        from treadle.orchestrator.embedded.server_program import check_program, find_program

        program = find_program()
        check_program(program, env.home.server / "program.json")
        found = embedded.status(env.home)
        if has_unfinished_database(env.home):
            text = f"its first start broke off, and left a part of a database in {env.home.server}"
            yield Check("temporal", "warning", text, "Free some space; the next start makes the database anew.")
            return
        if found.server is None:
            yield Check("temporal", "ok", f"not running; started when it is needed: {program}")
            return
        yield Check(
            "driver", "ok", f"process {found.driver.pid}" if found.driver else "none; started when it is needed"
        )
    checks, drivers = asyncio.run(_ask_temporal(env))
    yield from checks
    if not env.profile.embedded:
        state: Literal["ok", "warning"] = "ok" if drivers else "warning"
        hint = "" if drivers else "Start one: treadle worker"
        yield Check("drivers", state, f"{drivers} serve the queue {env.queue}", hint)


async def _ask_temporal(env: Environment) -> tuple[list[Check], int]:
    from treadle.orchestrator.temporal.connect import connect

    silence_core()
    client = await connect(env.profile, env.home)
    days, triggers = await _retention(client), await asyncio.to_thread(triggers_deployed, env)
    drivers = await env.runs_of(client).drivers()
    text = f"{client.service_client.config.target_host}, namespace {client.namespace}"
    if days is None:
        return [Check("temporal", "ok", text), Check("retention", "warning", "unknown: the key may not ask")], drivers
    return [Check("temporal", "ok", text), retention(days, triggers), await search_attribute(client, triggers)], drivers


async def _retention(client: Client) -> float | None:
    from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
    from temporalio.service import RPCError

    try:
        request = DescribeNamespaceRequest(namespace=client.namespace)
        answer = await client.workflow_service.describe_namespace(request)
    except RPCError:
        return None
    return answer.config.workflow_execution_retention_ttl.ToTimedelta().total_seconds() / 86_400


def _store(env: Environment) -> Iterator[Check]:
    """Check create-if-absent, on which the ledger depends: a store that confirms two creations loses work."""
    name = f"doctor/{secrets.token_hex(8)}"
    store = env.store
    try:
        first, second = store.create(name, b"probe"), store.create(name, b"again")
        same = store.get(name) == b"probe"
    finally:
        store.delete([name])
    if not first or second or not same:
        yield Check("store", "failed", f"{store.url} does not create if absent", "Use a store with conditional writes.")
    else:
        yield Check("store", "ok", f"{store.url}: writes, reads, creates only if absent")


def _executors(env: Environment) -> Iterator[Check]:
    """Check each executor's table. Starts and calls nothing."""
    from treadle.orchestrator.executor_registry.registry import open_places

    places = open_places(env.home, env.profile)
    for name in places:
        try:
            can = places[name].capabilities
        except TreadleError as error:
            yield Check("executor", "failed", error.message, error.hint)
            continue
        memory = f", {formatting.size(can.memory_limit)} {_whose(can)}" if can.memory_limit else ""
        time = f", {formatting.span(can.time_limit)}" if can.time_limit else ""
        kind = f" ({can.name})" if can.name != name else ""
        yield Check("executor", "ok", f"{name}{kind}: {formatting.counted(can.slots, 'slot')}{memory}{time}")


def _whose(can: Capabilities) -> str:
    """Whether the memory limit holds for each attempt or for all together. Attempts of a local executor without a
    setting share the machine's memory."""
    from treadle.executors.memory_limit import host_memory

    alone = can.slots == 1 or can.name != "local" or can.memory_limit < host_memory()
    return "for an attempt" if alone else "that they share"


def _memory(env: Environment) -> Iterator[Check]:
    root = env.home.host_root.parent.parent
    free = shutil.disk_usage(root).free
    small = free < SHARED_MEMORY_LEAST
    hint = "Larger blocks go to the store. In Docker: --shm-size=2g." if small else ""
    yield Check("shared memory", "warning" if small else "ok", f"{root}, {formatting.size(free)} free", hint)
