"""Code in strings that tests give to other processes. No type checker reads it, and a renamed module breaks it late."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
IMPORT = re.compile(r"^\s*from (treadle(?:\.\w+)*) import ([\w, ]+)$", re.MULTILINE)


def imports_in_strings() -> Iterator[tuple[str, str, str]]:
    """Yields (file and line, module, name) for each import of treadle inside a string."""
    for file in [*(ROOT / "tests").rglob("*.py"), *(ROOT / "bench").rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for module, names in IMPORT.findall(node.value):
                    for name in (part.split(" as ")[0].strip() for part in names.split(",")):
                        if not name.startswith("_"):
                            yield f"{file.relative_to(ROOT)}:{node.lineno}", module, name


def test_imports_in_strings_resolve() -> None:
    found = set(imports_in_strings())
    assert len(found) > 50
    assert not [one for one in sorted(found) if not _resolves(*one[1:])]


def _resolves(module: str, name: str) -> bool:
    return hasattr(importlib.import_module(module), name) or bool(importlib.util.find_spec(f"{module}.{name}"))
