"""The deployed package holds the code of a function, and no more."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from emulators.packages import local_package

from treadle.executors.package import build, dependency_wheels, treadle_wheels
from treadle.executors.package.build import (
    LAMBDA,
    OPENWHISK,
    Package,
    PackageLimits,
    Provider,
    build_package,
    dockerfile,
)
from treadle.executors.package.target import (
    LAMBDA_GLIBC,
    OPENWHISK_GLIBC,
    Target,
    lambda_target,
    openwhisk_target,
    this_machine,
)
from treadle.primitives.errors import UsageError

ROOT = Path(__file__).parents[2]
UV = str(Path(sys.executable).with_name("uv"))
ORCHESTRATORS = ("temporalio", "typer", "pydantic", "yaml", "rich", "treadle/orchestrator", "treadle/dsl")
HANDLER = "treadle.executors.function_handler"


@pytest.fixture(scope="module")
def package() -> Package:
    return local_package()


@pytest.fixture(scope="module")
def unpacked(package: Package, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("function")
    package.unpack(folder)
    return folder


def clean(folder: Path, code: str) -> str:
    """The output of an interpreter with only the package on its path: no environment, no site-packages."""
    start = f"import sys; sys.path.insert(0, {str(folder)!r}); {code}"
    command = [sys.executable, "-I", "-S", "-B", "-c", start]
    done = subprocess.run(command, env={}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_clean_interpreter_with_only_the_package_imports_the_handler(unpacked: Path) -> None:
    """Also the two entry points that call it. Lambda's does so at import."""
    out = clean(unpacked, f"import json, {HANDLER}; print(json.dumps([sorted(sys.modules), {HANDLER}.__file__]))")
    clean(unpacked, "import treadle.executors.openwhisk.entry")
    modules, file = json.loads(out)
    assert file.startswith(str(unpacked))
    assert not {"temporalio", "pydantic", "typer", "yaml", "rich", "numpy", "pyarrow"}.intersection(modules)
    assert len([name for name in modules if name.partition(".")[0] not in sys.stdlib_module_names]) < 90


def test_every_library_of_the_package_loads_from_it(unpacked: Path) -> None:
    """No import needs the omitted tests, headers and stubs."""
    names = (
        "numpy",
        "numpy.testing",
        "numpy.linalg",
        "numpy.random",
        "obstore.store",
        "msgspec",
        "xxhash",
        "cloudpickle",
    )
    out = clean(unpacked, f"import {', '.join(names)}; print(*(sys.modules[n].__file__ for n in {names}))")
    assert all(file.startswith(str(unpacked)) for file in out.split())


def test_every_module_of_treadle_in_the_package_compiles_and_is_there_once(package: Package) -> None:
    wanted = {
        str(file.relative_to(ROOT / member / "src"))
        for member in ("primitives", "executors", "libraries/multiprocessing")
        for file in (ROOT / member / "src").rglob("*.py")
    }
    assert {name for name in package.sizes if name.startswith("treadle/") and name.endswith(".py")} == wanted
    assert "treadle/__init__.py" not in package.sizes


def test_nothing_of_the_orchestrator_is_inside(package: Package) -> None:
    assert [name for name in package.sizes if name.replace("-", "_").startswith(ORCHESTRATORS)] == []


def test_nothing_only_developers_need_is_inside(package: Package) -> None:
    unneeded = re.compile(r"(^|/)(__pycache__|tests|bin)/|\.(pyi|h|pxd|pyc|a|pth)$|dist-info/RECORD$")
    assert {name for name in package.sizes if unneeded.search(name)} <= {"numpy/_core/tests/_natype.py"}
    licences = {name.partition(".dist-info/")[0].partition("-")[0] for name in package.sizes if "LICENSE" in name}
    assert {"numpy", "msgspec", "xxhash", "cloudpickle"} <= licences


def test_the_package_without_arrow_is_below_40_mb(package: Package) -> None:
    assert len(package.data) < 40_000_000
    assert package.unzipped < 120_000_000
    package.check(LAMBDA)
    package.check(OPENWHISK)


def test_the_same_wheels_give_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(order: Sequence[str]) -> None:
        """Wheels laid out in another order, at another time."""

        def fetched(_: object, __: object, folder: Path) -> None:
            for number, name in enumerate(order):
                (folder / name).write_text(f"library {name}")
                os.utime(folder / name, (number, number))

        monkeypatch.setattr(build, "fetch_wheels", fetched)

    fetch("abc")
    first = build_package(this_machine())
    fetch("cba")
    second = build_package(this_machine())
    assert (first.digest, first.data) == (second.digest, second.data)
    assert {"a", "b", "c"} <= first.sizes.keys()


def test_an_extra_file_is_inside_and_changes_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "fetch_wheels", lambda *_: None)
    other = build_package(this_machine(), extra={"__main__.py": b"main = print\n"})
    assert other.digest != build_package(this_machine()).digest
    with zipfile.ZipFile(io.BytesIO(other.data)) as archive:
        assert archive.read("__main__.py") == b"main = print\n"
        modes = {info.external_attr >> 16 & 0o777 for info in archive.infolist()}
    assert modes == {0o644}


def test_an_editable_member_gives_what_its_wheel_would(package: Package, tmp_path: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    for member in ("primitives", "executors", "libraries/multiprocessing"):
        command = [str(uv), "build", "--quiet", "--wheel", "--out-dir", str(tmp_path), str(ROOT / member)]
        subprocess.run(command, check=True, capture_output=True)
    wanted: dict[str, bytes] = {}
    for wheel in tmp_path.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            wanted |= {name: archive.read(name) for name in archive.namelist() if name.startswith("treadle/")}
    mine = {name: data for name, data in treadle_wheels.own_files().items() if name.startswith("treadle/")}
    assert {name: data for name, data in mine.items() if "__pycache__" not in name} == wanted


def test_a_package_too_large_names_its_largest_parts() -> None:
    package = Package(
        b"x" * (3 << 20), "", {"numpy/a.so": 5 << 20, "small.py": 10, "numpy/b.so": 1 << 20}, this_machine()
    )
    with pytest.raises(UsageError) as caught:
        package.check(PackageLimits("A provider", 2 << 20))
    assert "3.0 MiB zipped, A provider takes 2.0 MiB; the largest parts: numpy (6.0 MiB), small.py" in str(caught.value)
    assert "image" in caught.value.hint
    with pytest.raises(UsageError, match=r"6\.0 MiB unzipped"):
        package.check(PackageLimits("A provider", 4 << 20, 5 << 20))


def test_code_for_openwhisk_is_measured_as_base64() -> None:
    assert OPENWHISK.zipped * 4 // 3 == 48 << 20


# -- targets


def test_a_target_takes_wheels_of_its_c_library_and_older_ones() -> None:
    tags = Target("3.12", "aarch64", (2, 34)).platform_tags
    assert tags[0] == "manylinux_2_34_aarch64"
    assert tags[-2:] == ["manylinux_2_17_aarch64", "manylinux2014_aarch64"]
    assert "manylinux_2_28_aarch64" in tags


def test_a_python_the_provider_does_not_have_is_refused() -> None:
    with pytest.raises(UsageError, match=r"no runtime for Python 3\.9; it has 3\.11, 3\.12"):
        lambda_target("3.9")
    with pytest.raises(UsageError, match=r"no runtime for Python 3\.14; it has 3\.11, 3\.12\n") as refused:
        openwhisk_target("3.14")
    assert "`make clean .venv/ready PYTHON=python3.12`" in refused.value.hint
    with pytest.raises(UsageError, match="no packages for sparc"):
        lambda_target("3.12", "sparc")


def test_arm_has_two_names() -> None:
    assert lambda_target("3.12", "arm64") == lambda_target("3.12", "aarch64")


# -- sources of wheels


COMMANDS = {
    "uv": "/bin/uv pip install --quiet --no-config --target /f --only-binary :all: "
    "--python-platform aarch64-manylinux_2_28 --python-version 3.12 --link-mode copy --constraint /c",
    "pip": f"{sys.executable} -m pip install --quiet --disable-pip-version-check --no-compile --target /f "
    "--only-binary :all: --implementation cp --python-version 3.12 --platform manylinux_2_18_aarch64 "
    "--platform manylinux_2_17_aarch64 --platform manylinux2014_aarch64 --constraint /c",
}


def test_uv_and_pip_are_asked_for_wheels_of_the_target_only() -> None:
    new, old = (Target("3.12", "aarch64", (2, minor)) for minor in (29, 18))
    assert " ".join(dependency_wheels.uv_command("/bin/uv", new, Path("/f"), Path("/c"))) == COMMANDS["uv"]
    assert " ".join(dependency_wheels.pip_command(old, Path("/f"), Path("/c"))) == COMMANDS["pip"]


def test_versions_are_those_installed_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Sequence[str]] = []

    def run(command: Sequence[str], **_: object) -> subprocess.CompletedProcess[str]:
        seen.append((tmp_path / "f.constraints").read_text().splitlines())
        seen.append(command)
        return subprocess.CompletedProcess([], 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    dependency_wheels.fetch_wheels(["numpy>=2"], this_machine(), tmp_path / "f")
    import numpy

    assert f"numpy=={numpy.__version__}" in seen[0]
    assert seen[1][-1] == "numpy>=2"
    assert list(tmp_path.iterdir()) == []


def test_a_version_without_a_wheel_is_refused_in_the_tools_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = subprocess.CompletedProcess([], 1, "", "numpy==9 has no usable wheels")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: said)
    with pytest.raises(
        UsageError, match=r"no wheels for Python 3.12 on x86_64 with glibc 2.34: numpy==9 has no usable"
    ):
        dependency_wheels.fetch_wheels(["numpy"], lambda_target("3.12"), tmp_path / "f")


@pytest.mark.parametrize(("python", "hint"), [("3.11", "PYTHON=python3.12`"), ("3.12", "Install versions here")])
def test_missing_wheels_hint_names_the_python_with_a_newer_c_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: str, hint: str
) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 1, "", "none"))
    with pytest.raises(UsageError) as caught:
        dependency_wheels.fetch_wheels(["numpy"], lambda_target(python), tmp_path / "f")
    assert hint in caught.value.hint
    assert "image" not in caught.value.hint, "an image has the same C library"


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every version in uv.lock, with its versions of Python."""
    file = tmp_path_factory.mktemp("lock") / "locked.txt"
    command = [UV, "export", "--quiet", "--frozen", "--no-hashes", "--no-emit-workspace", "--all-packages"]
    subprocess.run([*command, "--all-extras", "--output-file", file], check=True, cwd=ROOT)
    return file


RUNTIMES = [lambda_target(python) for python in LAMBDA_GLIBC] + [openwhisk_target(python) for python in OPENWHISK_GLIBC]
WITHOUT = {("kafka", "3.11", (2, 26))}
"""(extra, Python, C library) without wheels, by docs/packages.md."""


@pytest.mark.parametrize("extra", ["", "arrow", "kafka"])
@pytest.mark.parametrize("target", RUNTIMES, ids=str)
def test_the_locked_versions_have_wheels_for_every_runtime(
    tmp_path: Path, locked: Path, target: Target, extra: str
) -> None:
    """The result of `make` can be deployed to Lambda and OpenWhisk from each version of Python."""
    command = [
        *dependency_wheels.uv_command(UV, target, tmp_path / "f", locked),
        "--dry-run",
        *treadle_wheels.requirements(extra),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == ((extra, target.python, target.glibc) not in WITHOUT), done.stderr


def test_without_uv_and_pip_the_hint_names_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependency_wheels, "_uv", lambda: None)
    monkeypatch.setattr(dependency_wheels, "find_spec", lambda _: None)
    with pytest.raises(UsageError) as caught:
        dependency_wheels.fetch_wheels([], this_machine(), tmp_path / "f")
    assert "pip install uv" in caught.value.hint


def test_arrow_is_added_when_asked_for() -> None:
    assert not any("pyarrow" in each for each in treadle_wheels.requirements())
    assert any("pyarrow" in each for each in treadle_wheels.requirements("arrow"))
    assert not any("cryptography" in each or "boto3" in each for each in treadle_wheels.requirements("arrow"))


def test_an_image_takes_the_unpacked_package() -> None:
    providers: tuple[Provider, ...] = ("lambda", "openwhisk")
    recipes = {provider: dockerfile(provider, lambda_target("3.12")) for provider in providers}
    assert all(re.search(r"^COPY package/ \S+$", recipe, re.MULTILINE) for recipe in recipes.values())
    assert re.search(r"^FROM \S+/lambda/python:3\.12$", recipes["lambda"], re.MULTILINE)
    assert re.search(r"^FROM openwhisk/action-python-v3\.12$", recipes["openwhisk"], re.MULTILINE)
