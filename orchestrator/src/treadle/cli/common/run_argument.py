"""The run that a command is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .exit_codes import complain

if TYPE_CHECKING:
    from treadle.client.client import Runs


async def run_to_read(runs: Runs, text: str) -> str:
    """As `find_to_read`; stderr names a run that was given by the beginning of its id."""
    from treadle.client.run_lookup import find_to_read

    name = await find_to_read(runs, text)
    if name != text and name.startswith(text):
        complain(f"run {name}")
    return name


async def run_to_change(runs: Runs, text: str) -> str:
    """As `find_to_change`."""
    from treadle.client.run_lookup import find_to_change

    return await find_to_change(runs, text)
