"""The results of calls, from the ends that the ledger holds to futures."""

from __future__ import annotations

from collections import OrderedDict
from concurrent.futures import CancelledError

from treadle.executors.operations.calls import CallResult
from treadle.orchestrator.dispatcher.ledger.ledger import CANCELLED, Failed
from treadle.orchestrator.run_store.call_log import CallPlace
from treadle.primitives.blocks import Blocks
from treadle.primitives.encoding.by_value import unpack
from treadle.primitives.encoding.references import BlockRef
from treadle.primitives.errors import MissingError

from .futures import WHOLE, Future, call_failed, settle, unreadable

_KEPT = 16
"""Partitions whose decoded results are kept for further futures."""


class CallResults:
    """Reads results and gives them to futures. For any number of threads."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._decoded: OrderedDict[CallPlace, list[CallResult]] = OrderedDict()

    def deliver(self, future: Future, place: CallPlace, end: BlockRef | Failed) -> bool:
        """Give the future its outcome. False: the block was in shared memory only, and this host does not have it."""
        name = f"{place.segment}/{place.partition}"
        if isinstance(end, Failed):
            _fail(future, name, end)
            return True
        try:
            results = self._read(place, end)
        except Exception as error:  # noqa: BLE001  a user's class may raise anything when it is rebuilt
            if isinstance(error, MissingError) and "store" not in end.locations:
                return False
            future.set_exception(unreadable(name, error))
            return True
        if future.call.position == WHOLE:
            future.set_result(results)
        else:
            settle(future, results[future.call.position])
        return True

    def _read(self, place: CallPlace, block: BlockRef) -> list[CallResult]:
        known = self._decoded.get(place)
        if known is None:
            (packed,) = self._blocks.get(block.slice(0))
            known = unpack(packed)
            if len(known) > 1:  # a single result is kept by its futures only
                self._decoded[place] = known
            if len(self._decoded) > _KEPT:
                self._decoded.popitem(last=False)
        return known


def _fail(future: Future, name: str, end: Failed) -> None:
    if end.failure == CANCELLED and super(Future, future).cancel():
        future.set_running_or_notify_cancel()
    elif end.failure == CANCELLED:
        future.set_exception(CancelledError())
    else:
        future.set_exception(call_failed(name, end))
