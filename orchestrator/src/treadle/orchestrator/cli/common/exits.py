"""Exit codes, and the one place where errors become them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from typing import NoReturn

import typer

from treadle.primitives.errors import CorruptError, MissingError, StoreError, TreadleError

from ...telemetry.logs import printable


class Exit(IntEnum):
    """docs/cli.md has the table."""

    SUCCESS = 0
    RUN_FAILED = 1
    USAGE = 2
    INVALID_DOCUMENT = 3
    NOT_FOUND = 4
    UNREACHABLE = 5
    CANCELLED = 6
    CONFLICT = 7
    DEFECT = 70
    TIMEOUT = 124
    INTERRUPTED = 130


class CommandFailed(TreadleError):
    """A command ends with this code after its message."""

    def __init__(self, code: Exit, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.code = code


_BY_NAME = {
    "InvalidDocument": Exit.INVALID_DOCUMENT,
    "NoSuchRun": Exit.NOT_FOUND,
    "NoSuchDeployment": Exit.NOT_FOUND,
    "RunConflict": Exit.CONFLICT,
    "Unreachable": Exit.UNREACHABLE,
    "DriverFailed": Exit.UNREACHABLE,
}
"""By name, so that a command that meets none of them need not import where they come from."""


def code_of(error: TreadleError) -> Exit:
    """The exit code of an error of treadle's own, by who must act."""
    if isinstance(error, CommandFailed):
        return error.code
    for kind in type(error).__mro__:
        if kind.__name__ in _BY_NAME:
            return _BY_NAME[kind.__name__]
    if isinstance(error, StoreError):
        return Exit.UNREACHABLE
    if isinstance(error, MissingError):
        return Exit.NOT_FOUND
    if isinstance(error, CorruptError):
        return Exit.RUN_FAILED
    return Exit.USAGE


def say(text: str) -> None:
    """Data for people, on stdout."""
    typer.echo(printable(text))


def complain(text: str) -> None:
    """A line for people, on stderr."""
    print(printable(text), file=sys.stderr, flush=True)  # noqa: T201


@contextmanager
def reported() -> Iterator[None]:
    """Errors of treadle's own end the command: message and hint on stderr, then the code. No traceback.

    A defect shows its traceback only with TREADLE_DEBUG set, and never ends with the code of a failed run.
    """
    try:
        yield
    except TreadleError as error:
        code = code_of(error)
        # A document's findings begin with file:line:column, which editors and terminals make links of.
        complain(str(error) if code == Exit.INVALID_DOCUMENT else f"treadle: {error}")
        raise typer.Exit(int(code)) from error
    except KeyboardInterrupt:
        complain("treadle: interrupted")
        raise typer.Exit(int(Exit.INTERRUPTED)) from None
    except (typer.Exit, typer.Abort, BrokenPipeError):
        raise
    except Exception as error:
        if os.environ.get("TREADLE_DEBUG"):
            raise
        kind = type(error).__name__
        complain(f"treadle: {kind}: {error}\n  This is a defect of treadle. TREADLE_DEBUG=1 shows where it happened.")
        raise typer.Exit(int(Exit.DEFECT)) from error


def finish(code: int) -> NoReturn:
    """End the process at once, having written what was printed."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # its reader has gone, or it is closed
            stream.flush()
    os._exit(code)
