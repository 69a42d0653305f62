"""Every name in a package's `__all__` exists."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import treadle.primitives

PACKAGES = [one.name for one in pkgutil.iter_modules(treadle.primitives.__path__, "treadle.primitives.") if one.ispkg]


@pytest.mark.parametrize("name", PACKAGES)
def test_every_public_name_of_a_package_can_be_imported(name: str) -> None:
    package = importlib.import_module(name)
    missing = [one for one in getattr(package, "__all__", ()) if not hasattr(package, one)]
    assert not missing
