"""`python -m treadle.multiprocessing [--executor NAME] PROGRAM [ARGUMENT...]` runs a program whose `multiprocessing` is
treadle's."""

from __future__ import annotations

import os
import signal
import sys
import types
from pathlib import Path

from . import install, set_executor
from .processes import killed


def main(arguments: list[str]) -> int | str:
    """Run the program as `__main__`; returns the exit status, or an error for a program that cannot be read."""
    options = arguments[:2] if arguments[:1] == ["--executor"] else []
    arguments = arguments[len(options) :]
    if not arguments:
        return "usage: python -m treadle.multiprocessing [--executor NAME] PROGRAM [ARGUMENT...]"
    program = arguments[0]
    try:
        source = Path(program).read_bytes()
    except OSError as error:
        return f"cannot read the program {program}: {error.strerror}"
    for executor in options[1:]:
        set_executor(executor)
    install()
    sys.argv[:] = arguments
    sys.path[0] = os.path.dirname(os.path.abspath(program))
    module = types.ModuleType("__main__")
    module.__file__ = program
    sys.modules["__main__"] = module
    try:
        exec(compile(source, program, "exec"), vars(module))
    except Exception as error:
        for process in killed():
            error.add_note(f"{process.name} was ended by {signal.Signals(-process.exitcode).name}")
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
