"""Shared objects of a workflow are read while its run goes on, and after it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from eventually import eventually
from orchestrator.commands import Terminal

from treadle.client import Client
from treadle.orchestrator.environment.home import Home
from treadle.primitives.errors import UsageError

FUNCTIONS = """
import time
from operator import add
from pathlib import Path

from treadle.primitives.objects import merges, read, shared


@shared
class Names:
    def __init__(self):
        self.names = []

    @merges
    def add(self, name):
        self.names.append(name)

    @read
    def sorted(self):
        return sorted(self.names)


def count(number, *, context):
    context.objects.hits.increment()
    context.objects.names.add(f"n{number}")
    context.objects.sums.merge("even" if number % 2 == 0 else "odd", number, add)
    return number


def wait(number, *, flag):
    while Path(flag).exists():
        time.sleep(0.02)
    return number


def step(number, *, context):
    context.objects.hits.increment()
    return number
"""
DOCUMENT = """
apiVersion: treadle/v1
name: counting
objects:
  hits: {{type: counter}}
  sums: {{type: map}}
  names: {{uses: "counters_here:Names"}}
stages:
  first: {{type: map, input: {{range: 5, partitions: 2}}, uses: "counters_here:count", objects: [hits, names, sums]}}
  held: {{type: map, input: {{range: 5, partitions: 1}}, needs: [first], uses: "counters_here:wait",
    with: {{flag: "{flag}"}}}}
  twice:
    type: loop
    state: {{data: held}}
    maxIterations: 2
    stages:
      more: {{type: map, input: state.data, uses: "counters_here:step", objects: [hits]}}
    next: {{data: more}}
"""


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Terminal, Path]]:
    """A run `counting`, which waits in one of its two slots until the flag is removed."""
    folder = tmp_path_factory.mktemp("counting")
    work, home, flag = folder / "work", folder / "home", folder / "flag"
    for one in (work, home):
        one.mkdir()
    (work / "counters_here.py").write_text(FUNCTIONS)
    (work / "counting.yaml").write_text(DOCUMENT.format(flag=flag))
    Home(home).profiles.write_text("[two]\nslots = 2\n")
    flag.touch()
    with Terminal(work, home, {"TREADLE_PROFILE": "two"}) as terminal:
        assert terminal.run("submit", "counting.yaml", "--id", "counting").code == 0
        yield terminal, flag


def test_object_is_read_while_the_run_goes_on_and_after_its_end(
    counting: tuple[Terminal, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal, flag = counting
    with Client(profile="two", home=terminal.home) as client:
        run = client.attach("counting")
        for name in ("hits", "sums", "names"):
            after = f"{name} after first\n"
            eventually(lambda name=name, after=after: terminal.run("result", "counting", "--object", name).err == after)  # type: ignore[misc]
        shown = terminal.run("result", "counting", "--object", "sums")
        assert (shown.code, shown.out, shown.err) == (0, '{"even": 6, "odd": 4}\n', "sums after first\n")
        with pytest.raises(UsageError, match="class of object names cannot be imported here"):
            run.object("names")
        monkeypatch.syspath_prepend(terminal.folder)
        assert run.object("names").sorted() == [f"n{number}" for number in range(5)]
        assert "Names object" in terminal.run("result", "counting", "--object", "names").out
        flag.unlink()
        run.wait()
        assert run.object("hits").get() == 15
        assert terminal.run("result", "counting", "--object", "hits").err == "hits after twice\n"
        with pytest.raises(UsageError, match="no object missing"):
            run.object("missing")
    assert "stands alone" in terminal.run("result", "counting", "--object", "hits", "--stage", "first").err
