"""docs/glossary.md has the nouns of the language, of the packages, and of the pages that define terms."""

from __future__ import annotations

import re

import pytest
from doc_pages import ROOT

from treadle.dsl.model import Stage
from treadle.dsl.triggers import Trigger
from treadle.primitives.errors import FailureClass

NOT_NOUNS = {"common", "treadle"}
"""Folders that name no thing of treadle."""


def singular(term: str) -> str:
    return re.sub(r"(?<=[^s])s$", "", term.strip().lower().replace("_", " "))


ROWS = re.findall(r"^\| (?!term )([^-|][^|]*) \|", (ROOT / "docs" / "glossary.md").read_text("utf-8"), re.M)
TERMS = [singular(term) for row in ROWS for term in row.split(",")]


def missing(nouns: set[str]) -> list[str]:
    return sorted(noun for noun in map(singular, nouns) if noun not in TERMS)


def test_each_term_has_one_line() -> None:
    assert sorted(TERMS) == sorted(set(TERMS))


def test_stage_types_trigger_types_and_failure_classes_are_terms() -> None:
    unions = [Stage.__args__[0].__args__, Trigger.__args__[0].__args__]
    types = {model.model_fields["type"].annotation.__args__[0] for models in unions for model in models}
    assert missing(types | set(FailureClass)) == []


def test_each_package_is_named_after_terms() -> None:
    folders = {init.parent.name for room in ROOT.glob("*/src/treadle") for init in room.rglob("__init__.py")}
    assert missing(folders - NOT_NOUNS) == []


@pytest.mark.parametrize("page", ["architecture", "semantics"])
def test_terms_that_a_page_defines_are_in_the_glossary(page: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text("utf-8")
    defined = set(re.findall(r"\b(?:a|an|the|in|of|one|its) \*\*([a-z_ ]+)\*\*", text, re.I))
    defined |= set(re.findall(r"^\s*(?:\d\.|-) \*\*([a-z_ ]+)\*\*", text, re.M))
    assert len(defined) > 5
    assert missing(defined) == []
