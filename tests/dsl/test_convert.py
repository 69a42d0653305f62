"""A document in its other form says the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from treadle.dsl import Workflow
from treadle.dsl.convert.python import to_python
from treadle.dsl.document.document import load
from treadle.dsl.model import Spec
from treadle.dsl.normalise import normalise
from treadle.orchestrator.testing.strategies import Case, cases

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*/*.yaml"))
HEAD = "apiVersion: treadle/v1\nname: w\n"


class _Named:
    """Stands for a module of user functions: what is imported from it is its reference."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> str:
        return f"{self._module}:{name}"


def built(text: str) -> Spec:
    """The document that the module builds; user functions need not exist."""
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
    return workflow.spec()


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
    ],
)
def test_a_condition_is_recorded_as_it_was_written(tmp_path: Path, condition: str) -> None:
    spec = spec_of(
        tmp_path,
        "inputs: {k: {type: integer, default: 1}, s: {type: string, default: x}}\nstages:\n"
        "  a: {type: map, input: {range: 3}, uses: 'm:f', metrics: {n: sum}}\n"
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
