"""`type: workflow`: the references, the inputs, the meaning. Errors are reported at their own place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from dsl.reference_cases import interpret, items, values

from treadle.dsl import Workflow, has, range_
from treadle.dsl.convert.python import to_python
from treadle.dsl.diagnostics.formats import render
from treadle.dsl.document.document import Document, InvalidDocument
from treadle.dsl.document.workflow_files import MAX_DEPTH, from_spec, linked, load
from treadle.dsl.model import Spec, WorkflowStage
from treadle.dsl.normalise import normalise, read_normalised
from treadle.dsl.reference import ReferenceFailure
from treadle.dsl.validation.inputs import InvalidInputs
from treadle.dsl.validation.subworkflows import given_inputs
from treadle.dsl.validation.validate import validate
from treadle.primitives.result import Result

HEAD = "apiVersion: treadle/v1\nname: {name}\n"
SUM = """
inputs:
  numbers: {type: dataset, required: true}
  times: {type: integer, default: 1}
  label: {type: string}
stages:
  scaled:
    {type: map, input: inputs.numbers, uses: m:scale, with: {by: "${{ inputs.times }}", name: "${{ inputs.label }}"}}
  total: {type: reduce, input: scaled, per: all, uses: m:total, metrics: {total: integer}}
outputs: {total: "${{ stages.total.metrics.total }}", run: "${{ run.id }}", kind: sum}
"""
USE = """
stages:
  first: {type: workflow, uses: ./sum.yaml, with: {numbers: {items: [1, 2, 3]}}}
  second:
    type: workflow
    uses: ./sum.yaml
    with: {numbers: {range: 3}, times: "${{ stages.first.outputs.total }}"}
outputs: {total: "${{ stages.second.outputs.total }}", first: "${{ stages.first.outputs.total }}"}
"""


def scale(record: int, by: int, name: str | None) -> int:
    return record * by


def total(numbers: Any) -> Result:
    found = sum(numbers)
    return Result(found, metrics={"total": found})


FUNCTIONS = {"scale": scale, "total": total}


def write(folder: Path, **files: str) -> Path:
    """Write the files. The first one is the main document."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HEAD.format(name=path.stem) + text)
    return folder / f"{next(iter(files))}.yaml"


def told(path: Path) -> str:
    document = load(path, path.name)
    return render(validate(document), document.sources)


def found(tmp_path: Path, stage: str, child: str = SUM, head: str = "") -> list[tuple[str, str]]:
    """(code, message) of the findings for a document with this stage `sub`."""
    path = write(tmp_path, main=f"{head}stages:\n  sub: {{type: workflow, {stage}}}\n", sum=child)
    return [(one.code, one.message) for one in validate(load(path))]


def test_circular_links_are_reported(tmp_path: Path) -> None:
    (tmp_path / "round.yaml").symlink_to("round.yaml")
    (problem,) = found(tmp_path, "uses: round.yaml")
    assert problem[0] == "T110"
    assert "cannot be looked for" in problem[1]


NUMBERS = "numbers: {items: [1]}"
DECLARED = "inputs: {n: {type: integer, default: 1}, data: {type: dataset, default: {range: 2}}}\nsecrets: [key]\n"

# -- files -----------------------------------------------------------------------------------------------------------


def test_sub_workflows_are_found_from_the_file_that_names_them(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        main="stages: {a: {type: workflow, uses: parts/a.yaml}}\n",
        parts__a="stages: {b: {type: workflow, uses: ../b.yaml}}\n",
        b="stages: {c: {type: map, input: {range: 1}, uses: m:f}}\n",
    )
    assert validate(load(path)) == []
    spec = linked(load(path))
    assert isinstance(spec.stages["a"], WorkflowStage)
    assert isinstance(spec.stages["a"].uses, Spec)
    inner = spec.stages["a"].uses.stages["b"]
    assert isinstance(inner, WorkflowStage)
    assert isinstance(inner.uses, Spec)
    assert set(inner.uses.stages) == {"c"}


@pytest.mark.parametrize("uses", ["../outside.yaml", "/etc/outside.yaml", "link.yaml"])
def test_files_outside_of_the_project_are_refused(tmp_path: Path, uses: str) -> None:
    inside = tmp_path / "project"
    inside.mkdir()
    write(tmp_path, outside="stages: {c: {type: map, input: {range: 1}, uses: m:f}}\n")
    (inside / "link.yaml").symlink_to(tmp_path / "outside.yaml")
    path = write(inside, main=f"stages: {{a: {{type: workflow, uses: {uses}}}}}\n")
    assert [(one.code, one.line) for one in validate(load(path))] == [("T110", 3)]


def test_circle_is_reported_with_its_files(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        main="stages: {a: {type: workflow, uses: parts/a.yaml}}\n",
        parts__a="stages: {b: {type: workflow, uses: b.yaml}}\n",
        parts__b="stages: {c: {type: workflow, uses: ../main.yaml}}\n",
    )
    (wrong,) = validate(load(path, "main.yaml"))
    assert (wrong.code, wrong.file, wrong.line) == ("T110", "parts/b.yaml", 3)
    assert wrong.message == "workflows run each other: main.yaml → parts/a.yaml → parts/b.yaml → main.yaml"


def test_nesting_has_a_bound(tmp_path: Path) -> None:
    last = "stages: {c: {type: map, input: {range: 1}, uses: m:f}}\n"
    files = {f"w{n}": f"stages: {{a: {{type: workflow, uses: w{n + 1}.yaml}}}}\n" for n in range(MAX_DEPTH - 1)}
    assert validate(load(write(tmp_path, **files, **{f"w{MAX_DEPTH - 1}": last}))) == []
    files[f"w{MAX_DEPTH - 1}"] = f"stages: {{a: {{type: workflow, uses: w{MAX_DEPTH}.yaml}}}}\n"
    (wrong,) = validate(load(write(tmp_path, **files, **{f"w{MAX_DEPTH}": last})))
    assert (wrong.code, wrong.message) == ("T110", f"more than {MAX_DEPTH} workflows are inside each other")


def test_number_of_sub_workflows_has_a_bound(tmp_path: Path) -> None:
    """Each level uses the next one three times: few files, many copies."""
    use = "stages: {{a: {0}, b: {0}, c: {0}}}\n"
    levels = {f"w{n}": use.format(f"{{type: workflow, uses: w{n + 1}.yaml}}") for n in range(5)}
    path = write(tmp_path, **levels, w5="stages: {c: {type: map, input: {range: 1}, uses: m:f}}\n")
    assert {one.code for one in validate(load(path))} == {"T110"}


def test_mistake_in_a_child_is_reported_in_its_file(tmp_path: Path) -> None:
    path = write(tmp_path, main=USE, sum=SUM.replace("input: scaled", "input: sclaed"))
    assert told(path) == (
        "sum.yaml:11:32: error[T101] there is no stage 'sclaed'\n"
        "  11 |   total: {type: reduce, input: sclaed, per: all, uses: m:total, metrics: {total: integer}}\n"
        "     |                                ^^^^^^\n"
        "  = did you mean 'scaled'?\n"
    )


@pytest.mark.parametrize("name", ["x" * 300, "\\0", "x" * 5000])
def test_impossible_file_name_is_reported(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, main=f'stages: {{a: {{type: workflow, uses: "{name}.yaml"}}}}\n')
    (found,) = validate(load(path))
    assert found.code == "T110"


def test_file_without_a_workflow_is_reported_at_its_reference(tmp_path: Path) -> None:
    path = write(tmp_path, main=USE, sum="stages: 3\n")
    assert [(one.code, Path(one.file).name) for one in validate(load(path))] == [("T013", "sum.yaml")]
    with pytest.raises(InvalidDocument):
        linked(load(path))


def test_text_without_a_place_cannot_name_files() -> None:
    (wrong,) = validate(load(HEAD.format(name="w") + "stages: {a: {type: workflow, uses: ./b.yaml}}\n"))
    assert wrong.code == "T110"


def test_builder_accepts_a_workflow_in_place_of_its_file() -> None:
    inner = {"apiVersion": "treadle/v1", "name": "w", "stages": {"c": {"type": "map", "input": "d", "uses": "m:f"}}}
    document = {**inner, "stages": {"a": {"type": "workflow", "uses": inner}}}
    (wrong,) = validate(load(yaml.safe_dump(document), "w.yaml"))
    assert (wrong.code, wrong.file, wrong.message) == ("T101", "w.yaml", "there is no stage 'd'")
    assert wrong.line > 1
    (also,) = validate(from_spec(Spec.model_validate(document)))
    assert also.file == "<workflow>: stages.a.uses"


# -- inputs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        ("", "T502", "'sub' needs the input 'numbers'"),
        ("numbers: null", "T502", "'sub' needs the input 'numbers'"),
        ("numbers: 7", "T503", "the input 'numbers' does not fit: it must be files"),
        ("numbers: {range: 1}, tims: 2", "T501", "the workflow has no input 'tims'"),
        (
            "numbers: {range: 1}, times: '8'",
            "T503",
            "'times' does not fit: it must be a whole number, not the text '8'",
        ),
        (
            'numbers: {range: 1}, times: "${{ run.id }}"',
            "T304",
            "must be a whole number; the expression gives a string",
        ),
        ('numbers: {range: 1}, times: "1${{ inputs.n }}"', "T304", "without other text around it"),
        ('numbers: {range: 1}, times: "${{ inputs.data }}"', "T106", "the dataset 'data' has no value"),
        ('numbers: {range: 1}, label: "${{ secrets.key }}"', "T109", "a secret cannot be handed to a workflow"),
    ],
)
def test_inputs_are_checked_where_they_are_given(tmp_path: Path, given: str, code: str, message: str) -> None:
    (wrong,) = [one for one in found(tmp_path, f"uses: sum.yaml, with: {{{given}}}", head=DECLARED) if one[0] < "T6"]
    assert (wrong[0], message in wrong[1]) == (code, True), wrong


@pytest.mark.parametrize(
    "given", [NUMBERS, f'{NUMBERS}, label: "of ${{{{ run.id }}}}"', 'numbers: "${{ inputs.data }}"']
)
def test_matching_inputs_give_no_finding(tmp_path: Path, given: str) -> None:
    assert [one for one in found(tmp_path, f"uses: sum.yaml, with: {{{given}}}", head=DECLARED) if one[0] < "T6"] == []


def test_loop_cannot_hold_a_workflow(tmp_path: Path) -> None:
    stage = "{type: loop, state: {n: 0}, maxIterations: 2, stages: {sub: {type: workflow, uses: sum.yaml}}}"
    path = write(tmp_path, main=f"stages: {{turns: {stage}}}\n", sum=SUM)
    (wrong,) = validate(load(path))
    assert (wrong.code, wrong.message) == ("T222", "'sub' runs a workflow in every iteration of a loop")


@pytest.mark.parametrize(
    ("expression", "code", "message"),
    [
        ("stages.sub.outputs.totl", "T101", "the workflow 'sub' has no output 'totl'"),
        ("stages.sub.metrics.total", "T106", "'sub' is a workflow, it has outputs only"),
        ("stages.sub.output.uri", "T106", "'sub' is a workflow, it has outputs only"),
        ("stages.sub", "T106", "'sub' is a workflow, it has outputs only"),
        ("stages.sub.outputs.kind + 1", "T304", "expected a number, got string"),
        ("stages.sub.outputs.run + 1", "T304", "expected a number, got string"),
        ("size(stages.sub.outputs.total)", "T304", "expected a string or a list, got int"),
    ],
)
def test_outputs_are_all_that_is_seen(tmp_path: Path, expression: str, code: str, message: str) -> None:
    stage = f"uses: sum.yaml, with: {{{NUMBERS}}}}}\n  after: {{type: map, input: {{range: 1}}, uses: m:f"
    stage += f', with: {{x: "${{{{ {expression} }}}}"}}'
    assert found(tmp_path, stage) == [(code, message)]


def test_workflow_is_refused_as_a_dataset(tmp_path: Path) -> None:
    stage = f"uses: sum.yaml, with: {{{NUMBERS}}}}}\n  after: {{type: map, input: sub, uses: m:f"
    assert found(tmp_path, stage) == [("T106", "'sub' is a workflow, which gives values and no dataset")]


def test_workflows_that_wait_for_each_other_are_a_circle(tmp_path: Path) -> None:
    one = 'type: workflow, uses: sum.yaml, with: {numbers: {range: 1}, times: "${{ stages.%s.outputs.total }}"}'
    path = write(tmp_path, main=f"stages:\n  a: {{{one % 'b'}}}\n  b: {{{one % 'a'}}}\n", sum=SUM)
    assert [one.code for one in validate(load(path))] == ["T103"]


def test_null_is_as_good_as_not_given() -> None:
    declared = {"n": {"type": "integer", "default": 4}, "s": {"type": "string"}, "r": {"type": "uri", "required": True}}
    stages = {"a": {"type": "map", "input": {"range": 1}, "uses": "m:f"}}
    spec = Spec.model_validate({"apiVersion": "treadle/v1", "name": "w", "inputs": declared, "stages": stages})
    assert given_inputs(spec, {"n": None, "s": None, "r": "x"}) == {"n": 4, "s": None, "r": "x"}
    with pytest.raises(InvalidInputs, match=r"'r' is required(.|\n)*has"):
        given_inputs(spec, {"r": None})
    with pytest.raises(InvalidInputs, match="'n' does not fit: it must be a whole number"):
        given_inputs(spec, {"r": "x", "n": "8"})


# -- meaning ---------------------------------------------------------------------------------------------------------


def main(tmp_path: Path, text: str = USE, child: str = SUM) -> dict[str, Any]:
    """The normalised document that a run keeps."""
    return normalise(linked(load(write(tmp_path, main=text, sum=child))))


def test_child_means_what_its_workflow_means_alone(tmp_path: Path) -> None:
    document = main(tmp_path)
    made = interpret(document["stages"], FUNCTIONS, outputs=document["outputs"])
    assert made.outputs == {"first": 6, "total": 18}
    assert values(made.children["second"], "scaled") == [[0], [6], [12]]
    assert made.children["first"].outputs == {"total": 6, "run": "reference/first", "kind": "sum"}


def test_outputs_of_a_skipped_workflow_are_null(tmp_path: Path) -> None:
    stages = {
        **main(tmp_path)["stages"],
        "told": {"type": "map", "input": items(1), "uses": "m:tell", "with": {"x": "${{ stages.first.outputs.run }}"}},
        "never": {"type": "map", "input": items(1), "uses": "m:same", "when": "has(stages.first.outputs.total)"},
    }
    stages["first"] = {**stages["first"], "when": "1 > 2"}
    made = interpret(stages, {**FUNCTIONS, "tell": lambda _, x: x})
    assert made.skipped == {"first", "never"}
    assert values(made, "told") == [[None]]
    assert made.children["second"].outputs["total"] == 3, "an input that gets null keeps its default"


def test_failure_inside_is_the_failure_of_the_stage(tmp_path: Path) -> None:
    stages = main(tmp_path)["stages"]
    with pytest.raises(ReferenceFailure, match=r"^first/scaled\[0\]: ValueError: no$"):
        interpret(stages, {**FUNCTIONS, "scale": _refuse})


def _refuse(record: int, by: int, name: str | None) -> int:
    raise ValueError("no")


def test_normalised_form_holds_the_whole_of_it(tmp_path: Path) -> None:
    """The files may change afterwards. Triggers of the other workflow do not apply to the run."""
    child = "triggers: {often: {type: schedule, cron: '* * * * *'}}\n" + SUM.replace("required: true", "default: [1]")
    document = main(tmp_path, child=child)
    assert document["stages"]["first"]["uses"]["name"] == "sum"
    assert "triggers" not in document["stages"]["first"]["uses"]
    assert normalise(read_normalised(document)) == document


# -- in Python -------------------------------------------------------------------------------------------------------


def inner() -> Workflow:
    wf = Workflow("inner")
    numbers = wf.input("numbers", "dataset", required=True)
    found = wf.reduce("total", numbers, per="all", uses=lambda values: sum(values), metrics={"total": "integer"})
    wf.output("total", found.metrics.total)
    return wf


def test_builder_takes_files_and_workflows() -> None:
    wf, child = Workflow("outer"), inner()
    one = wf.workflow("one", uses=child, with_={"numbers": {"range": 3}})
    two = wf.workflow("two", uses="./sum.yaml", with_={"times": one.outputs.total}, when=has(one.outputs.total))
    wf.map("last", range_(1), uses="m:f", with_={"n": two.outputs.total}, needs=[one])
    spec = wf.spec()
    assert wf.captured == child.captured != {}
    assert isinstance(spec.stages["one"], WorkflowStage)
    assert spec.stages["one"].uses == child.spec()
    assert spec.stages["two"].when == "has(stages.one.outputs.total)"
    assert spec.stages["two"].model_dump()["with_"] == {"times": "${{ stages.one.outputs.total }}"}


def test_yaml_and_python_say_the_same(tmp_path: Path) -> None:
    path = write(tmp_path, main=USE, sum=SUM)
    for spec in (load(path).require(), linked(load(path))):
        known: dict[str, Any] = {}
        exec(compile(to_python(spec), "converted", "exec"), known)
        assert normalise(known["wf"].spec()) == normalise(spec)
    assert 'first = wf.workflow("first", uses="./sum.yaml"' in to_python(load(path).require())


def test_document_of_a_builder_finds_files_from_its_own(tmp_path: Path) -> None:
    write(tmp_path, sum=SUM)
    wf = Workflow("outer")
    wf.workflow("one", uses="./sum.yaml", with_={"numbers": {"items": [1]}})
    document: Document = from_spec(wf.spec(), "flow.py", tmp_path / "flow.py")
    assert validate(document) == []
    assert set(linked(document).stages) == {"one"}
