"""The output of doctor about a machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.cli.common.environment import Environment
from treadle.cli.doctor import _executors, _temporal  # private: one check, without the others


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("slots = 2", "2 slots, 8.0 GiB that they share"),
        ("slots = 1", "1 slot, 8.0 GiB for an attempt"),
        ('slots = 2\nmemory = "1GiB"', "2 slots, 512 MiB for an attempt"),
    ],
)
def test_memory_is_that_of_an_attempt_only_where_slots_do_not_share_it(
    settings: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.executors.memory_limit.host_memory", lambda: 8 << 30)
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "profiles.toml").write_text(f"[here]\n{settings}\n")
    (check,) = _executors(Environment("here", home))
    assert check.about == f"local: {told}"


def test_doctor_reports_a_broken_off_first_start(tmp_path: Path) -> None:
    env = Environment(None, tmp_path / "home")
    (env.home.server / "unfinished").touch()
    (check,) = _temporal(env)
    assert check.state == "warning"
    assert "its first start broke off" in check.about
    assert "makes the database anew" in check.hint
