"""The emulated OpenWhisk with treadle's actions, and an executor that calls them."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import httpx
from emulators.openwhisk_actions import SystemLimits
from emulators.openwhisk_server import OpenWhiskEmulator

from treadle.executors.functions.executor import FunctionExecutor
from treadle.executors.functions.rate_limiter import Rate
from treadle.executors.openwhisk.action import ENTRY, action_document, code_of
from treadle.executors.openwhisk.client import OpenWhiskClient
from treadle.executors.openwhisk.invoker import OpenWhiskInvoker, action_name
from treadle.executors.package.build import Package, build_package
from treadle.executors.package.target import this_machine
from treadle.executors.worker.environment import KEY_VARIABLE, secret_variable
from treadle.primitives import sealing

SIZES = (256, 1024)
"""Megabytes."""
GENEROUS = SystemLimits(per_minute=1_000_000, concurrent=1000, memory=(128, 2048))
"""An installation with all configurable limits raised (docs/reference.md, "configurable")."""


@cache
def action_package() -> Package:
    """The package that `treadle deploy openwhisk` would upload, for this machine."""
    return build_package(this_machine(), extra=ENTRY)


@contextmanager
def openwhisk(
    folder: Path, limits: SystemLimits = GENEROUS, certificate: Path | None = None
) -> Iterator[OpenWhiskEmulator]:
    """An installation without actions. `folder`: for it alone. `certificate`: see `OpenWhiskEmulator`."""
    with OpenWhiskEmulator(folder, limits, certificate) as emulator:
        yield emulator


def deploy(
    emulator: OpenWhiskEmulator,
    key_file: str,
    secrets: Mapping[str, str] | None = None,
    *,
    seconds: float = 60.0,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Create the actions of every size. `secrets`: name -> value. `environment`: the store's variables."""
    key = base64.b64encode(sealing.load_or_create_key(key_file)).decode()
    variables = {secret_variable(name): value for name, value in (secrets or {}).items()}
    variables |= {KEY_VARIABLE: key, **(environment or {})}
    package = action_package()
    with httpx.Client(auth=tuple(emulator.key.split(":")), timeout=60, trust_env=False) as http:  # type: ignore[arg-type]
        for size in SIZES:
            document = action_document(
                code_of(package),
                package.digest,
                "",
                size=size,
                seconds=seconds,
                environment=variables,
                tags={},
            )
            url = f"{emulator.endpoint}/api/v1/namespaces/_/actions/{action_name('treadle', size)}?overwrite=true"
            http.put(url, json=document).raise_for_status()


class OpenWhiskPlace:
    """See `executors.members_rig.Provider`."""

    def __init__(self, emulator: OpenWhiskEmulator) -> None:
        self.emulator = emulator

    def deploy(self, key_file: str, *, timeout: float) -> None:
        deploy(self.emulator, key_file, seconds=timeout)

    def invoker(self, *, seconds: float) -> OpenWhiskInvoker:
        client = OpenWhiskClient(self.emulator.endpoint, self.emulator.key, connections=16)
        return OpenWhiskInvoker(client, sizes=SIZES, seconds=seconds)


class EmulatedExecutor(FunctionExecutor):
    """When it stops, the platform reclaims its containers."""

    def __init__(self, emulator: OpenWhiskEmulator, key_file: str, slots: int, rate: Rate | None = None) -> None:
        client = OpenWhiskClient(emulator.endpoint, emulator.key, connections=2 * slots)
        super().__init__("openwhisk", OpenWhiskInvoker(client, sizes=SIZES), key_file=key_file, slots=slots, rate=rate)
        self._emulator = emulator

    async def stop(self) -> None:
        await super().stop()
        await asyncio.to_thread(self._emulator.reclaim)
