"""The page of a run: its counts, its escapes, and its size for runs of any width."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

import pytest
from orchestrator.broken_runs import Broken

# private: a small unit of the page
from treadle.cli.view.report.facts import Attempted, Facts, NodeFacts, _nodes, gather, percentiles

# private: a small unit of the page
from treadle.cli.view.report.page import SHOWN_ERRORS, _brief, _tiles, render, timeline
from treadle.cli.view.watch_output import exchange
from treadle.client.attempt_logs import ErrorGroup, LogFollower, grouped
from treadle.client.progress import StageView
from treadle.dsl.graph.drawing import HEIGHT, WIDTH, draw
from treadle.executors.program import Keep, Outcome
from treadle.orchestrator.dispatcher.ledger.ledger import Committed, Failed, Record
from treadle.orchestrator.dispatcher.tasks.summary import summarise
from treadle.orchestrator.plan.plan import Graph, ItemsFeed, Plan, Policy, Segment, node_of
from treadle.orchestrator.run_requests.run_views import RunEnd, RunFailure, RunView

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
DOCUMENT: dict[str, Any] = {
    "apiVersion": "treadle/v1",
    "name": "numbers",
    "stages": {
        "first": {"type": "map", "input": {"range": 6, "partitions": 3}, "uses": "orchestrator.history_functions:same"},
    },
}


class Page(HTMLParser):
    """Elements of a page, and the text of its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inner: list[tuple[str, str]] = []
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open = tag if tag in ("script", "style") else ""

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open:
            self.inner.append((self._open, data))


def view(**other: Any) -> RunView:
    known: dict[str, Any] = {"run": "r", "workflow": "w", "state": "failed", "started": NOW, "closed": NOW}
    return RunView(**known | {"resumption": 1, "nodes": (), "history_events": 0} | other)


def attempt(index: int, **other: Any) -> Attempted:
    known: dict[str, Any] = {
        "node": "a",
        "segment": "a",
        "partition": index,
        "attempt": 1,
        "slot": f"local-{index % 12}",
    }
    return Attempted(**known | {"started": 1000.0 + index, "seconds": 1.0} | other)


def facts(attempts: int = 3, **other: Any) -> Facts:
    nodes = (NodeFacts("a", ("a",), "segment", 0, tasks=attempts, **other), NodeFacts("b", ("b",), "segment", 0))
    return Facts(nodes, tuple(map(attempt, range(attempts))), (("a", "b"),), {"b": "out/b"})


def test_nothing_from_the_run_is_taken_for_markup() -> None:
    group = ErrorGroup(EVIL, "user error", EVIL, EVIL, 1, 1, (0,), EVIL, EVIL)
    evil = Facts(
        (NodeFacts(EVIL, (EVIL,), "segment", 0, tasks=1),),
        (attempt(0, node=EVIL, segment=EVIL, slot=EVIL, failure=EVIL),),
        (),
        {EVIL: EVIL},
    )
    end = RunEnd("failed", {EVIL: EVIL}, failure=RunFailure(EVIL, EVIL))
    page = Page(render(view(run=EVIL, workflow=EVIL, labels={EVIL: EVIL}), end, evil, [group], NOW))
    assert [tag for tag, _ in page.elements].count("script") == 2
    assert "img" not in {tag for tag, _ in page.elements}
    assert json.loads(page.inner[1][1])["slots"] == [EVIL]


def test_policy_allows_the_page_its_own_script_and_style_and_nothing_else() -> None:
    page = Page(render(view(), None, facts(), [], NOW))
    policy = next(a["content"] for tag, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    texts = [page.inner[0][1], page.inner[2][1]]
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digests[0]}'; script-src 'sha256-{digests[1]}'; base-uri 'none'"
    )
    assert not [tag for tag, attributes in page.elements if {"style", "src", "href", "onclick"} & attributes.keys()]


def test_every_attempt_is_in_the_timeline_with_its_slot_and_its_end() -> None:
    failed = attempt(3, failure="worker lost", slot="local-10", attempt=2)
    shown = timeline([attempt(0), attempt(2), failed], {"a": 5})
    assert shown["slots"] == ["local-0", "local-2", "local-10"]
    assert [shown["slots"][index] for index in shown["slot"]] == ["local-0", "local-2", "local-10"]
    assert (shown["start"], shown["length"]) == ([0.0, 2000.0, 3000.0], [1000.0] * 3)
    assert (shown["failed"], shown["attempt"], shown["colours"]) == ([2], [1, 1, 2], [5])


def test_a_run_of_100_000_attempts_is_a_page_of_4_megabytes() -> None:
    page = render(view(), None, facts(100_000), [], NOW)
    assert len(page) < 40 * 100_000


def test_errors_beyond_those_shown_are_counted() -> None:
    groups = [ErrorGroup("a", "user error", "E", str(i), 1, 1, (i,), "", "how") for i in range(SHOWN_ERRORS + 7)]
    page = render(view(), None, facts(), groups, NOW)
    assert page.count("<details>") == SHOWN_ERRORS
    assert "and 7 more kinds" in page


def test_report_shows_spilled_bytes_only_for_stages_that_spilled() -> None:
    assert "spilled" not in render(view(), None, facts(), [], NOW)
    page = render(view(), None, facts(spilled=3 << 30), [], NOW)
    assert '<th class="n">spilled</th>' in page
    assert '<td class="n">3.0 GiB</td>' in page
    stage = StageView("a", ("a",), "segment", "done", read={"host": 2048}, spilled=3 << 30)
    assert exchange(stage) == "read 2.0 KiB host; 3.0 GiB spilled"


def test_sums_of_a_segment_have_spilled_bytes() -> None:
    segment = Segment("a", ("a",), ItemsFeed((), ()), (), Keep(), Policy())
    outcomes = [Outcome(index, 1, "objects", 1, spilled=size) for index, size in enumerate((0, 5, 7))]
    assert summarise(segment, outcomes, 3).spilled == 12


def test_page_of_an_open_run_says_when_it_was_made() -> None:
    page = render(view(state="running", closed=None), None, facts(), [], NOW + timedelta(minutes=2))
    assert "as it was at" in page
    assert "2 min" in page


@pytest.mark.parametrize(
    ("values", "expected"),
    [([], (0, 0, 0)), ([3.0], (3, 3, 3)), ([5.0, 1.0, 3.0], (3, 5, 5)), (list(range(101)), (50, 95, 100))],
)
def test_percentiles_are_values_of_the_list(values: list[float], expected: tuple[float, ...]) -> None:
    assert percentiles(values) == expected


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.0, "0.0 ms"), (0.0004, "0.4 ms"), (0.1, "0.10 s"), (9.87, "9.87 s"), (75, "1 min 15 s")]
)
def test_times_of_short_attempts_are_distinguishable(seconds: float, shown: str) -> None:
    assert _brief(seconds) == shown


@pytest.mark.parametrize(("segment", "node"), [("a", "a"), ("l-3/a.leaves", "a.leaves"), ("o-1/l-12/a", "a")])
def test_iterations_belong_to_one_node(segment: str, node: str) -> None:
    assert node_of(segment) == node


def test_boxes_are_right_of_their_sources_and_never_overlap() -> None:
    edges = [("a", "c"), ("b", "c"), ("c", "d"), ("a", "d")]
    picture = draw(["a", "b", "c", "d"], edges)
    at = {box.node: box for box in picture.boxes}
    assert all(at[source].x + WIDTH < at[target].x for source, target in edges)
    assert len(picture.lines) == 3, "that d needs a is seen by way of c"
    places = [(box.x, box.y) for box in picture.boxes]
    assert len(set(places)) == 4
    assert all(box.x + WIDTH < picture.width and box.y + HEIGHT < picture.height for box in picture.boxes)


def test_failed_attempt_counts_as_a_retry_when_a_resumption_completed_it() -> None:
    def failed(partition: int, attempt: int, *, final: bool) -> Failed:
        return Failed("a", partition, attempt, "user error", "closed", final, spent=True)

    graph = Graph((Segment("a", ("a",), ItemsFeed((), ()), (), Keep(), Policy()),))
    records: list[Record] = [failed(0, 1, final=False), failed(0, 2, final=True), failed(1, 1, final=True)]
    (before,) = _nodes(graph, [], records)
    assert (before.retries, before.failed) == (1, 2)
    records += [Committed("a", Outcome(0, 3, "objects", 1)), failed(1, 2, final=True)]
    (after,) = _nodes(graph, [attempt(0, attempt=3)], records)
    assert (after.tasks, after.retries, after.failed) == (1, 3, 1)


def test_facts_of_a_run_equal_its_ledgers(breaking: Callable[[Mapping[str, Any]], Broken]) -> None:
    broken = breaking(DOCUMENT)
    broken.go()
    files = broken.engine(broken.executor).site.files(broken.run)
    logged = LogFollower(files).new()
    found = gather(files, files.load(Plan, "plan"), logged)
    (node,) = found.nodes
    assert (node.node, node.tasks, node.rows, node.retries, node.failed) == ("first", 3, 6, 0, 0)
    assert sorted(one.partition for one in found.attempts) == [0, 1, 2]
    assert all(re.fullmatch(r"local-\d", one.slot) and one.started > 1.7e9 for one in found.attempts)
    assert node.bytes_out > 0
    assert grouped(logged) == []


def test_attempts_that_failed_count_for_tasks_memory_and_slot_time() -> None:
    graph = Graph((Segment("a", ("a",), ItemsFeed((), ()), (), Keep(), Policy()),))
    records: list[Record] = [Failed("a", 0, 1, "out of memory", "MemoryError", final=True, spent=True)]
    lost = [attempt(0, failure="out of memory", peak_memory=3 << 30, seconds=2.0)]
    (found,) = _nodes(graph, [], records, lost)
    assert (found.peak_memory, found.busy_seconds) == (3 << 30, 2.0)
    tiles = {tile.label: tile for tile in _tiles(view(), Facts((found,), tuple(lost), (), {}), NOW)}
    assert (tiles["tasks"].value, tiles["tasks"].detail) == ("1", "1 failed")
    assert tiles["most memory"].value == "3.0 GiB"


def test_time_of_a_resumed_run_is_that_of_its_timeline() -> None:
    again = view(resumption=2, started=NOW, closed=NOW + timedelta(seconds=5))
    first = attempt(0, started=(NOW - timedelta(seconds=35)).timestamp())
    took = _tiles(again, Facts((), (first,), (), {}), NOW)[0]
    assert (took.value, took.detail) == ("40 s", "5.0 s of it in resumption 2")


def test_page_shows_the_inputs_of_the_run() -> None:
    page = render(view(), None, facts(), [], NOW, {"corpus": "in/*.txt", "k": 8, "none": None, EVIL: [EVIL]})
    assert "<b>corpus</b></td><td><code>in/*.txt</code>" in page
    assert "<b>none</b>" not in page
    assert EVIL not in page
