"""Resolves a text to a run: an id, `@last`, an id or URL from Temporal's UI, and for reading a unique prefix of an
id."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NoReturn
from urllib.parse import unquote

from treadle.orchestrator.run_requests.requests import NoSuchRun
from treadle.primitives.errors import UsageError
from treadle.primitives.run_paths import parent_run

from .client import ALL, Runs

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UI = re.compile(r"https?://[^/]+/namespaces/[^/]+/workflows/([^/]+)")
_KNOWN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
"""The characters of ids, including child runs (`nightly/load`). Such a text is safe in a query."""


async def find_to_read(runs: Runs, text: str) -> str:
    """The run to read: as `find_to_change`, or a unique prefix of its id.

    Raises NoSuchRun, and UsageError when several runs have the prefix.
    """
    exact = await _exact(runs, text)
    if exact is not None:
        return exact
    found = await _alike(runs, text)
    begun = sorted(run for run in found if run.startswith(text))
    if len(begun) > 1:
        shown = ", ".join(begun[:5]) + (", ..." if len(begun) > 5 else "")
        raise UsageError(f"{len(begun)} runs begin with {text}: {shown}", "Give more of the id.")
    return begun[0] if begun else _refuse(text, found)


async def find_to_change(runs: Runs, text: str) -> str:
    """The run to change: its full id, `@last`, or an id or URL from Temporal's UI. Raises NoSuchRun, UsageError."""
    exact = await _exact(runs, text)
    return _refuse(text, await _alike(runs, text)) if exact is None else exact


async def _exact(runs: Runs, text: str) -> str | None:
    if text == "@last":
        async for view in runs.list_runs(1):
            return view.run
        raise NoSuchRun("there is no run yet", "Start one: treadle run FILE")
    if not text:
        raise UsageError("no run is named", "Name one, or @last; see: treadle list")
    name = unquote(match[1]) if (match := _UI.match(text)) else text
    if await runs.exists(name):
        return name
    if _UUID.fullmatch(text):
        async for view in runs.executions(f"RunId = '{text}'"):
            return view.run
    return None


async def _alike(runs: Runs, text: str) -> set[str]:
    """Runs whose ids begin with the text. Temporal's SQLite compares case-insensitively, so some may differ in case."""
    if not _KNOWN_ID.fullmatch(text):
        return set()
    found = {view.run async for view in runs.executions(f"{ALL} AND WorkflowId STARTS_WITH '{text}'")}
    return found if "/" in text else {run for run in found if not parent_run(run)} or found


def _refuse(text: str, near: Collection[str]) -> NoReturn:
    """Raises NoSuchRun, which names similar runs."""
    shown = ", ".join(sorted(near)[:3]) + (", ..." if len(near) > 3 else "")
    hint = f"Did you mean {shown}? Write the whole id." if near else "See: treadle list"
    raise NoSuchRun(f"there is no run {text}", hint)
