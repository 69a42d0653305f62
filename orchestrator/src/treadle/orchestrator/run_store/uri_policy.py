"""The URIs that triggered runs may use. An event is external: it must not choose the files that a run reads or
overwrites.

Pure, except that it follows links. `allow` of the profile names prefixes (`s3://lake/orders/`, `/data/in`, `s3://` for
every bucket). Without it, a triggered run may use only URIs below the folder of its deployment.

Addresses are checked, data is not. The addresses are the values that treadle itself opens:
- inputs of type `uri`
- the `uri` of inputs of type `dataset`
- the `uri` of each `input`, `output` and `failedItems` of a stage, with the inputs filled in
- a range of Kafka offsets, which only the trigger makes

Everything else in an event is data, even if it looks like a URL: records of a dataset, lists, texts, arguments of
functions. User code is free to open other addresses. The same holds for the workflows that stages run, so their
addresses must be known before the run too.

The run keeps the prefixes (`Submission.allow`). They are checked again at planning for the files found, since a
wildcard also matches links. They are checked again when a child starts, as a child that is run again has another id.
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
"""The run has not started yet. A URI may mention the time, but its prefix must not depend on it."""


class Forbidden(UsageError):
    """The run would use a URI that the profile does not allow. Change the event, the workflow or the profile."""

    uri: str = ""
    """The URI. Empty: not known."""


def check_allowed(allow: Sequence[str] | None, submission: Submission) -> tuple[str, ...]:
    """Returns the valid prefixes. Raises Forbidden for the first URI of a triggered run that is below none of them."""
    prefixes = (submission.base,) if allow is None else tuple(allow)
    _check_below(prefixes, submission, touched(submission))
    return prefixes


def check_fixed(allow: Sequence[str] | None, submission: Submission) -> None:
    """Raises Forbidden for an address in the stages that does not depend on inputs and that triggered runs may not
    use."""
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
    """Raises Forbidden for a local file that a triggered run would read through a link out of the prefixes.

    Otherwise a user with write access to an allowed folder could read any file that workers may read: `in/*.csv` finds
    `in/a.csv -> /etc/passwd`. Hard links cannot be detected.
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
    """Each local input file of the graph, once."""
    feeds = [node.feed for node in graph.walk() if isinstance(node, Segment)]
    splits = {one.uri: one for feed in feeds if isinstance(feed, FilesFeed) for one in feed.splits if is_local(one.uri)}
    return (FileInfo(one.uri, one.size, one.version) for one in splits.values())


def _hint(prefixes: Sequence[str]) -> str:
    return f"Allowed: {', '.join(prefixes) or 'nothing'}. If it is meant: add a prefix to `allow` in the profile."


def touched(submission: Submission) -> Iterator[str]:
    """Every address in the run's inputs and its workflow, with templates rendered.

    Raises Forbidden for an address that is known only during the run.
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
    """The addresses among the values of the inputs. The types of the inputs decide."""
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
    """Raises Forbidden for a range of Kafka offsets that comes from an event, in a triggered run.

    `mapped`: the trigger's `with` as written. Only `${{ trigger.events }}` gives a range.
    """
    for name in ranges(submission):
        if mapped.get(name) != EVENTS:
            text = f"the input {name} of run {submission.run} is a range of Kafka offsets that an event chose"
            raise Forbidden(text, f"Only `{EVENTS}` gives a range.")


def check_child(parent: Submission, child: Submission) -> None:
    """Raises Forbidden for an address of a child that its parent may not use. A parent without `allow` may use all.

    A child may read only the ranges of Kafka offsets that its parent received.
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
    """The run that a stage starts, with the inputs that are known. A URI that depends on an unknown input is refused.

    Raises Forbidden for an unknown address, and UsageError for values that the other workflow does not accept.
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
    """Returns whether everything that `uri` (a path, URL or glob) can name is below `prefix` (not a glob), compared
    step by step.

    `s3://lake` does not cover `s3://lakehouse/x`. Steps such as `..` are resolved in paths. They are refused in URLs,
    since stores differ over them.
    """
    if is_local(uri) != is_local(prefix):
        return False
    if is_local(uri):
        return _path(uri, base).is_relative_to(os.path.realpath(absolute_uri(prefix, base)))
    literal, *wild = _MAGIC.split(uri, maxsplit=1)
    scheme, bucket, steps = _parts(literal)
    if wild and not steps:
        return False  # the bucket is unknown
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
    """The folder or file up to the first wildcard, with links resolved. A `..` after a wildcard is dropped."""
    whole = absolute_uri(uri, base)
    magic = _MAGIC.search(whole)
    return Path(os.path.realpath(os.path.dirname(whole[: magic.start()] + "x") if magic else whole))


def _addresses(stages: Mapping[str, Any]) -> Iterator[str]:
    """Every `uri` that stages read or write, including stages inside loops. Templates are not rendered."""
    for stage in stages.values():
        for key in _PLACES:
            places = stage.get(key)
            for place in places if isinstance(places, list) else [places]:
                if isinstance(place, Mapping) and "uri" in place:
                    yield place["uri"]
        yield from _addresses(stage.get("stages", {}))
