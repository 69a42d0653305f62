"""A workflow gives the same result as a run of its own and as a child of another run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given

from treadle.client.testing.compare import differences, expected
from treadle.client.testing.strategies import Case, cases
from treadle.dsl.reference import ReferenceResult

from .conftest import Site
from .profiles import examples

MODULE = "properties.functions"
pytestmark = pytest.mark.timeout(0)


def nested(case: Case) -> Case:
    """A workflow that runs this one twice. The second run reads the outputs of the first."""
    child = {"type": "workflow", "uses": case.document, "with": case.inputs}
    known = case.document.get("outputs", {})
    shown = {name: f"${{{{ stages.first.outputs.{name} }}}}" for name in known}
    seen = {"type": "map", "input": {"items": [0]}, "uses": f"{MODULE}:with_value", "with": {"value": [shown]}}
    document = {
        "apiVersion": "treadle/v1",
        "name": "outer",
        "stages": {"first": child, "second": {**child, "needs": ["first"]}, "seen": {**seen, "needs": ["first"]}},
        "outputs": {**shown, **{f"{name}2": f"${{{{ stages.second.outputs.{name} }}}}" for name in known}},
    }
    return Case(document, {}, case.files)


@examples(5)
@given(case=cases(MODULE, most=3))
def test_child_gives_what_its_workflow_gives(sites: Callable[[int, bool], Site], case: Case) -> None:
    site = sites(2, True)
    base, run = site.place()
    outer = nested(case)
    outer.write(base)
    wanted = expected(outer, base, run)
    engine = site.engine()
    found = site.harness.run(engine, outer, base, run)
    assert not differences(wanted, found, base, run)
    if isinstance(wanted, ReferenceResult):
        for name, inner in wanted.children.items():
            again = site.harness.result(engine, f"{run}/{name}")
            assert not differences(inner, again, base, f"{run}/{name}")
