"""Checks file formats: options of another format, and records that a format cannot hold."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic.alias_generators import to_camel

from ..diagnostics.diagnostics import Path, one_of
from ..graph.graph import Node, StageGraph, inputs_of
from ..graph.partition_kinds import KIND_WORDS, Kind, Kinds
from ..model import FailedItems, Output, ReduceStage, Source
from .report import Report

_REFUSED: Mapping[str, Mapping[Kind, str]] = {
    "npy": {
        "objects": "use jsonl, or return an array from a map with `per: partition`",
        "table": "use parquet, or return an array from a map with `per: partition`",
    },
    "fixed": {"table": "use parquet, or return bytes or arrays of uint8"},
    "text": {"table": "use csv or parquet, or return texts"},
}
"""Maps a format to the kinds of records that it refuses, with the alternative."""
_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "record_bytes": ("fixed",),
    "header": ("csv",),
    "delimiter": ("csv",),
    "compression": ("text", "jsonl", "csv"),
    "table": ("text",),
    "columns": ("csv", "parquet"),
}
"""Maps an option to the formats that have it."""


def check_source(report: Report, path: Path, source: Source) -> None:
    """Check that the options of a source fit its format."""
    if source.format == "fixed" and source.record_bytes is None:
        hint = "write the bytes of one record: `recordBytes: 100`"
        report.add("T211", path, "the format fixed needs `recordBytes`", hint)
    _check_options(report, path, source)
    if "split" in source.model_fields_set and source.split == 0:
        report.add("T015", (*path, "split"), "'split' must be more than nothing")


def _check_options(report: Report, path: Path, given: Source | Output) -> None:
    for field, formats in _OPTIONS.items():
        if field in given.model_fields_set and getattr(given, field) is not None and given.format not in formats:
            message = f"'{to_camel(field)}' belongs to the format {one_of(formats)}, and this is {given.format}"
            report.add("T211", (*path, to_camel(field)), message, "remove it", key=True)


def check_files(kinds: Kinds, report: Report, node: Node) -> None:
    """Check the sources and output of a stage."""
    for below, item in inputs_of(node.stage):
        if isinstance(item, Source):
            check_source(report, (*node.path, *below), item)
    output: Output | None = getattr(node.stage, "output", None)
    if output is not None:
        _check_output(kinds, report, node, output)


def _check_output(kinds: Kinds, report: Report, node: Node, output: Output) -> None:
    path: Path = (*node.path, "output")
    _check_options(report, path, output)
    if output.columns == {}:
        report.add("T015", (*path, "columns"), "'columns' names no column", "name at least one, or leave it out")
    kind = kinds.given_by(node)
    if kind is not None and kind in _REFUSED.get(output.format, {}):
        message = f"{output.format} cannot hold {KIND_WORDS[kind]}, which this stage gives"
        report.add("T212", (*path, "format"), message, _REFUSED[output.format][kind])
    elif output.format in ("text", "fixed") and isinstance(node.stage, ReduceStage) and node.stage.per == "key":
        message = f"{output.format} cannot hold the pairs (key, result) of `per: key`"
        report.add("T212", (*path, "format"), message, "use jsonl, csv or parquet, or make texts of them in a map")
    elif output.format == "parquet" and kind == "objects" and output.columns is None:
        hint = "write them in order: `columns: {word: string, count: int64}`"
        report.add("T213", path, "Parquet from Python objects needs the names and types of its columns", hint, key=True)


def check_places(graph: StageGraph, report: Report) -> None:
    """Check that no two stages write to the same place."""
    taken: dict[str, str] = {}
    for node in graph.nodes.values():
        for key in ("output", "failed_items"):
            files: Output | FailedItems | None = getattr(node.stage, key, None)
            if files is None:
                continue
            other = taken.setdefault(files.uri.rstrip("/"), node.id)
            if other != node.id or (key == "failed_items" and _writes(node, files.uri)):
                path = (*node.path, to_camel(key), "uri")
                report.add("T219", path, f"'{other}' writes to the same place", "give every stage a folder of its own")


def _writes(node: Node, uri: str) -> bool:
    output: Output | None = getattr(node.stage, "output", None)
    return output is not None and output.uri.rstrip("/") == uri.rstrip("/")
