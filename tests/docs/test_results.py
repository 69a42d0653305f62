"""The tutorial and the recipes have the results that their pages show."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path

import pytest
from doc_pages import ROOT, write_files

from treadle.dsl.reference import run_reference

TUTORIAL, RECIPES = (ROOT / "docs" / f"{name}.md" for name in ("first-workflow", "recipes"))
ORDERS = "customer,item,day,count\nada,loom,03,1\ngrace,weft,02,10\nada,weft,01,4\n"
PRICES = "item,price\nloom,120\nweft,0.25\n"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the data of the tutorial, and the files of both pages."""
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "may.csv").write_text(ORDERS)
    (tmp_path / "prices.csv").write_text(PRICES)
    for page in (TUTORIAL, RECIPES):
        write_files(page, tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in ("shop", "root"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    importlib.invalidate_caches()
    return tmp_path


def test_tutorial_shows_its_data() -> None:
    shown = re.findall(r"^ {4}(\S+,\S+) *(\S+,\S+)?$", TUTORIAL.read_text("utf-8"), re.M)
    assert "".join(f"{orders}\n" for orders, _ in shown) == ORDERS
    assert "".join(f"{prices}\n" for _, prices in shown if prices) == PRICES


def test_tutorial_has_the_bills_that_it_shows(shop: Path) -> None:
    shown = [json.loads(line) for line in re.findall(r'^\["\w+", .*\]$', TUTORIAL.read_text("utf-8"), re.M)]
    bills = run_reference(shop / "shop.yaml").records("bills")
    assert sorted(json.loads(json.dumps(bills))) == shown
    assert len(shown) == 2


def test_loop_has_the_outputs_that_the_recipe_shows(shop: Path) -> None:
    page = RECIPES.read_text("utf-8")
    shown, _ = json.JSONDecoder().raw_decode(page, page.index("    {\n") + 4)
    assert run_reference(shop / "root.yaml").outputs == shown


def test_recipe_sorts_rows_by_a_column(shop: Path) -> None:
    source = {"source": {"uri": "orders/*.csv", "format": "csv"}}
    assert [row["day"] for row in run_reference(shop / "by_day.yaml", source).records("sorted")] == ["01", "02", "03"]
