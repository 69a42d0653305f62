"""The code digest of a function: of it, and of everything it reaches inside the project.

What counts is the syntax tree: comments, layout and docstrings do not. From the function's own definition the names
it reads lead on, through the imports of the project, to helpers, classes and constants, one **unit** for each name of
a module's top level; importing a module also does what stands between its definitions, and that counts for whoever
imports it. Of third-party distributions the version counts, and that of what they require; of modules that are on the
path, but neither the project's nor installed, their sources.

What cannot be told counts as reached: an error in this direction costs time; one in the other would cost the result.
How things are reached is in `reach`, for functions taken by value in `captured`.

The idea is Nextflow's and Bazel's, to name a result by what made it; to look into the source, and not at the file, is
that of joblib and of Unison.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from treadle.primitives.functions import CAPTURED

from .build import python_version
from .closures import trace
from .dependency_graph import Reach
from .distributions import Libraries
from .project_files import Project


class Code(Struct, frozen=True):
    """What a function is made of."""

    units: dict[str, str]
    """`pkg/helpers.py:clean` -> digest of that definition; `pkg/helpers.py:` is what importing the module does, and a
    name without `:` a whole file."""
    versions: dict[str, str]
    """`python`, and each distribution it reaches -> version; a module that has none -> digest of its sources."""
    asks: tuple[str, ...] = ()
    """What it asks its `context` for that differs from run to run: attempt, run, started."""


def code_of(references: Iterable[str], bundle: bytes) -> dict[str, Code]:
    """The code of each function in a bundle, without importing any of it.

    Captured functions of the bundle are unpickled, so only one's own may be given.
    """
    project, libraries = Project(bundle), Libraries()
    return {reference: _code(reference, project, libraries) for reference in references}


def _code(reference: str, project: Project, libraries: Libraries) -> Code:
    reach = Reach(project)
    if reference.startswith(CAPTURED):
        trace(project.captured[reference], reach)
    else:
        module, _, name = reference.partition(":")
        reach.name(module, name.partition(".")[0])
    reach.finish()
    versions = {"python": python_version(), **libraries.versions_of(reach.foreign)}
    return Code(dict(sorted(reach.units.items())), versions, tuple(sorted(reach.asks)))
