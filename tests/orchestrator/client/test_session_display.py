"""A session shows its calls in a terminal and in a notebook, and nowhere else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from treadle.client import session
from treadle.client.futures import CallProgress
from treadle.client.session_display import SessionDisplay, page
from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home

PATIENCE = 90


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("display") / "home"
    yield folder
    embedded.down(Home(folder))


class Shown:
    """A view that keeps the last counts and all lines."""

    def __init__(self) -> None:
        self.counts: Mapping[str, CallProgress] = {}
        self.lines: list[str] = []
        self.closed = False

    def draw(self, counts: Mapping[str, CallProgress], lines: Sequence[str]) -> None:
        self.counts = counts
        self.lines += lines

    def close(self) -> None:
        self.closed = True


def shown_calls(home: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, count: int) -> Shown:
    """The last picture of a map whose calls print their number; multiples of 4 fail."""

    def print_or_fail(number: int) -> None:
        print(f"number {number}")  # noqa: T201
        assert number % 4

    view = Shown()
    monkeypatch.setattr("treadle.client.session_display.find_view", lambda: view)
    with session("shown", home=home) as s:
        s.map(print_or_fail, range(count), chunk=chunk)
    return view


def test_last_picture_has_every_call_and_its_output(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view = shown_calls(home, monkeypatch, 3, 10)
    assert view.counts == {"print_or_fail-1": CallProgress(calls=10, ended=10, failed=3, running=0)}
    assert sorted(view.lines) == sorted(f"[print_or_fail-1/{number // 3}] number {number}" for number in range(10))
    assert view.closed


def test_much_output_is_cut_and_says_where_the_rest_is(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.client.session_display._DRAW", 3600.0)  # one picture, the last
    view = shown_calls(home, monkeypatch, 50, 50)
    assert len(view.lines) == 21
    assert view.lines[-1].startswith("... 30 more lines: treadle logs shown-")


def test_second_open_session_draws_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    views = [Shown(), Shown()]
    monkeypatch.setattr("treadle.client.session_display.find_view", iter(views).__next__)
    with session("first", home=home):
        time.sleep(0.1)
        with session("second", home=home) as second:
            second.submit(len, "abc").result(PATIENCE)
    assert [view.closed for view in views] == [True, False]


def test_nothing_is_drawn_where_no_person_looks_on(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SessionDisplay, "__init__", lambda *_: pytest.fail("it draws into a file"))
    with session("silent", home=home) as s:
        assert s.submit(len, "abc").result(PATIENCE) == 3


def test_page_of_a_notebook_escapes_names_and_output() -> None:
    found = page({"<lambda>-1": CallProgress(5, 2, 1, 3)}, ["<b>"])
    assert "&lt;lambda&gt;-1" in found
    assert "2/5" in found
    assert "1 failed, 3 running" in found
    assert "<pre>&lt;b&gt;</pre>" in found


def test_notebook_shows_one_element_with_the_progress(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_HOME", str(home))
    source = (
        "from treadle.client import session\n"
        "with session('cells') as s:\n"
        "    found = list(s.map(lambda n: print('at', n), range(6)).results())"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    [element] = notebook.cells[0]["outputs"]
    assert "6/6" in element["data"]["text/html"]
    assert "at 5" in element["data"]["text/html"]


# -- asyncio


def test_calls_can_be_awaited_and_outlive_a_task_that_waits(home: Path) -> None:
    def seven() -> int:
        time.sleep(0.5)
        return 7

    async def found() -> tuple[list[int], int]:
        async with session("awaited", home=home) as s:
            squares = await asyncio.gather(*s.map(lambda n: n * n, range(5)))
            slow = s.submit(seven)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(slow, 0.01)
            return squares, await slow

    assert asyncio.run(found()) == ([0, 1, 4, 9, 16], 7)
