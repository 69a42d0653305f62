"""Code digests of projects and scripts that tests write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import cloudpickle

from treadle.executors.bundle.build import build_bundle
from treadle.executors.bundle.code_digest import Code, code_of

Make = Callable[..., Code]


def code_in(folder: Path, sources: Mapping[str, str | bytes], reference: str = "main:f", **changes: str) -> Code:
    """The code of a function of a project with these modules (names with a dot are files)."""
    project = folder / str(len(list(folder.iterdir())))
    for name, text in {**sources, **changes}.items():
        path = project / (name if "." in name else f"{name}.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return code_of([reference], build_bundle([reference], [project], {}).data)[reference]


def changed(one: Code, other: Code) -> set[str]:
    return {name for name in {*one.units, *other.units} if one.units.get(name) != other.units.get(name)}


def taken(source: str, name: str = "f", **known: Any) -> bytes:
    """A function of a script that cannot be imported, serialised by value."""
    scope: dict[str, Any] = {"__name__": "__main__", **known}
    exec(compile(source, "script.py", "exec"), scope)
    data: bytes = cloudpickle.dumps(scope[name])
    return data


def code_by_value(data: bytes, *roots: Path) -> Code:
    return code_of(["captured:0"], build_bundle(["captured:0"], list(roots), {"captured:0": data}).data)["captured:0"]
