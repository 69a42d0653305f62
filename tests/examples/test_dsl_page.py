"""The workflows of docs/dsl.md: valid, the same in Python, and with the results that the page tells."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from treadle.dsl import Workflow
from treadle.dsl.document.workflow_files import load
from treadle.dsl.model import Input, Settings, Spec, Stage
from treadle.dsl.normalise import normalise
from treadle.dsl.reference import run_reference
from treadle.dsl.validation.validate import validate

PAGE = (Path(__file__).parents[2] / "docs" / "dsl.md").read_text("utf-8")
ORDERS = "customer,item,day,count\nada,loom,03,1\ngrace,weft,02,10\nada,weft,01,4\n"
PRICES = "item,price\nloom,120\nweft,0.25\n"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


def functions(code: str) -> Callable[[str], Callable[..., Any]]:
    """`module:name` -> what the code calls so."""
    names: dict[str, Any] = {}
    exec(code, names)
    return lambda reference: names[reference.partition(":")[2]]


def test_orders_are_brought_together_oldest_first(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "a.csv").write_text(ORDERS)
    (tmp_path / "prices.csv").write_text(PRICES)
    document = load(blocks("yaml")[0])
    assert not validate(document)
    result = run_reference(document.require(), {}, functions(blocks("python")[0]), tmp_path)
    bills = dict(record for partition in result.datasets["bills"] for record in partition.value)
    assert bills == {"ada": [("01", 1.0), ("03", 120.0)], "grace": [("02", 2.5)]}


def test_python_of_the_page_is_its_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop.py").write_text(blocks("python")[0])
    monkeypatch.syspath_prepend(str(tmp_path))
    names: dict[str, Any] = {}
    exec(blocks("python")[1], names)
    workflow = names["wf"]
    assert isinstance(workflow, Workflow)
    assert normalise(workflow.spec()) == normalise(load(blocks("yaml")[0]).require())


def test_loop_gives_what_the_page_says() -> None:
    document = load(blocks("yaml")[1])
    assert not validate(document)
    result = run_reference(document.require(), {}, functions(blocks("python")[2]))
    told, _ = json.JSONDecoder().raw_decode(PAGE, PAGE.index("    {\n") + 4)
    assert result.outputs == told


def test_rows_are_sorted_by_a_column(tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text(ORDERS)
    document = load(blocks("yaml")[2])
    assert not validate(document)
    source = {"source": {"uri": "orders.csv", "format": "csv"}}
    result = run_reference(document.require(), source, functions(""), tmp_path)
    rows = [row for partition in result.datasets["sorted"] for row in partition.value]
    assert [row["day"] for row in rows] == ["01", "02", "03"]


def test_page_names_every_key_of_documents_inputs_and_stages() -> None:
    models = [Spec, Input, Settings, *Stage.__args__[0].__args__]
    keys = {field.alias or name for model in models for name, field in model.model_fields.items()}
    assert [key for key in sorted(keys - {"kind"}) if f"`{key}" not in PAGE] == []
