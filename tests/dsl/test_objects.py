"""Objects in documents: their checks, and docs/semantics.md, objects, in cases computed by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from treadle.dsl import Workflow, range_
from treadle.dsl.convert.python import to_python
from treadle.dsl.document.document import Document
from treadle.dsl.document.workflow_files import load
from treadle.dsl.normalise import normalise
from treadle.dsl.reference import ReferenceFailure, ReferenceResult, run_reference
from treadle.dsl.validation.functions import check_functions
from treadle.dsl.validation.validate import validate
from treadle.primitives.errors import UsageError
from treadle.primitives.objects import Map, merges, read, shared

HEAD = "apiVersion: treadle/v1\nname: w\nobjects: {hits: {type: counter}, log: {type: list}}\nstages:\n"
MAP = "{{type: map, input: {{range: 3}}, uses: 'm:f', {}}}"


def document(*stages: str, outputs: str = "{}", head: str = HEAD) -> Document:
    return load(head + "".join(f"  {stage}\n" for stage in stages) + f"outputs: {outputs}\n")


def stage(name: str, more: str) -> str:
    return f"{name}: {MAP.format(more)}"


def found(*stages: str, outputs: str = "{}", head: str = HEAD) -> list[tuple[str, int, str]]:
    return [(one.code, one.line, one.hint) for one in validate(document(*stages, outputs=outputs, head=head))]


BOTH = stage("a", "objects: [hits, log]")


# -- checks --------------------------------------------------------------------------------------------------------


def test_unknown_object_is_refused_at_its_place() -> None:
    assert found(BOTH, stage("b", "objects: [hots], needs: [a]")) == [("T101", 6, "did you mean 'hits'?")]
    assert found(BOTH, outputs='{x: "${{ objects.hots }}"}')[0][0] == "T101"
    assert found(BOTH, stage("b", 'with: {x: "${{ objects.hits }}"}'))[0][0] == "T302"


def test_two_stages_without_an_order_are_refused_with_the_line_that_orders_them() -> None:
    both = found(BOTH, stage("b", "objects: [hits]"))
    assert both == [("T225", 6, "write `needs: [a]` in 'b'")]
    assert found(BOTH, stage("b", "objects: {hits: read}")) == both
    assert found(BOTH, stage("b", "objects: {hits: read}, needs: [a]")) == []


def test_stages_that_only_read_need_no_order_among_each_other() -> None:
    readers = [stage(name, "objects: {hits: read}, needs: [a]") for name in ("b", "c")]
    assert found(BOTH, *readers) == []
    late = found(BOTH, *readers, stage("d", "objects: [hits], needs: [b]"))
    assert late == [("T225", 8, "write `needs: [c]` in 'd'")]


def loop(name: str, inner: str, more: str = "") -> str:
    return f"{name}: {{type: loop, state: {{n: 1}}, maxIterations: 2, {more} stages: {{{inner}}}}}"


def test_order_between_loops_is_that_of_the_loops() -> None:
    inner = [loop(name, stage(f"in_{name}", "objects: [hits]")) for name in ("l", "m")]
    assert found(BOTH, inner[0]) == [("T225", 6, "write `needs: [a]` in 'l'")]
    ordered = loop("l", stage("in_l", "objects: [hits]"), "needs: [a],")
    assert found(BOTH, ordered) == []
    assert found(BOTH, ordered, inner[1])[0] == ("T225", 7, "write `needs: [l]` in 'm'")


def test_loop_that_may_be_skipped_changes_no_object() -> None:
    inner = stage("b", "objects: [hits]")
    assert found(BOTH, loop("l", inner, "needs: [a], when: run.id == 'x',"))[0][0] == "T226"
    reading = stage("b", "objects: {hits: read}")
    assert found(BOTH, loop("l", reading, "needs: [a], when: run.id == 'x',")) == []


def test_object_has_a_type_or_a_class_and_a_user() -> None:
    head = HEAD.replace("{type: counter}", "{}")
    assert [code for code, *_ in found(BOTH, head=head)] == ["T224"]
    assert found(stage("a", "objects: [hits]"))[0][0] == "T607"


def test_reduce_without_context_cannot_use_an_object() -> None:
    fold = "b: {type: reduce, input: a, per: all, combine: 'm:f', objects: [hits]}"
    assert [code for code, *_ in found(BOTH, fold)] == ["T217"]


def test_stage_with_objects_is_not_cached() -> None:
    assert found(stage("a", "objects: [hits, log], cache: true"))[0][0] == "T223"


def test_class_of_an_object_is_checked(tmp_path: Path) -> None:
    (tmp_path / "kinds.py").write_text(
        "from treadle.primitives.objects import shared\n@shared\nclass Good:\n    def __init__(self, n): ...\n"
        "class Plain: ...\n"
    )

    def codes(uses: str, outputs: str = "{}") -> list[str]:
        head = HEAD.replace("{type: counter}", uses)
        checked = check_functions(document(BOTH, outputs=outputs, head=head), [tmp_path])
        return [one.code for one in checked if one.code != "T401"]

    assert codes("{uses: 'kinds:Good', with: {n: 1}}") == []
    assert codes("{uses: 'kinds:Good'}") == ["T405"]
    assert codes("{uses: 'kinds:Good', with: {n: 1}}", '{x: "${{ objects.hits }}"}') == ["T408"]
    assert codes("{uses: 'kinds:Plain'}") == ["T408"]
    assert codes("{type: counter, with: {start: 1}}") == ["T405"]


def test_function_of_a_stage_with_objects_takes_the_context(tmp_path: Path) -> None:
    (tmp_path / "calls.py").write_text("def with_it(record, *, context): ...\ndef without(record): ...\n")

    def codes(uses: str) -> list[str]:
        found = check_functions(document(BOTH.replace("m:f", f"calls:{uses}")), [tmp_path])
        return [one.code for one in found]

    assert (codes("with_it"), codes("without")) == ([], ["T405"])


def test_objects_have_the_same_meaning_as_python() -> None:
    head = HEAD.replace("{type: counter}", "{uses: 'kinds:Good', with: {n: 1}}")
    stages = [BOTH, stage("b", "objects: {hits: read}, needs: [a]")]
    spec = document(*stages, outputs='{x: "${{ objects.hits }}"}', head=head).require()
    text = "\n".join(line for line in to_python(spec).splitlines() if not line.startswith("from m "))
    known: dict[str, Any] = {"f": "m:f"}
    exec(text, known)
    assert normalise(known["wf"].spec()) == normalise(spec)


# -- meaning -------------------------------------------------------------------------------------------------------


@shared
class Ordered:
    def __init__(self, start: int = 0) -> None:
        self.seen = [start]

    @merges
    def note(self, what: list[int]) -> int:
        self.seen.append(sum(what))
        what.append(100)
        return len(self.seen)

    def answer(self) -> int:
        return len(self.seen)

    @read
    def last(self) -> int:
        return self.seen[-1]

    def _value(self) -> list[int]:
        return self.seen


def run(uses: Any, *, objects: Any = ("log",), **settings: Any) -> ReferenceResult:
    wf = Workflow("w")
    log = wf.object("log", Ordered, start=5)
    wf.map("a", range_(4, partitions=2), uses=uses, objects=objects, **settings)
    wf.output("log", log)
    return run_reference(wf)


def test_stage_sees_the_state_from_before_it_and_calls_run_in_order() -> None:
    def function(record: int, *, context: Any) -> Any:
        argument = [record]
        answer = context.objects.log.note(argument)
        argument.append(1000)
        return answer, context.objects.log.last()

    made = run(function)
    assert made.records("a") == [(None, 5)] * 4
    assert made.outputs["log"] == [5, 0, 1, 2, 3]


def test_attempts_that_fail_have_no_effect() -> None:
    def function(record: int, *, context: Any) -> None:
        context.objects.log.note([record])
        if context.attempt == 1 and record == 3:
            raise OSError

    assert run(function).outputs["log"] == [5, 0, 1, 2, 3]


def test_record_that_is_set_aside_has_no_effect() -> None:
    def function(record: int, *, context: Any) -> Iterator[int]:
        context.objects.log.note([record])
        yield record
        if record % 2:
            raise OSError

    made = run(function, tolerated_failures=2)
    assert (made.records("a"), made.outputs["log"]) == ([0, 2], [5, 0, 2])


def test_method_that_needs_an_answer_is_refused() -> None:
    with pytest.raises(ReferenceFailure, match="answer"):
        run(lambda record, context: context.objects.log.answer())
    with pytest.raises(ReferenceFailure, match="note"):
        run(lambda record, context: context.objects.log.note([1]), objects={"log": "read"})
    with pytest.raises(ReferenceFailure, match="does not name an object"):
        run(lambda record, context: context.objects.other.note([1]))


def test_error_of_a_method_is_that_of_the_object() -> None:
    with pytest.raises(ReferenceFailure, match=r"objects\.log: TypeError"):
        run(lambda record, context: context.objects.log.note([None]))


def test_gang_has_the_effects_of_its_last_attempt() -> None:
    def function(record: int, *, context: Any) -> None:
        context.objects.log.note([record])
        if context.attempt == 1 and record == 3:
            raise OSError

    assert run(function, gang=2).outputs["log"] == [5, 0, 1, 2, 3]


def test_loop_carries_objects_and_a_skipped_stage_changes_nothing() -> None:
    def function(_: int, *, context: Any) -> int:
        context.objects.hits.increment(context.objects.hits.get())
        return 0

    wf = Workflow("w")
    hits = wf.object("hits", "counter", value=1)
    with wf.loop("l", state={"n": 0}, max_iterations=3) as it:
        it.map("a", range_(1), uses=function, objects=[hits])
    wf.map("c", range_(1), uses=function, objects=[hits], needs=[it], when="run.id == 'other'")
    wf.output("hits", hits)
    assert run_reference(wf).outputs["hits"] == 8


def test_builder_refuses_an_unknown_type_of_object() -> None:
    with pytest.raises(UsageError, match="object 'x'"):
        Workflow("w").object("x", "lock")
    assert Workflow("w").object("x", Map).name == "x"
