"""Hypothesis strategy of valid documents with every key of the language, and with awkward names for Python.

They are not run. For documents whose results are compared, see `treadle.client.testing.strategies`.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

Json = dict[str, Any]
Choices = dict[str, SearchStrategy[Any]]
"""Key -> its possible values."""
NUMERIC = ["1e3", "1.5e3", "+.5E1", "08", "0o17", "0x1F", "1_000", ".inf", "1e999"]
WORDS = ["true", "null", "~", "2026-01-01", "12:30", "=", "<<", "it's", '"a"', "{k}", "\\"]
SPACED = ["", " a ", "a: b", "a #b", "*a", "!a", "- a", "a\nb\n", "\u2028", "ü", "\U0001f600"]
TEXTS = st.text(max_size=6) | st.sampled_from([*NUMERIC, *WORDS, *SPACED])
WHOLE = st.integers(-(2**63), 2**64 - 1)
NUMBERS = st.integers(-(2**60), 2**60) | st.sampled_from([0, 1, -1, 1.0, -0.0, 2.5, 1e-5, 1e16, 1e300])
VALUES: SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda below: st.lists(below, max_size=2) | st.dictionaries(TEXTS, below, max_size=2),
    max_leaves=4,
)
ODD = ("int", "list", "str", "getattr", "class", "from", "wf", "self", "text", "batch", "sum", "a", "b")
"""Names that builder, functions, inputs and stages may all have."""
FUNCTIONS = st.sampled_from(["m:f", "m:int", "m:text", "p.q:f", "p.q:C.g", "class.x:f", "m:lambda"])
COMPUTED = ["inputs.k", "inputs.k + 1", "1 - inputs.k * 2.5", "-inputs.k", "max(inputs.k, 3)", "size(run.id)"]
EMBEDDED = ["at ${{ run.id }}", '"${{ run.id }}" {x}', "${{ run.startTime }}/${{ inputs.k }}"]
TEMPLATES = st.sampled_from([*(f"${{{{ {text} }}}}" for text in COMPUTED), *EMBEDDED])
CONDITIONS = st.sampled_from(["inputs.k > 1", "1 < inputs.k && !(inputs.k == 3)", "has(inputs.k)", "1 < 2 || true"])
COUNTS = st.integers(1, 9) | st.just("${{ inputs.k }}")
RANGES = {"type": "range", "boundaries": [1, 2.5]}
DURATIONS, SIZES = st.sampled_from(["1ms", "1.5s", "90s", "1h30m"]), st.sampled_from(["1B", "1.5KiB", "64MiB", "1GB"])
RETRY: Choices = {
    "maximumAttempts": st.integers(1, 5),
    "initialInterval": st.sampled_from(["1ms", "0.25s"]),
    "backoffCoefficient": st.integers(1, 4) | st.sampled_from([1.0, 1.5]),
    "maximumInterval": st.sampled_from(["1s", "1m"]),
    "nonRetryableErrorTypes": st.lists(st.sampled_from(["ValueError", "m.E"]), max_size=2),
}
MEMORY = st.just("1GiB") | st.sampled_from([{"start": "1MiB"}, {"start": "1MiB", "max": "1.5MiB"}])
CACHE = st.booleans() | st.fixed_dictionaries({}, optional={"version": WHOLE | TEXTS, "ttl": DURATIONS})
SETTINGS: Choices = {
    "retry": st.fixed_dictionaries({}, optional=RETRY),
    "timeout": DURATIONS,
    "deadline": DURATIONS,
    "maxConcurrency": COUNTS,
    "memory": MEMORY,
    "executor": st.just("local"),
    "durability": st.sampled_from(["task", "segment"]),
    "backups": st.booleans(),
}
DESCRIPTION: Choices = {"description": TEXTS | st.sampled_from(["${{ run.id }}", "${{ what"])}


@st.composite
def documents(draw: DrawFn) -> Json:
    """Documents, nearly all valid."""
    inputs = {name: draw(_input()) for name in draw(st.lists(st.sampled_from(ODD), unique=True, max_size=4))}
    inputs |= {"k": {"type": "integer", "default": 3}, "s": {"type": "string", "default": "x"}}
    head: Choices = {
        "labels": st.dictionaries(TEXTS, TEXTS | st.just("${{ run.id }}"), max_size=2),
        "seed": WHOLE,
        "defaults": st.fixed_dictionaries({}, optional={**SETTINGS, "cache": CACHE}),
        "triggers": st.dictionaries(st.sampled_from(ODD), _triggers(), max_size=2),
        "secrets": st.just(["token", "import"]),
        **DESCRIPTION,
    }
    document: Json = {"apiVersion": "treadle/v1", "name": "w", "inputs": inputs}
    document |= draw(st.fixed_dictionaries({}, optional=head))
    stages = _Stages(draw, document)
    document["stages"] = stages.some(draw(st.integers(1, 4)))
    document["outputs"] = draw(st.dictionaries(st.sampled_from(ODD), TEMPLATES | _plain(), max_size=2))
    return document


def _plain() -> SearchStrategy[Any]:
    return VALUES.filter(lambda value: "${{" not in str(value))


@st.composite
def _input(draw: DrawFn) -> Json:
    kind = draw(st.sampled_from(["integer", "number", "string", "boolean", "list", "uri", "dataset"]))
    low, high = sorted(draw(st.tuples(NUMBERS, NUMBERS)))
    bounds: Choices = {"minimum": st.just(low), "maximum": st.just(high)}
    more: dict[str, Choices] = {
        "integer": bounds,
        "number": {**bounds, "default": st.sampled_from([low, high])},
        "string": {"default": TEXTS},
        "boolean": {"default": st.booleans()},
        "list": {"default": st.lists(_plain(), max_size=2)},
        "uri": {"default": TEXTS},
    }
    if kind == "dataset":
        return {"type": kind, "default": {"items": draw(st.lists(_plain(), max_size=2))}}
    return {"type": kind, **draw(st.fixed_dictionaries({}, optional={**more[kind], **DESCRIPTION}))}


def _triggers() -> SearchStrategy[Json]:
    named = ["event.data.expression", "event.data._id.class", "event.extensions.from", "event.id", "trigger.time.date"]
    given = st.sampled_from([f"${{{{ {name} }}}}" for name in named])
    objects: Choices = {"maxActive": st.integers(1, 9), **DESCRIPTION}
    events: Choices = {
        "filter": st.sampled_from(["event.data.n > 1", "event.data._n == 1"]),
        "schema": st.just({"type": "object", "minProperties": 1}),
        "with": st.fixed_dictionaries({}, optional={"s": given}),
        **objects,
    }
    kafka = {"dedupe": st.sampled_from(["offset", "event.data.expression"]), "format": st.just("json"), **events}
    ticks: Choices = {"timezone": st.just("Europe/Paris"), "overlap": st.just("bufferOne"), "jitter": DURATIONS}
    return st.one_of(
        _trigger(kafka, type="kafka", connection="c", topics=["t"]),
        _trigger({**ticks, **DESCRIPTION}, type="schedule", cron=["@daily", "0 2 * * *"]),
        _trigger({**ticks, **DESCRIPTION}, type="schedule", interval="1h"),
        _trigger(objects, type="object", poll={"uri": "s3://b/p/", "every": "1m"}),
        _trigger(events, type="webhook", secret="hook"),
    )


def _trigger(options: Choices, **written: Any) -> SearchStrategy[Json]:
    return st.fixed_dictionaries({key: st.just(value) for key, value in written.items()}, optional=options)


class _Stages:
    """Adds stages. Each may read the stages before it in its place."""

    def __init__(self, draw: DrawFn, document: Json) -> None:
        self._draw, self._names = draw, [*ODD, "c", "d", "e", "f", "g", "h"]
        self._secrets = document.get("secrets", [])
        self._data: list[str] = []
        self._broadcasts: list[str] = []
        self._metrics: list[str] = []

    def some(self, count: int, inside: str = "") -> Json:
        found: Json = {}
        for _ in range(count):
            waits = ["barrier"] if any("." not in one for one in self._data) else []
            kinds = ["map", "map", "reduce", "shuffle", "broadcast", *waits]
            kind = self._draw(st.sampled_from(kinds if inside else [*kinds, "loop", "workflow"]))
            name = self._name()
            found[name] = {"type": kind, **getattr(self, f"_{kind}")(name, inside)}
        return found

    def _name(self) -> str:
        return self._names.pop(self._draw(st.integers(0, len(self._names) - 1)))

    def _options(self, **options: SearchStrategy[Any]) -> Json:
        common: Choices = {"when": CONDITIONS, **DESCRIPTION}
        if self._metrics:
            common["when"] |= st.sampled_from([f"stages.{one}.metrics.n > 0" for one in self._metrics])
        if self._data:
            common["needs"] = st.just(self._data[:1])
        return self._draw(st.fixed_dictionaries({}, optional={**common, **options}))

    def _input(self) -> Any:
        sources = st.fixed_dictionaries({"items": st.lists(_plain(), max_size=2)}, optional={"partitions": COUNTS})
        ranges = st.fixed_dictionaries(
            {"range": st.integers(0, 9) | st.just("${{ inputs.k }}")}, optional={"partitions": COUNTS}
        )
        shape = {"delimiter": st.sampled_from([",", "{", "\t", "'"]), "header": st.booleans()}
        uris = st.sampled_from(["in/*.csv", "${{ inputs.s }}", "in/${{ inputs.s }}/*"])
        packed = {"split": SIZES, "compression": st.sampled_from(["auto", "none", "gzip"])}
        files = st.fixed_dictionaries({"uri": uris, "format": st.just("csv")}, optional={**shape, **packed})
        fixed = st.fixed_dictionaries({"uri": uris, "format": st.just("fixed"), "recordBytes": COUNTS})
        given = st.one_of(sources, ranges, files, fixed)
        return self._draw(given | st.sampled_from(self._data) if self._data else given)

    def _with(self) -> SearchStrategy[Any]:
        values: SearchStrategy[Any] = _plain() | TEMPLATES
        if self._broadcasts:
            values |= st.sampled_from([f"${{{{ stages.{name} }}}}" for name in self._broadcasts])
        if self._secrets:
            values |= st.sampled_from(["${{ secrets.token }}", "${{ secrets.import }}"])
        return st.dictionaries(st.sampled_from(ODD), values, max_size=2)

    def _map(self, name: str, inside: str) -> Json:
        batch = st.fixed_dictionaries({"maxItems": COUNTS}, optional={"maxBytes": SIZES})
        options: Choices = {"with": self._with(), "flat": st.booleans(), "per": st.just("partition"), "batch": batch}
        options |= {"toleratedFailures": st.sampled_from([1, "0.5%"]), **self._written(inside), **SETTINGS}
        made: Json = {"input": self._input(), "uses": self._draw(FUNCTIONS), **self._options(**options)}
        if "toleratedFailures" in made and not inside:
            made["failedItems"] = {"uri": f"failed/{name}"}
        if self._draw(st.booleans()):
            made["metrics"] = {"n": "sum", "from": "max"}
            self._metrics.append(name)
        self._data.append(name)
        return made

    def _written(self, inside: str) -> Choices:
        if inside:
            return {}
        uri = st.sampled_from([f"out/{number}/${{{{ run.id }}}}" for number in range(99)])
        replaced: Choices = {"ifExists": st.just("replace"), "columns": st.just({"a": "int64", "b c": "string"})}
        return {"output": st.fixed_dictionaries({"uri": uri, "format": st.just("csv")}, optional=replaced)}

    def _shuffle(self, name: str, inside: str) -> Json:
        by: SearchStrategy[Any] = st.sampled_from(["m:key", ["a", "b"]])
        made: Json = {"input": self._input(), "by": self._draw(by), **self._options(sort=st.booleans(), **SETTINGS)}
        partitioner = self._draw(st.sampled_from([None, {"type": "hash"}, {"type": "range"}, RANGES]))
        made |= {"partitioner": partitioner, "partitions": 3} if partitioner else {}
        self._data.append(name)
        return made

    def _reduce(self, name: str, inside: str) -> Json:
        folded: Json = {
            "combine": "m:f",
            "finish": "p.q:f",
            "with": self._draw(self._with()),
            "metrics": {"n": "number"},
        }
        folded |= {"initial": self._draw(_plain())} if self._draw(st.booleans()) else {"fanIn": 4}
        whole: Json = {"uses": self._draw(FUNCTIONS), "metrics": {"n": "integer"}}
        made = {"input": self._input(), "per": "all", **self._options(**SETTINGS)}
        made |= self._draw(st.sampled_from([folded, whole]))
        self._data.append(name)
        self._metrics.append(name)
        return made

    def _broadcast(self, name: str, inside: str) -> Json:
        made = {"input": self._input(), **self._options(limit=SIZES, **SETTINGS)}
        self._broadcasts.append(name)
        return made

    def _barrier(self, name: str, inside: str) -> Json:
        stages = [one for one in self._data if "." not in one]
        made = {"input": self._draw(st.sampled_from(stages)), **self._options()}
        self._data.append(name)
        return made

    def _loop(self, name: str, inside: str) -> Json:
        known = list(self._data), list(self._broadcasts), list(self._metrics)
        state: Json = {"class": 1, "self": "${{ inputs.k }}"}
        state |= {"rows": self._data[-1]} if self._data else {}
        made: Json = {"state": state, "maxIterations": self._draw(COUNTS), **self._options()}
        self._data += ["state.rows"] if "rows" in state else []
        made["stages"] = self.some(self._draw(st.integers(1, 2)), name)
        made["next"] = {"class": "${{ state.class + 1 }}", "self": "${{ state.self }}"}
        inner = [one for one in self._data if one in made["stages"]]
        made["next"] |= {"rows": inner[-1]} if "rows" in state and inner else {}
        made |= {"until": "state.class > 3", "onExhausted": "succeed"} if self._draw(st.booleans()) else {}
        self._data, self._broadcasts, self._metrics = known
        self._data += [f"{name}.state.rows"] if "rows" in state else []
        return made

    def _workflow(self, name: str, inside: str) -> Json:
        child: Json = {
            "apiVersion": "treadle/v1",
            "name": "child",
            "inputs": {"s": {"type": "string", "default": "1e3"}},
        }
        child["stages"] = {"only": {"type": "map", "input": {"range": 1}, "uses": "m:f"}}
        return {"uses": child, **self._options(**{"with": st.just({"s": "${{ run.id }}"})})}
