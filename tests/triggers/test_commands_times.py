"""Commands for schedules: the run of a time, firing it, and the effect of clocks that go back."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from orchestrator.commands import Terminal
from triggers.test_commands_events import NIGHTLY, opened, told, tried, write


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    yield from opened(tmp_path_factory.mktemp("times"))


def test_time_of_a_schedule_is_read_in_its_timezone(terminal: Terminal) -> None:
    file = write(terminal, "orders", nightly=NIGHTLY)
    for text in ("2026-07-01T02:00", "2026-07-01T00:00Z"):
        code, trial = tried(terminal, file, "orders.nightly", "--time", text)
        assert (code, trial["run"]) == (0, "orders.nightly.20260701T000000Z")
        assert trial["inputs"]["day"] == "2026-07-01"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2026-07-01T02:00Z", "orders.nightly has no tick at 2026-07-01T04:00:00+02:00"),
        ("2026-07-01", "orders.nightly has no tick at 2026-07-01T00:00:00+02:00"),
        ("2026-03-29T02:00", "orders.nightly has no tick at 2026-03-29T03:00:00+02:00"),  # clocks left it out
        ("0001-01-01T00:00+14:00", "is no time"),
    ],
)
def test_a_time_that_the_schedule_does_not_say_is_refused(terminal: Terminal, text: str, said: str) -> None:
    file = write(terminal, "orders", nightly=NIGHTLY)
    done = terminal.run("trigger", "test", "orders.nightly", "--file", file, "--time", text)
    assert (done.code, done.out, said in done.err) == (2, "", True)


def test_a_time_that_clocks_repeat_is_tried_as_both_of_its_instants(terminal: Terminal) -> None:
    file = write(terminal, "orders", nightly={**NIGHTLY, "cron": "30 2 * * *"})
    done = terminal.run("trigger", "test", "orders.nightly", "--file", file, "--time", "2026-10-25T02:30", "-o", "json")
    runs = [trial["run"] for trial in told(done)]
    assert runs == ["orders.nightly.20261025T003000Z", "orders.nightly.20261025T013000Z"]
    _, trial = tried(terminal, file, "orders.nightly", "--time", "2026-10-25T02:30+01:00")
    assert trial["run"] == runs[1]


def test_fire_means_the_instant_that_the_schedule_takes_where_clocks_repeat_a_time(terminal: Terminal) -> None:
    assert terminal.run("dev", "up", "--detach").code == 0
    west = {**NIGHTLY, "cron": "30 1,2 * * *", "timezone": "America/New_York"}
    file = write(terminal, "clocks", east={**NIGHTLY, "cron": "30 2 * * *"}, west=west)
    assert terminal.run("deploy", file).code == 0
    for text in ("2026-10-25T02:30", "2026-10-25T02:30+01:00"):
        fired = terminal.run("trigger", "fire", "clocks.east", "--time", text)
        assert (fired.code, fired.out.split()) == (0, ["clocks.east.20261025T013000Z"])
    refused = terminal.run("trigger", "fire", "clocks.east", "--time", "2026-10-25T02:30+02:00")
    assert (refused.code, "the schedule takes the other" in refused.err) == (2, True)
    filled = terminal.run(
        "trigger", "backfill", "clocks.east", "--from", "2026-10-25T02:30", "--to", "2026-10-25T02:30"
    )
    assert filled.code == 0, filled

    twice = terminal.run("trigger", "fire", "clocks.west", "--time", "2026-11-01T01:30")
    assert (twice.code, "2026-11-01T01:30:00-04:00 or 2026-11-01T01:30:00-05:00" in twice.err) == (2, True)
    fired = terminal.run("trigger", "fire", "clocks.west", "--time", "2026-11-01T01:30-05:00")
    assert (fired.code, fired.out.split()) == (0, ["clocks.west.20261101T063000Z"])


# -- schedules and manual runs -----------------------------------------------------------------------------------


def test_schedule_is_deployed_fired_rested_and_its_runs_are_listed(terminal: Terminal) -> None:
    folder = terminal.folder / "nights"
    folder.mkdir()
    functions = folder / "functions.py"
    functions.write_text("def same(order, day):\n    return [order, day]\n")
    assert terminal.run("dev", "up", "--detach").code == 0
    deployed = told(terminal.run("deploy", write(terminal, "nights", folder, nightly=NIGHTLY), "-o", "json"))
    assert deployed["schedules"] == [{"schedule": "nights.nightly", "did": "created"}]
    functions.unlink()  # from here on the code comes from the deployment

    fired = terminal.run("trigger", "fire", "nights.nightly", "--time", "2026-11-20T02:00", "--watch")
    assert (fired.code, fired.out.split()[0]) == (0, "nights.nightly.20261120T010000Z")
    again = terminal.run("trigger", "fire", "nights.nightly", "--time", "2026-11-20T02:00")
    assert (again.code, "was there already" in again.err) == (0, True)
    filled = terminal.run("trigger", "backfill", "nights.nightly", "--from", "2026-11-20", "--to", "2026-11-20")
    assert (filled.code, "to 2026-11-20T23:59:59+01:00" in filled.err) == (0, True), "a day is all of it"
    nothing = terminal.run("trigger", "backfill", "nights.nightly", "--from", "2026-11-20T03", "--to", "2026-11-20T04")
    assert (nothing.code, "has no time in that range" in nothing.err) == (2, True)

    by_hand = terminal.run("run", "nights@1", "-i", 'orders={"items": [5]}', "--id", "by-hand")
    assert by_hand.code == 0, by_hand
    records = terminal.run("result", "by-hand", "--stage", "each")
    assert json.loads(records.out) == [5, "today"]
    runs = terminal.home / "store" / "runs"
    assert sum(path.name == "spec" for path in runs.rglob("*")) >= 2
    assert not list(runs.rglob("bundle")), "each reads the one that was deployed"
    assert terminal.run("rerun", "by-hand", "--id", "by-hand-2", "--watch").code == 0
    assert [path.parent.name for path in runs.rglob("bundle")] == ["by-hand-2"]
    assert terminal.run("submit", "nights@2", "-i", "orders=[5]").code == 4

    listed = told(terminal.run("list", "--trigger", "nights.nightly", "-o", "json"))
    assert [one["run"] for one in listed] == ["nights.nightly.20261120T010000Z"]
    assert terminal.run("list", "--trigger", "nights").code == 2

    assert terminal.run("trigger", "pause", "nights", "--reason", "holiday").code == 0
    about = told(terminal.run("trigger", "show", "nights.nightly", "-o", "json"))
    assert (about["state"], about["paused"]["reason"], about["schedule"]["paused"]) == ("paused", "holiday", True)
    assert terminal.run("trigger", "unpause", "nights.nightly").code == 0
    about = told(terminal.run("trigger", "show", "nights.nightly", "-o", "json"))
    assert (about["paused"], about["schedule"]["paused"], len(about["schedule"]["next"]) > 0) == (None, False, True)

    gone = told(terminal.run("undeploy", "nights", "-o", "json"))
    assert gone["schedules"] == [{"schedule": "nights.nightly", "did": "deleted"}]
