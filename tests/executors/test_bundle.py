"""Bundles: their files, their content address, and their use by a worker."""

from __future__ import annotations

import hashlib
import importlib
import io
import subprocess
import sys
import zipfile
from pathlib import Path

import cloudpickle
import pytest
from executors.bench import KEY, RUN

from treadle.executors.bundle.build import Bundle, build_bundle, content_digest
from treadle.executors.bundle.unpack import open_bundle, prepare
from treadle.executors.program import SharedCode
from treadle.primitives import sealing
from treadle.primitives.errors import CorruptError, UsageError
from treadle.primitives.stores.store import Store


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def write(folder: Path, sources: dict[str, str]) -> None:
    """Modules by path without `.py`."""
    for name, text in sources.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def modules(bundle: Bundle) -> set[str]:
    return {name.removeprefix("modules/") for name in bundle.names if name.startswith("modules/")}


def build(project: Path, *references: str, captured: dict[str, bytes] | None = None) -> Bundle:
    return build_bundle(references, [project], captured or {})


# -- included files ----------------------------------------------------------------------------------------------------


def test_imports_are_followed_wherever_they_are_written(project: Path) -> None:
    write(
        project,
        {"main": "import a\ndef f():\n    from b import x\n", "a": "import importlib\nimportlib.import_module('c')"},
    )
    write(project, {"b": "try:\n    import d as e\nexcept ImportError: pass", "c": "", "d": "", "unused": ""})
    assert modules(build(project, "main:f")) == {"main.py", "a.py", "b.py", "c.py", "d.py"}


def test_a_module_brings_the_whole_package_it_is_in(project: Path) -> None:
    write(
        project,
        {"pkg/__init__": "", "pkg/sub/deep": "from .. import other\nimport helper", "pkg/other": "", "helper": ""},
    )
    (project / "pkg/data.json").write_text("{}")
    for skipped in ("pkg/__pycache__/x.pyc", "pkg/.hidden/x.py", "pkg/.dot", "pkg/venv/pyvenv.cfg", "pkg/venv/lib.py"):
        (project / skipped).parent.mkdir(parents=True, exist_ok=True)
        (project / skipped).write_text("")
    found = modules(build(project, "pkg.sub.deep:f"))
    assert found == {"pkg/__init__.py", "pkg/sub/deep.py", "pkg/other.py", "pkg/data.json", "helper.py"}


def test_imports_in_circles_end(project: Path) -> None:
    write(project, {"a": "import b", "b": "import a"})
    assert modules(build(project, "a:f")) == {"a.py", "b.py"}


def test_third_party_packages_stay_out_and_their_versions_are_recorded(project: Path) -> None:
    import msgspec

    write(project, {"main": "import msgspec, json\nimport treadle.executors"})
    bundle = build(project, "main:f", "operator:add")
    assert modules(bundle) == {"main.py"}
    assert bundle.manifest.distributions == {"msgspec": msgspec.__version__}


def test_captured_functions_bring_the_modules_they_name(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(project, {"bundle_helper": "def g(x):\n    return x"})
    monkeypatch.syspath_prepend(project)
    import bundle_helper  # type: ignore[import-not-found]

    data = cloudpickle.dumps(lambda x: bundle_helper.g(x))
    del sys.modules["bundle_helper"]
    bundle = build(project, captured={"captured:abc": data})
    assert set(bundle.names) == {"bundle.json", "captured/abc", "modules/bundle_helper.py"}


def test_captured_functions_bring_the_modules_they_import_when_they_are_called(project: Path) -> None:
    write(project, {"bundle_late": "", "bundle_later": ""})

    def f() -> object:
        import bundle_late  # type: ignore[import-not-found]

        def g() -> object:
            from bundle_later import x  # type: ignore[import-not-found]

            return x

        return bundle_late, g

    bundle = build(project, captured={"captured:abc": cloudpickle.dumps(f)})
    assert modules(bundle) == {"bundle_late.py", "bundle_later.py"}


def test_an_editable_install_below_the_project_is_the_projects(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(project, {"src/inner_lib/__init__": "", "src/inner_lib/part": "", "main": "import inner_lib.part"})
    monkeypatch.syspath_prepend(project / "src")
    assert modules(build(project, "main:f")) == {"main.py", "inner_lib/__init__.py", "inner_lib/part.py"}


def test_bundle_refuses_unusable_modules_with_the_reason(project: Path) -> None:
    with pytest.raises(UsageError, match="no module 'nowhere'"):
        build(project, "nowhere:f")
    write(project, {"broken": "def f(:\n", "main": "import random", "random": ""})
    with pytest.raises(UsageError, match=r"broken\.py cannot be read"):
        build(project, "broken:f")
    with pytest.raises(UsageError, match="'random' of the standard library"):
        build(project, "main:f")


def test_a_bundle_too_large_names_its_largest_files(project: Path) -> None:
    write(project, {"pkg/__init__": ""})
    with open(project / "pkg/model.bin", "wb") as file:
        file.truncate(65 << 20)
    with pytest.raises(UsageError, match=r"modules|pkg/model\.bin \(65\.0 MiB\)"):
        build(project, "pkg:f")


# -- its address -------------------------------------------------------------------------------------------------------


def test_the_same_files_make_the_same_bundle_wherever_they_are(project: Path, tmp_path: Path) -> None:
    write(project, {"a": "import b", "b": ""})
    write(tmp_path / "elsewhere", {"b": "", "a": "import b"})
    one, other = build(project, "a:f"), build(tmp_path / "elsewhere", "a:f", "b:g")
    assert (one.digest, one.data) == (other.digest, other.data)
    write(project, {"b": "x = 1"})
    assert build(project, "a:f").digest != one.digest


def test_moving_bytes_between_files_changes_the_address() -> None:
    digests = {
        content_digest(entries) for entries in ({"a": b"xy"}, {"a": b"x", "b": b"y"}, {"ax": b"y"}, {"b": b"xy"})
    }
    assert len(digests) == 4


# -- use by a worker ---------------------------------------------------------------------------------------------------


def zip_of(**entries: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in entries.items():
            archive.writestr(name.replace("UP", ".."), data)
    return buffer.getvalue()


@pytest.mark.parametrize("name", ["UP/x", "a/UP/UP/x", "/x", "a\\x", "a//x", "./x"])
def test_entries_that_would_leave_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    data = zip_of(**{name: b""})
    with pytest.raises(CorruptError, match="leave its folder"):
        open_bundle(data, content_digest({name.replace("UP", ".."): b""}), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_content_with_another_digest_is_not_unpacked(project: Path, tmp_path: Path) -> None:
    write(project, {"a": ""})
    bundle = build(project, "a:f")
    for data in (zip_of(a=b""), b"no zip"):
        with pytest.raises(CorruptError):
            open_bundle(data, bundle.digest, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["project"]


def test_an_unpacked_bundle_is_private_and_used_again(project: Path, tmp_path: Path) -> None:
    write(project, {"a": "x = 1"})
    bundle = build(project, "a:f")
    path = open_bundle(bundle.data, bundle.digest, tmp_path)
    assert (path / "modules/a.py").read_text() == "x = 1"
    assert path.stat().st_mode & 0o777 == 0o700
    assert open_bundle(b"not even looked at", bundle.digest, tmp_path) == path


TESTS = str(Path(__file__).parents[1])
WORKER = """
import sys
from pathlib import Path
from treadle.executors.program import *
from executors.bench import KEY, RUN
from treadle.executors.runtime.runtime import Runtime
from treadle.primitives.blocks import Blocks
from treadle.primitives.stores.store import Store
url, *runs = sys.argv[1:]
runtime = Runtime(None, 1 << 20, lambda name: "")
for run in runs:
    digest, function = run.split("=")
    job = Job(RUN, "w", "2026-01-01T00:00:00Z", 0, url, digest)
    program = Program("s", (MapRecords("a", Call(function)),), Keep())
    reports = []
    runtime.run(Task("t", job, program, (Partition(0, RangeSplit(1, 3)),)), KEY, reports.append)
    report = reports[0]
    if isinstance(report, Failure):
        print(report.failure, report.message)
    else:
        print(Blocks(Store.open(url), RUN).get(report.block.slice(0)))
"""


def run_worker(tmp_path: Path, *runs: str) -> list[str]:
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": "", "PYTHONPATH": TESTS}
    command = [sys.executable, "-c", WORKER, f"file://{tmp_path}/store", *runs]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.splitlines()


def submit(tmp_path: Path, bundle: Bundle, *, key: bytes | None = None) -> str:
    name = f"runs/{RUN}/bundle"
    Store.open(f"file://{tmp_path}/store").put(name, sealing.seal(key or KEY, name, bundle.data))
    return bundle.digest


def test_a_worker_imports_from_the_runs_bundle_and_keeps_it_unpacked(project: Path, tmp_path: Path) -> None:
    write(
        project,
        {"job_module": "import job_helper\ndef f(x):\n    return job_helper.g(x)", "job_helper": "def g(x): return -x"},
    )
    scale = 10
    data = cloudpickle.dumps(lambda x: x * scale)
    digest = submit(tmp_path, build_bundle(["job_module:f"], [project], {"captured:" + sha(data): data}))
    assert run_worker(tmp_path, f"{digest}=job_module:f", f"{digest}=captured:{sha(data)}") == ["[-1, -2]", "[10, 20]"]
    Store.open(f"file://{tmp_path}/store").delete_prefix("runs")
    assert run_worker(tmp_path, f"{digest}=job_module:f") == ["[-1, -2]"]


def sha(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()[:32]


def test_a_worker_refuses_another_bundle_and_one_of_another_key(project: Path, tmp_path: Path) -> None:
    write(project, {"one": "def f(x): return x", "two": "def f(x): return x"})
    first = submit(tmp_path, build(project, "one:f"))
    assert run_worker(tmp_path, f"{first}=one:f") == ["[1, 2]"]
    second = submit(tmp_path, build(project, "two:f"), key=b"k" * 32)
    found = run_worker(tmp_path, f"{second}=two:f")
    assert found[0].startswith("data corrupt runs/run-1/bundle was not written with this deployment's key")
    submit(tmp_path, build(project, "two:f"))
    found = run_worker(tmp_path, f"{first}=one:f", f"{second}=two:f")
    assert found[0] == "[1, 2]"
    assert "user error this process has the code of another bundle" in found[1]


def test_a_bundle_that_runs_share_is_known_by_its_digest(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("treadle.executors.bundle.unpack._active", {})
    monkeypatch.setattr(sys, "path", list(sys.path))
    write(project, {"shared_module": "def f(x): return x"})
    made, store = build(project, "shared_module:f"), Store.open(f"file://{tmp_path}/store")
    store.put("elsewhere/code", sealing.seal(b"o" * 32, "elsewhere/code", made.data))
    digest = hashlib.sha256(made.data).hexdigest()
    with pytest.raises(CorruptError, match="elsewhere/code is not what it was when the run was submitted"):
        prepare(store, "run-1", made.digest, b"k" * 32, SharedCode("elsewhere/code", "0" * 64))
    assert prepare(store, "run-1", made.digest, b"k" * 32, SharedCode("elsewhere/code", digest)) == {}
    assert importlib.import_module("shared_module").f(1) == 1
    del sys.modules["shared_module"]
