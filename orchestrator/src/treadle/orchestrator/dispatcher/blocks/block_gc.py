"""Garbage collection of blocks during a run: three sorts of block are removed once they have no more readers.

blocks of                                  removed from                  when
loop iterations                            shared memory                 the next iteration is on record
segments                                   shared memory                 shared memory is full
attempts that lost against their rival     shared memory and the store   the winner is on record

A removed block can be recomputed: a lost block takes back its commit. So an early removal costs time, never a result.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from treadle.executors.program import Outcome
from treadle.primitives.blocks import Blocks
from treadle.primitives.errors import StoreError, TreadleError
from treadle.primitives.run_paths import run_folder
from treadle.primitives.stores.shared_memory import HostFolder

from ...plan.plan import Graph, Node, Segment
from ...run_store.run_files import RunFiles
from ..ledger.group_commit import LedgerWriter
from ..ledger.ledger import Iterated

_log = logging.getLogger(__name__)


class Tidier:
    """Removes the blocks of an iteration once the one after it is over and safely on record."""

    def __init__(self, host: HostFolder | None, folder: str) -> None:
        """`folder`: the run's folder within the host folder."""
        self._host, self._folder = host, folder
        self._due: list[tuple[int, str, frozenset[str]]] = []

    def after(self, loop: str, iteration: int, record: Iterated, mark: int) -> None:
        """Iteration `iteration` is over: the one before it is due once the ledger is written up to `mark`."""
        if self._host is not None and iteration > 1:
            kept = frozenset(segment for data in record.data.values() for segment in data.segments)
            self._due.append((mark, f"{loop}-{iteration - 1}", kept))

    async def tidy(self, writer: LedgerWriter) -> None:
        """Remove the blocks that are due. A block that cannot be removed stays."""
        ready = [due for due in self._due if writer.wrote(due[0])]
        if ready:
            self._due = [due for due in self._due if not writer.wrote(due[0])]
            try:
                await asyncio.to_thread(self._remove, ready)
            except StoreError as error:
                _log.warning("blocks of iterations that are over stay: %s", error)

    def _remove(self, ready: list[tuple[int, str, frozenset[str]]]) -> None:
        assert self._host is not None
        for _, iteration, kept in ready:
            for node in self._host.folders(f"{self._folder}/{iteration}"):
                if not any(segment.startswith(f"{iteration}/{node}") for segment in kept):
                    self._host.delete_folder(f"{self._folder}/{iteration}/{node}")


class Reclaimer:
    """Makes room once shared memory is full: removes the blocks of segments whose readers are all closed.

    It removes only first generations. A recomputed block stays, or a run might recompute it forever.
    """

    def __init__(self, files: RunFiles, graph: Graph, blocks: Blocks) -> None:
        self._files, self._graph, self._blocks = files, graph, blocks
        self._asked: set[str] = set()
        self._reclaimed: set[str] = set()

    def note(self, segment: Segment, name: str, outcome: Outcome) -> None:
        """Note the commit of a segment's block. `name`: the segment's name within its loops. Reclaims memory if the
        block had to go to the store instead of its host."""
        block = outcome.block
        is_elsewhere = segment.put == "host" and block is not None and block.locations == ("store",)
        if is_elsewhere and self._blocks.host is not None and name not in self._asked:
            self._asked.add(name)
            asyncio.get_running_loop().run_in_executor(None, self.reclaim, self._blocks.host)

    def reclaim(self, host: HostFolder) -> None:
        """Remove the blocks of segments that all readers have read. Blocking. A block that cannot be removed stays."""
        try:
            read = [node.id for node in self._graph.nodes if self._may_go(node)]
            for segment in read:
                for block in self._first_blocks(segment):
                    host.path(self._blocks.on_host(block)).unlink(missing_ok=True)
                self._reclaimed.add(segment)
            _log.info("run %s found shared memory full, and gave back that of %s", self._files.run, read or "nothing")
        except (TreadleError, OSError) as error:
            _log.warning("shared memory is full and stays so: %s", error)

    def _may_go(self, node: Node) -> bool:
        mine = isinstance(node, Segment) and node.put == "host" and node.id not in self._reclaimed
        return mine and self._files.generation(node.id) == 1 and self._is_read(node)

    def _is_read(self, node: Node) -> bool:
        """Returns whether the node has readers and all of them are closed. A reader that passes data on must itself be
        read."""
        readers = [one for one in self._graph.nodes if node.id in one.data]
        return bool(readers) and all(map(self._is_over, readers))

    def _is_over(self, reader: Node) -> bool:
        if isinstance(reader, Segment):
            return self._files.closing(reader.id) is not None
        return self._is_read(reader)

    def _first_blocks(self, segment: str) -> list[str]:
        manifest = self._files.manifest(segment)
        return [outcome.block.name for outcome in manifest.outcomes if outcome.block] if manifest else []


def remove_losers(files: RunFiles, host: HostFolder | None, segment: str, won: Mapping[int, Outcome]) -> None:
    """Remove the blocks of losing attempts at these partitions. None of those attempts runs any more. Blocking.

    A killed attempt has not reported its blocks. They are found by name, in the places where the winner's blocks are.
    A block that cannot be removed stays.
    """
    blocks = [
        block for one in won.values() for block in (one.block, one.failed_items, one.effects) if block is not None
    ]
    places = {place.partition(":")[0] for block in blocks for place in block.locations}
    kept, marks = tuple(block.name for block in blocks), tuple(f"{segment}/{partition}." for partition in won)

    def lost(name: str) -> bool:
        return name.startswith(marks) and not name.startswith(kept)

    prefix = f"{files.prefix}/blocks/"
    try:
        found = files.store.list(prefix + segment) if "store" in places else iter(())
        files.store.delete([info.name for info in found if lost(info.name.removeprefix(prefix))])
        folder = host.path(f"{run_folder(files.run)}/{segment}") if host and "host" in places else None
        for path in folder.iterdir() if folder else ():
            if lost(f"{segment}/{path.name}"):
                path.unlink(missing_ok=True)
    except (StoreError, OSError) as error:
        _log.warning("blocks of attempts that lost stay: %s", error)
