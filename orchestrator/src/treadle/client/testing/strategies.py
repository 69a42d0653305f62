"""Hypothesis strategies of whole workflows: valid documents of every stage type, with the files they read.

`cases(module)` draws a `Case`. Generation is typed: it tracks the kind and the records of every generated dataset
(`dataset_shapes`). Nearly all generated documents are therefore legal, and failures come from the data. Stages refer to
functions by name only; `module` must define the functions that `stages` and `exchanges` name (treadle's:
tests/properties/functions.py).

`dataset_shapes` has the properties of a dataset, `sources` inputs and files, `stages` map, reduce, broadcast and
barrier, `exchanges` shuffles, `loops` loops; this module generates the document around them. Cases shrink towards fewer
stages, fewer and smaller records, and defaults.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from treadle.dsl.model import Spec

from .dataset_shapes import DatasetScope
from .generator import Draws
from .loops import add_stages


@dataclass(frozen=True)
class Case:
    """A workflow with its inputs and files."""

    document: dict[str, Any]
    inputs: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    """Path from the document's folder -> content."""

    def spec(self) -> Spec:
        return Spec.model_validate(self.document, by_alias=True, by_name=False)

    def write(self, folder: Path) -> None:
        """Write the files to where relative URIs find them."""
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def __repr__(self) -> str:
        files = "".join(f"\n  {name}: {content!r}" for name, content in self.files.items())
        return f"Case({json.dumps(self.document, indent=1)}\n inputs={self.inputs}{files})"


def cases(module: str, *, most: int = 6, failing: bool = True) -> SearchStrategy[Case]:
    """Workflows of at most `most` stages at each level; with `failing`, some functions raise."""
    return _cases(module, most, failing)


@st.composite
def mixed(draw: DrawFn, module: str, most: int = 5) -> Case:
    """Workflows whose stages choose different exchanges: directly or through the store, durable or not."""
    case = draw(cases(module, most=most))
    return dataclasses.replace(case, document={**case.document, "stages": _mix(draw, case.document["stages"])})


def _mix(draw: DrawFn, stages: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for name, stage in stages.items():
        more: dict[str, Any] = {}
        if stage["type"] == "loop":
            more["stages"] = _mix(draw, stage["stages"])
        elif stage["type"] != "barrier":
            more = {"durability": draw(st.sampled_from(["task", "segment", None]))}
        if stage["type"] in ("shuffle", "broadcast") or (stage["type"] == "reduce" and stage.get("per") == "all"):
            more["exchange"] = draw(st.sampled_from(["direct", "storage", "auto"]))
        found[name] = {**stage, **{key: value for key, value in more.items() if value is not None}}
    return found


@st.composite
def _cases(draw: DrawFn, module: str, most: int, failing: bool) -> Case:
    draws = Draws(draw, module, failing)
    place = DatasetScope()
    if draws.maybe():
        draws.declare("n", {"type": "integer", "default": draws.number(1, 4)})
        place.numbers.append("inputs.n")
    stages = add_stages(draws, place, draws.number(1, most))
    document: dict[str, Any] = {
        "apiVersion": "treadle/v1",
        "name": "generated",
        "defaults": {"retry": {"maximumAttempts": draws.pick([2, 1, 3]), "initialInterval": "10ms"}},
        "stages": stages,
    }
    if draws.inputs:
        document["inputs"] = draws.inputs
    if draws.maybe():
        document["seed"] = draws.number(1, 2**40)
    if place.numbers:
        document["outputs"] = {"shown": f"${{{{ {draws.pick(place.numbers)} }}}}", "name": "${{ 'of ' + run.id }}"}
    if place.values and draws.maybe():
        document["outputs"] = {**document.get("outputs", {}), "value": f"${{{{ {draws.pick(place.values)} }}}}"}
    return Case(document, draws.given, draws.files)
