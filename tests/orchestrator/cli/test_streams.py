"""Commands whose standard output is closed or full."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TREADLE = Path(sys.executable).with_name("treadle")


def redirected(command: str, *, home: Path) -> subprocess.CompletedProcess[str]:
    environ = {"TREADLE_HOME": str(home), "PATH": "/usr/bin:/bin"}
    shell = ["sh", "-c", f"{TREADLE} {command}"]
    return subprocess.run(shell, capture_output=True, text=True, check=False, env=environ, cwd=home)


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&-"])
def test_closed_stream_is_tolerated_and_nothing_goes_to_the_other(closed: str, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("stages: [\n")
    whole, done = (redirected(f"validate bad.yaml {how}", home=tmp_path) for how in ("", closed))
    assert done.returncode == whole.returncode == 3
    assert done.stdout == ("" if ">&-" in closed.replace("2>&-", "") else whole.stdout)
    assert done.stderr == ("" if "2>&-" in closed else whole.stderr)


def test_full_disk_under_stdout_is_reported_as_an_error(tmp_path: Path) -> None:
    done = redirected("schema > /dev/full", home=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "treadle: No space left on device: what is printed is cut off\n  Make room.\n"
