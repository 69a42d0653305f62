"""Exit codes, and the conversion of errors to exit codes."""

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
"""Keyed by class name, so that a command does not import the modules of errors that it cannot raise."""


def code_of(error: TreadleError) -> Exit:
    """The exit code of a treadle error."""
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
    """Print text data to stdout."""
    typer.echo(printable(text))


def say_json(value: Any) -> None:
    """Print JSON data to stdout."""
    typer.echo(json.dumps(msgspec.to_builtins(value), indent=2, ensure_ascii=False))


def complain(text: str) -> None:
    """Print a line to stderr."""
    if sys.stderr is not None:  # stderr is closed, and print would use stdout
        print(printable(text), file=sys.stderr, flush=True)  # noqa: T201


def advise(text: str) -> None:
    """Print a message with suggested commands to stderr."""
    complain(advice(text))


@contextmanager
def writing(hint: str = "Name another file.") -> Iterator[None]:
    """Convert errors of writing a file to UsageError."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be written: {error.strerror}", hint) from error


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_TYPERS_OWN: Any = (typer.Exit, typer.Abort, typer.BadParameter.__mro__[1], BrokenPipeError)
"""Exceptions that typer handles itself. The third is its UsageError, which it does not export."""


@contextmanager
def reported() -> Iterator[None]:
    """End the command on a treadle error: message and hint on stderr, then the exit code. No traceback.

    A defect shows its traceback only if TREADLE_DEBUG is set, and never ends with the exit code of a failed run.
    """
    try:
        yield
    except TreadleError as error:
        code = code_of(error)
        # A document's findings start with file:line:column, which editors and terminals show as links.
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
    """Print an unexpected error; return its exit code."""
    if isinstance(error, OSError) and error.errno in _FULL:
        complain(f"treadle: {error.strerror}: {error.filename or 'what is printed'} is cut off\n  Make room.")
        return Exit.USAGE
    kind = type(error).__name__
    complain(f"treadle: {kind}: {error}\n  This is a defect of treadle. TREADLE_DEBUG=1 shows where it happened.")
    return Exit.DEFECT


def finish(code: int) -> NoReturn:
    """End the process at once, after flushing its output."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # the reader is gone, or the stream is closed
            stream.flush()
    os._exit(code)
