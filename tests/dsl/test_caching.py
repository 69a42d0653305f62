"""`cache` in Python equals `cache` in YAML, and in the normal form."""

from __future__ import annotations

import pytest

from treadle.dsl import Workflow, range_, task
from treadle.dsl.caching import Cache, first_given
from treadle.dsl.convert.python import to_python
from treadle.dsl.document.workflow_files import load
from treadle.dsl.model import Spec
from treadle.dsl.normalise import normalise, read_normalised
from treadle.dsl.validation.validate import validate
from treadle.primitives.errors import UsageError


def doubled(record: int) -> int:
    return 2 * record


def workflow() -> Workflow:
    wf = Workflow("kept", defaults={"cache": True})
    first = wf.map("first", range_(4), uses=doubled, cache={"version": 2, "ttl": "7d"})
    wf.map("second", first, uses=doubled, cache=False)
    return wf


def test_the_setting_is_the_same_in_python_in_yaml_and_in_the_normal_form() -> None:
    spec = workflow().spec()
    assert spec.defaults.cache is True
    normal = normalise(spec)
    assert normal["stages"]["first"]["cache"] == {"ttl": "7d", "version": 2}
    assert normal["stages"]["second"]["cache"] is False
    assert read_normalised(normal) == spec


def test_a_python_twin_says_the_same() -> None:
    spec = workflow().spec()
    scope: dict[str, object] = {}
    exec(to_python(spec), scope)
    (made,) = (value for value in scope.values() if isinstance(value, Workflow))
    assert normalise(made.spec()) == normalise(spec)


def test_the_strongest_setting_counts_and_false_is_one() -> None:
    kept = Cache(version=3)
    assert first_given(None, kept, True) == kept
    assert first_given(False, kept) is None
    assert first_given(None, True) == Cache()
    assert first_given(None, None) is None


def test_functions_keep_the_setting_and_wrong_ones_are_refused() -> None:
    assert task(cache={"ttl": "1d"})(doubled).__treadle_task__ == {"cache": {"ttl": "1d"}}  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="cache"):
        task(cache={"for": "1d"})


def test_a_document_without_it_keeps_its_normal_form() -> None:
    document = {
        "apiVersion": "treadle/v1",
        "name": "n",
        "stages": {"a": {"type": "map", "input": {"range": 1}, "uses": "m:f"}},
    }
    assert "cache" not in str(normalise(Spec.model_validate(document, by_alias=True, by_name=False)))


def test_cache_check_reports_an_unreadable_template_as_such() -> None:
    stage = "{type: map, input: {range: 1}, uses: m:f, with: {x: '${{ what'}, cache: true}"
    found = validate(load(f"apiVersion: treadle/v1\nname: w\nstages: {{a: {stage}}}\n"))
    assert [one.code for one in found] == ["T301"]
