"""Slots that are shared by all tests that run whole workflows without Temporal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from orchestrator.broken_runs import ROOT, Broken

from treadle.client.testing.harness import Harness
from treadle.orchestrator.dispatcher.tasks import arguments
from treadle.primitives.stores.store import Store

Breaking = Callable[[Mapping[str, Any]], Broken]


@pytest.fixture(scope="session")
def slots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Harness, Any]]:
    """Two local slots that share only a store of files."""
    harness = Harness(tmp_path_factory.mktemp("slots"), ROOT)
    yield harness, harness.local(2, None)
    harness.close()


@pytest.fixture
def breaking(slots: tuple[Harness, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Breaking:
    """Submits a document. Every block of its run goes to the store, however small."""
    monkeypatch.setattr(arguments, "INLINE_LIMIT", 0)
    harness, executor = slots
    store = Store.open(f"file://{harness.folder}/store")
    return lambda document: Broken(harness, executor, store, tmp_path, document)
