"""A driver process's view of a run: its sealed files, its plan, the manifests read so far, and the slots."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from treadle.executors.operations.apply import check_single, check_size
from treadle.executors.program import Failure, Job, Outcome
from treadle.primitives import sealing
from treadle.primitives.blocks import Blocks, Peers
from treadle.primitives.encoding.references import Slice
from treadle.primitives.errors import InternalError
from treadle.primitives.run_paths import run_folder
from treadle.primitives.stores.shared_memory import HostFolder
from treadle.primitives.stores.store import Store

from ...plan.plan import LoopNode, Node, Plan, Segment, Shipped
from ...run_store.run_files import LoopResult, Manifest, RunFiles, Submission
from ...telemetry.instruments import Telemetry
from ..blocks.block_gc import Reclaimer
from ..blocks.host_blocks import Hosts
from ..tasks.dataset_scope import Scope, loop_chains
from .slot_pool import Pools


class Lender(NamedTuple):
    """A driver that lends its local slots."""

    slots: int
    address: str


class Lending(NamedTuple):
    """How the drivers of a queue lend each other slots for gangs (`dispatcher.lending`)."""

    address: str
    """The address at which this driver lends its slots."""
    find: Callable[[], Awaitable[Sequence[Lender]]]
    """The drivers that lend slots, this one included, as far as they are known."""


RUNS = 100
"""Runs kept in memory."""
AFFINITIES = 100_000
"""Blocks whose last reader is remembered."""


class DriverContext:
    """The resources that a driver process shares between all runs: the store, the key, the slots."""

    def __init__(
        self,
        store: Store,
        key: bytes,
        host_root: Path | None,
        pools: Pools,
        *,
        one_host: bool = True,
        hosts: Hosts | None = None,
        default: str = "local",
        telemetry: Telemetry | None = None,
    ) -> None:
        """`one_host`: no driver of another host takes part, so all workers map each other's blocks.

        `hosts`: serves this host's blocks to the workers of other hosts. `default`: the executor of stages that name
        none.
        """
        self.default, self.telemetry = default, telemetry or Telemetry()
        self.store, self.key, self.host_root, self.pools = store, key, host_root, pools
        self.host = HostFolder(host_root) if host_root else None
        self.one_host, self.hosts = one_host, hosts
        self.lending: Lending | None = None
        """None: this driver neither lends slots nor borrows any."""
        self._runs: OrderedDict[str, RunContext] = OrderedDict()
        self._turn = threading.Lock()

    def files(self, run: str) -> RunFiles:
        return RunFiles(self.store, run, sealing.run_key(self.key, run))

    def slot_name(self, slot: str) -> str:
        """The slot's name for all hosts. Another host may have a slot of the same name."""
        return slot if self.one_host or self.host is None else f"{self.host.host_id}/{slot}"

    def open(self, run: str, execution: str | None = None, parts: tuple[Submission, Plan] | None = None) -> RunContext:
        """The run, read from the store the first time and for each new execution, since the id may now belong to
        another run. `parts`: as the store has them.

        Without an execution, the known run is returned. Every thread gets the same object. Blocking.
        """
        known = self._known(run, execution) or self._read(run, execution, parts)
        with self._turn:
            known = self._runs[run] = self._known(run, execution) or known
            self._runs.move_to_end(run)
            while len(self._runs) > RUNS:
                self._runs.popitem(last=False)[1].blocks.close()
        return known

    def _known(self, run: str, execution: str | None) -> RunContext | None:
        found = self._runs.get(run)
        return found if found is not None and execution in (None, found.execution) else None

    def _read(self, run: str, execution: str | None, parts: tuple[Submission, Plan] | None) -> RunContext:
        files = self.files(run)
        submission, plan = parts or (files.load(Submission, "spec"), files.load(Plan, "plan"))
        found = RunContext(self, files, submission, plan, execution)
        if self.hosts is not None:
            self.hosts.announce(run)
        return found


class RunContext:
    """One run as this process sees it. Manifests stay in memory: only a repair changes them, and it calls `forget`."""

    def __init__(
        self, site: DriverContext, files: RunFiles, submission: Submission, plan: Plan, execution: str | None = None
    ) -> None:
        """`execution`: the id of the Temporal execution that the run was read for."""
        self.site, self.files, self.submission, self.plan = site, files, submission, plan
        self.execution = execution
        self.id, self.folder = files.run, run_folder(files.run)
        self.env: dict[str, Any] = {"inputs": submission.inputs, "run": {"id": self.id, "startTime": plan.started}}
        self.job = Job(
            run=self.id,
            workflow=submission.spec["name"],
            started=plan.started,
            seed=submission.spec.get("seed", 0),
            store=site.store.url,
            bundle=submission.bundle,
            shared=submission.shared,
        )
        self.blocks = Blocks(site.store, self.id, site.host, self._peers)
        self.scope = Scope(loop_chains(plan.graph))
        self.reclaimer = Reclaimer(files, plan.graph, self.blocks)
        self._manifests: dict[str, Manifest] = {}
        self._generations: dict[str, int] = {}
        """Generations of manifests that other drivers may have made."""
        self._fresh: set[str] = set()
        """Nodes that no process has begun, as far as this one knows."""
        self._loops: dict[str, LoopResult] = {}
        self._readers: OrderedDict[str, str] = OrderedDict()

    def _peers(self) -> Peers:
        from treadle.primitives.peers.hosts import HostPeers

        return HostPeers(self.site.store, self.id, self.files.key, self.site.host, self.blocks.read)

    def opened(self, fresh: Iterable[str]) -> None:
        """This process opened the run, in which no process has begun these nodes."""
        self._fresh = set(fresh)

    def begins(self, node: str) -> bool:
        """Return whether this process begins the node as the first one. If the run was taken from it in the meantime,
        the node's ledger says so."""
        is_first = node in self._fresh
        self._fresh.discard(node)
        return is_first

    # -- output of segments

    def manifest(self, segment: str) -> Manifest:
        """The committed set of a closed segment."""
        found = self._manifests.get(segment) or self.files.manifest(segment)
        if found is None:
            raise InternalError(f"{self.id}: segment {segment} is read before it was closed")
        self._manifests[segment] = found
        return found

    def know(self, manifest: Manifest) -> None:
        """Keep a manifest that was made here, or is newer than the known one."""
        self._manifests[manifest.segment] = manifest

    def forget(self, segment: str) -> None:
        """Read the manifest again at the next use."""
        self._manifests.pop(segment, None)

    def catch_up(self, nodes: Collection[str]) -> None:
        """Read the manifests of these nodes, again if another driver has repaired them since. Blocking."""
        for node in self.plan.graph.nodes:
            for segment in self._left_by(node) if node.id in nodes else ():
                generation = 0 if self.site.one_host else self.files.generation(segment)
                if generation != self._generations.get(segment, 0):
                    self.forget(segment)
                    self._generations[segment] = generation
                self.manifest(segment)

    def _left_by(self, node: Node) -> Iterable[str]:
        """The segments that the node made for its readers."""
        if isinstance(node, LoopNode):
            return self.loop(node.id).made_in(node.id)
        return (node.id,) if isinstance(node, Segment) else ()

    def loop(self, loop: str) -> LoopResult:
        if loop not in self._loops:
            self._loops[loop] = self.files.load(LoopResult, f"segments/{loop}/result")
        return self._loops[loop]

    def know_loop(self, loop: str, result: LoopResult) -> None:
        self._loops[loop] = result

    def broadcast_finder(self, broadcasts: dict[str, Shipped], scope: Scope) -> Callable[[str], Slice]:
        """A function: template path -> block of the broadcast's value. It raises UsageError for a value that is too
        large."""

        def find(path: str) -> Slice:
            shipped = broadcasts[path]
            (segment,) = scope.data(shipped.data, self.loop).segments
            block = self.manifest(segment).outcomes[0].block
            if block is None:
                raise InternalError(f"{path} left no block")
            if shipped.limit:
                check_single(shipped.stage, block.parts[0].rows)
                check_size(shipped.stage, block.size, shipped.limit)
            return block.slice(0)

        return find

    # -- telemetry

    def tell_committed(self, segment: Segment, outcome: Outcome) -> None:
        self.site.telemetry.committed(self.id, self.job.workflow, segment, outcome)

    def tell_failed(self, segment: Segment, failure: Failure, *, final: bool) -> None:
        self.site.telemetry.failed(self.id, self.job.workflow, segment, failure, final=final)

    # -- which slot has decoded which block

    def read_by(self, block: str, slot: str) -> None:
        self._readers[block] = slot
        self._readers.move_to_end(block)
        if len(self._readers) > AFFINITIES:
            self._readers.popitem(last=False)

    def reader(self, block: str) -> str | None:
        return self._readers.get(block)
