"""Exit codes, and the one place where errors become them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import typer

from treadle.primitives.errors import StoreError, TreadleError


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
    TIMEOUT = 124
    INTERRUPTED = 130


class CommandFailed(TreadleError):
    """A command ends with this code after its message."""

    def __init__(self, code: Exit, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.code = code


def code_of(error: TreadleError) -> Exit:
    """The exit code of an error of treadle's own, by who must act."""
    from treadle.dsl.document import InvalidDocument

    from ..profile_errors import Unreachable

    if isinstance(error, CommandFailed):
        return error.code
    if isinstance(error, InvalidDocument):
        return Exit.INVALID_DOCUMENT
    if isinstance(error, Unreachable | StoreError):
        return Exit.UNREACHABLE
    names = {"NoSuchRun": Exit.NOT_FOUND, "RunConflict": Exit.CONFLICT, "InvalidInputs": Exit.USAGE}
    return names.get(type(error).__name__, Exit.USAGE)


@contextmanager
def reported() -> Iterator[None]:
    """Errors of treadle's own end the command: message and hint on stderr, then the code. No traceback."""
    try:
        yield
    except TreadleError as error:
        print(f"treadle: {error}", file=sys.stderr)  # noqa: T201
        raise typer.Exit(int(code_of(error))) from error
