"""Tests that need a missing program are skipped, and the reason names the target that installs it.

Each function is called without its cache, which other tests of this process read.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import kafka
import namespaces
import pytest

ROOT = Path(__file__).parents[1]
TARGET = "`make system-packages`"


def installed() -> str:
    """The command of the target."""
    done = subprocess.run(["make", "-n", "system-packages"], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize("module", [namespaces, kafka])
def test_reason_of_a_skip_names_the_target_that_installs(module: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert TARGET in module.unsupported.__wrapped__()  # type: ignore[attr-defined]


def test_reason_names_maven_when_only_java_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", {"java": "/bin/java"}.get)
    monkeypatch.setattr(kafka, "_jar_folder", lambda: tmp_path / "missing")
    assert f"come through Maven, which {TARGET} installs" in kafka.unsupported.__wrapped__()


@pytest.mark.parametrize("package", ["iproute2", "iptables", "docker-compose", "default-jre-headless", "maven"])
def test_target_installs_the_package(package: str) -> None:
    assert package in installed().split()
