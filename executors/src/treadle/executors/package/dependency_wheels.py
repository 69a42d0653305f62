"""Third-party wheels for a target, fetched and unpacked by uv or pip. Nothing is built from source.

Versions are those installed here: results must not depend on where a task runs, and numeric libraries differ between
versions in their last bits.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path

from treadle.primitives.errors import UsageError

from .target import LAMBDA_GLIBC, Target, use_python

_SHOWN = 600
"""Characters of the tool's error output that an error quotes: the end of it states the cause."""
_UV_GLIBC = (17, 28, *range(31, 41))
"""Minor versions of glibc that `uv pip install --python-platform` knows."""


def fetch_wheels(requirements: Sequence[str], target: Target, folder: Path) -> None:
    """Unpack the requirements and their dependencies into `folder`, which is empty.

    The constraints are in a temporary file beside `folder`. Raises UsageError with the tool's output when a version
    installed here has no wheel for the target, and when neither uv nor pip is available.
    """
    constraints = folder.with_name(f"{folder.name}.constraints")
    constraints.write_text("".join(f"{line}\n" for line in _installed()))
    try:
        command = _command(target, folder, constraints)
        done = subprocess.run([*command, *requirements], capture_output=True, text=True, check=False)
    finally:
        constraints.unlink()
    if done.returncode:
        raise UsageError(
            f"there are no wheels for {target}: {done.stderr.strip()[-_SHOWN:]}",
            _remedy(target),
        )


def _remedy(target: Target) -> str:
    """A hint. It does not suggest an image, which is built on the same C library."""
    newer = [python for python, glibc in LAMBDA_GLIBC.items() if glibc > target.glibc]
    if not newer:
        return "Install versions here that have wheels for it."
    said = f"Lambda has a newer C library for Python {', '.join(newer)}"
    return f"{said}: {use_python(newer[0])} Or install versions here that have wheels for {target}."


def _installed() -> list[str]:
    """Every distribution here as `name==version`, except local versions, which are not published."""
    return sorted({f"{each.name}=={each.version}" for each in distributions() if "+" not in each.version})


def _command(target: Target, folder: Path, constraints: Path) -> list[str]:
    if uv := _uv():
        return uv_command(uv, target, folder, constraints)
    if find_spec("pip") is not None:
        return pip_command(target, folder, constraints)
    raise UsageError("a package is made with uv or pip, and neither is here", "Install one: pip install uv.")


def _uv() -> str | None:
    """The uv next to the interpreter, or on the path."""
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("uv")


def uv_command(uv: str, target: Target, folder: Path, constraints: Path) -> list[str]:
    """`uv pip install` for another machine (docs.astral.sh/uv/reference/cli)."""
    minor = max(known for known in _UV_GLIBC if known <= target.glibc[1])
    return [
        *(uv, "pip", "install", "--quiet", "--no-config", "--target", str(folder), "--only-binary", ":all:"),
        *("--python-platform", f"{target.machine}-manylinux_2_{minor}", "--python-version", target.python),
        *("--link-mode", "copy", "--constraint", str(constraints)),
    ]


def pip_command(target: Target, folder: Path, constraints: Path) -> list[str]:
    """`pip install --target` with every platform tag that the machine accepts
    (pip.pypa.io/en/stable/cli/pip_install)."""
    tags = [option for tag in target.platform_tags for option in ("--platform", tag)]
    return [
        *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"),
        *("--target", str(folder), "--only-binary", ":all:", "--implementation", "cp"),
        *("--python-version", target.python, *tags, "--constraint", str(constraints)),
    ]
