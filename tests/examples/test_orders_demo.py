"""The single command that tries the example of orders."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from kafka import unsupported

DEMO = Path(__file__).parents[2] / "examples" / "orders_etl" / "demo.py"


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_the_demo_brings_all_orders_into_the_warehouse() -> None:
    if reason := unsupported():
        pytest.skip(reason)
    done = subprocess.run([sys.executable, DEMO, "--orders", "300"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "\n300 orders over" in done.stdout
    assert "succeeded" in done.stdout
