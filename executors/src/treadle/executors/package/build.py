"""The zip of a function: sorted and dated 1980, so that equal content gives equal bytes.

It contains the files needed at run time and the libraries' licences. It omits files for developers: tests of libraries,
headers, type stubs and compiled files.

A container image instead of a zip: for libraries that exceed a zip, or a Python that the provider does not offer.

The recipe is text. The user runs `docker build` and `docker push`, with credentials that treadle never sees.
"""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

from treadle.primitives.errors import UsageError

from ..archive import zipped
from ..bundle.build import content_digest
from . import treadle_wheels
from .dependency_wheels import fetch_wheels
from .target import Target

_SHOWN = 5
_FOLDERS = {"__pycache__", "tests", "include"}
_NEEDED = {("numpy", "_core", "tests", "_natype.py")}
"""A file in a folder of tests that `numpy.testing` of NumPy 2.2 imports."""
_SUFFIXES = {".a", ".c", ".cc", ".cpp", ".h", ".hpp", ".pxd", ".pxi", ".pyc", ".pyi", ".pyx"}
_INSTALLERS = {
    "RECORD",
    "INSTALLER",
    "REQUESTED",
    "direct_url.json",
    "uv_build.json",
    "uv_cache.json",
    "entry_points.txt",
}
"""Files of `*.dist-info` that describe one installation and are wrong after files were omitted."""


class PackageLimits(NamedTuple):
    """The limits of a provider, in bytes; 0: no limit."""

    provider: str
    zipped: int
    unzipped: int = 0


LAMBDA = PackageLimits("AWS Lambda", 50 << 20, 250 << 20)
"""docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html: 50 MB zipped for direct upload, 250 MB unzipped."""
OPENWHISK = PackageLimits("Apache OpenWhisk", (48 << 20) // 4 * 3)
"""reference.md of apache/openwhisk: 48 MB of code. The limit applies to the Base64 text (`CodeExec.size` in
Exec.scala), so the zip itself may have three quarters of it."""


class Package(NamedTuple):
    data: bytes
    """The zip."""
    digest: str
    """SHA-256 over names and contents, hexadecimal."""
    sizes: dict[str, int]
    """Entry -> bytes, unpacked."""
    target: Target

    @property
    def unzipped(self) -> int:
        """Bytes, unpacked."""
        return sum(self.sizes.values())

    def unpack(self, folder: Path) -> None:
        """Write the files to `folder`, as a provider does."""
        with zipfile.ZipFile(io.BytesIO(self.data)) as archive:
            archive.extractall(folder)

    def largest(self) -> list[tuple[str, int]]:
        """Top-level folders with their unpacked bytes, largest first."""
        totals: dict[str, int] = {}
        for name, size in self.sizes.items():
            top = name.partition("/")[0]
            totals[top] = totals.get(top, 0) + size
        return sorted(totals.items(), key=lambda entry: -entry[1])

    def check(self, limits: PackageLimits) -> None:
        """Raises UsageError, which names the largest parts, for a package that exceeds the provider's limits."""
        for what, has, may in (("zipped", len(self.data), limits.zipped), ("unzipped", self.unzipped, limits.unzipped)):
            if may and has > may:
                largest = ", ".join(f"{name} ({_mib(size)})" for name, size in self.largest()[:_SHOWN])
                raise UsageError(
                    f"the package has {_mib(has)} {what}, {limits.provider} takes {_mib(may)}; the largest parts: "
                    f"{largest}",
                    "Leave Arrow out, or make an image of it: treadle deploy ... --dockerfile FOLDER.",
                )


def build_package(
    target: Target, *, arrow: bool = False, kafka: bool = False, extra: Mapping[str, bytes] | None = None
) -> Package:
    """Build for `target`, optionally with Arrow or the Kafka client. `extra` are files beside the libraries, such as
    the entry point that a provider requires.

    Raises UsageError when a wheel for the target is missing.
    """
    with tempfile.TemporaryDirectory(prefix="treadle-package-") as scratch:
        folder = Path(scratch) / "libraries"
        folder.mkdir()
        extras = [name for name, wanted in (("arrow", arrow), ("kafka", kafka)) if wanted]
        fetch_wheels(treadle_wheels.requirements(*extras), target, folder)
        entries = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    entries |= treadle_wheels.own_files()
    entries = {name: data for name, data in entries.items() if _is_needed(PurePosixPath(name))} | dict(extra or {})
    archive = zipped(entries, 0o100644)  # readable for every user: Lambda runs code as a user that does not own it
    return Package(archive, content_digest(entries), {name: len(data) for name, data in entries.items()}, target)


def _is_needed(name: PurePosixPath) -> bool:
    if name.suffix in _SUFFIXES or name.parts[0] in ("bin", ".lock") or name.parts[0].startswith(".."):
        return False
    if name.parts[0].endswith(".dist-info"):
        return name.name not in _INSTALLERS
    return name.parts in _NEEDED or not _FOLDERS.intersection(name.parts[:-1])


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"


Provider = Literal["lambda", "openwhisk"]

_LAMBDA = """\
# AWS's base image has the runtime client: docs.aws.amazon.com/lambda/latest/dg/python-image.html
FROM public.ecr.aws/lambda/python:{python}
COPY package/ ${{LAMBDA_TASK_ROOT}}/
CMD ["treadle.executors.aws.entry.handler"]
"""

_OPENWHISK = """\
# The runtime's image has the proxy for /init and /run; the action itself is small, it finds the libraries here:
# actions-docker.md of apache/openwhisk, extending existing runtimes.
FROM openwhisk/action-python-v{python}
COPY package/ /usr/local/lib/python{python}/site-packages/
"""


def dockerfile(provider: Provider, target: Target) -> str:
    """The recipe; the folder `package/` beside it holds the unpacked package."""
    return (_LAMBDA if provider == "lambda" else _OPENWHISK).format(python=target.python)
