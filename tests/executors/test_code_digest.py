"""Code digests: the parts of a project that count for a function, and the parts that do not."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from executors.code_bench import Make, changed, code_by_value, code_in, taken
from hypothesis import given
from hypothesis import strategies as st

from treadle.executors.bundle import distributions

MAIN = '''
"""The module."""
from helpers import clean, LIMIT
import shapes

UNUSED = 1


def f(record):
    """What it does."""
    point = shapes.Point(clean(record))  # a comment
    return point.norm() if record < LIMIT else None


def other(record):
    return UNUSED + record
'''
HELPERS = """
from deep import strip

LIMIT = 10
SPARE = 11


def clean(value):
    return strip(value) + 1


def untouched(value):
    return value
"""
SHAPES = """
class Base:
    def norm(self):
        return self.x


class Point(Base):
    def __init__(self, x):
        self.x = x
"""
DEEP = "def strip(value):\n    return value\n"
PROJECT = {"main": MAIN, "helpers": HELPERS, "shapes": SHAPES, "deep": DEEP}


@pytest.fixture
def code(tmp_path: Path) -> Make:
    """The code of a function of a project that the test writes."""
    return partial(code_in, tmp_path)


def test_digest_counts_only_the_definitions_that_a_function_reaches(code: Make) -> None:
    assert set(code(PROJECT).units) == {
        "main.py:f",
        "helpers.py:clean",
        "helpers.py:LIMIT",
        "deep.py:strip",
        "shapes.py:Point",
        "shapes.py:Base",
    }


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("main", "# a comment", "# another one, and more of it"),
        ("main", '"""What it does."""', '"""What it really does."""'),
        ("main", '"""The module."""\n', ""),
        (
            "main",
            "return point.norm() if record < LIMIT else None",
            "return (\n point.norm() if record < LIMIT\n else None)",
        ),
        ("main", "return UNUSED + record", "return UNUSED - record"),
        ("helpers", "SPARE = 11", "SPARE = 12"),
        ("helpers", "LIMIT = 10", "# the most\nLIMIT = 1_0"),
        ("helpers", "return value\n", "return value * 2\n"),
    ],
)
def test_digest_ignores_comments_layout_docstrings_and_unreached_code(
    code: Make, module: str, old: str, new: str
) -> None:
    text = PROJECT[module]
    assert old in text
    assert code(PROJECT, **{module: text.replace(old, new)}) == code(PROJECT)


@pytest.mark.parametrize(
    ("module", "old", "new", "unit"),
    [
        ("main", "record < LIMIT", "record <= LIMIT", "main.py:f"),
        ("helpers", "strip(value) + 1", "strip(value) + 2", "helpers.py:clean"),
        ("helpers", "LIMIT = 10", "LIMIT = 11", "helpers.py:LIMIT"),
        ("deep", "return value", "return -value", "deep.py:strip"),
        ("shapes", "return self.x", "return abs(self.x)", "shapes.py:Base"),
    ],
)
def test_digest_counts_reached_code_in_any_module(code: Make, module: str, old: str, new: str, unit: str) -> None:
    text = PROJECT[module]
    assert changed(code(PROJECT), code(PROJECT, **{module: text.replace(old, new)})) == {unit}


def test_names_that_a_function_binds_itself_are_not_the_modules(code: Make) -> None:
    source = """
def clean(x): return x
def f(clean, rest):
    total = [other for other in rest]
    return clean, total, (lambda y: y)(rest)
def other(): pass
def y(): pass
"""
    assert set(code({"main": source}).units) == {"main.py:f"}
    used_after = source.replace("return clean, total", "return clean, total, other(1)")
    assert set(code({"main": used_after}).units) == {"main.py:f", "main.py:other"}


@pytest.mark.parametrize(
    "body",
    [
        "import pkg.text\n\ndef f(x):\n    return pkg.text.clean(x)",
        "import pkg.text as t\n\ndef f(x):\n    return t.clean(x)",
        "from pkg import text\n\ndef f(x):\n    return text.clean(x)",
        "from pkg.text import clean as c\n\ndef f(x):\n    return c(x)",
        "from pkg.text import *\n\ndef f(x):\n    return clean(x)",
        "from pkg import clean\n\ndef f(x):\n    return clean(x)",
        "def f(x):\n    from pkg.text import clean\n    return clean(x)",
        "from importlib import import_module\n\ndef f(x):\n    return import_module('pkg.text').clean(x)",
        "try:\n    from no import c\nexcept ImportError:\n    from pkg.text import clean as c\ndef f(x): return c(x)",
    ],
)
def test_every_way_to_import_leads_to_the_definition(code: Make, body: str) -> None:
    project = {"main": body, "pkg/__init__": "from .text import clean", "pkg/text": "def clean(x):\n    return x\n"}
    assert changed(code(project), code({**project, "pkg/text": "def clean(x):\n    return x + 1\n"})) == {
        "pkg/text.py:clean"
    }


@pytest.mark.parametrize("call", ["eval('g(x)')", "globals()['g'](x)", "vars()['g'](x)"])
def test_digest_counts_the_whole_module_when_its_text_hides_the_dependency(code: Make, call: str) -> None:
    source = f"def g(x):\n    return x\n\ndef f(x):\n    return {call}\n"
    assert changed(code({"main": source}), code({"main": source.replace("return x\n", "return -x\n", 1)})) == {
        "main.py:g"
    }


def test_a_module_used_as_a_value_counts_as_a_whole(code: Make) -> None:
    project = {"main": "import tools\ndef f(x):\n    return getattr(tools, x)()\n", "tools": "def a(): return 1\n"}
    assert changed(code(project), code({**project, "tools": "def a(): return 2\n"})) == {"tools.py:a"}
    packed = {"main": "from pkg import tools\ndef f(x):\n    return getattr(tools, x)()\n", "pkg/__init__": ""}
    assert "pkg/tools.py:a" in code({**packed, "pkg/tools": "def a(): return 1\n"}).units


def test_where_any_module_may_be_meant_the_whole_project_counts(code: Make) -> None:
    project = {
        "main": "import importlib, aside\ndef f(x):\n    return importlib.import_module(x).g()\n",
        "aside": "def g(): return 1\n",
    }
    assert changed(code(project), code({**project, "aside": "def g(): return 2\n"})) == {"aside.py:g"}


@pytest.mark.parametrize(
    ("module", "before", "after"),
    [
        ("setup", "import numpy\nnumpy.seterr(all='raise')", "import numpy\nnumpy.seterr(all='ignore')"),
        ("setup", "import tools\ntools.LIMIT = 1", "import tools\ntools.LIMIT = 2"),
        ("setup", "import tools\nif tools.LIMIT:\n    tools.go(1)", "import tools\nif tools.LIMIT:\n    tools.go(2)"),
        ("tools", "ALL = {}\ndef note(f):\n    ALL[f.__name__] = f\n    return f\n@note\ndef g(): return 1",
         "ALL = {}\ndef note(f):\n    ALL[f.__name__] = f\n    return f\n@note\ndef g(): return 2"),
        ("tools", "class B:\n    def __init_subclass__(cls): pass\nclass C(B):\n    x = 1",
         "class B:\n    def __init_subclass__(cls): pass\nclass C(B):\n    x = 2"),
    ],
)  # fmt: skip
def test_digest_counts_import_effects_for_every_importer(code: Make, module: str, before: str, after: str) -> None:
    project = {"main": "import setup\nimport tools\ndef f(x):\n    return x\n", "setup": "", "tools": "LIMIT = 0\n"}
    assert code({**project, module: before}) != code({**project, module: after})


def test_a_script_below_its_guard_does_not_count(code: Make) -> None:
    source = "def f(x):\n    return x\nif __name__ == '__main__':\n    print(f(1))\n"
    assert code({"main": source}) == code({"main": source.replace("f(1)", "f(2)")})


def test_files_of_a_package_that_looks_for_its_folder_count(code: Make) -> None:
    reads = (
        "from pathlib import Path\nHERE = Path(__file__).parent\ndef f(x):\n    return (HERE / 'w.txt').read_text()\n"
    )
    project: dict[str, str | bytes] = {"pkg/__init__": "", "pkg/m": reads, "pkg/w.txt": b"1"}
    one, other = code(project, "pkg.m:f"), code({**project, "pkg/w.txt": b"2"}, "pkg.m:f")
    assert changed(one, other) == {"pkg/w.txt"}


def test_docstrings_count_where_something_reads_them(code: Make) -> None:
    source = "def f(x):\n    '''one'''\n    return f.__doc__\n"
    assert code({"main": source}) != code({"main": source.replace("one", "two")})


def test_digest_counts_reached_distributions_and_their_requirements_by_version(code: Make) -> None:
    found = code({"main": "import pydantic\nimport numpy\ndef f(x):\n    return pydantic.BaseModel\n"}).versions
    assert {"python", "pydantic", "pydantic-core"} <= set(found)
    assert "numpy" not in found


def test_a_module_that_is_neither_the_projects_nor_installed_counts_by_its_sources(
    code: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No edit changes the version of an editable install. A folder in PYTHONPATH has no version."""
    library = tmp_path / "library"
    (library / "own_library").mkdir(parents=True)
    (library / "own_library/__init__.py").write_text("import own_helper, pydantic")
    (library / "own_helper.py").write_text("def g(x): return 1")
    monkeypatch.syspath_prepend(library)
    source = {"main": "import own_library\ndef f(x): return own_library.own_helper.g(x)\n"}
    before = code(source)
    assert {"own_library", "own_helper", "pydantic", "pydantic-core"} <= before.versions.keys()
    (library / "own_helper.py").write_text("def g(x): return 2")
    after = code(source)
    assert {name for name in after.versions if after.versions[name] != before.versions[name]} == {"own_helper"}


def test_a_module_in_a_folder_that_was_installed_into_counts_by_its_version(
    code: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`pip install --target` makes such a folder. Its libraries are large, so their sources are not read."""
    for name, text in {
        "bought/__init__.py": "def g(x): return 1",
        "bought-1.5.dist-info/METADATA": "Metadata-Version: 2.1\nName: bought\nVersion: 1.5\n",
        "bought-1.5.dist-info/RECORD": "bought-1.5.dist-info/METADATA,,\nbought/__init__.py,,\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(distributions, "providers", distributions.providers.__wrapped__)
    assert code({"main": "import bought\ndef f(x): return bought.g(x)\n"}).versions["bought"] == "1.5"


def test_digest_notes_requests_to_the_context(code: Make) -> None:
    source = "def f(x, context):\n    return g(context)\ndef g(context):\n    return context.run, context.rng\n"
    assert code({"main": source}).asks == ("run",)


@given(st.text(alphabet="abc #'\"\n", max_size=30))
def test_any_comment_anywhere_leaves_the_digest_alone(text: str) -> None:
    from treadle.executors.bundle.module_definitions import parse_module
    from treadle.executors.bundle.name_reads import reads_of

    comment = "".join(f"# {line}\n" for line in text.split("\n"))
    plain, noted = (
        parse_module("m", "m.py", f"{before}def f(x):\n    return g(x)\n{before}".encode(), bool, docstrings=False)
        for before in ("", comment)
    )
    assert [reads_of(one) for one in plain.bindings["f"]] == [reads_of(one) for one in noted.bindings["f"]]


# -- functions by value ----------


SCRIPT = "LIMIT = 3\ndef helper(x):\n    return x + LIMIT\ndef f(x, n=1):\n    '''Doc.'''\n    return helper(x) * n\n"


@pytest.mark.parametrize("edit", [("LIMIT = 3", "\n\n# more\nLIMIT = 3"), ("'''Doc.'''", "'''Other.'''  # so")])
def test_lines_and_docstrings_of_captured_functions_do_not_count(edit: tuple[str, str]) -> None:
    assert code_by_value(taken(SCRIPT)) == code_by_value(taken(SCRIPT.replace(*edit)))


@pytest.mark.parametrize(
    "edit", [("LIMIT = 3", "LIMIT = 4"), ("x + LIMIT", "x - LIMIT"), ("* n", "+ n"), ("n=1", "n=2")]
)
def test_what_captured_functions_hold_on_to_counts(edit: tuple[str, str]) -> None:
    assert code_by_value(taken(SCRIPT)) != code_by_value(taken(SCRIPT.replace(*edit)))


def test_captured_functions_may_hold_many_sorts_of_values() -> None:
    def make(n: int) -> Callable[..., Any]:
        class Local:
            size = n

            @property
            def twice(self) -> int:
                return self.size * 2

        held = {"a": (1, frozenset({"x", "y"}), functools.partial(max, n))}
        return lambda x: (Local().twice, held, x in {"p", "q", "r"})

    data = [cloudpickle.dumps(make(n)) for n in (1, 1, 2)]
    one, same, other = map(code_by_value, data)
    assert one == same != other


def test_class_of_a_captured_function_counts_alike_while_it_lives_and_elsewhere() -> None:
    def make() -> Callable[[], int]:
        class Local:
            size = 1

        return lambda: Local.size

    function = make()
    data = cloudpickle.dumps(function)
    here = code_by_value(data)
    del function
    gc.collect()  # as in another process, cloudpickle makes its own class
    assert code_by_value(data) == here


CLASSES = {
    "abstract": "from abc import ABC\nclass C(ABC):\n    size = 1\n",
    "protocol": "from typing import Protocol\nclass C(Protocol):\n    size = 1\n",
    "slots": "class C:\n    __slots__ = ('x',)\n    def size(self): return 1\n",
    "data": "from dataclasses import dataclass\n@dataclass(slots=True)\nclass C:\n    size: int = 1\n",
    "enum": "from enum import Enum\nclass C(Enum):\n    size = 1\n",
    "generic": "from typing import Generic, TypeVar\nT = TypeVar('T')\nclass C(Generic[T]):\n    size = 1\n",
    "metaclass": "class M(type):\n    size = 1\nclass C(metaclass=M): pass\n",
    "instance": "class D:\n    def size(self): return 1\nC = D()\n",
    "error": "class C(Exception):\n    size = 1\n",
}


@pytest.mark.parametrize("source", [pytest.param(source, id=name) for name, source in CLASSES.items()])
def test_digest_counts_classes_of_scripts_by_their_content(source: str) -> None:
    source += "def f(x): return C\n"
    assert code_by_value(taken(source)) == code_by_value(taken(source))
    assert code_by_value(taken(source)) != code_by_value(taken(source.replace("1", "2")))


def test_models_of_scripts_can_be_captured() -> None:
    source = "import pydantic\nclass C(pydantic.BaseModel):\n    size: int = 1\ndef f(x): return C\n"
    assert code_by_value(taken(source)) != code_by_value(taken(source.replace("1", "2")))


def test_digest_counts_try_blocks_of_a_captured_function() -> None:
    one = "def f(x):\n    try:\n        g(x)\n        h(x)\n    except ValueError:\n        pass\n"
    other = "def f(x):\n    try:\n        g(x)\n    except ValueError:\n        pass\n    else:\n        h(x)\n"
    assert code_by_value(taken(one)) != code_by_value(taken(other))


def test_attributes_of_captured_functions_count() -> None:
    source = "def f(x):\n    return f.size\nf.size = 1\n"
    assert code_by_value(taken(source)) != code_by_value(taken(source.replace("1", "2")))


def test_captured_functions_may_hold_deep_and_long_values() -> None:
    deep: list[Any] = []
    for _ in range(400):
        deep = [deep]
    held = (deep, 10**5000, b"\xff", "\ud800", {"a": {1, 2}})
    assert code_by_value(cloudpickle.dumps(lambda: held)) == code_by_value(cloudpickle.dumps(lambda: held))


@pytest.mark.parametrize("use", ["m.Model(3)", "[m.Model(3)]", "{m.size}", "m.Model(3).size", "m.Pair(1, 2)"])
def test_project_classes_and_functions_in_values_of_captured_functions_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    path = tmp_path / "held_by_capture.py"
    source = (
        "from typing import NamedTuple\ndef size(x): return x\n"
        "class Model:\n    def __init__(self, x): self.x = x\n    def size(self): return self.x\n"
        "class Pair(NamedTuple):\n    a: int\n    b: int\n    def size(self): return self.a\n"
    )
    path.write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    m = pytest.importorskip("held_by_capture")
    data = taken("def f(x):\n    return held\n", held=eval(use, {"m": m}))
    before = code_by_value(data, tmp_path)
    path.write_text(source.replace("return ", "return -"))
    assert changed(before, code_by_value(data, tmp_path))


def test_project_functions_that_captured_ones_import_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "imported_by_capture.py"
    path.write_text("def g(x):\n    return x\n")
    monkeypatch.syspath_prepend(tmp_path)
    data = taken("def f(x):\n    from imported_by_capture import g\n    return g(x)\n")
    before = code_by_value(data, tmp_path)
    path.write_text("def g(x):\n    return -x\n")
    assert changed(before, code_by_value(data, tmp_path)) == {"imported_by_capture.py:g"}


def test_project_functions_that_captured_ones_name_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "named_by_capture.py"
    path.write_text("def g(x):\n    return x\n")
    monkeypatch.syspath_prepend(tmp_path)
    import named_by_capture  # type: ignore[import-not-found]

    data = taken("def f(x):\n    return m.g(x)\n", m=named_by_capture)
    before = code_by_value(data, tmp_path)
    path.write_text("def g(x):\n    return -x\n")
    assert changed(before, code_by_value(data, tmp_path)) == {"named_by_capture.py:g"}
