"""docs/python.md has an example of each method of the builder, and each name that `treadle.dsl` offers."""

from __future__ import annotations

import inspect
import re

import pytest
from doc_pages import ROOT, blocks

import treadle.dsl

PAGE = ROOT / "docs" / "python.md"
CODE = "\n".join(block.text for block in blocks(PAGE, "python", "pycon"))
HELPERS = {"claim", "inside", "stage_fields"}
"""Methods that the builder's own classes call."""


@pytest.mark.parametrize("builder", [treadle.dsl.Workflow, treadle.dsl.Loop])
def test_page_has_an_example_of_each_method(builder: type) -> None:
    methods = {name for name, _ in inspect.getmembers(builder, inspect.isfunction) if not name.startswith("_")}
    assert [name for name in sorted(methods - HELPERS) if not re.search(rf"\.{name}\(", CODE)] == []


def test_page_names_everything_that_the_package_offers() -> None:
    text = PAGE.read_text("utf-8")
    assert [name for name in treadle.dsl.__all__ if not re.search(rf"\b{name}\b", text)] == []
