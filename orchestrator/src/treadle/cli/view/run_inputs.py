"""The inputs of a run, for display."""

from __future__ import annotations

import json
import re
from typing import Any

from treadle.orchestrator.run_store.run_files import RunFiles, Submission

LONGEST = 200
"""Maximum characters shown of one value."""
_PASSWORD = re.compile(r"(?<=://)([^/@\s:]*):[^/@\s]+@")
"""Password in a URL: `postgres://ada:secret@host/`."""


def inputs_of(files: RunFiles) -> dict[str, Any]:
    """Name -> value, including defaults; passwords in URLs are masked. Secrets are not inputs. Blocking."""
    known = files.find(Submission, "spec")
    return {name: _masked(value) for name, value in known.inputs.items()} if known else {}


def brief(value: Any) -> str:
    """A value in one line: text unchanged, other values as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        return _PASSWORD.sub(r"\1:***@", value)
    if isinstance(value, list):
        return [_masked(each) for each in value]
    return {key: _masked(each) for key, each in value.items()} if isinstance(value, dict) else value
