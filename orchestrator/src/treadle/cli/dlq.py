"""dlq: dead letters, which are events that could not start a run. Shows their reasons and replays them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treadle.primitives.errors import UsageError

from .common import formatting
from .common.environment import Environment
from .common.exit_codes import advise, complain, say, say_json
from .common.options import ProfileOption, TextOrJson, Verbs, with_options
from .dlq_lookup import Letters
from .trigger import found

if TYPE_CHECKING:
    from temporalio.client import Client

    from treadle.triggers.dead_letter_replay import StoredDeadLetter
    from treadle.triggers.dead_letter_status import LetterOutcome
    from treadle.triggers.kafka.batch import EventsOf

dlq = typer.Typer(
    cls=Verbs,
    help="Dead letters: events that could not start a run.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
TriggerOption = Annotated[
    str | None, typer.Option("--trigger", metavar="WORKFLOW.TRIGGER", help="Only letters of this trigger.")
]
ReasonTextOption = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Only letters whose reason contains this text.")
]
IdArgument = Annotated[str, typer.Argument(help="Letter id from `dlq list`.", metavar="ID")]


@dlq.command("list")
def list_(
    trigger: TriggerOption = None,
    reason: ReasonTextOption = None,
    every: Annotated[bool, typer.Option("--all", help="Include replayed and dropped letters.")] = False,
    limit: Annotated[
        int, typer.Option("--limit", min=1, metavar="N", help="Maximum letters to show, newest first.")
    ] = 50,
    output: TextOrJson = "text",
    profile: ProfileOption = None,
) -> None:
    """List the dead letters of deployed triggers that wait for a replay. Reads their topics; changes nothing."""
    letters = Letters(Environment(profile))
    marked = [(one, letters.outcome(one)) for one in letters.of(trigger, reason)]
    chosen = sorted((pair for pair in marked if every or pair[1] is None), key=lambda pair: pair[0].time)
    shown = chosen[-limit:]
    if output == "json":
        say_json([_brief(one, outcome) for one, outcome in shown])
    elif shown:
        rows = [["letter", "trigger", "time", "done", "reason"]]
        rows += [_row(one, outcome) for one, outcome in shown]
        typer.echo("\n".join(formatting.columns(rows)))
        if len(shown) < len(chosen):
            advise(f"{len(chosen) - len(shown)} older ones are not shown: --limit N")
    elif not letters.problems:
        complain("there is no such dead letter" if trigger or reason else "there is no dead letter")
    letters.complete()


def _row(letter: StoredDeadLetter, outcome: LetterOutcome | None) -> list[str]:
    done = outcome.did if outcome else ""
    return [letter.id, letter.trigger, formatting.moment(letter.time), done, letter.reason.partition("\n")[0]]


@dlq.command()
def show(letter: IdArgument, output: TextOrJson = "text", profile: ProfileOption = None) -> None:
    """Show one dead letter with its key, headers, value and outcome."""
    letters = Letters(Environment(profile))
    (one,) = letters.named([letter])
    about = _full(one, letters.outcome(one))
    if output == "json":
        say_json(about)
        return
    rows = [(name, about[name]) for name in ("letter", "trigger", "version", "reason", "time", "place", "done", "key")]
    rows += [("header", f"{name}: {value}") for name, value in about["headers"]]
    shown = about["value"] if isinstance(about["value"], str) else json.dumps(about["value"], indent=2)
    lines = [f"{name:8} {value}" for name, value in rows if value not in (None, "")]
    lines += ["value", *(f"  {line}" for line in (shown or "none").splitlines())]
    say("\n".join(lines))


@dataclass(frozen=True)
class LetterChoice:
    """The named letters, or the waiting letters that the options select."""

    ids: Annotated[list[str] | None, typer.Argument(help="Letter ids from `dlq list`.", metavar="ID")] = None
    trigger: TriggerOption = None
    reason: ReasonTextOption = None
    every: Annotated[bool, typer.Option("--all", help="All letters, or all that --trigger and --reason select.")] = (
        False
    )

    def of(self, letters: Letters, *, again: bool = False) -> list[StoredDeadLetter]:
        """With `again`, the options select replayed letters too. Raises UsageError without a choice, or with two."""
        if bool(self.ids) == bool(self.every or self.trigger or self.reason):
            raise UsageError("name the letters", "By ID...; or choose them: --trigger, --reason, or --all.")
        if self.ids:
            return letters.named(self.ids)
        wanted = {"", "replayed"} if again else {""}
        found = [(one, letters.outcome(one)) for one in letters.of(self.trigger, self.reason)]
        return [one for one, outcome in found if (outcome.did if outcome else "") in wanted]


@dlq.command()
@with_options
def replay(
    choice: LetterChoice,
    again: Annotated[bool, typer.Option("--again", help="Include letters that were replayed before.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the runs that would start; start none.")] = False,
    output: TextOrJson = "text",
    profile: ProfileOption = None,
) -> None:
    """Start runs for dead letters, with the rules of the deployed version. A letter that was replayed is not started
    twice."""
    env = Environment(profile)
    letters = Letters(env)
    chosen = choice.of(letters, again=again)
    outcomes = _replayed(env, chosen, again=again, dry_run=dry_run)
    if not dry_run:
        _mark_replayed(letters, chosen, outcomes)
    _print(outcomes, output)
    refused = [one for one in outcomes if one["did"] == "refused"]
    letters.complete()
    if refused:
        raise UsageError(f"{formatting.counted(len(refused), 'letter')} still refused", "Mend and deploy, or: dlq drop")


@dlq.command()
@with_options
def drop(
    choice: LetterChoice,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the letters that would be dropped; drop none.")
    ] = False,
    output: TextOrJson = "text",
    profile: ProfileOption = None,
) -> None:
    """Hide dead letters from the list. They stay where they are: `list --all` shows them, `replay ID` still replays
    them."""
    letters = Letters(Environment(profile))
    chosen = choice.of(letters)
    if not dry_run:
        for one in chosen:
            letters.mark(one, "dropped")
    _print([_outcome(one, "would drop" if dry_run else "dropped") for one in chosen], output)
    letters.complete()


def _mark_replayed(letters: Letters, chosen: list[StoredDeadLetter], outcomes: list[dict[str, Any]]) -> None:
    for letter in chosen:
        mine = [one for one in outcomes if one["letter"] == letter.id]
        if mine and all(one["did"] in ("started", "replayed before") for one in mine):
            letters.mark(letter, "replayed", [one["run"] for one in mine])


def _print(outcomes: list[dict[str, Any]], output: str) -> None:
    if output == "json":
        say_json(outcomes)
        return
    for one in outcomes:
        typer.echo("  ".join(filter(None, [one["letter"], one["did"], one["run"], one["reason"]])))


def _replayed(env: Environment, letters: list[StoredDeadLetter], *, again: bool, dry_run: bool) -> list[dict[str, Any]]:
    """The outcome of each letter; the keys are stable: letter, did, run, reason."""
    from treadle.triggers.dead_letter_replay import orders
    from treadle.triggers.kafka.payloads import Payloads

    events = Payloads(env.store, env.key, lambda _: None).value
    outcomes: list[dict[str, Any]] = []
    wanted: list[StoredDeadLetter] = []
    for letter in letters:
        try:
            made = orders(*found(env, letter.trigger), letter, lambda _, __: [])
        except UsageError as error:
            outcomes.append(_outcome(letter, "refused", reason=error.message))
            continue
        if not made:
            outcomes.append(_outcome(letter, "passed over", reason="the filter does not want it"))
        elif dry_run:
            outcomes += [_outcome(letter, "would start", one.run) for one in made]
        else:
            wanted.append(letter)
    if wanted:
        env.ensure_driver()
        outcomes += env.with_client(lambda client: _start(env, client, wanted, events, again))
    return outcomes


async def _start(
    env: Environment, client: Client, letters: list[StoredDeadLetter], events: EventsOf, again: bool
) -> list[dict[str, Any]]:
    from treadle.triggers.dead_letter_replay import replay

    starter = await env.starter(client)
    outcomes: list[dict[str, Any]] = []
    for letter in letters:
        try:
            done = await replay(starter, *found(env, letter.trigger), letter, events, again=again)
            outcomes += [_outcome(letter, "started" if one.new else "replayed before", one.run) for one in done]
        except UsageError as error:
            outcomes.append(_outcome(letter, "refused", reason=error.message))
    return outcomes


def _outcome(letter: StoredDeadLetter, did: str, run: str = "", reason: str = "") -> dict[str, Any]:
    return {"letter": letter.id, "did": did, "run": run, "reason": reason}


# -- output ---------------------------------------------------------------------------------------------------------


def _brief(letter: StoredDeadLetter, outcome: LetterOutcome | None) -> dict[str, Any]:
    done = outcome and {"did": outcome.did, "time": formatting.stamp(outcome.time), "runs": outcome.runs}
    about = {name: getattr(letter, name) for name in ("trigger", "version", "reason")}
    return {"letter": letter.id, **about, "time": formatting.stamp(letter.time), "place": letter.place, "done": done}


def _full(letter: StoredDeadLetter, outcome: LetterOutcome | None) -> dict[str, Any]:
    """A letter with its bytes as text; bytes that are not UTF-8 are escaped."""
    import msgspec

    from treadle.triggers.kafka.dead_letters import KafkaDeadLetter

    if not isinstance(letter.kept, KafkaDeadLetter):
        return {**_brief(letter, outcome), "key": None, "headers": [], "value": msgspec.to_builtins(letter.kept.event)}
    record = letter.kept.record
    headers = [[name, _text(value)] for name, value in record.headers]
    return {**_brief(letter, outcome), "key": _text(record.key), "headers": headers, "value": _text(record.value)}


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")
