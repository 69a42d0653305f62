"""treadle's own part of a package: the files of its installed wheels.

An editable installation has no files of its own. Its files are then those below the folder that it points to, which is
also how the build backend makes the wheel (`tool.hatch.build.targets.wheel.packages`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

from treadle.primitives.errors import UsageError

MEMBERS = ("treadle-primitives", "treadle-executors")
"""The distributions that run in a function; nothing of the orchestrator."""
_OPTIONAL = "treadle-multiprocessing"
"""Also packed where it is installed."""


def own_files() -> dict[str, bytes]:
    """Name in the package -> content. Raises UsageError when treadle is not installed as distributions."""
    found: dict[str, bytes] = {}
    members = [_member(name) for name in MEMBERS]
    with suppress(PackageNotFoundError):
        members.append(distribution(_OPTIONAL))
    for member in members:
        found.update((path, file.read_bytes()) for path, file in _files(member))
    return found


def requirements(*extras: str) -> list[str]:
    """The third-party requirements of the distributions and of their extras (`arrow`, `kafka`), from their metadata."""
    wanted: list[str] = []
    for name in MEMBERS:
        for requirement in _member(name).requires or ():
            words, _, condition = requirement.partition(";")
            wants = not condition or any(f"'{extra}'" in condition for extra in extras)
            if wants and not words.startswith("treadle"):
                wanted.append(words.strip())
    return sorted(wanted)


def version() -> str:
    return _member("treadle-executors").version


def _member(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError as error:
        raise UsageError(f"{name} is not installed, so it cannot be packed", "Install treadle.") from error


def _files(member: Distribution) -> Iterator[tuple[str, Path]]:
    """Modules and metadata of a distribution, without editable hooks and compiled files."""
    if (root := _editable_root(member)) is not None:
        source = root / "src"
        yield from ((str(file.relative_to(source)), file) for file in source.rglob("*") if file.is_file())
    for entry in member.files or ():
        if entry.suffix != ".pth":
            yield str(entry), Path(str(member.locate_file(entry)))


def _editable_root(member: Distribution) -> Path | None:
    """The project's folder, by PEP 610."""
    origin = json.loads(member.read_text("direct_url.json") or "{}")
    if not origin.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(urlsplit(origin["url"]).path))
