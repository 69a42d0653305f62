"""The code digest of a function: a digest of the function and of its dependencies inside the project.

The syntax tree counts; comments, layout and docstrings do not. The analysis starts at the function's definition. It
follows the names that the definition reads, through the project's imports, to helpers, classes and constants. Each
top-level name of a module is one **unit**. Importing a module also executes the statements between its definitions, so
these count for every importer. A third-party distribution counts by its version and the versions of its requirements. A
module on the path that is neither in the project nor installed counts by its sources.

A dependency that cannot be determined counts as reached. A mistake in this direction costs time; a mistake in the other
would give wrong results. See `dependency_graph` for the rules, and `closures` for functions taken by value.

Naming a result by its origin is the idea of Nextflow and Bazel. Analysing the source instead of the file is that of
joblib and Unison.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from msgspec import Struct

from treadle.primitives.functions import CAPTURED

from .build import python_version
from .closures import trace
from .dependency_graph import DependencyGraph
from .distributions import Libraries
from .project_files import ProjectFiles

_KEPT = 1 << 20
"""Bytes of a bundle up to which its parsed modules are kept."""


class Code(Struct, frozen=True):
    """The code of a function."""

    units: dict[str, str]
    """`pkg/helpers.py:clean` -> digest of that definition. `pkg/helpers.py:` stands for the effects of importing the
    module, a name without `:` for a whole file."""
    versions: dict[str, str]
    """`python` and each reached distribution -> version. A module without a version -> digest of its sources."""
    asks: tuple[str, ...] = ()
    """Attributes of `context` that the function reads and that differ between runs: attempt, run, started."""


def code_of(references: Iterable[str], bundle: bytes) -> dict[str, Code]:
    """The code of each function in a bundle. No module is imported.

    Captured functions of the bundle are unpickled, so pass only a trusted bundle.
    """
    project, libraries = _parsed(bundle) if len(bundle) <= _KEPT else ProjectFiles(bundle), Libraries()
    return {reference: _code(reference, project, libraries) for reference in references}


@lru_cache(maxsize=1)
def _parsed(bundle: bytes) -> ProjectFiles:
    """The files of a bundle with their parsed modules: a process often runs the same code again."""
    return ProjectFiles(bundle)


def _code(reference: str, project: ProjectFiles, libraries: Libraries) -> Code:
    reach = DependencyGraph(project)
    if reference.startswith(CAPTURED):
        trace(project.captured[reference], reach)
    else:
        module, _, name = reference.partition(":")
        reach.name(module, name.partition(".")[0])
    reach.finish()
    versions = {"python": python_version(), **libraries.versions_of(reach.foreign)}
    return Code(dict(sorted(reach.units.items())), versions, tuple(sorted(reach.asks)))
