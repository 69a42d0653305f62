from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from treadle.dsl import Workflow, csv, expr, fixed, has, items, npy, parquet, range_, run, size, task, text
from treadle.dsl.builder import running
from treadle.dsl.document.workflow_files import load
from treadle.dsl.expressions import ExpressionError
from treadle.dsl.normalise import normalise
from treadle.primitives.errors import UsageError
from treadle.primitives.functions import TASK_ATTRIBUTE
from treadle.primitives.functions import load as load_function

WORDCOUNT = """
apiVersion: treadle/v1
name: wordcount
inputs:
  corpus:     {type: uri, default: "books/*.txt"}
  partitions: {type: integer, default: 16, minimum: 1}
stages:
  tokenize: {type: map, input: {uri: "${{ inputs.corpus }}", format: text, split: 64MiB}, uses: wordcount:tokenize, flat: true}
  group:    {type: shuffle, input: tokenize, by: key, partitions: "${{ inputs.partitions }}", combine: wordcount:add}
  count:    {type: reduce, input: group, per: key, combine: wordcount:add, output: {uri: "out/${{ run.id }}/counts", format: parquet}}
outputs: {counts: "${{ stages.count.output.uri }}"}
"""  # noqa: E501

TERASORT = """
apiVersion: treadle/v1
name: terasort
inputs:
  source:     {type: uri, required: true}
  target:     {type: uri, required: true}
  partitions: {type: integer, default: 256, minimum: 1}
defaults: {timeout: 10m, retry: {maximumAttempts: 4, initialInterval: 1s, backoffCoefficient: 2.0, maximumInterval: 30s}}
x-rows: &rows {uri: "${{ inputs.source }}", format: fixed, recordBytes: 100, split: 128MiB}
stages:
  sample: {type: map, input: *rows, per: partition, uses: terasort:sample_keys, with: {rate: 0.0001}}
  cuts:   {type: reduce, input: sample, per: all, uses: terasort:quantiles, with: {partitions: "${{ inputs.partitions }}"}}
  splits: {type: broadcast, input: cuts, limit: 8MiB}
  sorted:
    type: shuffle
    input: *rows
    by: terasort:keys
    partitioner: {type: range, boundaries: splits}
    partitions: "${{ inputs.partitions }}"
    sort: true
    exchange: auto
    deadline: 2h
    output: {uri: "${{ inputs.target }}", format: fixed}
  check: {type: reduce, input: sorted, per: all, uses: terasort:validate, metrics: {records: integer}}
outputs: {records: "${{ stages.check.metrics.records }}"}
"""  # noqa: E501

KMEANS = """
apiVersion: treadle/v1
name: kmeans
inputs:
  points: {type: uri, required: true}
  k:      {type: integer, default: 8, minimum: 1}
  tol:    {type: number, default: 1.0e-4}
stages:
  load: {type: map, input: {uri: "${{ inputs.points }}", format: npy, split: 64MiB}, per: partition, uses: kmeans:to_array}
  seed: {type: reduce, input: load, per: all, uses: kmeans:plus_plus, with: {k: "${{ inputs.k }}"}}
  lloyd:
    type: loop
    state: {centroids: seed}
    maxIterations: 50
    until: stages.update.metrics.shift < inputs.tol
    onExhausted: succeed
    stages:
      ship:      {type: broadcast, input: state.centroids}
      assign:    {type: map, input: load, per: partition, uses: kmeans:assign, with: {centroids: "${{ stages.ship }}"}}
      collected: {type: barrier, input: assign}
      update:
        {type: reduce, input: collected, per: all, combine: kmeans:add_partials, fanIn: 32, finish: kmeans:new_centroids,
         with: {old: "${{ stages.ship }}"}, metrics: {shift: number}}
    next: {centroids: update}
  model: {type: map, input: lloyd.state.centroids, uses: kmeans:as_rows, flat: true, output: {uri: "out/${{ run.id }}/model", format: csv}}
outputs:
  model: ${{ stages.model.output.uri }}
  iterations: ${{ stages.lloyd.metrics.iterations }}
"""  # noqa: E501


def wordcount() -> Workflow:
    wf = Workflow("wordcount")
    corpus = wf.input("corpus", "uri", default="books/*.txt")
    partitions = wf.input("partitions", int, default=16, minimum=1)
    words = wf.map("tokenize", text(corpus, split="64MiB"), uses="wordcount:tokenize", flat=True)
    groups = wf.shuffle("group", words, by="key", partitions=partitions, combine="wordcount:add")
    output = parquet(expr("out/{run.id}/counts"))
    counts = wf.reduce("count", groups, per="key", combine="wordcount:add", output=output)
    wf.output("counts", counts.output.uri)
    return wf


def terasort() -> Workflow:
    retry = {"maximum_attempts": 4, "initial_interval": "1s", "backoff_coefficient": 2.0, "maximum_interval": "30s"}
    wf = Workflow("terasort", defaults={"timeout": "10m", "retry": retry})
    source = wf.input("source", "uri", required=True)
    target = wf.input("target", "uri", required=True)
    partitions = wf.input("partitions", int, default=256, minimum=1)
    rows = fixed(source, record_bytes=100, split="128MiB")
    sample = wf.map("sample", rows, per="partition", uses="terasort:sample_keys", with_={"rate": 0.0001})
    cuts = wf.reduce("cuts", sample, per="all", uses="terasort:quantiles", with_={"partitions": partitions})
    splits = wf.broadcast("splits", cuts, limit="8MiB")
    ordered = wf.shuffle(
        "sorted",
        rows,
        by="terasort:keys",
        partitioner={"type": "range", "boundaries": splits},
        partitions=partitions,
        sort=True,
        exchange="auto",
        deadline="2h",
        output=fixed(target),
    )
    check = wf.reduce("check", ordered, per="all", uses="terasort:validate", metrics={"records": "integer"})
    wf.output("records", check.metrics.records)
    return wf


def kmeans() -> Workflow:
    km = Workflow("kmeans")
    points = km.input("points", "uri", required=True)
    k = km.input("k", int, default=8, minimum=1)
    tol = km.input("tol", float, default=1e-4)
    load = km.map("load", npy(points, split="64MiB"), per="partition", uses="kmeans:to_array")
    seed = km.reduce("seed", load, per="all", uses="kmeans:plus_plus", with_={"k": k})
    with km.loop("lloyd", state={"centroids": seed}, max_iterations=50, on_exhausted="succeed") as it:
        ship = it.broadcast("ship", it.state.centroids)
        near = it.map("assign", load, per="partition", uses="kmeans:assign", with_={"centroids": ship})
        done = it.barrier("collected", near)
        new = it.reduce(
            "update",
            done,
            per="all",
            combine="kmeans:add_partials",
            fan_in=32,
            finish="kmeans:new_centroids",
            with_={"old": ship},
            metrics={"shift": "number"},
        )
        it.next(centroids=new)
        it.until(new.metrics.shift < tol)
    rows = csv(f"out/{run.id}/model")
    model = km.map("model", it.state.centroids, uses="kmeans:as_rows", flat=True, output=rows)
    km.output("model", model.output.uri)
    km.output("iterations", it.metrics.iterations)
    return km


TWINS = [(WORDCOUNT, wordcount), (TERASORT, terasort), (KMEANS, kmeans)]


@pytest.mark.parametrize(("document", "twin"), TWINS, ids=["wordcount", "terasort", "kmeans"])
def test_document_and_its_python_twin_normalise_to_the_same_spec(document: str, twin: Any) -> None:
    assert normalise(twin().spec()) == normalise(load(document).require())


@pytest.mark.parametrize(("document", "twin"), TWINS, ids=["wordcount", "terasort", "kmeans"])
def test_exported_yaml_reads_back_as_the_same_spec(document: str, twin: Any) -> None:
    assert normalise(load(twin().to_yaml()).require()) == normalise(twin().spec())


# -- expressions ---------------------------------------------------------------------------------------------------


def test_operators_record_expressions() -> None:
    wf = Workflow("w")
    n, x, on = wf.input("n", int), wf.input("x", float), wf.input("on", bool)
    handle = wf.map("a", items([1]), uses="m:f", metrics={"rows": "sum"})
    arithmetic = [(n + 1) * 2 - x / n, 10 - n, 2 / n, -n + -3]
    assert list(map(str, arithmetic)) == [
        "${{ (inputs.n + 1) * 2 - inputs.x / inputs.n }}",
        "${{ 10 - inputs.n }}",
        "${{ 2 / inputs.n }}",
        "${{ -inputs.n + -3 }}",
    ]
    logic = ~on & (handle.metrics.rows > 0) | (n == 3) & (x != None)  # noqa: E711
    assert repr(logic) == "<!inputs.on && stages.a.metrics.rows > 0 || inputs.n == 3 && inputs.x != null>"
    assert repr(1 < n) == "<inputs.n > 1>"  # noqa: SIM300
    assert repr(has(handle.metrics.rows) & (size(n) >= 2)) == "<has(stages.a.metrics.rows) && size(inputs.n) >= 2>"


def test_bool_of_a_handle_is_refused_with_the_reason() -> None:
    n = Workflow("w").input("n", int)
    with pytest.raises(UsageError, match="known only when the workflow runs") as caught:
        _ = n > 1 and n < 3
    assert "&" in caught.value.hint


def test_builder_refuses_a_stage_as_a_scalar() -> None:
    wf = Workflow("w")
    stage = wf.map("a", items([1]), uses="m:f")
    with pytest.raises(UsageError, match="cannot be part of an expression"):
        _ = stage.metrics.x > stage


def test_expr_turns_braces_into_templates_and_reads_them_at_once() -> None:
    assert expr("out/{run.id}/{{x}}/{inputs.k+1}") == "out/${{ run.id }}/{x}/${{ inputs.k + 1 }}"
    assert expr("{'}'}") == '${{ "}" }}'
    with pytest.raises(ExpressionError):
        expr("{run.}")
    with pytest.raises(UsageError, match="lone brace"):
        expr("a}b")


def test_handles_become_templates_in_format_strings() -> None:
    n = Workflow("w").input("n", int)
    assert f"part-{n}-{run.start_time}" == "part-${{ inputs.n }}-${{ run.startTime }}"


# -- functions -----------------------------------------------------------------------------------------------------


def test_importable_callable_becomes_its_name() -> None:
    wf = Workflow("w")
    wf.map("a", items([[1, 2]]), uses=subprocess.list2cmdline)
    assert wf.spec().stages["a"].uses == "subprocess:list2cmdline"  # type: ignore[union-attr]
    assert wf.captured == {}


def test_lambda_is_captured_by_value_and_runs_as_it_would_here() -> None:
    wf = Workflow("w")
    factor = 3
    wf.map("a", items([1]), uses=lambda x: x * factor)
    (name,) = wf.captured
    assert wf.spec().stages["a"].uses == name  # type: ignore[union-attr]
    assert load_function(name, wf.captured)(5) == 15


def test_yaml_of_captured_functions_is_refused_with_the_reason() -> None:
    wf = Workflow("w")
    wf.map("a", items([1]), uses=lambda x: x)
    with pytest.raises(UsageError, match="no name that YAML could hold"):
        wf.to_yaml()


def test_task_keeps_settings_and_leaves_the_function_plain() -> None:
    @task(timeout="30s", retry={"maximum_attempts": 5}, vectorized=True)
    def double(x: int) -> int:
        return 2 * x

    assert double(4) == 8
    assert getattr(double, TASK_ATTRIBUTE) == {
        "timeout": "30s",
        "retry": {"maximum_attempts": 5},
        "vectorized": True,
    }


@pytest.mark.parametrize(
    "settings",
    [{"timeout": 30}, {"tiemout": "30s"}, {"vectorized": "yes"}, {"retry": {"limit": 3}}, {"max_concurrency": 0}],
)
def test_task_refuses_unknown_settings_and_wrong_types(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="@task"):
        task(**settings)


# -- stages --------------------------------------------------------------------------------------------------------


def test_stage_option_of_wrong_type_is_refused_where_it_is_written() -> None:
    wf = Workflow("w")
    with pytest.raises(UsageError, match=r"stage 'a'.*timeout"):
        wf.map("a", items([1]), uses="m:f", timeout="soon")
    with pytest.raises(UsageError, match="limit"):
        wf.map("b", items([1]), uses="m:f", limit="1MiB")  # type: ignore[call-arg]


def test_builder_refuses_with_words_of_the_language_not_of_its_checker() -> None:
    with pytest.raises(UsageError, match="name must be a name, not the text 'My Flow'\n  Begin with a small letter"):
        Workflow("My Flow").spec()
    with pytest.raises(UsageError, match="retries is not an option here\n  The word here is retry"):
        Workflow("w").map("a", items([1]), uses="m:f", retries=3)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="uri is not an option here\n  `treadle schema` lists"):
        Workflow("w").map("a", items([1]), uses="m:f", uri="x.txt")  # type: ignore[call-arg]


def test_stage_ids_are_unique_across_nesting() -> None:
    wf = Workflow("w")
    wf.map("a", items([1]), uses="m:f")
    with wf.loop("l", state={"n": 0}, max_iterations=2) as it, pytest.raises(UsageError, match="already a stage 'a'"):
        it.map("a", items([1]), uses="m:f")
    del it


def test_option_left_out_stays_out_of_the_document() -> None:
    wf = Workflow("w")
    wf.reduce("a", range_(3, partitions=2), per="all", combine="m:add")
    wf.reduce("b", range_(3), per="all", combine="m:add", initial=None)
    assert "initial: null" in wf.to_yaml().partition("  b:")[2]
    assert "initial" not in wf.to_yaml().partition("  b:")[0]


def test_loop_state_is_inner_inside_and_outer_after() -> None:
    wf = Workflow("w")
    start = wf.map("start", items([1]), uses="m:f")
    with wf.loop("l", state={"x": start, "i": 0}, max_iterations=3) as it:
        step = it.map("step", it.state.x, uses="m:f", when=it.state.i < 2)
        it.next(x=step, i=it.state.i + 1)
    wf.map("after", it.state.x, uses="m:f", when=it.state.i > 1)
    stages = wf.spec().model_dump(mode="json", by_alias=True, exclude_unset=True)["stages"]
    assert stages["l"]["next"] == {"x": "step", "i": "${{ state.i + 1 }}"}
    assert stages["l"]["stages"]["step"]["when"] == "state.i < 2"
    assert (stages["after"]["input"], stages["after"]["when"]) == ("l.state.x", "stages.l.state.i > 1")
    with pytest.raises(UsageError, match="no state 'y'"):
        _ = it.state.y
    with pytest.raises(UsageError, match="closed"):
        it.map("late", start, uses="m:f")


def test_dataset_inputs_shuffles_of_several_inputs_needs_and_secrets() -> None:
    wf = Workflow("w", seed=7, labels={"team": "x"})
    left = wf.input("left", "dataset", required=True)
    right = wf.map("right", range_(5), uses="m:f", with_={"dsn": wf.secret("dsn")})
    wf.shuffle("both", [left, right], by="key", needs=[right])
    dumped = wf.spec().model_dump(mode="json", by_alias=True, exclude_unset=True)
    assert dumped["stages"]["both"]["input"] == ["inputs.left", "right"]
    assert dumped["stages"]["both"]["needs"] == ["right"]
    assert dumped["stages"]["right"]["with"] == {"dsn": "${{ secrets.dsn }}"}
    assert dumped["secrets"] == ["dsn"]
    assert dumped["seed"] == 7


def test_package_import_is_light() -> None:
    program = (
        "import sys, treadle.dsl; sys.exit(any(m in sys.modules for m in ('pydantic', 'numpy', 'pyarrow', 'yaml')))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parent, check=False)
    assert done.returncode == 0


def test_workflow_draws_its_stages_and_their_edges() -> None:
    wf = Workflow("drawn")
    words = wf.map("words", items(["a b"]), uses="m:split")
    wf.map("loud", words, uses="m:upper")
    drawn = wf._repr_html_()
    assert drawn.count("<rect") == 2
    assert drawn.count("<path") == 1
    assert drawn.index(">words<") < drawn.index(">loud<")


def test_workflow_draws_edges_of_needs_and_expressions() -> None:
    wf = Workflow("drawn")
    total = wf.reduce("total", items([1, 2]), per="all", uses="m:sum")
    shared = wf.broadcast("shared", total)
    waits = wf.barrier("waits", total)
    wf.map("reader", items([4]), uses="m:add", with_={"total": shared}, needs=[waits])
    assert wf._repr_html_().count("<path") == 4


def test_workflow_runs_through_the_client_that_its_distribution_names(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Workflow, Any]] = []

    class Asked:
        def run(self, workflow: Workflow, inputs: Any, **options: Any) -> str:
            asked.append((workflow, inputs))
            return "run"

    monkeypatch.setattr(running, "entry_points", lambda group: [SimpleNamespace(load=lambda: Asked)])
    running.client.cache_clear()
    try:
        wf = Workflow("found")
        assert wf.run({"a": 1}) == "run"  # type: ignore[comparison-overlap]
    finally:
        running.client.cache_clear()
    assert asked == [(wf, {"a": 1})]


def test_workflow_without_a_client_names_the_distribution_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "entry_points", lambda group: [])
    running.client.cache_clear()
    with pytest.raises(UsageError) as refused:
        Workflow("alone").submit()
    assert refused.value.hint == "Install treadle-orchestrator."
