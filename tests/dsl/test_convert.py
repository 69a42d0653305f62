"""A document has the same meaning in its other form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dsl.documents import Json, documents
from hypothesis import HealthCheck, assume, given, settings

from treadle.client.testing.strategies import Case, cases
from treadle.dsl import Workflow, items
from treadle.dsl.convert.python import to_python
from treadle.dsl.diagnostics.diagnostics import has_errors
from treadle.dsl.document.workflow_files import from_spec, load
from treadle.dsl.document.writing import to_yaml
from treadle.dsl.model import Spec
from treadle.dsl.normalise import normalise
from treadle.dsl.validation.validate import validate

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*/*.yaml"))
HEAD = "apiVersion: treadle/v1\nname: w\n"


class _Named:
    """A replacement for a module of user functions. Its attributes are references."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> str:
        return f"{self._module}:{name}"


def built(text: str) -> Spec:
    return workflow_of(text).spec()


def workflow_of(text: str) -> Workflow:
    """The workflow that the module builds. User functions need not exist."""
    lines = text.splitlines()
    known: dict[str, Any] = {}
    for line in lines:
        if line.startswith("from ") and not line.startswith("from treadle.dsl "):
            module, _, names = line.removeprefix("from ").partition(" import ")
            known |= {name: getattr(_Named(module), name) for name in names.split(", ")}
    own = [line for line in lines if not line.startswith("from ") or line.startswith("from treadle.dsl ")]
    exec(compile("\n".join(own), "converted", "exec"), known)
    workflow = known["wf"]
    assert isinstance(workflow, Workflow)
    return workflow


def spec_of(tmp_path: Path, text: str) -> Spec:
    file = tmp_path / "w.yaml"
    file.write_text(HEAD + text)
    return load(file).require()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_the_same_in_python(path: Path) -> None:
    spec = load(path).require()
    assert normalise(built(to_python(spec))) == normalise(spec)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases("properties.functions"))
def test_generated_workflows_are_the_same_in_python(case: Case) -> None:
    spec = Spec.model_validate(case.document)
    assert normalise(built(to_python(spec))) == normalise(spec)


def exactly(spec: Spec) -> str:
    """A text of the spec that also distinguishes 1 from 1.0."""
    return json.dumps(normalise(spec), sort_keys=True)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(documents())
def test_every_document_says_the_same_in_python_and_again_in_yaml(document: Json) -> None:
    spec = Spec.model_validate(document, by_alias=True, by_name=False)
    assume(not has_errors(validate(from_spec(spec))))
    text = to_python(spec)
    back = built(text)
    assert exactly(back) == exactly(spec)
    again = load(to_yaml(back)).require()
    assert exactly(again) == exactly(spec)
    assert to_python(again) == text


def test_numbers_are_written_as_they_were(tmp_path: Path) -> None:
    spec = spec_of(
        tmp_path,
        "inputs: {k: {type: integer, default: 2, minimum: 1, maximum: 9007199254740993}}\n"
        "defaults: {retry: {backoffCoefficient: 3}}\nstages: {a: {type: map, input: {range: 3}, uses: 'm:f'}}\n",
    )
    text = to_python(spec)
    assert "minimum=1, maximum=9007199254740993" in text
    assert '"backoff_coefficient": 3}' in text
    assert "minimum: 1\n" in workflow_of(text).to_yaml()


@pytest.mark.parametrize("text", ["1e3", "08", "0o17", "1.5e3", "1e999", ".5", "\x85", "a\u2028b"])
def test_a_text_that_yaml_would_read_as_something_else_is_quoted(text: str) -> None:
    wf = Workflow("w")
    wf.map("a", items([text, {text: 1}]), uses="m:f")
    assert load(wf.to_yaml()).require() == wf.spec()


@pytest.mark.parametrize(
    "condition",
    [
        "stages.a.metrics.n > 0 && !(inputs.k < 3 || has(stages.a.metrics.n))",
        "1 < inputs.k",
        "1 + 2 < inputs.k",
        "3 - inputs.k * 2 == -inputs.k",
        "min(inputs.k, 3) == 2",
        'inputs.s == "it\'s"',
        "size(inputs.s) > 1 && true",
        "!(inputs.k == 1) == false",
        'inputs.s in ["a", "b"] && !contains(inputs.s, "x")',
        'startsWith(inputs.s, "a") || endsWith(inputs.s + "x", inputs.s)',
        'matches(inputs.s, "^a+$") == true',
        'has(inputs.l[0]) && inputs.l[0].a["b-c"][-1] != 3',
        "stages.r.value > 2",
        "stages.r.value.deep == 2",
    ],
)
def test_a_condition_is_recorded_as_it_was_written(tmp_path: Path, condition: str) -> None:
    spec = spec_of(
        tmp_path,
        "inputs: {k: {type: integer, default: 1}, s: {type: string, default: x}, "
        "l: {type: list, default: []}}\nstages:\n"
        "  a: {type: map, input: {range: 3}, uses: 'm:f', metrics: {n: sum}}\n"
        "  r: {type: reduce, input: a, per: all, uses: 'm:f'}\n"
        f"  b: {{type: map, input: a, uses: 'm:f', when: {condition!r}}}\n".replace("\\'", "''"),
    )
    assert normalise(built(to_python(spec))) == normalise(spec)


def test_names_that_python_or_the_module_needs_are_left_to_it(tmp_path: Path) -> None:
    spec = spec_of(
        tmp_path,
        "inputs: {run: {type: integer, default: 1}, class: {type: string, default: a}}\nstages:\n"
        "  wf: {type: map, input: {range: 3}, uses: 'm:text', metrics: {from: sum}}\n"
        "  text: {type: map, input: wf, uses: 'm:wf', with: {a: '${{ inputs.class }}', b: '${{ inputs.run }}'}}\n"
        "  lambda: {type: map, input: text, uses: 'other:text', when: 'stages.wf.metrics.from > 0'}\n"
        "  same: {type: map, input: lambda, uses: 'm:same'}\n",
    )
    assert normalise(built(to_python(spec))) == normalise(spec)


def test_a_list_in_a_state_is_data_or_a_value_as_it_was_written(tmp_path: Path) -> None:
    spec = spec_of(
        tmp_path,
        "inputs: {l: {type: list, default: [1]}}\nstages:\n"
        "  a: {type: loop, state: {data: inputs.l, value: '${{ inputs.l }}'}, maxIterations: 2, stages: "
        "{in: {type: map, input: state.data, uses: 'm:f', with: {x: '${{ state.value }}'}}}, next: {data: inputs.l}}\n",
    )
    assert exactly(built(to_python(spec))) == exactly(spec)


def test_texts_that_only_look_like_templates_of_python_stay_as_they_are(tmp_path: Path) -> None:
    spec = spec_of(
        tmp_path,
        "inputs: {k: {type: integer, default: 1}}\nstages:\n"
        "  a:\n    type: map\n    input: {range: 3}\n    uses: 'm:f'\n    with:\n"
        '      braces: "{k} ${{ inputs.k }} {{}}"\n'
        "      quotes: 'a \"b\" ${{ inputs.k }}'\n"
        '      lines: "a\\nb\\\\ ${{ inputs.k + 1 }}"\n'
        "      nested: {list: [1, null, true, {deep: '${{ run.id }}/x'}]}\n",
    )
    text = to_python(spec)
    assert normalise(built(text)) == normalise(spec)
    assert 'f"{run.id}/x"' in text


def test_a_module_reads_as_one_would_write_it() -> None:
    text = to_python(load(ROOT / "examples" / "kmeans" / "kmeans.yaml").require())
    assert text.startswith("from kmeans import add_partials, as_rows, assign")
    assert 'with wf.loop("lloyd", state={' in text or "with wf.loop(" in text
    assert "lloyd.until(update.metrics.shift < tol)" in text
    assert max(map(len, text.splitlines())) <= 130
