"""Which URIs triggered runs may touch. An event comes from outside: it must not choose what a run reads or overwrites.

Pure, but for following links. `allow` of the profile names prefixes (`s3://lake/orders/`, `/data/in`, `s3://` for
every bucket); without it, a triggered run may touch what is below the folder of its deployment and nothing else.
Checked are the inputs of the run, and every `uri` of the workflow with those inputs filled in; what user code opens by
itself is its own affair. The same goes for the workflows that its stages run, so what they touch must be known before
the run too.

The run keeps the prefixes (`Submission.allow`). They are asked again when it is planned, for the files that were found,
since a wildcard matches links too; and when a child begins, which a person may have had run again under another id.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
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
from treadle.primitives.run_names import child_run
from treadle.primitives.stores.files import FileInfo, absolute_uri, is_local, real_path

from .plan import FilesFeed, Graph, Plan, Segment
from .runfiles import Submission

_MAGIC = re.compile(r"[*?[]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_ABOUT = {"startTime": "1970-01-01T00:00:00Z"}
"""The run has not started yet: a URI may mention the time, but its prefix must not depend on it."""


class Forbidden(UsageError):
    """The run would touch a URI outside what the profile allows; the event, the workflow or the profile must change."""


def check_allowed(allow: Sequence[str] | None, submission: Submission) -> tuple[str, ...]:
    """The prefixes that hold. Raises Forbidden for the first URI of a triggered run that is below none of them."""
    base = Path(submission.base)
    prefixes = (submission.base,) if allow is None else allow
    for uri in touched(submission):
        if not any(is_below(uri, prefix, base) for prefix in prefixes):
            raise Forbidden(
                f"run {submission.run} would touch {uri!r}, which triggered runs may not",
                _hint(prefixes),
            )
    return tuple(prefixes)


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
    """Every URI that the run's inputs and its workflow name, templates filled in. Raises Forbidden where they cannot
    be, since then only the run itself would know what it touches."""
    declared = submission.spec.get("inputs", {})
    for name, value in submission.inputs.items():
        is_uri = declared.get(name, {}).get("type") == "uri"
        yield from _in_value(value, is_uri)
    env = {"inputs": submission.inputs, "run": {"id": submission.run, **_ABOUT}}
    stages = submission.spec.get("stages", {})
    children = {name: stage for name, stage in stages.items() if stage.get("type") == "workflow"}
    for name, stage in children.items():
        yield from touched(_child(submission, env, name, stage))
    for template in _templates({name: stage for name, stage in stages.items() if name not in children}):
        try:
            yield str(render(template, env))
        except ExpressionError as error:
            text = f"run {submission.run}: the URI {template!r} cannot be known before the run: {error}"
            raise Forbidden(text, "Write it with inputs and the run's id only.") from error


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
    return replace(submission, run=run, spec=stage["uses"], inputs=given_inputs(known, values))


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


def _in_value(value: Any, is_uri: bool) -> Iterator[str]:
    """Values of inputs: a `uri`, what a dataset names, and any other text that looks like a URL."""
    if isinstance(value, str):
        if is_uri or _SCHEME.match(value):
            yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _in_value(item, key == "uri")
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _in_value(item, is_uri)


def _templates(node: Any) -> Iterator[str]:
    """Every `uri` of the stages, however deep."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key == "uri" and isinstance(value, str):
                yield value
            else:
                yield from _templates(value)
    elif isinstance(node, list | tuple):
        for item in node:
            yield from _templates(item)
