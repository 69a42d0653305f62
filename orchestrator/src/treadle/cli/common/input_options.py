"""Values of a workflow's inputs, from the options of a command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from treadle.primitives.errors import UsageError

from .options import pair


def read_inputs(pairs: Sequence[str] | None, file: Path | None) -> dict[str, Any]:
    """The values of `--inputs FILE`, overridden by `-i k=v`. Raises UsageError."""
    given = _inputs_file(file) if file is not None else {}
    return given | dict(pair(each, "-i") for each in pairs or ())


def _inputs_file(file: Path) -> dict[str, Any]:
    from treadle.dsl.document.loader import load_yaml

    try:
        loaded = load_yaml(file.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"--inputs {file}: {error.strerror}", "Check the name.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--inputs {file} is not UTF-8 text", "Save it as UTF-8.") from error
    if loaded.problems:
        problem = loaded.problems[0]
        raise UsageError(f"--inputs {file}: line {problem.span.line}: {problem.message}", problem.hint)
    if not isinstance(loaded.data, dict):
        raise UsageError(f"--inputs {file} holds no mapping", "Write `name: value` lines.")
    return dict(loaded.data)
