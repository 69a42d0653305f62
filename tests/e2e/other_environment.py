"""A second Python environment, with a module that the first one lacks, and the `treadle` command in it."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from e2e.project import Project

MODULE = "only_here"
_COMMAND = "from treadle.cli import main; main()"


class OtherEnvironment:
    """A virtual environment that sees all distributions of this one."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True)
        self.folder, self.python = folder, folder / "bin" / "python"
        packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))
        (packages / f"{MODULE}.py").write_text("NAME = 'the other environment'\n")
        (packages / "shared.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")

    def start(self, project: Project, *arguments: object) -> subprocess.Popen[str]:
        """Start `treadle ARGUMENTS` in this environment, on the project's home."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return subprocess.Popen(
            [self.python, "-c", _COMMAND, *map(str, arguments)],
            cwd=project.root,
            env={**project.environ, "PATH": path},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def treadle(self, project: Project, *arguments: object) -> subprocess.CompletedProcess[str]:
        process = self.start(project, *arguments)
        out, err = process.communicate(timeout=100)
        return subprocess.CompletedProcess([*map(str, arguments)], process.returncode, out, err)
