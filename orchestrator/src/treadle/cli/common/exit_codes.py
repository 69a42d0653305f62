"""Exit codes, and the one place where errors become them."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from typing import Any, NoReturn

import msgspec
import typer

from treadle.orchestrator.telemetry.logs import printable
from treadle.primitives.errors import CorruptError, MissingError, StoreError, TreadleError, UsageError

from .hints import advice


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


def say_json(value: Any) -> None:
    """Data for programs, on stdout."""
    typer.echo(json.dumps(msgspec.to_builtins(value), indent=2, ensure_ascii=False))


def complain(text: str) -> None:
    """A line for people, on stderr."""
    if sys.stderr is not None:  # it is closed, and print would take stdout
        print(printable(text), file=sys.stderr, flush=True)  # noqa: T201


def advise(text: str) -> None:
    """A line of treadle's own on stderr, which says what to type next."""
    complain(advice(text))


@contextmanager
def writing(hint: str = "Name another file.") -> Iterator[None]:
    """Files for people are written meanwhile. Raises UsageError."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be written: {error.strerror}", hint) from error


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_TYPERS_OWN: Any = (typer.Exit, typer.Abort, typer.BadParameter.__mro__[1], BrokenPipeError)
"""What typer obeys or shows by itself; the third is its UsageError, which it does not export."""


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
        complain(str(error) if code == Exit.INVALID_DOCUMENT else advice(f"treadle: {error}"))
        raise typer.Exit(int(code)) from error
    except KeyboardInterrupt:
        complain("treadle: interrupted")
        raise typer.Exit(int(Exit.INTERRUPTED)) from None
    except _TYPERS_OWN:
        raise
    except Exception as error:
        if os.environ.get("TREADLE_DEBUG"):
            raise
        raise typer.Exit(int(_unexpected(error))) from error


def _unexpected(error: Exception) -> Exit:
    """Say what it is."""
    if isinstance(error, OSError) and error.errno in _FULL:
        complain(f"treadle: {error.strerror}: {error.filename or 'what is printed'} is cut off\n  Make room.")
        return Exit.USAGE
    kind = type(error).__name__
    complain(f"treadle: {kind}: {error}\n  This is a defect of treadle. TREADLE_DEBUG=1 shows where it happened.")
    return Exit.DEFECT


def finish(code: int) -> NoReturn:
    """End the process at once, having written what was printed."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # its reader has gone, or it is closed
            stream.flush()
    os._exit(code)
