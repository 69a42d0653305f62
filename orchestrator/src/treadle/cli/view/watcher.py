"""Follows a run: shows its progress, then its result, and returns the exit code."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.errors import FailureClass

from ..common import formatting
from ..common.environment import Environment
from ..common.exit_codes import Exit, advise, complain, say_json
from ..common.hints import advice
from ..common.options import duration

if TYPE_CHECKING:
    from treadle.client.client import Runs
    from treadle.client.progress import StageView
    from treadle.orchestrator.plan.plan import Graph
    from treadle.orchestrator.run_requests.run_views import RunEnd, RunFailure, RunView

    from .watch_output import Screen

SECOND_CHANCE = 2.0
"""Seconds after a Ctrl-C in which a second one cancels the run."""
SILENCE = 3.0
"""Seconds without a driver after which the watcher reports it."""
_REMEDIES: dict[str, str] = {
    FailureClass.OUT_OF_MEMORY: "Give the stage more `memory`, or its input more partitions: that takes a new run.",
    FailureClass.POISON: "Each attempt ended its process: by a crash in native code, os._exit, or for want of memory.",
    FailureClass.TIMED_OUT: "Give the stage a longer `timeout`, or its input more partitions: that takes a new run.",
}
"""Advice for some classes of failure."""
_NEW = "Changed input files need `treadle rerun {run}`; changed code needs a new run."


@dataclass(frozen=True)
class Watching:
    """How to watch; options of a command. Raises UsageError for an invalid `timeout`."""

    compact: Annotated[bool, typer.Option("--compact", help="Show running stages only.")] = False
    interval: Annotated[
        float,
        typer.Option(
            "--interval", metavar="SECONDS", envvar="TREADLE_INTERVAL", min=0.1, help="Interval between updates."
        ),
    ] = 0.5
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", metavar="DURATION", help="Stop watching after this time, with exit code 124."),
    ] = None
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Stop watching at the first final failure.")] = False
    logs: Annotated[bool, typer.Option("--logs", help="Also show what attempts print, and their errors.")] = False
    output: Annotated[
        Literal["text", "jsonl"],
        typer.Option("--output", "-o", help="jsonl: print every change as a JSON line to stdout."),
    ] = "text"
    exit_status: Annotated[
        bool, typer.Option("--exit-status/--no-exit-status", help="End with the run's own exit code.")
    ] = True

    def __post_init__(self) -> None:
        _ = self.seconds  # refused before the run starts

    @property
    def seconds(self) -> float | None:
        """The timeout in seconds."""
        return duration(self.timeout, "--timeout") if self.timeout else None


async def watch_run(env: Environment, runs: Runs, run: str, how: Watching) -> Exit:
    """Watch to the end, or until a condition of `how` holds; return the exit code."""
    from treadle.orchestrator.environment.connection_errors import Unreachable

    watcher = Watcher(env, runs, run, how)
    try:
        code = await watcher.watch()
        await asyncio.to_thread(env.keep_requests, run)
        return code
    except Unreachable as error:
        hint = f"The run itself is safe. Look again: treadle watch {run}; or go on: {resuming(run)}"
        raise Unreachable(error.message, hint) from error
    finally:
        watcher.close()


class _Keys:
    """Counts Ctrl-C."""

    def __init__(self) -> None:
        self.count = 0
        self._pressed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_signal_handler(signal.SIGINT, self._press)

    def _press(self) -> None:
        self.count += 1
        self._pressed.set()

    async def pressed(self) -> None:
        await self._pressed.wait()
        self._pressed.clear()

    def close(self) -> None:
        self._loop.remove_signal_handler(signal.SIGINT)


class Watcher:
    """One watched run. For one use."""

    def __init__(self, env: Environment, runs: Runs, run: str, how: Watching) -> None:
        from treadle.client.attempt_logs import LogFollower
        from treadle.client.run_status import StatusReader

        from .costs import Running

        self._env, self._runs, self._run, self._how = env, runs, run, how
        self._reader = StatusReader(env, runs, run)
        self._cost = Running(env, run)
        self._logs = LogFollower(env.files(run)) if how.logs else None
        self._keys = _Keys()
        self._screen = _screen(how)
        self._deadline = time.monotonic() + how.seconds if how.seconds is not None else None
        self._alone_since: float | None = None
        self._paused = False
        self._told: dict[str, str] = {}
        self._cancelled = False

    def close(self) -> None:
        self._screen.close()
        self._keys.close()

    async def watch(self) -> Exit:
        ended = spawn(self._runs.end(self._run))
        pressed = spawn(self._keys.pressed())
        try:
            while True:
                wait = self._wait()
                await asyncio.wait([ended, pressed], timeout=wait, return_when=asyncio.FIRST_COMPLETED)
                if ended.done():
                    return await self._ended(ended.result())
                if pressed.done():
                    if (code := await self._interrupted()) is not None:
                        return code
                    pressed = spawn(self._keys.pressed())
                elif (code := await self._look()) is not None:
                    return code
        finally:
            ended.cancel()
            pressed.cancel()

    def _wait(self) -> float:
        if self._deadline is None:
            return self._how.interval
        return max(0.0, min(self._how.interval, self._deadline - time.monotonic()))

    async def _look(self) -> Exit | None:
        """Show the current state; return a code if the watcher must stop."""
        status = await self._reader.read(await self._view())
        view, stages = status.view, status.stages
        cost = await asyncio.to_thread(self._cost.text, self._reader.painter.plan)
        self._screen.show(view, stages, cost)
        await self._show_logs()
        self._say_what_drivers_lost(view)
        self._say_when_paused(view)
        await self._say_when_alone(view)
        if self._how.fail_fast and any(stage.failed for stage in stages):
            return self._failed_early(stages)
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self._screen.close()
            complain(f"run {self._run} still goes on after {formatting.span(self._how.seconds or 0)}")
            advise(f"  treadle watch {self._run}")
            return Exit.TIMEOUT
        return None

    async def _view(self) -> RunView:
        """The run. Prints a note if Temporal does not answer; the SDK retries for some seconds."""
        asked = spawn(self._runs.view(self._run))
        done, _ = await asyncio.wait([asked], timeout=SILENCE)
        if not done and not await self._temporal_answers():
            self._screen.note("Temporal does not answer; trying again")
        return await asked

    async def _temporal_answers(self) -> bool:
        """Distinguishes an unreachable Temporal from a lost driver: a view also queries the driver, which is slow if
        none lives."""
        with suppress(TimeoutError):
            return await asyncio.wait_for(self._runs.exists(self._run), SILENCE)
        return False

    def _failed_early(self, stages: Sequence[StageView]) -> Exit:
        self._screen.close()
        names = ", ".join(stage.node for stage in stages if stage.failed)
        complain(f"run {self._run}: partitions of {names} failed finally; the run goes on")
        advise(f"  treadle logs {self._run}; treadle watch {self._run}")
        return Exit.RUN_FAILED if self._how.exit_status else Exit.SUCCESS

    async def _show_logs(self) -> None:
        if self._logs is not None:
            for line in await asyncio.to_thread(self._logs.new_lines):
                self._screen.log(line)

    def _say_when_paused(self, view: RunView) -> None:
        """Print a note once for each pause."""
        if view.state == "paused" and not self._paused:
            self._screen.note(advice(f"run {self._run} is paused; go on with: treadle unpause {self._run}"))
        self._paused = view.state == "paused"

    def _say_what_drivers_lost(self, view: RunView) -> None:
        """Report failed activities: they are failures of a driver, not of the user, and Temporal retries them
        forever."""
        for beat in view.nodes:
            if beat.last_failure and beat.last_failure != self._told.get(beat.node):
                self._told[beat.node] = beat.last_failure
                where = beat.node or "opening the run"
                silent = "Heartbeat timeout" in beat.last_failure
                why = "it fell silent" if silent else beat.last_failure
                self._screen.note(f"{where}: a driver failed, trying again: {why}")

    async def _say_when_alone(self, view: RunView) -> None:
        """Print a note once for each loss of the driver."""
        busy = view.nodes and not self._env.settings.embedded  # in the embedded default a better check is cheap
        if busy or not view.open or view.state == "paused" or await self._env.drivers(self._runs, view.queue):
            self._alone_since = None
            return
        now = time.monotonic()
        if self._alone_since is None:
            self._alone_since = now
        elif now - self._alone_since >= SILENCE:
            self._alone_since = float("inf")
            start = driver_command(self._env, self._run)
            self._screen.note(advice(f"no driver is alive, so nothing happens. Start one: {start}"))

    async def _interrupted(self) -> Exit | None:
        if self._cancelled:
            return Exit.INTERRUPTED
        self._screen.close()
        advise(f"run {self._run} goes on. Watch it again:\n  treadle watch {self._run}")
        if not sys.stdin.isatty():
            return Exit.INTERRUPTED
        complain(f"Ctrl-C again within {SECOND_CHANCE:g} s cancels it.")
        try:
            await asyncio.wait_for(self._keys.pressed(), SECOND_CHANCE)
        except TimeoutError:
            return Exit.INTERRUPTED
        complain(f"cancelling run {self._run}")
        await self._runs.cancel(self._run, "Ctrl-C")
        self._cancelled = True
        self._screen = _screen(self._how)
        return None

    async def _ended(self, end: RunEnd) -> Exit:
        status = await self._reader.read(end=end)
        view = status.view
        cost = await asyncio.to_thread(self._cost.text, self._reader.painter.plan, last=True)
        self._screen.show(view, status.stages, cost)
        await self._show_logs()
        self._screen.close()
        code = show_end(self._run, view, end, jsonl=self._how.output == "jsonl")
        for line in await asyncio.to_thread(self._what_next, end):
            advise(f"  {line}")
        return code if self._how.exit_status else Exit.SUCCESS

    def _what_next(self, end: RunEnd) -> list[str]:
        """Hints for the user: where to look, and how to continue. Blocking."""
        if end.state == "succeeded":
            return [] if end.outputs else self._made(end.skipped)
        return self._after(end.failure) if end.failure else [f"Go on with it: {resuming(self._run)}"]

    def _after(self, failure: RunFailure) -> list[str]:
        from treadle.client.attempt_logs import LogFollower
        from treadle.orchestrator.protocol.messages import LEFT

        again, kind, failed = resuming(self._run), failure.failure, failure.run or self._run
        if kind == LEFT:
            return [f"Go on with the rest: {again}"]
        logs = [f"Its errors: treadle logs {failed}"] if LogFollower(self._env.files(failed)).any() else []
        if kind == FailureClass.UNKNOWN_OUTCOME:
            return [*logs, f"Once you know what it did: {again} --assume done|retry"]
        remedy = [_REMEDIES[kind]] if kind in _REMEDIES else []
        return [*logs, *remedy, f"Once the surroundings are mended: {again}. {_NEW.format(run=self._run)}"]

    def _made(self, skipped: Sequence[str]) -> list[str]:
        """The location of the data of a workflow without declared outputs."""
        plan = self._reader.painter.plan
        if plan is None or plan.graph.outputs:
            return [f"{stage} is in {uri}" for stage, uri in plan.graph.outputs.items()] if plan else []
        ends = [stage for stage in plan.datasets if stage not in skipped and _is_end(plan.graph, stage)]
        return [f"Its data: treadle result {self._run} --stage {stage}" for stage in ends[-1:]]


def _is_end(graph: Graph, stage: str) -> bool:
    """Whether no other stage reads the data of the stage."""
    from treadle.orchestrator.plan.plan import BarrierNode

    own = {node.id for node in graph.nodes_of(stage) if not isinstance(node, BarrierNode)}
    return bool(own) and not any(own & {*node.data} and stage not in node.stages for node in graph.nodes)


def driver_command(env: Environment, run: str) -> str:
    """The command that starts a driver here."""
    return resuming(run) if env.settings.embedded else "treadle worker"


def resuming(run: str) -> str:
    """The command that resumes a run; a child run is resumed with its parent."""
    return f"treadle resume {run.partition('/')[0]}"


def _screen(how: Watching) -> Screen:
    from .watch_output import JsonScreen, LiveScreen, PlainScreen

    if how.output == "jsonl":
        return JsonScreen()
    draws = sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    return LiveScreen(how.compact) if draws else PlainScreen(how.compact)


def code_of_state(state: str) -> Exit:
    """The exit code of an ended run, the same as after watching it."""
    if state == "succeeded":
        return Exit.SUCCESS
    return Exit.CANCELLED if state in ("cancelled", "terminated") else Exit.RUN_FAILED


def show_end(run: str, view: RunView, end: RunEnd, *, jsonl: bool = False) -> Exit:
    """Print outputs to stdout, and the result of the run to stderr."""
    if jsonl:
        from .watch_output import emit

        emit({"type": "end", "run": run, **msgspec.to_builtins(end)})
    took = f" after {formatting.span((view.closed - view.started).total_seconds())}" if view.closed else ""
    complain(f"run {run} {end.state}{took}{reason(end)}")
    if end.state == "succeeded" and not jsonl:
        print_outputs(end.outputs)
    return code_of_state(end.state)


def reason(end: RunEnd) -> str:
    failure = end.failure
    return f": {failure.failure}: {failure.message}" if failure and failure.message else ""


def print_outputs(outputs: dict[str, Any]) -> None:
    if outputs:
        say_json(outputs)
