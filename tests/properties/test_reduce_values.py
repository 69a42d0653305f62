"""`stages.X.value` of a reduce over everything equals the reference interpreter's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from treadle.client.testing.compare import expected
from treadle.client.testing.strategies import Case
from treadle.primitives.errors import DataError
from treadle.primitives.result import VALUE_LIMIT, stage_value

from .conftest import Site
from .test_generated import check

FUNCTIONS = "properties.functions:"
RETRY = {"retry": {"maximumAttempts": 1}}


def case(stages: dict[str, Any], outputs: dict[str, str], inputs: dict[str, Any] | None = None) -> Case:
    document = {"apiVersion": "treadle/v1", "name": "values", "defaults": RETRY, "stages": stages, "outputs": outputs}
    return Case(document | ({"inputs": inputs} if inputs else {}))


def total(**settings: Any) -> dict[str, Any]:
    return {"type": "reduce", "input": {"range": 40}, "per": "all", **settings}


SUM = {"combine": FUNCTIONS + "add"}
LIST = {"uses": FUNCTIONS + "of_all"}
OUTPUTS = {"total": "${{ stages.total.value }}", "text": "it is ${{ stages.total.value }}"}


def test_a_value_is_an_output(sites: Callable[[int, bool], Site], tmp_path: Any) -> None:
    given = case({"total": total(**SUM)}, OUTPUTS)
    result = expected(given, tmp_path, "run")
    assert not isinstance(result, Exception)
    assert result.outputs == {"total": 780, "text": "it is 780"}
    check(given, sites(2, False))


@pytest.mark.parametrize(
    "settings",
    [LIST, {**SUM, "finish": FUNCTIONS + "finished"}, {**SUM, "fanIn": 2}, {**SUM, "input": {"range": 0}}],
    ids=["list", "finish", "tree", "nothing"],
)
def test_a_value_is_the_record(sites: Callable[[int, bool], Site], settings: dict[str, Any]) -> None:
    check(case({"total": total(**settings)}, {"total": "${{ stages.total.value }}"}), sites(2, False))


def test_a_value_decides_conditions_and_loops(sites: Callable[[int, bool], Site]) -> None:
    inner: dict[str, Any] = {"type": "reduce", "input": {"range": 3}, "per": "all", "combine": FUNCTIONS + "add"}
    inner |= {"initial": 0, "finish": FUNCTIONS + "finished_with", "with": {"value": "${{ state.n }}"}}
    loop = {
        "type": "loop",
        "state": {"n": 1},
        "maxIterations": 4,
        "onExhausted": "succeed",
        "until": "stages.inner.value < 200",
        "stages": {"inner": inner},
        "next": {"n": "${{ state.n + 1 }}"},
    }
    later = {"type": "map", "input": {"range": 2}, "uses": FUNCTIONS + "number", "when": "stages.total.value > 780"}
    outputs = {"total": "${{ stages.total.value }}", "n": "${{ stages.l.state.n }}"}
    check(case({"total": total(**SUM), "l": loop, "later": later}, outputs), sites(2, False))


def test_the_value_of_a_skipped_stage_is_null(sites: Callable[[int, bool], Site]) -> None:
    check(case({"total": total(**SUM, when="false")}, {"total": "${{ stages.total.value }}"}), sites(2, False))


def test_a_value_too_large_for_an_output_fails_the_run(sites: Callable[[int, bool], Site]) -> None:
    given = case({"total": total(**{**LIST, "input": {"range": 9_000}})}, {"total": "${{ stages.total.value }}"})
    check(given, sites(2, False))


def test_a_large_record_is_fine_where_its_value_is_not_read(sites: Callable[[int, bool], Site]) -> None:
    check(case({"total": total(**{**LIST, "input": {"range": 9_000}})}, {}), sites(2, False))


@pytest.mark.parametrize(
    "record", [{1: 2}, {"a": object()}, float("nan"), [float("inf")], 2**64, np.array([1]), b"", "x" * VALUE_LIMIT]
)
def test_value_outside_json_is_refused(record: Any) -> None:
    with pytest.raises(DataError):
        stage_value("total", record)


def test_scalars_of_numpy_and_tuples_become_json() -> None:
    assert stage_value("total", {"n": np.int64(3), "pair": (1, None)}) == {"n": 3, "pair": [1, None]}
