"""Code digests: the order of statements counts only if it can change the meaning of a name."""

from __future__ import annotations

from pathlib import Path

import pytest
from executors.code_bench import changed, code_in

F = "def f(x): return N + helped(x)\ndef helped(x): return x\n"
ADDS = "L = []\ndef add(): L.append(1)\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("L = []\nN = len(L)\nL.append(1)\n", "L = []\nL.append(1)\nN = len(L)\n"),
        (f"{ADDS}N = len(L)\nadd()\n", f"{ADDS}add()\nN = len(L)\n"),
        ("A = 1\nN = A\nA = 2\n", "A = 1\nA = 2\nN = A\n"),
        ("A = 1; N = A; A = 2\n", "A = 1; A = 2; N = A\n"),
        ("A = 1\ndef g(a=A): return a\nA = 2\nN = g()\n", "A = 1\nA = 2\ndef g(a=A): return a\nN = g()\n"),
        (
            "A = [1]\nclass C:\n    n = A[0]\nA[0] = 2\nN = C.n\n",
            "A = [1]\nA[0] = 2\nclass C:\n    n = A[0]\nN = C.n\n",
        ),
    ],
)
def test_digest_rereads_a_global_after_a_statement_that_may_rebind_it(tmp_path: Path, before: str, after: str) -> None:
    assert changed(code_in(tmp_path, {"main": before + F}), code_in(tmp_path, {"main": after + F}))


@pytest.mark.parametrize("other", ["", "N = 3\n"])
def test_of_two_modules_that_everything_is_taken_from_the_last_one_counts(tmp_path: Path, other: str) -> None:
    modules = {"one": "N = 1\n", "two": "N = 2\n", "three": other}
    stars = [f"from {module} import *\n" for module in modules]
    found, turned = (code_in(tmp_path, {"main": "".join(lines) + F, **modules}) for lines in (stars, stars[::-1]))
    assert changed(found, turned) == {"main.py:N"}


@pytest.mark.parametrize(
    "moved",
    [
        "def helped(x): return x\nN = 1\ndef f(x): return N + helped(x)\n",
        "SPARE = 1\nN = 1\ndef spare(): return SPARE\ndef f(x): return N + helped(x)\ndef helped(x): return x\n",
        "def f(x): return N + helped(x)\nclass Spare:\n    pass\ndef helped(x): return x\nN = 1\n",
    ],
)
def test_where_nothing_changes_its_meaning_the_order_does_not_count(tmp_path: Path, moved: str) -> None:
    assert code_in(tmp_path, {"main": moved}) == code_in(tmp_path, {"main": f"N = 1\n{F}"})


def test_functions_may_stand_anywhere(tmp_path: Path) -> None:
    """They read globals when they are called, after the whole module has run."""
    acts = "L = []\nL.append(1)\nL.append(2)\nN = 1\n"
    assert code_in(tmp_path, {"main": acts + F}) == code_in(tmp_path, {"main": F + acts})
