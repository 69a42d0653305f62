"""An installation for tests of triggers: broker, Temporal, driver, and `treadle triggers` in separate processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import msgspec
from confluent_kafka import KafkaException
from kafka import Broker
from orchestrator.commands import treadle
from temporalio.client import Client
from triggers.deployed import TESTS, M, read

from treadle.client.submission import function_references
from treadle.dsl.normalise import normalise
from treadle.executors.bundle.build import build_bundle
from treadle.orchestrator import embedded
from treadle.orchestrator.embedded.detached_process import locked
from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.environment.profile import Profile, load_profile
from treadle.orchestrator.run_store.run_files import RunFiles, Submission
from treadle.orchestrator.temporal.connect import connect
from treadle.primitives.functions import describe, load
from treadle.primitives.sealing import load_or_create_key, run_key
from treadle.primitives.stores.store import Store
from treadle.triggers.kafka.offsets import KafkaPositions, group_of
from treadle.triggers.registry.deployment import Deployment
from treadle.triggers.registry.registry import DeploymentCandidate, Registry
from treadle.triggers.starter import ensure_search_attribute

TREADLE = str(Path(sys.executable).with_name("treadle"))
DYING = Path(__file__).with_name("dying.py")
CONNECTION = "broker"
PROFILE = """
[tests.kafka.broker]
bootstrap.servers = "{bootstrap}"
session.timeout.ms = 3000
heartbeat.interval.ms = 500
reconnect.backoff.max.ms = 500
topic.metadata.refresh.interval.ms = 1000
"""


_FOR_A_MOMENT = {"NON_EMPTY_GROUP", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"}
"""Errors of deleting a group that pass: a member has just left, or the broker has just started."""


@dataclass(frozen=True)
class Execution:
    """An execution of Temporal."""

    run: str
    started: datetime
    ended: datetime | None


@dataclass
class Installation:
    """Everything that it started ends with `close`."""

    home: Home
    kafka: Broker
    profile: Profile
    store: Store
    key: bytes
    registry: Registry
    services: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _specs: dict[str, Submission] = field(default_factory=dict)

    async def client(self) -> Client:
        """A client that can list the runs of a trigger."""
        client = await connect(self.profile, self.home)
        await ensure_search_attribute(client)
        return client

    # -- workflows

    def deploy(self, document: Mapping[str, Any], *, settled: bool = True) -> Deployment:
        """Deploy a document as `treadle deploy` does. Not `settled`: as if it died before it recorded where the version
        begins."""
        spec = read(document)
        references = function_references(spec)
        functions = {name: msgspec.to_builtins(describe(load(name, {}))) for name in references}
        bundle = build_bundle(references, [TESTS], {})
        candidate = DeploymentCandidate(normalise(spec), functions, bundle.digest, bundle.data, str(self.home.path))
        draft = self.registry.draft(candidate)
        positions = KafkaPositions(self.home, self.profile)

        def begins(before: Deployment | None) -> Any:
            if not settled and self.registry.find(draft.workflow) != before:
                raise _DiedBeforeSettling
            return positions.begins(draft, before)

        with contextlib.suppress(_DiedBeforeSettling):
            return self.registry.deploy(candidate, begins)
        return self.registry.deployment(draft.workflow)

    def submission(self, run: str) -> Submission:
        if run not in self._specs:
            files = RunFiles(self.store, run, run_key(self.key, run))
            self._specs[run] = files.load(Submission, "spec")
        return self._specs[run]

    async def executions(self, client: Client, trigger: str) -> list[Execution]:
        """The executions of the runs that a trigger started."""
        found = client.list_workflows(f"TreadleTrigger = '{trigger}'")
        return [Execution(one.id, one.start_time, one.close_time) async for one in found]

    # -- services

    def serve(self, dies: Literal["", "before", "after"] = "", commit: int = 0) -> subprocess.Popen[bytes]:
        """Start one more service. `dies`: kill it before or after the commit with the number `commit`."""
        command = [TREADLE, "triggers"] if not dies else [sys.executable, str(DYING), dies, str(commit)]
        with open(self.home.path / "services.log", "ab") as log:
            process = subprocess.Popen(command, env=self.environ(), stdout=log, stderr=log, start_new_session=True)
        self.services.append(process)
        return process

    def environ(self) -> dict[str, str]:
        """The environment variables of commands."""
        known = {name: value for name, value in os.environ.items() if not name.startswith(("TREADLE_", "TEMPORAL_"))}
        return known | {"TREADLE_HOME": str(self.home.path), "TREADLE_PROFILE": "tests"}

    def treadle(self, *words: str) -> subprocess.CompletedProcess[str]:
        return treadle(*words, folder=self.home.path, environ=self.environ())

    def alive(self) -> list[subprocess.Popen[bytes]]:
        self.services = [one for one in self.services if one.poll() is None]
        return self.services

    def end(self, service: subprocess.Popen[bytes], how: signal.Signals) -> None:
        service.send_signal(how)
        try:
            service.wait(30)
        except subprocess.TimeoutExpired:
            service.kill()
            service.wait()

    def end_all(self, how: signal.Signals = signal.SIGTERM) -> None:
        for service in self.alive():
            self.end(service, how)

    # -- servers

    def temporal(self) -> int:
        """The pid of the server."""
        state = embedded.running_server(self.home)
        assert state is not None
        return state.pid

    def ensure_driver(self) -> None:
        embedded.up(self.home, self.profile)

    def kill_temporal(self, away: float) -> None:
        """Kill the server and keep it from being restarted for `away` seconds. The driver would restart it within
        one."""
        with locked(self.home.server / "start.lock", 60.0):
            os.kill(self.temporal(), signal.SIGKILL)
            time.sleep(away)
        embedded.up(self.home, self.profile)

    def forget_offsets(self, workflow: str, trigger: str) -> None:
        """Delete the group's offsets, as Kafka does after a week without members. No service may be alive."""
        group = group_of(self.key, workflow, trigger, 1)
        end = time.monotonic() + 60
        while True:
            try:
                self.kafka.admin.delete_consumer_groups([group])[group].result(30)
                return
            except KafkaException as error:
                if error.args[0].name() == "GROUP_ID_NOT_FOUND":
                    return
                if error.args[0].name() not in _FOR_A_MOMENT:
                    raise
            assert time.monotonic() < end
            time.sleep(0.5)

    def log(self) -> str:
        return (self.home.path / "services.log").read_text(errors="replace")

    def close(self) -> None:
        for service in self.alive():
            with contextlib.suppress(ProcessLookupError):
                service.send_signal(signal.SIGCONT)
        self.end_all(signal.SIGKILL)
        embedded.down(self.home)


class _DiedBeforeSettling(Exception):
    pass


@contextlib.contextmanager
def installation(folder: Path, kafka: Broker) -> Iterator[Installation]:
    """An installation in an empty folder. The driver starts at once, services on request."""
    home = Home(folder)
    home.profiles.write_text(PROFILE.format(bootstrap=kafka.bootstrap))
    profile = load_profile(home, "tests", {})
    store, key = Store.open(profile.store_url(home)), load_or_create_key(home.key)
    made = Installation(home, kafka, profile, store, key, Registry(store, key))
    try:
        embedded.attach(home)
        embedded.up(home, profile)
        yield made
    finally:
        made.close()


def workflow(name: str, topic: str, kinds: str, **settings: Any) -> dict[str, Any]:
    """A workflow with one trivial run for each event or batch of these types."""
    trigger = {
        "type": "kafka",
        "connection": CONNECTION,
        "topics": [topic],
        "filter": " || ".join(f'event.type == "{kind}"' for kind in kinds),
        "startFrom": "earliest",
        "deadLetter": {"topic": f"{topic}.dlt"},
        "with": {"events": "${{ trigger.events }}"},
        **settings,
    }
    return {
        "apiVersion": "treadle/v1",
        "name": name,
        "inputs": {"events": {"type": "dataset", "required": True}},
        "triggers": {"live": trigger},
        "stages": {"each": {"type": "map", "input": {"items": [1]}, "uses": f"{M}:same"}},
    }
