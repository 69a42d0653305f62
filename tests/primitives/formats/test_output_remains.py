"""Half-written parts of a killed writer do not stay in an output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from treadle.primitives.formats import claim_output, write_manifest, write_part

WRITER = """
import sys, time
from treadle.primitives.formats import write_part

class Endless:
    once = True
    def __iter__(self):
        yield b"x" * 100_000
        if Endless.once:  # gone through once for the digest
            Endless.once = False
            return
        print("written", flush=True)
        time.sleep(600)

write_part(sys.argv[1], 0, Endless(), "txt")
"""


@pytest.fixture
def torn(tmp_path: Path) -> Path:
    """An output whose writer was killed in the middle of a part."""
    claim_output(str(tmp_path), "run-1")
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"written\n"
    os.kill(writer.pid, signal.SIGKILL)
    writer.communicate()
    assert [name for name in os.listdir(tmp_path) if name.startswith(".tmp-")]
    return tmp_path


def test_a_complete_output_has_no_remains(torn: Path) -> None:
    (torn / ".tmp-of-somebody-else").touch()
    young = torn / f".tmp-{'0' * 16}"
    for path in torn.glob(".tmp-*"):
        os.utime(path, (0, 0))
    young.touch()
    write_part(str(torn), 0, [b"whole"], "txt")
    write_manifest(str(torn), {"run": "run-1", "parts": []})
    write_manifest(str(torn), {"run": "run-1", "parts": []})
    kept = [young.name, ".tmp-of-somebody-else", "_manifest.json", "_owner.json", "part-00000.txt"]
    assert sorted(os.listdir(torn)) == sorted(kept)
