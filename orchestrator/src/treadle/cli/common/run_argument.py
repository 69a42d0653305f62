"""Resolves the run argument of a command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .exit_codes import complain

if TYPE_CHECKING:
    from treadle.client.client import Runs


async def run_to_read(runs: Runs, text: str) -> str:
    """Like `find_to_read`; prints the full id to stderr if only its first part was given."""
    from treadle.client.run_lookup import find_to_read

    name = await find_to_read(runs, text)
    if name != text and name.startswith(text):
        complain(f"run {name}")
    return name


async def run_to_change(runs: Runs, text: str) -> str:
    """Like `find_to_change`."""
    from treadle.client.run_lookup import find_to_change

    return await find_to_change(runs, text)
