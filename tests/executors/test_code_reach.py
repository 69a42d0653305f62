"""Code digests change with every way to change a function's behaviour without a change of its own text."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from executors.code_bench import Make, code_in


@pytest.fixture
def code(tmp_path: Path) -> Make:
    return partial(code_in, tmp_path)


CLEAN = "def clean(x): return 1"
ALL = """
ALL = {}
def note(f):
    ALL[f.__name__] = f
    return f
"""
USES = "import tools\nimport plug\ndef f(x): return tools.ALL"
LISTED = {"main": USES, "tools": "ALL = []\ndef put(n): ALL.append(n)"}

WAYS = {
    "a class that is named in the text of an annotation": {
        "main": "from pydantic import BaseModel\n"
        "class Order(BaseModel):\n    items: 'list[Item]'\n"
        "class Item(BaseModel):\n    price: int = 1\n"
        "def f(r): return Order.model_validate(r)",
    },
    "a class in the text of an argument's annotation": {
        "main": "import pydantic\n@pydantic.validate_call\ndef f(x: 'Item'): return x\nclass Item: size = 1"
    },
    "a class in the text of an alias": {
        "main": "from typing import Optional\nclass Item: size = 1\nMaybe = Optional['Item']\n"
        "class Order:\n    item: Maybe\ndef f(r): return Order",
    },
    "a name that a function imports or else binds": {
        "main": "def f(x):\n    try:\n        from helpers import clean\n"
        "    except ImportError:\n        clean = None\n    return clean(x)",
        "helpers": CLEAN,
    },
    "a function that a package has under the name of its module": {
        "main": "from pkg import clean\ndef f(x): return clean(x)",
        "pkg/__init__": "from . import clean as _c\ndef clean(x): return _c.clean(x) + 1",
        "pkg/clean": "def clean(x): return x",
    },
    "a function of a module that came with everything of a package": {
        "main": "from pkg import *\ndef f(x): return text.clean(x)",
        "pkg/__init__": "__all__ = ['text']",
        "pkg/text": CLEAN,
    },
    "a function in the place of a builtin": {
        "main": "from helpers import *\ndef f(x): return round(x)",
        "helpers": "def round(x): return 1",
    },
    "what eval may find in what was imported as everything": {
        "main": "from helpers import *\ndef f(x): return eval('clean(x)')",
        "helpers": CLEAN,
    },
    "what a module that is used as a value took from others": {
        "main": "import ops\ndef f(x): return getattr(ops, x)()",
        "ops/__init__": "from .basic import *",
        "ops/basic": CLEAN,
    },
    "a module of a package that is used as a value": {
        "main": "import pkg.text\ndef f(x): return getattr(pkg, 'text').clean(x)",
        "pkg/__init__": "",
        "pkg/text": CLEAN,
    },
    "a compiled module of a package": {
        "main": "from pkg import fast\ndef f(x): return fast.clean(x)",
        "pkg/__init__": "",
        "pkg/fast.so": "1",
    },
    "any module, by a function that imports": {
        "main": "import importlib, aside\ndef f(x): return map(importlib.import_module, x)",
        "aside": CLEAN,
    },
    "any module, by another name of what imports": {
        "main": "import aside\nfrom importlib import import_module as load\ndef f(x): return load('aside').clean(x)",
        "aside": CLEAN,
    },
    "any module, by runpy": {"main": "import runpy, aside\ndef f(x): return runpy.run_module(x)", "aside": CLEAN},
    "any module, by pkgutil": {
        "main": "import pkgutil, aside\ndef f(x): return pkgutil.resolve_name('aside:clean')(x)",
        "aside": CLEAN,
    },
    "any module, by sys": {
        "main": "from sys import modules\nimport aside\ndef f(x): return modules[x].clean(x)",
        "aside": CLEAN,
    },
    "the module, by a function's globals": {"main": f"{CLEAN}\ndef f(x): return f.__globals__['clean'](x)"},
    "the module, by eval of builtins": {
        "main": f"import builtins\n{CLEAN}\ndef f(x): return builtins.eval('clean(x)')"
    },
    "what a name is in a module that is imported": {
        "main": "if __name__ == '__main__':\n    SIZE = 0\nelse:\n    SIZE = 1\ndef f(x): return SIZE"
    },
    "what is done when a module is imported": {
        "main": "import tools\nif __name__ != '__main__':\n    tools.SIZE = 1\ndef f(x): return tools.get()",
        "tools": "SIZE = 0\ndef get(): return SIZE",
    },
    "a name bound in an expression": {"main": "TWICE = 2 * (SIZE := 1)\ndef f(x): return SIZE"},
    "a name bound by a pattern": {"main": "match 1:\n    case SIZE: pass\ndef f(x): return SIZE"},
    "importing a module that was taken out of its package": {
        "main": "from conf import setup\ndef f(x): return x",
        "conf/__init__": "",
        "conf/setup": "import numpy\nnumpy.seterr(divide=1)",
    },
    "a call for a value nobody wants": {**LISTED, "plug": "import tools\n_ = tools.put(1)"},
    "a call in a with": {**LISTED, "plug": "import tools\nwith tools.put(1):\n    X = 0"},
    "a call in a class": {**LISTED, "plug": "import tools\nclass C:\n    x = tools.put(1)"},
    "a call for a default": {**LISTED, "plug": "import tools\ndef g(x=tools.put(1)): pass"},
    "a call of what came with everything": {**LISTED, "plug": "from tools import *\n_ = put(1)"},
    "a list that another module extends": {**LISTED, "plug": "from tools import ALL\nALL += [1]"},
    "one target of several": {**LISTED, "plug": "import tools\ntools.ALL, X = 1, 0"},
    "a definition noted under a condition": {
        "main": USES, "tools": ALL, "plug": "from tools import note\nif note:\n    @note\n    def g(): return 1",
    },
    "a method that is noted": {
        "main": USES, "tools": ALL, "plug": "from tools import note\nclass C:\n    @note\n    def g(): return 1",
    },
    "a definition that a library notes": {
        "main": "import setup\ndef f(frame): return frame.geo.area()",
        "setup": "import pandas\n@pandas.api.extensions.register_dataframe_accessor('geo')\n"
        "class Geo:\n    def area(self): return 1",
    },
    "a docstring that a library is given": {
        "main": "import langchain\n@langchain.tool\ndef f(x):\n    'Version 1.'\n    return x"
    },
    "a file beside a package, looked for from elsewhere": {
        "main": "from importlib import resources\nimport assets\n"
        "def f(x): return (resources.files(assets) / 'size.txt').read_text()",
        "assets/__init__": "",
        "assets/size.txt": "1",
    },
    "a file found by where its package is": {
        "main": "import assets, os\ndef f(x): return open(os.path.dirname(assets.__file__) + '/size.txt').read()",
        "assets/__init__": "",
        "assets/size.txt": "1",
    },
}  # fmt: skip


@pytest.mark.parametrize("project", [pytest.param(project, id=way) for way, project in WAYS.items()])
def test_digest_changes_when_the_behaviour_of_a_function_changes(code: Make, project: dict[str, str]) -> None:
    """In each project the only 1 becomes a 2."""
    assert "".join(project.values()).count("1") == 1
    assert code(project) != code({name: text.replace("1", "2") for name, text in project.items()})


KEPT = {
    "a value by a call of the standard library": {"main": "import re\nA = re.compile('1')"},
    "a value by a call of a library": {"main": "import numpy as np\nA = np.array([1])"},
    "a value by a method of a text": {"main": "A = 'a 1'.split()"},
    "a function with a decorator of the standard library": {
        "main": "import functools\n@functools.cache\ndef g(): return 1"
    },
    "a task": {"main": "from treadle.dsl import task\n@task(retry={'maximumAttempts': 2})\ndef g(): return 1"},
    "a function of the same workflow": {
        "main": "from treadle.dsl import Workflow, text\ndef g(x): return 1\nwf = Workflow('w')\n"
        "words = wf.map('words', text('a'), uses=g)\n"
        "with wf.loop('l', state={'w': words}) as l:\n    other = l.map('other', words, uses=g)\n    l.next(w=other)\n"
        "wf.output('o', words.output.uri)",
    },
    "a data class": {
        "main": "from dataclasses import dataclass, field\n@dataclass\nclass C:\n    x: int = field(default=1)"
    },
    "a property": {"main": "class C:\n    @property\n    def x(self): return 1"},
    "what is named in a text that is a value": {
        "main": "from typing import Literal\ndef h(): return 1\ndef f(x: Literal['eval'] = 'h'): return x"
    },
    "what is named as a key is": {"main": "def total(): return 1\ndef g(x): return x['total']"},
    "a function of a module where one imports a module by its name": {
        "main": "import other\nfrom importlib import import_module\ndef g(x): return import_module('aside').clean(x)",
        "aside": "def clean(x): return 0",
        "other": CLEAN,
    },
    "a name in modules that import each other": {
        "main": "from a import *", "a": "from b import *", "b": "from a import *\nX = 1",
    },
}  # fmt: skip


@pytest.mark.parametrize("project", [pytest.param(project, id=way) for way, project in KEPT.items()])
def test_digest_ignores_unrelated_definitions(code: Make, project: dict[str, str]) -> None:
    if "def f(" not in project["main"]:
        project = {**project, "main": f"{project['main']}\ndef f(x): return len(x)"}
    assert "".join(project.values()).count("1") == 1
    assert code(project) == code({name: text.replace("1", "2") for name, text in project.items()})
