"""The normal form: reading it back gives the same spec, and it does not depend on the document's spelling."""

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.dsl.document.workflow_files import load
from treadle.dsl.model import ReduceStage, Spec
from treadle.dsl.normalise import normalise, read_normalised, without_triggers
from treadle.dsl.schema import schema
from treadle.dsl.units import format_duration, format_size, parse_duration, parse_size
from treadle.dsl.validation.validate import validate

GOOD = sorted((Path(__file__).parent / "golden" / "good").glob("*.yaml"))

NAMES = st.from_regex(r"[a-z][A-Za-z0-9_]{0,5}", fullmatch=True)
FUNCTIONS = st.sampled_from(["m:f", "pack.mod:Class.method", "captured:0a1b"])
DURATIONS = st.sampled_from(["1s", "90s", "1h30m", "1.5m", "250ms", "0.1s", "36h"])
SIZES = st.sampled_from(["1B", "64MiB", "1024KiB", "1GB", "0.5KiB"])
EXPRESSIONS = st.sampled_from(["inputs.x<3", "( inputs.x )  &&  true", "run.id == 'a'", "not a valid one ("])
TEMPLATES = st.sampled_from(["${{inputs.x}}", "a ${{  run.id  }} b", "${{ 'x' + \"y\" }}", "plain", "${{ broken"])
COUNTS = st.integers(1, 10**6) | st.just("${{ inputs.n*2 }}")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def keys(required: dict[str, Any], **optional: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(required, optional=optional)


RETRY = keys({}, maximumAttempts=st.integers(1, 9), initialInterval=DURATIONS, nonRetryableErrorTypes=st.just(["E"]))
MEMORY = SIZES | keys({"start": SIZES}, max=SIZES)
SETTINGS = {"retry": RETRY, "timeout": DURATIONS, "memory": MEMORY, "maxConcurrency": COUNTS}
OUTPUT = keys(
    {"uri": TEMPLATES, "format": st.sampled_from(["csv", "parquet"])},
    columns=st.permutations(["b", "a", "c"]).map(lambda names: dict.fromkeys(names, "int64")),
    ifExists=st.sampled_from(["fail", "replace"]),
)
INPUT = (
    NAMES
    | keys({"uri": TEMPLATES, "format": st.just("csv")}, split=SIZES, header=st.booleans())
    | keys({"items": st.lists(JSON, max_size=3)}, partitions=COUNTS)
    | keys({"range": st.integers(0, 9)})
)
WORK = {
    **SETTINGS,
    "output": OUTPUT,
    "when": EXPRESSIONS,
    "needs": st.lists(NAMES, max_size=2),
    "description": st.text(),
}
WITH = st.dictionaries(NAMES, TEMPLATES | JSON, max_size=3)
MAP = keys(
    {"type": st.just("map"), "input": INPUT, "uses": FUNCTIONS},
    **WORK,
    **{"with": WITH},
    flat=st.booleans(),
    batch=keys({}, maxItems=COUNTS, maxBytes=SIZES),
    toleratedFailures=st.sampled_from([0, 3, "0.1%"]),
)
SHUFFLE = keys(
    {"type": st.just("shuffle"), "input": INPUT | st.lists(INPUT, min_size=1, max_size=2)}
    | {"by": st.just("key") | FUNCTIONS | st.just(["b", "a"])},
    partitions=COUNTS,
    partitioner=st.sampled_from([{"type": "hash"}, {"type": "range"}, {"type": "range", "boundaries": [1, "x"]}]),
    sort=st.booleans(),
)
REDUCE = keys(
    {"type": st.just("reduce"), "input": INPUT, "per": st.sampled_from(["key", "partition", "all"])},
    initial=JSON,
    combine=FUNCTIONS,
    fanIn=COUNTS,
    metrics=st.dictionaries(NAMES, st.just("integer"), max_size=2),
)
BARRIER = keys({"type": st.just("barrier"), "input": NAMES}, quorum=st.sampled_from(["100%", "95%"]))
STAGE: st.SearchStrategy[dict[str, Any]] = st.deferred(lambda: MAP | SHUFFLE | REDUCE | BARRIER | LOOP)
LOOP: st.SearchStrategy[dict[str, Any]] = keys(
    {"type": st.just("loop"), "maxIterations": COUNTS, "state": st.dictionaries(NAMES, TEMPLATES, max_size=2)}
    | {"stages": st.dictionaries(NAMES, STAGE, max_size=2)},
    until=EXPRESSIONS,
    next=st.dictionaries(NAMES, TEMPLATES | st.integers(), max_size=2),
)
EVENTS = {
    "filter": EXPRESSIONS,
    "with": WITH,
    "maxActive": st.integers(1, 9),
    "schema": st.dictionaries(st.text(max_size=3), JSON, max_size=2),
}
TRIGGER = (
    keys(
        {"type": st.just("kafka"), "connection": NAMES, "topics": st.lists(NAMES, min_size=1, max_size=2)},
        **EVENTS,
        batch=keys({}, maxEvents=st.integers(1, 9), maxWait=DURATIONS, maxBytes=SIZES),
        dedupe=st.sampled_from(["offset", "event"]) | EXPRESSIONS,
        deadLetter=keys({"topic": NAMES}),
    )
    | keys({"type": st.just("schedule"), "cron": st.just("0 2 * * *") | st.lists(st.text(min_size=1), max_size=2)})
    | keys({"type": st.just("schedule"), "interval": DURATIONS}, offset=DURATIONS, timezone=st.text(), jitter=DURATIONS)
    | keys({"type": st.just("object"), "poll": keys({"uri": TEMPLATES}, every=DURATIONS)}, **EVENTS)
    | keys({"type": st.just("webhook")}, **EVENTS, secret=NAMES, dedupe=st.just("none") | EXPRESSIONS, maxBody=SIZES)
)
DOCUMENTS = keys(
    {
        "apiVersion": st.just("treadle/v1"),
        "name": NAMES,
        "stages": st.dictionaries(NAMES, STAGE, min_size=1, max_size=3),
    },
    inputs=st.dictionaries(NAMES, keys({"type": st.just("list")}, default=JSON, minimum=st.integers(0, 9)), max_size=2),
    labels=st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
    defaults=keys({}, **SETTINGS),
    triggers=st.dictionaries(NAMES, TRIGGER, max_size=2),
    outputs=st.dictionaries(NAMES, TEMPLATES | JSON, max_size=2),
    seed=st.integers(),
)


def read(data: Any) -> Spec:
    return Spec.model_validate(data, by_alias=True, by_name=False)


def order(value: Any) -> str:
    return json.dumps(value)


@given(DOCUMENTS)
def test_normal_form_is_json_that_reads_back_as_itself(data: dict[str, Any]) -> None:
    normal = normalise(read(data))
    again = json.loads(json.dumps(normal, allow_nan=False))
    assert order(normalise(read_normalised(again))) == order(normal)


@given(DOCUMENTS.filter(lambda data: not re.search(r"\${{|when|until|filter|dedupe", json.dumps(data))))
def test_reading_back_gives_an_equal_spec(data: dict[str, Any]) -> None:
    spec = read(data)
    again = read_normalised(normalise(spec))
    assert again == spec
    for one, other in zip(again.stages.values(), sorted(spec.stages.items()), strict=True):
        if isinstance(one, ReduceStage) and isinstance(other[1], ReduceStage):
            assert one.has_initial == other[1].has_initial


@given(DOCUMENTS)
def test_schema_accepts_the_normal_form_of_every_accepted_document(data: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator(SCHEMA).validate(normalise(read(data)))


SCHEMA = schema()


@given(DOCUMENTS)
def test_validation_of_any_well_shaped_document_ends_with_findings_at_places(data: dict[str, Any]) -> None:
    document = load(json.dumps(data, ensure_ascii=True))
    assert all(found.line >= 1 and found.message for found in validate(document))


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_example_survives_as_yaml_and_as_json(path: Path) -> None:
    spec = load(path).require()
    text = json.dumps(normalise(spec), ensure_ascii=False)
    assert load(text).require() == spec
    assert len(json.dumps(normalise(without_triggers(spec)))) < 2000


def spelt(**changes: Any) -> dict[str, Any]:
    stage = {"type": "map", "input": {"range": 3}, "uses": "m:f", **changes}
    normal = normalise(read({"apiVersion": "treadle/v1", "name": "n", "stages": {"a": stage}}))
    return dict(normal["stages"]["a"])


def test_one_spelling_of_each_quantity_default_and_expression() -> None:
    assert spelt(timeout="90m", memory="1024KiB", when="inputs.x<3", per="record", needs=[]) == {
        "input": {"range": 3},
        "memory": "1MiB",
        "timeout": "90m",
        "type": "map",
        "uses": "m:f",
        "when": "inputs.x < 3",
    }
    assert spelt(**{"with": {"x": "a${{run.id}}"}})["with"] == {"x": "a${{ run.id }}"}


def test_order_of_columns_is_kept_and_that_of_arguments_is_not() -> None:
    columns = {"uri": "o", "format": "csv", "columns": {"b": "int64", "a": "int64"}}
    assert list(spelt(output=columns)["output"]["columns"]) == ["b", "a"]
    assert list(spelt(**{"with": {"b": {"y": 1, "x": 1}, "a": 1}})["with"]) == ["a", "b"]
    assert list(spelt(**{"with": {"b": {"y": 1, "x": 1}}})["with"]["b"]) == ["y", "x"]


def test_a_written_null_initial_is_kept() -> None:
    stage = {"type": "reduce", "input": {"range": 3}, "per": "all", "combine": "m:f"}
    for extra, has in (({}, False), ({"initial": None}, True)):
        spec = read({"apiVersion": "treadle/v1", "name": "n", "stages": {"a": {**stage, **extra}}})
        again = read_normalised(normalise(spec)).stages["a"]
        assert isinstance(again, ReduceStage)
        assert again.has_initial is has


@given(st.timedeltas(timedelta(0), timedelta(days=10_000)))
def test_duration_reads_back_exactly(duration: timedelta) -> None:
    seconds = duration.total_seconds()
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.integers(0, 2**60))
def test_size_reads_back_exactly(size: int) -> None:
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize("text", ["30", 30, "", "s", "1 s", "1h 30m", "-1s", "1e3s", "٣s", None, True])
def test_duration_without_unit_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="needs a unit"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1h30m", 5400.0), ("0.1s", 0.1), ("100ms", 0.1), ("1.5m", 90.0), ("2d", 172800.0), ("0s", 0.0)],
)
def test_duration_is_read_in_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(("text", "size"), [("64MiB", 2**26), ("1GB", 10**9), ("0.5KiB", 512), ("1.5B", 1)])
def test_size_is_read_in_bytes(text: str, size: int) -> None:
    assert parse_size(text) == size
