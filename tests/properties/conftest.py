"""Executors and stores that all property tests of a session share."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import namespaces
import pytest

from treadle.client.testing import Engine
from treadle.client.testing.harness import Harness
from treadle.client.testing.hosts import SeveralHosts
from treadle.executors.interface import Executor
from treadle.orchestrator.dispatcher.blocks.host_blocks import Hosts as Server
from treadle.orchestrator.dispatcher.tasks import arguments
from treadle.primitives.stores.shared_memory import SHARED_MEMORY
from treadle.primitives.stores.store import Store
from treadle.primitives.testing.s3 import seaweedfs

from .functions import FAULTS

TESTS = Path(__file__).parent.parent


@dataclass
class Site:
    """The site of generated workflows."""

    harness: Harness
    executor: Executor
    store: Store
    host_root: Path | None
    folder: Path
    numbers: Iterator[int]

    def engine(self, executor: Executor | None = None, store: Store | None = None) -> Engine:
        return self.harness.engine(store or self.store, executor or self.executor, self.host_root)

    def place(self) -> tuple[Path, str]:
        """(a folder for files, the id of a run), both new."""
        number = next(self.numbers)
        base = self.folder / str(number)
        base.mkdir()
        return base, f"run-{number}"

    @property
    def host_roots(self) -> Sequence[Path | None]:
        """The host folders of all hosts."""
        return [self.host_root]

    @property
    def scripts(self) -> Path:
        """The folder in which functions find their faults."""
        return self.harness.folder / "faults"


@pytest.fixture(scope="session")
def host_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="treadle-properties-", dir=SHARED_MEMORY) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    folder = tmp_path_factory.mktemp("properties")
    (folder / "faults").mkdir()
    harness = Harness(folder, TESTS, {FAULTS: str(folder / "faults")})
    yield harness
    harness.close()
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def numbers() -> Iterator[int]:
    return itertools.count()


@pytest.fixture(scope="session")
def sites(harness: Harness, host_folder: Path, numbers: Iterator[int]) -> Callable[[int, bool], Site]:
    """Local slots with or without shared memory, and files as the store."""
    known: dict[tuple[int, bool], Site] = {}

    def site(slots: int, host: bool) -> Site:
        if (slots, host) not in known:
            root = host_folder / f"{slots}" if host else None
            store = Store.open(f"file://{harness.folder}/store")
            known[slots, host] = Site(harness, harness.local(slots, root), store, root, harness.folder, numbers)
        return known[slots, host]

    return site


@dataclass
class Hosts(Site):
    """Two hosts with a slot and memory each. Blocks are pulled over TCP."""

    roots: Sequence[Path] = ()
    servers: Sequence[Server] = ()

    @property
    def host_roots(self) -> Sequence[Path | None]:
        return self.roots

    def engine(self, executor: Executor | None = None, store: Store | None = None) -> Engine:
        used = store or self.store
        return self.harness.engine(used, executor or self.executor, self.host_root, self.servers)


@pytest.fixture(scope="session")
def hosts_site(harness: Harness, host_folder: Path, numbers: Iterator[int]) -> Hosts:
    """Two hosts on loopback."""
    roots = [host_folder / "left", host_folder / "right"]
    executor = SeveralHosts([harness.local(1, root) for root in roots])
    store = Store.open(f"file://{harness.folder}/store")
    servers = harness.hosts(store, roots, ["tcp://127.0.0.1:0"] * 2)
    return Hosts(harness, executor, store, roots[0], harness.folder, numbers, roots, servers)


@pytest.fixture(scope="session")
def namespaces_site(
    tmp_path_factory: pytest.TempPathFactory, host_folder: Path, numbers: Iterator[int]
) -> Iterator[Hosts]:
    """Two hosts in separate network namespaces. The driver is on the first one."""
    if reason := namespaces.unsupported():
        pytest.skip(reason)
    with namespaces.two_hosts() as (left, right):
        folder = tmp_path_factory.mktemp("namespaces")
        (folder / "faults").mkdir()
        with left.entered():
            harness = Harness(folder, TESTS, {FAULTS: str(folder / "faults")})
        yield _in_namespaces(harness, (left, right), host_folder, numbers)
        harness.close()


def _in_namespaces(
    harness: Harness, places: tuple[namespaces.Host, ...], memory: Path, numbers: Iterator[int]
) -> Hosts:
    store = Store.open(f"file://{harness.folder}/store")
    executors, servers = [], []
    roots = [memory / f"namespace-{number}" for number in range(len(places))]
    for place, root in zip(places, roots, strict=True):
        executors.append(harness.local(1, root, entered=place.entered))
        with place.entered():
            servers += harness.hosts(store, [root], [f"tls://{place.address}:0"])
    return Hosts(harness, SeveralHosts(executors), store, roots[0], harness.folder, numbers, roots, servers)


@pytest.fixture(scope="session")
def s3_site(harness: Harness, numbers: Iterator[int]) -> Iterator[Site]:
    """Two slots that share only a real S3 server."""
    with seaweedfs() as endpoint:
        store = Store.open("s3://treadle", **endpoint.options)
        executor = harness.local(2, None, environment=endpoint.environment)
        yield Site(harness, executor, store, None, harness.folder, numbers)


@pytest.fixture(scope="session")
def isolated_site(harness: Harness, numbers: Iterator[int]) -> Site:
    """A fresh process for every attempt."""
    store = Store.open(f"file://{harness.folder}/store")
    return Site(harness, harness.isolated(2), store, None, harness.folder, numbers)


@pytest.fixture(scope="session", params=[1, 1500])
def tight_site(harness: Harness, numbers: Iterator[int], request: pytest.FixtureRequest) -> Site:
    """Two slots with memory for no waiting record, or for a few."""
    store = Store.open(f"file://{harness.folder}/store")
    executor = harness.local(2, None, room=request.param)
    return Site(harness, executor, store, None, harness.folder, numbers)


@pytest.fixture
def no_inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block goes to the host or the store, however small."""
    monkeypatch.setattr(arguments, "INLINE_LIMIT", 0)
