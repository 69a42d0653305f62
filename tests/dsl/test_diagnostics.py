"""The formats of findings: text with carets, JSON, SARIF, GitHub annotations."""

import json

import jsonschema
import pytest

from treadle.dsl.diagnostics import formats
from treadle.dsl.diagnostics.diagnostics import Diagnostic, Span, a, did_you_mean, in_order, one_of
from treadle.dsl.diagnostics.formats import DiagnosticFormat, format_diagnostics, render, visible
from treadle.dsl.document.workflow_files import load
from treadle.dsl.validation.validate import validate

SOURCE = "name: flow\nretires: 3\n"
FOUND = Diagnostic(
    "T012", "unknown key 'retires'", "did you mean 'retry'?", "flow.yaml", Span(2, 1, 2, 8), ("retires",)
)
WARNING = Diagnostic("T601", "unused, 100%: why", "", "a,b:c.yaml", Span(1, 1, 2, 3))


def test_text_shows_line_carets_and_hint() -> None:
    assert render([FOUND], SOURCE) == (
        "flow.yaml:2:1: error[T012] unknown key 'retires'\n  2 | retires: 3\n    | ^^^^^^^\n  = did you mean 'retry'?\n"
    )


def test_finding_without_a_position_names_its_path() -> None:
    found = Diagnostic("T101", "there is no stage 'x'", file="<workflow>", path=("stages", "a", "needs", 0))
    assert render([found]) == "<workflow>: error[T101] there is no stage 'x' (at stages.a.needs[0])\n"


def carets(source: str, span: Span) -> tuple[str, str]:
    _, line, marks = render([Diagnostic("T012", "m", file="f", span=span)], source).splitlines()
    return line.partition("| ")[2], marks.partition("| ")[2]


def test_carets_stand_below_wide_characters() -> None:
    line, marks = carets('名: "漢字"', Span(1, 4, 1, 8))
    assert (line, marks) == ('名: "漢字"', "    ^^^^^^")


def test_carets_stand_below_text_after_a_tab() -> None:
    assert carets("\tname: x", Span(1, 2, 1, 6)) == (" name: x", " ^^^^")


def test_long_line_is_cut_around_the_mistake() -> None:
    line, marks = carets("x" * 500 + "HERE" + "y" * 500, Span(1, 501, 1, 505))
    assert len(line) <= 120
    assert line[marks.index("^") :][: marks.count("^")] == "HERE"


def test_excerpt_reads_only_the_shown_part_of_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def counted(text: str) -> str:
        seen.append(len(text))
        return visible(text)

    monkeypatch.setattr(formats, "visible", counted)
    carets("x" * 10_000, Span(1, 501, 1, 9_505))
    assert max(seen) <= 120


def test_span_over_several_lines_marks_the_first_to_its_end() -> None:
    assert carets("a: [1,\n 2]", Span(1, 4, 2, 4)) == ("a: [1,", "   ^^^")


def test_document_cannot_steer_the_terminal() -> None:
    text = 'name: flow\n"\\e[2J\u202e": 1\n'
    assert not set(render(validate(load(text)), text)) & {"\x1b", "\u202e"}


def test_json_has_stable_keys() -> None:
    (found,) = json.loads(format_diagnostics([FOUND], "json"))
    assert found == {
        "code": "T012",
        "severity": "error",
        "message": "unknown key 'retires'",
        "hint": "did you mean 'retry'?",
        "file": "flow.yaml",
        "line": 2,
        "col": 1,
        "endLine": 2,
        "endCol": 8,
        "path": ["retires"],
    }


SARIF = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "version": {"const": "2.1.0"},
        "runs": {
            "items": {
                "required": ["tool", "results"],
                "properties": {
                    "results": {
                        "items": {
                            "required": ["message"],
                            "properties": {
                                "level": {"enum": ["none", "note", "warning", "error"]},
                                "locations": {
                                    "items": {
                                        "properties": {
                                            "physicalLocation": {
                                                "properties": {
                                                    "region": {
                                                        "additionalProperties": {"type": "integer", "minimum": 1}
                                                    }
                                                }
                                            }
                                        }
                                    }
                                },
                            },
                        }
                    }
                },
            }
        },
    },
}
"""The parts of the SARIF 2.1.0 schema that these files use."""


def test_sarif_has_rules_and_regions() -> None:
    nowhere = Diagnostic("T009", "cannot read the file", file="gone.yaml")
    log = json.loads(format_diagnostics([FOUND, WARNING, nowhere], "sarif"))
    jsonschema.validate(log, SARIF)
    (run,) = log["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["T009", "T012", "T601"]
    assert [result["level"] for result in run["results"]] == ["error", "warning", "error"]
    assert run["results"][0]["locations"][0]["physicalLocation"]["region"]["startLine"] == 2


def test_github_annotation_escapes_what_would_end_it() -> None:
    first, second = format_diagnostics([FOUND, WARNING], "github").splitlines()
    assert first == (
        "::error file=flow.yaml,line=2,col=1,endLine=2,endColumn=8,title=T012::"
        "unknown key 'retires'%0Adid you mean 'retry'?"
    )
    assert second == "::warning file=a%2Cb%3Ac.yaml,line=1,col=1,endLine=2,title=T601::unused, 100%25: why"


@pytest.mark.parametrize("form", ["text", "json", "sarif", "github"])
def test_every_form_takes_no_findings(form: DiagnosticFormat) -> None:
    assert isinstance(format_diagnostics([], form), str)


def test_findings_are_listed_once_in_the_order_of_the_text() -> None:
    later = Diagnostic("T012", "m", span=Span(9, 1, 9, 2), path=("x",))
    assert in_order([later, FOUND, FOUND, later]) == [FOUND, later]


def test_words_for_messages() -> None:
    assert one_of(["a"]) == "'a'"
    assert one_of(["a", "b", "c"]) == "'a', 'b' or 'c'"
    assert one_of([]) == "nothing"
    assert did_you_mean("maxconcurency", ["maxConcurrency", "timeout"]) == "did you mean 'maxConcurrency'?"
    assert did_you_mean("zzz", ["timeout"]) == ""
    assert [a(noun) for noun in ("map", "integer", "uri", "Enum")] == ["a map", "an integer", "a uri", "an Enum"]
