"""The reason why the results of two runs' nodes would differ: the first different component. Pure."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ..plan.plan import BarrierNode, Plan
from ..run_store.run_files import Submission
from .content_key import Components, components_of

_TOLD = {
    "segment": "its partitions, or the stages that run together, changed",
    "partitions": "how its input is cut into partitions changed",
    "form of the data": "how its input is partitioned changed",
    "reading": "how it reads its input changed",
    "steps of the loop": "`next`, `until` or `maxIterations` of the loop changed",
}
"""Components whose values do not come from the document."""
_KEYS = {
    "tolerate": "toleratedFailures",
    "fan_in": "fanIn",
    "max_items": "batch.maxItems",
    "max_bytes": "batch.maxBytes",
    "names": "input",
}
"""Settings of an operation -> keys of a document. Other settings have the key's name."""


class Difference(Struct, frozen=True, rename="camel"):
    """One node, compared with the node of the same name in the other run."""

    node: str
    stages: tuple[str, ...]
    state: Literal["same", "differs", "new"]
    reason: str = ""
    """The first difference in words. Empty: none."""


def compare(plan: Plan, submission: Submission, other: Plan, others: Submission) -> list[Difference]:
    """Compare every node of `plan` with the node of the same name in `other`."""
    ours, theirs = components_of(plan, submission), components_of(other, others)
    nodes = [node for node in plan.graph.walk() if not isinstance(node, BarrierNode)]
    return [_compare(node.id, node.stages, ours[node.id], theirs.get(node.id)) for node in nodes]


def _compare(node: str, stages: tuple[str, ...], ours: Components, theirs: Components | None) -> Difference:
    if theirs is None:
        return Difference(node, stages, "new", "that run has no such stage, or ran it otherwise")
    reason = first_difference(ours, theirs)
    return Difference(node, stages, "differs" if reason else "same", reason)


def first_difference(ours: Components, theirs: Components) -> str:
    """The first difference in the order of the components. Within a group, a change precedes a new or missing
    component."""
    labels = [label for label in {**ours, **theirs} if ours.get(label) != theirs.get(label)]
    if not labels:
        return ""
    group = _group(labels[0])
    changed = [label for label in labels if _group(label) == group and label in ours and label in theirs]
    label = (changed or labels)[0]
    return _words(label, ours.get(label), theirs.get(label))


def _group(label: str) -> str:
    return label.partition(":")[0] if label.startswith("code of") else label.partition(" ")[0]


def _words(label: str, ours: str | None, theirs: str | None) -> str:
    if label in _TOLD:
        return _TOLD[label]
    if label.startswith("setting "):
        name, _, stage = label.removeprefix("setting ").partition(" of ")
        label = f"setting {_KEYS.get(name, name)} of {stage}"
    fate = "is gone" if ours is None else "is new" if theirs is None else "changed"
    if label.startswith("code of "):
        function, _, unit = label.removeprefix("code of ").partition(": ")
        return f"code of {function}: {_unit(unit)} {fate}" if unit else f"code of {function} {fate}"
    if label.startswith(("data of ", "value ", "stage ")):
        return f"reads {label.partition(' of ')[2] or label.removeprefix('stage ')}, which differs"
    if label.startswith("input file ") or ours is None or theirs is None:
        return f"{label} {fate}"
    if "digest" in (ours[:6], theirs[:6]):
        return f"{label} changed"
    return f"{label}: {theirs} -> {ours}"


def _unit(unit: str) -> str:
    """A unit such as `pkg/helpers.py:clean` in words."""
    path, colon, name = unit.partition(":")
    if not colon:
        return path
    return f"`{name}` in {path}" if name else f"what importing {path} does"
