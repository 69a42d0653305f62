"""A strategy of workflows whose stages share objects; their functions are in `object_functions`."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from treadle.client.testing.strategies import Case

MODULE = "properties.object_functions"
OBJECTS = ("hits", "log", "logs")


class _Drawing:
    """A document under construction. All users of objects in a level come in one order."""

    def __init__(self, draw: DrawFn) -> None:
        self._draw = draw
        self._count = 0
        self.sure: list[str] = []
        """Stages of the present level that are not skipped."""
        self.values: list[str] = []
        self._loops: set[str] = set()

    def pick(self, values: Any) -> Any:
        return self._draw(st.sampled_from(values))

    def stages(self, most: int, depth: int = 0) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for _ in range(self._draw(st.integers(1, most))):
            self._count += 1
            name = f"s{self._count}"
            if depth < 2 and self.pick([False, False, True]):
                made[name] = self._loop(list(made), depth)
                self._loops.add(name)
            else:
                made |= self._stage(name, list(made), depth)
        return made

    def _stage(self, name: str, before: list[str], depth: int) -> dict[str, Any]:
        stage: dict[str, Any] = self.pick(
            [
                {"type": "map", "uses": "each"},
                {"type": "map", "uses": "twice"},
                {"type": "map", "uses": "picky", "toleratedFailures": 1000},
                {"type": "map", "uses": "whole", "per": "partition"},
                {"type": "reduce", "uses": "total", "per": "partition"},
                {"type": "reduce", "uses": "total", "per": "all"},
                {"type": "reduce", "uses": "per_key", "per": "key"},
            ]
        )
        stage = {**stage, "uses": f"{MODULE}:{stage['uses']}", "input": self._input(before, depth), **self._objects()}
        if before:
            stage["needs"] = before
        condition = self.pick(
            [None, None, "inputs.yes", "inputs.no", *(f"stages.{r}.value > 500" for r in self.values)]
        )
        if condition:
            stage["when"] = condition
        elif stage["input"] in self.sure or not isinstance(stage["input"], str):
            self.sure.append(name)
            if stage.get("per") == "all" and not depth:
                self.values.append(name)
        if stage.get("per") != "key":
            return {name: stage}
        shuffle = {"type": "shuffle", "input": stage["input"], "by": f"{MODULE}:keyed", "partitions": 2}
        return {f"{name}k": shuffle, name: {**stage, "input": f"{name}k"}}

    def _input(self, before: list[str], depth: int) -> Any:
        known = [name for name in before if not name.endswith("k") and name not in self._loops]
        data = [{"range": self.pick([12, 1, 0]), "partitions": self.pick([3, 2, 1])}, *known]
        return self.pick([*data, "state.d"] if depth else data)

    def _objects(self) -> dict[str, Any]:
        names = [name for name in OBJECTS if self.pick([True, False])]
        only = [name for name in names if self.pick([False, False, True])]
        given = {"with": {"names": names, "only": only}}
        modes = {name: "read" if name in only else "merge" for name in names}
        return {**given, "objects": modes} if only else {**given, "objects": names}

    def _loop(self, before: list[str], depth: int) -> dict[str, Any]:
        outer, values = self.sure, self.values
        known = [name for name in outer if name in before]
        state = self.pick(known) if known else self.pick(["inputs.numbers"])
        self.sure, self.values = ["state.d"], []
        body = self.stages(2, depth + 1)
        sure = [name for name in self.sure if name in body]
        self.sure, self.values = outer, values
        loop = {"type": "loop", "state": {"d": state}, "maxIterations": self.pick([2, 1]), "stages": body}
        return {**loop, "next": {"d": sure[-1]} if sure else {}, "needs": before}


def document_with_objects(stages: dict[str, Any], attempts: int = 3) -> dict[str, Any]:
    """A document with three objects, all of which it shows."""
    return {
        "apiVersion": "treadle/v1",
        "name": "generated",
        "inputs": {
            "yes": {"type": "boolean", "default": True},
            "no": {"type": "boolean", "default": False},
            "first": {"type": "integer", "default": 7},
            "numbers": {"type": "list", "default": [5, 3, 8, 2]},
        },
        "objects": {
            "hits": {"type": "counter", "with": {"value": 3}},
            "log": {"uses": f"{MODULE}:Journal"},
            "logs": {"uses": f"{MODULE}:Journal", "with": {"first": "${{ inputs.first }}"}},
        },
        "defaults": {"retry": {"maximumAttempts": attempts, "initialInterval": "10ms"}},
        "stages": stages,
        "outputs": {name: f"${{{{ objects.{name} }}}}" for name in OBJECTS},
    }


@st.composite
def cases_with_objects(draw: DrawFn) -> Case:
    return Case(document_with_objects(_Drawing(draw).stages(4), draw(st.sampled_from([2, 3]))))
