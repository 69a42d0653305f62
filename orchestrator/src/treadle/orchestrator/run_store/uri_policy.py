"""Which URIs triggered runs may touch. An event comes from outside: it must not choose what a run reads or overwrites.

Pure, but for following links. `allow` of the profile names prefixes (`s3://lake/orders/`, `/data/in`, `s3://` for
every bucket); without it, a triggered run may touch what is below the folder of its deployment and nothing else.

Addresses are checked, data is not. The addresses are the values that treadle itself opens: inputs of type `uri`, the
`uri` of inputs of type `dataset`, and the `uri` of each `input`, `output` and `failedItems` of a stage with the inputs
filled in. Everything else that an event carries is data, also where it looks like a URL: records of a dataset, lists,
texts, arguments of functions. User code decides what it opens itself. The same holds for the workflows that stages
run, so their addresses must be known before the run too. A range of Kafka offsets is an address as well: only the
trigger makes one.

The run keeps the prefixes (`Submission.allow`). They are asked again when it is planned, for the files that were found,
since a wildcard matches links too; and when a child begins, which a person may have had run again under another id.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from msgspec import UnsetType
from msgspec.structs import replace

from treadle.dsl.expressions import ExpressionError
from treadle.dsl.normalise import read_normalised
from treadle.dsl.templates import render
from treadle.dsl.validation.subworkflows import given_inputs
from treadle.primitives.errors import UsageError
from treadle.primitives.run_paths import child_run
from treadle.primitives.stores.input_files import FileInfo, absolute_uri, is_local, real_path

from ..plan.plan import FilesFeed, Graph, Plan, Segment
from .run_files import Submission

_MAGIC = re.compile(r"[*?[]")
_PLACES = ("input", "output", "failedItems")
"""The keys of a stage that hold addresses."""
EVENTS = "${{ trigger.events }}"
"""The template of `with`, in its normal form, that gives an input the events of the trigger."""
_ABOUT = {"startTime": "1970-01-01T00:00:00Z"}
"""The run has not started yet: a URI may mention the time, but its prefix must not depend on it."""


class Forbidden(UsageError):
    """The run would touch a URI outside what the profile allows; the event, the workflow or the profile must change."""

    uri: str = ""
    """The URI, where it is known."""


def check_allowed(allow: Sequence[str] | None, submission: Submission) -> tuple[str, ...]:
    """The prefixes that hold. Raises Forbidden for the first URI of a triggered run that is below none of them."""
    prefixes = (submission.base,) if allow is None else tuple(allow)
    _check_below(prefixes, submission, touched(submission))
    return prefixes


def check_fixed(allow: Sequence[str] | None, submission: Submission) -> None:
    """Raises Forbidden for an address of the stages that no input changes and that no triggered run may touch."""
    env = {"run": {"id": submission.run, **_ABOUT}}
    prefixes = (submission.base,) if allow is None else tuple(allow)
    for template in _addresses(submission.spec.get("stages", {})):
        with suppress(ExpressionError):
            _check_below(prefixes, submission, [str(render(template, env))])


def _check_below(prefixes: Sequence[str], submission: Submission, uris: Iterable[str]) -> None:
    base = Path(submission.base)
    for uri in uris:
        if not any(is_below(uri, prefix, base) for prefix in prefixes):
            text = f"run {submission.run} would touch {uri!r}, which triggered runs may not"
            error = Forbidden(text, _hint(prefixes))
            error.uri = uri
            raise error


def check_found(submission: Submission, plan: Plan) -> None:
    """Raises Forbidden for a local file that a triggered run would read by a link which leads out of the prefixes.

    Who can write into an allowed folder could else have any file read that workers may read: `in/*.csv` finds
    `in/a.csv -> /etc/passwd`. Of hard links nobody can tell.
    """
    if isinstance(submission.allow, UnsetType):
        return
    base = Path(submission.base)
    for found in _local_files(plan.graph):
        real = real_path(found)
        if real != found.uri and not any(is_below(real, prefix, base) for prefix in submission.allow):
            text = f"run {submission.run} would touch {real!r}, to which {found.uri} leads"
            raise Forbidden(f"{text}, and which triggered runs may not", _hint(submission.allow))


def _local_files(graph: Graph) -> Iterator[FileInfo]:
    """Once each."""
    feeds = [node.feed for node in graph.walk() if isinstance(node, Segment)]
    splits = {one.uri: one for feed in feeds if isinstance(feed, FilesFeed) for one in feed.splits if is_local(one.uri)}
    return (FileInfo(one.uri, one.size, one.version) for one in splits.values())


def _hint(prefixes: Sequence[str]) -> str:
    return f"Allowed: {', '.join(prefixes) or 'nothing'}. If it is meant: add a prefix to `allow` in the profile."


def touched(submission: Submission) -> Iterator[str]:
    """Every address in the run's inputs and its workflow, templates filled in.

    Raises Forbidden for an address that only the run itself would know.
    """
    yield from _given(submission)
    env = {"inputs": submission.inputs, "run": {"id": submission.run, **_ABOUT}}
    for name, stage in submission.spec.get("stages", {}).items():
        if stage.get("type") == "workflow":
            yield from touched(_child(submission, env, name, stage))
    for template in _addresses(submission.spec.get("stages", {})):
        try:
            yield str(render(template, env))
        except ExpressionError as error:
            text = f"run {submission.run}: the URI {template!r} cannot be known before the run: {error}"
            raise Forbidden(text, "Write it with inputs and the run's id only.") from error


def _given(submission: Submission) -> Iterator[str]:
    """The addresses in the values of the inputs, whose types say which values are addresses."""
    for name, declared in submission.spec.get("inputs", {}).items():
        value = submission.inputs.get(name)
        if declared["type"] == "uri" and value is not None:
            yield value
        elif declared["type"] == "dataset" and isinstance(value, Mapping) and "uri" in value:
            yield value["uri"]


def ranges(submission: Submission) -> dict[str, Any]:
    """The inputs of type `dataset` whose value is a range of Kafka offsets, by name."""
    datasets = [name for name, one in submission.spec.get("inputs", {}).items() if one["type"] == "dataset"]
    values = {name: submission.inputs.get(name) for name in datasets}
    return {name: value for name, value in values.items() if isinstance(value, Mapping) and "kafka" in value}


def check_ranges(submission: Submission, mapped: Mapping[str, Any]) -> None:
    """Raises Forbidden for a range of Kafka offsets that an event chose, in a run that a trigger starts.

    `mapped` is `with` of the trigger as it is written: only `${{ trigger.events }}` gives a range.
    """
    for name in ranges(submission):
        if mapped.get(name) != EVENTS:
            text = f"the input {name} of run {submission.run} is a range of Kafka offsets that an event chose"
            raise Forbidden(text, f"Only `{EVENTS}` gives a range.")


def check_child(parent: Submission, child: Submission) -> None:
    """Raises Forbidden for an address of a child that its parent may not touch. A parent without `allow` may touch all.

    A child reads the ranges of Kafka offsets that its parent was given, and no others.
    """
    if isinstance(child.allow, UnsetType):
        return
    _check_handed(parent, child)
    check_allowed(child.allow, child)


def _check_handed(parent: Submission, child: Submission) -> None:
    known = list(ranges(parent).values())
    for name, value in ranges(child).items():
        if value not in known:
            text = (
                f"the input {name} of run {child.run} is a range of Kafka offsets that run {parent.run} was not given"
            )
            raise Forbidden(text, "Hand on an input of type dataset as a whole: ${{ inputs.NAME }}.")


def _child(submission: Submission, env: Mapping[str, Any], name: str, stage: Mapping[str, Any]) -> Submission:
    """The run that a stage starts, with those of its inputs that are known; a URI that mentions another is refused.

    Raises Forbidden for a place that is not known, UsageError for values that the other workflow does not accept.
    """
    run, spec = child_run(submission.run, name), read_normalised(stage["uses"])
    values: dict[str, Any] = {}
    unknown: set[str] = set()
    for key, value in stage.get("with", {}).items():
        try:
            values[key] = render(value, env)
        except ExpressionError as error:
            if spec.inputs[key].type in ("uri", "dataset"):
                text = f"run {run}: its input {key} cannot be known before the run: {error}"
                raise Forbidden(text, "Write it with inputs and the run's id only.") from error
            unknown.add(key)
    known = spec.model_copy(update={"inputs": {key: one for key, one in spec.inputs.items() if key not in unknown}})
    child = replace(submission, run=run, spec=stage["uses"], inputs=given_inputs(known, values))
    _check_handed(submission, child)
    return child


def is_below(uri: str, prefix: str, base: Path) -> bool:
    """Whether everything that `uri` (a glob too) can name is below `prefix` (no glob), step by step.

    `s3://lake` does not cover `s3://lakehouse/x`. Steps such as `..` are resolved in paths, and refused in URLs, where
    stores differ over them.
    """
    if is_local(uri) != is_local(prefix):
        return False
    if is_local(uri):
        return _path(uri, base).is_relative_to(os.path.realpath(absolute_uri(prefix, base)))
    literal, *wild = _MAGIC.split(uri, maxsplit=1)
    scheme, bucket, steps = _parts(literal)
    if wild and not steps:
        return False  # which bucket would it be?
    if any(step in (".", "..") for step in unquote(uri).split("/")):
        return False
    wanted_scheme, wanted_bucket, wanted = _parts(prefix if prefix.endswith("://") else prefix.rstrip("/"))
    if scheme != wanted_scheme or (wanted_bucket and bucket != wanted_bucket):
        return False
    return (steps[:-1] if wild else steps)[: len(wanted)] == wanted


def _parts(url: str) -> tuple[str, str, list[str]]:
    scheme, _, rest = url.partition("://")
    bucket, _, name = rest.partition("/")
    return scheme.lower(), bucket, name.split("/") if "/" in rest else []


def _path(uri: str, base: Path) -> Path:
    """The folder or file, up to the first step with a wildcard, with links followed; `..` after a wildcard is gone."""
    whole = absolute_uri(uri, base)
    magic = _MAGIC.search(whole)
    return Path(os.path.realpath(os.path.dirname(whole[: magic.start()] + "x") if magic else whole))


def _addresses(stages: Mapping[str, Any]) -> Iterator[str]:
    """Every `uri` that stages read or write, those inside of loops too. Templates are not filled in."""
    for stage in stages.values():
        for key in _PLACES:
            places = stage.get(key)
            for place in places if isinstance(places, list) else [places]:
                if isinstance(place, Mapping) and "uri" in place:
                    yield place["uri"]
        yield from _addresses(stage.get("stages", {}))
