"""Unpacked bundles on a host: verified before use, removed when unused, kept apart by versions."""

from __future__ import annotations

import fcntl
import io
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import msgspec
import pytest
from executors.test_bundle import TESTS, run_worker, submit, write

from treadle.executors.bundle.build import MANIFEST, Bundle, BundleManifest, build_bundle, content_digest
from treadle.executors.bundle.unpack import UNUSED, missing_file_hint, open_bundle


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    project = tmp_path / "project"
    project.mkdir()
    write(project, {"job_module": "import job_helper\ndef f(x):\n    return job_helper.g(x)"})
    write(project, {"job_helper": "def g(x):\n    return -x"})
    return build_bundle(["job_module:f"], [project], {})


@pytest.mark.parametrize("damage", [b"", b"def g(x):\n    return x", None])
def test_a_damaged_bundle_is_unpacked_again(bundle: Bundle, tmp_path: Path, damage: bytes | None) -> None:
    """For example after a power cut, or when user code changes its own files."""
    submit(tmp_path, bundle)
    assert run_worker(tmp_path, f"{bundle.digest}=job_module:f") == ["[-1, -2]"]
    (helper,) = (tmp_path / "cache").rglob("job_helper.py")
    helper.unlink() if damage is None else helper.write_bytes(damage)
    assert run_worker(tmp_path, f"{bundle.digest}=job_module:f") == ["[-1, -2]"]


def test_files_added_beside_the_modules_are_not_damage(bundle: Bundle, tmp_path: Path) -> None:
    path = open_bundle(bundle.data, bundle.digest, tmp_path)
    (path / "modules" / "__pycache__").mkdir()
    (path / "modules" / "notes.txt").write_text("of a function")
    inode = path.stat().st_ino
    assert open_bundle(bundle.data, bundle.digest, tmp_path).stat().st_ino == inode


def test_a_bundle_another_process_unpacks_meanwhile_is_not_replaced(bundle: Bundle, tmp_path: Path) -> None:
    command = "import sys; from treadle.executors.bundle.unpack import open_bundle; from pathlib import Path;"
    command += "print(open_bundle(open(sys.argv[1], 'rb').read(), sys.argv[2], Path(sys.argv[3])).stat().st_ino)"
    data, root = tmp_path / "data", tmp_path / "root"
    data.write_bytes(bundle.data)
    root.mkdir()
    arguments = [sys.executable, "-c", command, str(data), bundle.digest, str(root)]
    workers = [subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    found = {worker.communicate(timeout=60)[0] for worker in workers}
    assert len(found) == 1
    assert [path.name for path in root.iterdir()] == [bundle.digest]


def test_unused_bundles_are_removed(bundle: Bundle, tmp_path: Path) -> None:
    old, held, young, remains = (tmp_path / name for name in ("old", "held", "young", ".unpacking-x"))
    for folder in (old, held, young, remains):
        (folder / "modules").mkdir(parents=True)
    for folder in (old, held, remains):
        os.utime(folder, (0, time.time() - UNUSED - 60))
    descriptor = os.open(held, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)  # like a process that imports from it
        open_bundle(bundle.data, bundle.digest, tmp_path)
    finally:
        os.close(descriptor)
    assert {path.name for path in tmp_path.iterdir()} == {"held", "young", "project", bundle.digest}


def test_a_bundle_in_use_is_held_and_young(bundle: Bundle, tmp_path: Path) -> None:
    submit(tmp_path, bundle)
    run_worker(tmp_path, f"{bundle.digest}=job_module:f")
    (path,) = (tmp_path / "cache").rglob(bundle.digest)
    os.utime(path, (0, 0))
    run_worker(tmp_path, f"{bundle.digest}=job_module:f")
    assert path.stat().st_mtime > time.time() - 3600


def with_manifest(bundle: Bundle, **changes: object) -> Bundle:
    """The bundle as made by another Python, or with other packages."""
    with zipfile.ZipFile(io.BytesIO(bundle.data)) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    manifest = msgspec.structs.replace(bundle.manifest, **changes)
    entries[MANIFEST] = msgspec.json.encode(manifest)
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return Bundle(content_digest(entries), data.getvalue(), bundle.names, manifest)


TELLING = """
import sys
from treadle.executors.program import *
from executors.bench import KEY, RUN
from treadle.executors.runtime.runtime import Runtime
url, digest, function = sys.argv[1:]
program = Program("s", (MapRecords("a", Call(function)),), Keep())
task = Task("t", Job(RUN, "w", "2026-01-01T00:00:00Z", 0, url, digest), program, (Partition(0, RangeSplit(0, 1)),))
Runtime(None, 1 << 20, lambda name: "").run(task, KEY, lambda report: print(report.message, report.traceback))
"""


@pytest.mark.parametrize("function", ["fails:f", "needs:f"])
def test_a_failure_tells_how_this_place_differs_from_where_the_run_was_submitted(tmp_path: Path, function: str) -> None:
    project = tmp_path / "project"
    project.mkdir()
    write(project, {"fails": "def f(x):\n    return 1 / x", "needs": "import not_there_at_all\ndef f(x): pass"})
    known = {"numpy": "0.0.1", "not-there-at-all": "2.3", "msgspec": msgspec.__version__}
    bundle = with_manifest(build_bundle([function], [project], {}), distributions=known, python="2.7")
    submit(tmp_path, bundle)
    command = [sys.executable, "-c", TELLING, f"file://{tmp_path}/store", bundle.digest, function]
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": "", "PYTHONPATH": TESTS}
    told = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout
    assert f"Python {sys.version_info.major}.{sys.version_info.minor} (submitted with 2.7)" in told
    assert "(submitted with 0.0.1)" in told
    assert "not-there-at-all is not installed (submitted with 2.3)" in told
    assert "msgspec" not in told.rpartition("Where it ran")[2]


def test_a_failure_where_everything_is_the_same_says_nothing_of_it(bundle: Bundle, tmp_path: Path) -> None:
    assert isinstance(bundle.manifest, BundleManifest)
    submit(tmp_path, bundle)
    command = [sys.executable, "-c", TELLING, f"file://{tmp_path}/store", bundle.digest, "job_module:missing"]
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": "", "PYTHONPATH": TESTS}
    told = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "has no 'missing'" in told
    assert "Where it ran" not in told


@pytest.mark.parametrize(("module", "hint"), [("loose", True), ("pkg.inner", False)])
def test_failure_names_the_remedy_when_a_file_beside_a_module_is_not_shipped(
    tmp_path: Path, module: str, hint: bool
) -> None:
    project = tmp_path / "project"
    reads = (
        "from pathlib import Path\ndef f(x):\n    raise ValueError((Path(__file__).parent / 'stop.txt').read_text())"
    )
    write(project, {"loose": reads, "pkg/__init__": "", "pkg/inner": reads})
    (project / "stop.txt").write_text("stop words")
    (project / "pkg" / "stop.txt").write_text("stop words")
    bundle = build_bundle([f"{module}:f"], [project], {})
    submit(tmp_path, bundle)
    command = [sys.executable, "-c", TELLING, f"file://{tmp_path}/store", bundle.digest, f"{module}:f"]
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": "", "PYTHONPATH": TESTS}
    told = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout
    assert (
        "stop.txt is not in the run's bundle" in told and "Put the file and its module into a package" in told
    ) == hint
    assert ("ValueError: stop words" in told) != hint


def test_failure_has_no_hint_when_the_missing_file_is_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        (tmp_path / "absent").read_text()
    assert missing_file_hint(raised.value) == ""
