"""The command line. stdout carries data, stderr everything else; exit codes are in docs/cli.md.

General layout: `commands` (all of them by their names), a module for each family of them, `common` (what all share) and
`view` (what people see of runs). They import nothing heavy at their top, since every command pays for all of them.
"""

from __future__ import annotations

import os


def main() -> None:
    """Entry point of `treadle`. Ctrl-C ends it without a traceback, also while modules are imported: hence within."""
    try:
        from .commands import execute

        execute()
    except KeyboardInterrupt:
        os._exit(130)  # Exit.INTERRUPTED, which may not be there yet
