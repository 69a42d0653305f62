"""Submissions that are refused before anything is written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from orchestrator.record_histories import mapped, spec

from treadle.client.submission import prepare
from treadle.dsl.model import Spec
from treadle.primitives.errors import UsageError


def test_workflow_in_a_folder_whose_name_is_not_utf8_is_refused() -> None:
    """The name would be stored, and text is UTF-8."""
    site: Any = None
    document = Spec.model_validate(spec(only=mapped({"range": 1})))
    with pytest.raises(UsageError, match="is not UTF-8\n  Rename it"):
        prepare(document, {}, run="r", base=Path(os.fsdecode(b"/caf\xe9")), roots=[], captured={}, site=site)
