"""Reads YAML 1.2 (core schema) and JSON as plain data, with the position of every key and value.

PyYAML's parser is used for its events only. Its own schema is YAML 1.1, where `on` is true, `22:30` is 1350 and `1e-4`
is text. Anchors and aliases work; merge keys (`<<`) are kept as an extension.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml

from ..diagnostics.diagnostics import Path, Span
from .scalars import UnsupportedTag, resolve
from .syntax import MAX_DEPTH, SyntaxProblem, YamlProblem, explain

MAX_CHARACTERS = 2 * 2**20
MAX_VALUES = 100_000
"""Limit of written keys and values; data belongs into files."""
MAX_ALIASES = 1000
MAX_EXPANDED = 50_000
"""Limit of nodes that aliases may add."""
_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """Positions of a value and its key, and the value as written."""

    value: Span
    key: Span | None = None
    raw: str = ""

    def inside(self, text: str, start: int, stop: int) -> Span:
        """Return the span of `text[start:stop]` of a string value, or of all of it when it has escapes or folds."""
        body, shift = self.raw, 0
        if body[:1] in ("'", '"'):
            body, shift = body[1:-1], 1
        if body != text or "\n" in body:
            return self.value
        line, col = self.value.line, self.value.col + shift
        return Span(line, col + start, line, col + max(stop, start + 1))


@dataclass(slots=True)
class _Node:
    kind: Literal["scalar", "list", "map"]
    span: Span
    value: Any
    """A scalar's value, a list of nodes, or a list of (key node, value node)."""
    raw: str = ""
    size: int = 1
    """Number of nodes from this one down, aliases expanded."""
    depth: int = 1
    alias: bool = False
    entries: dict[str, tuple[_Node, _Node]] | None = None
    """A mapping's keys and values by name, merged ones included; None until it is constructed."""


class SourcePositions(Mapping[Path, SourcePosition]):
    """Maps every path of a document to its place. Looked up in the nodes on demand, since few paths are needed."""

    def __init__(self, root: _Node | None = None, key: _Node | None = None) -> None:
        self._root, self._key = root, key

    def __getitem__(self, path: Path) -> SourcePosition:
        key, node = self._at(path)
        return SourcePosition(node.span, key.span if key else None, node.raw)

    def __iter__(self) -> Iterator[Path]:
        return _paths_below(self._root, ()) if self._root else iter(())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def below(self, path: Path) -> SourcePositions:
        """Return the places of the value at `path`, as for a document of its own; empty for a missing value."""
        try:
            key, node = self._at(path)
        except KeyError:
            return SourcePositions()
        return SourcePositions(node, key)

    def _at(self, path: Path) -> tuple[_Node | None, _Node]:
        """Return the key and the value at `path`. Raises KeyError."""
        if self._root is None:
            raise KeyError(path)
        key, node = self._key, self._root
        for part in path:
            try:
                key, node = (node.entries or {})[part] if isinstance(part, str) else (None, node.value[part])
            except (KeyError, IndexError, TypeError):
                raise KeyError(path) from None
        return key, node


def _paths_below(node: _Node, path: Path) -> Iterator[Path]:
    yield path
    if node.kind == "list":
        for index, child in enumerate(node.value):
            yield from _paths_below(child, (*path, index))
    for name, (_, value) in (node.entries or {}).items():
        yield from _paths_below(value, (*path, name))


@dataclass(slots=True)
class LoadedDocument:
    """The data, the place of every path in it, and the problems."""

    data: Any = None
    places: SourcePositions = field(default_factory=SourcePositions)
    problems: list[SyntaxProblem] = field(default_factory=list)


def load_yaml(text: str) -> LoadedDocument:
    """Return data and places of one document; problems instead of exceptions. A byte order mark is ignored."""
    text = text.removeprefix("\ufeff")
    loaded = LoadedDocument()
    try:
        if len(text) > MAX_CHARACTERS:
            raise YamlProblem(SyntaxProblem("T004", f"the document is longer than {MAX_CHARACTERS:,} characters"))
        with _collector_paused():
            root = _Composer(_joined_surrogates(text) if text.lstrip()[:1] == "{" else text).compose()
            loaded.data = _construct(root, (), loaded.problems)
        loaded.places = SourcePositions(root)
    except YamlProblem as problem:
        loaded.problems.append(problem.problem)
    return loaded


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Every node lives until the document is read; looking for unused ones meanwhile doubles the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _joined_surrogates(text: str) -> str:
    """Join surrogate pairs: JSON writes characters beyond U+FFFF as two escapes, which YAML does not join."""
    pairs = r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})"
    return re.sub(
        pairs, lambda m: f"{m[1]}\\U{0x10000 + ((int(m[2], 16) & 0x3FF) << 10) + (int(m[3], 16) & 0x3FF):08X}", text
    )


def _span(event: Any) -> Span:
    start, end = event.start_mark, event.end_mark
    return Span(start.line + 1, start.column + 1, end.line + 1, end.column + 1)


class _Composer:
    """Builds nodes from events, with limits and without recursion."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._anchors: dict[str, _Node] = {}
        self._stack: list[tuple[_Node, list[_Node]]] = []
        self._roots: list[_Node] = []
        self._aliases = 0
        self._expanded = 0
        self._values = 0

    def compose(self) -> _Node:
        for event in self._events():
            self._take(event)
        if not self._roots:
            raise YamlProblem(SyntaxProblem("T005", "the document is empty", "start with `apiVersion: treadle/v1`"))
        return self._roots[0]

    def _events(self) -> Iterator[Any]:
        try:
            parser = _PARSER(self._text)
            while type(event := parser.get_event()) is not yaml.StreamEndEvent:
                yield event
        except (yaml.YAMLError, UnicodeEncodeError) as error:  # UnicodeEncodeError: half of a surrogate pair
            raise YamlProblem(explain(error, self._text)) from error

    def _take(self, event: Any) -> None:
        kind = type(event)  # isinstance would be called six times for each of many nodes
        if kind is yaml.ScalarEvent:
            self._close(self._scalar(event), event.anchor)
        elif kind is yaml.SequenceStartEvent or kind is yaml.MappingStartEvent:
            self._open(event)
        elif kind is yaml.SequenceEndEvent or kind is yaml.MappingEndEvent:
            self._end(event)
        elif kind is yaml.AliasEvent:
            self._close(self._alias(event), None)
        elif kind is yaml.DocumentStartEvent and self._roots:
            hint = "put every workflow in a file of its own"
            raise YamlProblem(SyntaxProblem("T005", "a second document begins here", hint, _span(event)))

    def _count(self, event: Any) -> None:
        self._values += 1
        if self._values > MAX_VALUES:
            hint = "put data into a file, and read it with `input: {uri: ..., format: ...}`"
            text = f"the document has more than {MAX_VALUES:,} keys and values"
            raise YamlProblem(SyntaxProblem("T004", text, hint, _span(event)))

    def _scalar(self, event: Any) -> _Node:
        self._count(event)
        span = _span(event)
        plain = event.style in (None, "")
        try:
            value = resolve(event.value, event.tag, plain)
        except UnsupportedTag as error:
            raise YamlProblem(SyntaxProblem("T007", str(error), error.hint, span)) from error
        except ValueError as error:
            raise YamlProblem(SyntaxProblem("T010", str(error), "quote it when it is text", span)) from error
        return _Node("scalar", span, value, self._text[event.start_mark.index : event.end_mark.index])

    def _open(self, event: Any) -> None:
        self._count(event)
        span = _span(event)
        if len(self._stack) >= MAX_DEPTH:
            raise YamlProblem(SyntaxProblem("T004", f"more than {MAX_DEPTH} levels of nesting", "", span))
        kind: Literal["list", "map"] = "list" if isinstance(event, yaml.SequenceStartEvent) else "map"
        if event.tag not in (None, "!", f"tag:yaml.org,2002:{'seq' if kind == 'list' else 'map'}"):
            raise YamlProblem(SyntaxProblem("T007", f"the tag {event.tag} means nothing here", "remove it", span))
        self._stack.append((_Node(kind, span, event.anchor), []))

    def _end(self, event: Any) -> None:
        node, children = self._stack.pop()
        anchor, end = node.value, event.end_mark
        node.span = Span(node.span.line, node.span.col, end.line + 1, end.column + 1)
        node.value = children if node.kind == "list" else list(zip(children[::2], children[1::2], strict=True))
        self._close(node, anchor)

    def _close(self, node: _Node, anchor: str | None) -> None:
        if node.depth > MAX_DEPTH:
            raise YamlProblem(SyntaxProblem("T004", f"more than {MAX_DEPTH} levels of nesting", "", node.span))
        if anchor:
            self._anchors[anchor] = node
        if not self._stack:
            self._roots.append(node)
            return
        parent, siblings = self._stack[-1]
        siblings.append(node)
        parent.size += node.size
        parent.depth = max(parent.depth, node.depth + 1)

    def _alias(self, event: Any) -> _Node:
        target = self._anchors.get(event.anchor)
        if target is None:
            hint = f"write &{event.anchor} before the value it stands for, or quote the text"
            raise YamlProblem(SyntaxProblem("T008", f"*{event.anchor} has no anchor above it", hint, _span(event)))
        self._aliases += 1
        self._expanded += target.size
        if self._aliases > MAX_ALIASES or self._expanded > MAX_EXPANDED:
            message = f"aliases expand to more than {MAX_EXPANDED:,} values, or there are more than {MAX_ALIASES:,}"
            raise YamlProblem(SyntaxProblem("T004", message, "write the values out", _span(event)))
        return _Node(target.kind, _span(event), target.value, "", target.size, target.depth, alias=True)


def _construct(node: _Node, path: Path, problems: list[SyntaxProblem]) -> Any:
    if node.kind == "scalar":
        return node.value
    if node.kind == "list":
        return [_construct(child, (*path, index), problems) for index, child in enumerate(node.value)]
    node.entries = _entries(node, path, problems)
    return {name: _construct(value, (*path, name), problems) for name, (_, value) in node.entries.items()}


def _entries(node: _Node, path: Path, problems: list[SyntaxProblem]) -> dict[str, tuple[_Node, _Node]]:
    entries: dict[str, tuple[_Node, _Node]] = {}
    merges: list[_Node] = []
    for key, value in node.value:
        if key.value == "<<" and key.raw == "<<":
            merges.append(value)
        elif (name := _key_text(key, problems)) is not None:
            _enter(entries, name, key, value, path, problems)
    for name, pair in _merged(merges, problems):
        entries.setdefault(name, pair)
    return entries


def _key_text(key: _Node, problems: list[SyntaxProblem]) -> str | None:
    if key.kind == "scalar" and isinstance(key.value, str):
        return key.value
    shown = key.raw or {"list": "a list", "map": "a mapping"}.get(key.kind, "nothing")
    hint = f'write it as "{key.raw}"' if key.raw else 'an expression is written "${{ ... }}", in quotes'
    problems.append(SyntaxProblem("T006", f"a key must be text; this one is {shown}", hint, key.span))
    return None


def _enter(
    entries: dict[str, tuple[_Node, _Node]],
    name: str,
    key: _Node,
    value: _Node,
    path: Path,
    problems: list[SyntaxProblem],
) -> None:
    if name not in entries:
        entries[name] = (key, value)
        return
    first = entries[name][0].span
    message = f"key '{name}' is given twice; the first is at line {first.line}, column {first.col}"
    problems.append(SyntaxProblem("T003", message, "keep one of the two", key.span, (*path, name)))


def _merged(merges: list[_Node], problems: list[SyntaxProblem]) -> Iterator[tuple[str, tuple[_Node, _Node]]]:
    """Yield the entries of `<<: *a` and `<<: [*a, *b]`; for equal keys the first counts."""
    for merge in merges:
        for node in merge.value if merge.kind == "list" else [merge]:
            if node.kind != "map":
                problems.append(SyntaxProblem("T008", "`<<` merges mappings only", "write `<<: *name`", node.span))
                continue
            nested = [value for key, value in node.value if key.raw == "<<"]
            own = ((key, value) for key, value in node.value if key.raw != "<<")
            yield from ((key.value, (key, value)) for key, value in own if isinstance(key.value, str))
            yield from _merged(nested, problems)
