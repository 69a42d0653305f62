"""The command line. stdout carries data, stderr all other output; docs/cli.md lists the exit codes.

The package has no public API: programs use `treadle.client`. `commands` registers all commands by name. Each family of
commands has a module; `common` holds the shared parts, and `view` presents runs. Modules import nothing slow at their
top, because every command would pay for it.
"""

from __future__ import annotations

import os

__all__: list[str] = []


def main() -> None:
    """Entry point of `treadle`. The imports are inside, so that Ctrl-C during them also ends it without a traceback."""
    try:
        from .commands import execute

        execute()
    except KeyboardInterrupt:
        os._exit(130)  # Exit.INTERRUPTED, which may not be imported yet
