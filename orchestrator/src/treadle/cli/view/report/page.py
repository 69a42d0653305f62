"""Renders the facts as one self-contained HTML file. Its content security policy allows no network access and no
foreign script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from treadle.dsl.graph.drawing import HEIGHT, WIDTH, draw

from ...common import formatting
from ..run_inputs import brief
from .facts import Attempted, Facts, NodeFacts

if TYPE_CHECKING:
    from jinja2 import Template

    from treadle.client.attempt_logs import ErrorGroup
    from treadle.orchestrator.run_requests.run_views import RunEnd, RunView

SLOWEST = 12
"""Number of slowest attempts listed."""
SHOWN_ERRORS = 40
"""Number of error groups shown; the log has all of them."""
COLOURS = 8
"""Number of node colours in style.css, which are reused in turn."""


class Tile(Struct, frozen=True):
    label: str
    value: str
    detail: str = ""


def render(
    view: RunView,
    end: RunEnd | None,
    facts: Facts,
    errors: Sequence[ErrorGroup],
    made: datetime,
    inputs: Mapping[str, Any] | None = None,
) -> str:
    """The page; `end` is None for an open run. All content from the run is escaped."""
    style, script = _resource("style.css"), _resource("timeline.js")
    colours = {node.node: index % COLOURS for index, node in enumerate(_working(facts))}
    return _template().render(
        run=view,
        failure=end.failure if end else None,
        made=made,
        policy=_policy(style, script),
        style=style,
        script=script,
        tiles=_tiles(view, facts, made),
        picture=draw([node.node for node in facts.nodes], facts.edges),
        box=(WIDTH, HEIGHT),
        by_node={node.node: node for node in facts.nodes},
        nodes=_working(facts),
        colours=colours,
        places=_places(facts),
        spills=any(node.spilled for node in facts.nodes),
        slowest=sorted(facts.attempts, key=lambda one: -one.seconds)[:SLOWEST],
        errors=errors[:SHOWN_ERRORS],
        more_errors=max(0, len(errors) - SHOWN_ERRORS),
        written=facts.outputs,
        inputs={name: brief(value) for name, value in (inputs or {}).items() if value is not None},
        outputs=msgspec.json.format(msgspec.json.encode(end.outputs)).decode() if end and end.outputs else "",
        data=_for_script(timeline(facts.attempts, colours)),
    )


def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "size": formatting.size,
        "span": formatting.span,
        "brief": _brief,
        "moment": formatting.moment,
        "number": formatting.number,
        "label": lambda node: formatting.node(node.node, node.stages),
    }
    return environment.from_string(_resource("page.html"))


def timeline(attempts: Sequence[Attempted], colours: Mapping[str, int]) -> dict[str, Any]:
    """The attempts as columns; times are in milliseconds from the first start."""
    origin = attempts[0].started if attempts else 0.0
    nodes = list(dict.fromkeys(one.segment for one in attempts))
    slots = sorted({one.slot for one in attempts}, key=_slot_order)
    node_at = {node: index for index, node in enumerate(nodes)}
    slot_at = {slot: index for index, slot in enumerate(slots)}
    return {
        "nodes": nodes,
        "colours": [colours.get(one, 0) for one in _in_order(attempts, nodes)],
        "slots": slots,
        "node": [node_at[one.segment] for one in attempts],
        "slot": [slot_at[one.slot] for one in attempts],
        "start": [round((one.started - origin) * 1000, 1) for one in attempts],
        "length": [round(one.seconds * 1000, 1) for one in attempts],
        "partition": [one.partition for one in attempts],
        "attempt": [one.attempt for one in attempts],
        "failed": [index for index, one in enumerate(attempts) if one.failure],
    }


def _in_order(attempts: Sequence[Attempted], segments: Sequence[str]) -> list[str]:
    node_of = {one.segment: one.node for one in attempts}
    return [node_of[segment] for segment in segments]


def _slot_order(slot: str) -> tuple[str, int, str]:
    """Sorts `local-2` before `local-10`."""
    name, _, number = slot.rpartition("-")
    return (name, int(number), "") if number.isdigit() else (slot, 0, "")


def _working(facts: Facts) -> list[NodeFacts]:
    return [node for node in facts.nodes if node.kind == "segment"]


def _tiles(view: RunView, facts: Facts, made: datetime) -> list[Tile]:
    nodes = _working(facts)
    took = ((view.closed or made) - view.started).total_seconds()
    tasks, retries = sum(node.tasks for node in nodes), sum(node.retries for node in nodes)
    failed = sum(node.failed for node in nodes)
    busy, cpu = sum(node.busy_seconds for node in nodes), sum(node.cpu_seconds for node in nodes)
    peak = max((node.peak_memory for node in nodes), default=0)
    trouble = [f"{retries:,} retried" if retries else "", f"{failed:,} failed" if failed else ""]
    return [
        _took(view, facts, took),
        Tile("tasks", f"{tasks + failed:,}", ", ".join(filter(None, trouble)) or "none retried"),
        Tile("slot time", formatting.span(busy), f"{formatting.span(cpu)} on a processor"),
        Tile("data made", formatting.size(sum(node.bytes_out for node in nodes))),
        Tile("data read", formatting.size(sum(node.bytes_in for node in nodes))),
        Tile("most memory", formatting.size(peak) if peak else "-", "of one attempt"),
    ]


def _took(view: RunView, facts: Facts, took: float) -> Tile:
    """Time from the first start to the end, because the timeline shows the attempts of every resumption."""
    if view.resumption == 1 or not facts.attempts:
        return Tile("took", formatting.span(took))
    whole = max(took, view.started.timestamp() + took - facts.attempts[0].started)
    return Tile("took", formatting.span(whole), f"{formatting.span(took)} of it in resumption {view.resumption}")


def _brief(seconds: float) -> str:
    if seconds < 0.1:
        return f"{seconds * 1000:.1f} ms"
    return f"{seconds:.2f} s" if seconds < 10 else formatting.span(seconds)


def _places(facts: Facts) -> list[str]:
    used = {place for node in facts.nodes for place, count in node.read.items() if count}
    return [place for place in ("inline", "host", "peer", "path", "relayed", "stored", "store") if place in used]


def _policy(style: str, script: str) -> str:
    """Content Security Policy: only the style and the script of this page, by their digests (CSP level 3)."""
    return f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; base-uri 'none'"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _for_script(data: dict[str, Any]) -> str:
    """JSON that cannot end its script element."""
    return msgspec.json.encode(data).decode().replace("<", "\\u003c")


def _resource(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")
