"""dlq: events that could start no run, why, and another try for them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treadle.primitives.errors import MissingError, UsageError

from .common import words
from .common.environment import Environment, need
from .common.exits import complain, say, say_json
from .common.options import ProfileOption, TextOrJson, Verbs
from .triggering import found

if TYPE_CHECKING:
    from temporalio.client import Client

    from ..triggers.kafka.batch import EventsOf
    from ..triggers.registry.deployment import Deployment
    from ..triggers.replaying import Letter

dlq = typer.Typer(
    cls=Verbs,
    help="Dead letters: events that could start no run.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
TriggerOption = Annotated[
    str | None, typer.Option("--trigger", metavar="WORKFLOW.TRIGGER", help="Only of this trigger.")
]
ReasonTextOption = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Only those whose reason holds this text.")
]
IdArgument = Annotated[str, typer.Argument(help="As `dlq list` shows it.", metavar="ID")]


@dlq.command("list")
def list_(
    trigger: TriggerOption = None,
    reason: ReasonTextOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Most letters to show, the newest.")] = 50,
    output: TextOrJson = "text",
    profile: ProfileOption = None,
) -> None:
    """Dead letters of deployed triggers. Reads their topics; changes nothing."""
    env = Environment(profile)
    letters = sorted(_letters(env, trigger, reason), key=lambda one: one.time)[-limit:]
    if output == "json":
        say_json([_brief(one) for one in letters])
    elif letters:
        rows = [["letter", "trigger", "time", "reason"]]
        rows += [[one.id, one.trigger, words.moment(one.time), one.reason.partition("\n")[0]] for one in letters]
        typer.echo("\n".join(words.columns(rows)))
    else:
        complain("there is no such dead letter" if trigger or reason else "there is no dead letter")


@dlq.command()
def show(letter: IdArgument, output: TextOrJson = "text", profile: ProfileOption = None) -> None:
    """One dead letter with its key, headers and value."""
    about = _full(*_named(Environment(profile), [letter]))
    if output == "json":
        say_json(about)
        return
    rows = [(name, about[name]) for name in ("letter", "trigger", "version", "reason", "time", "place", "key")]
    rows += [("header", f"{name}: {value}") for name, value in about["headers"]]
    shown = about["value"] if isinstance(about["value"], str) else json.dumps(about["value"], indent=2)
    lines = [f"{name:8} {value}" for name, value in rows if value not in (None, "")]
    lines += ["value", *(f"  {line}" for line in (shown or "none").splitlines())]
    say("\n".join(lines))


@dlq.command()
def replay(
    letters: Annotated[list[str] | None, typer.Argument(help="As `dlq list` shows them.", metavar="ID")] = None,
    trigger: TriggerOption = None,
    reason: ReasonTextOption = None,
    every: Annotated[bool, typer.Option("--all", help="All of --trigger, or all that --reason chooses.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Also those that were replayed before.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would start; start nothing.")] = False,
    output: TextOrJson = "text",
    profile: ProfileOption = None,
) -> None:
    """Start runs for dead letters, as the deployed version judges them now. What was replayed is not started twice."""
    if bool(letters) == every or (every and not (trigger or reason)):
        raise UsageError("name the letters", "dlq replay ID...; or --all with --trigger or --reason.")
    env = Environment(profile)
    chosen = list(_letters(env, trigger, reason)) if every else _named(env, letters or [])
    outcomes = _replayed(env, chosen, again=again, dry_run=dry_run)
    if output == "json":
        say_json(outcomes)
    else:
        for one in outcomes:
            typer.echo("  ".join(filter(None, [one["letter"], one["did"], one["run"], one["reason"]])))
    refused = [one for one in outcomes if one["did"] == "refused"]
    if refused:
        raise UsageError(f"{words.counted(len(refused), 'letter')} still refused", "Mend and deploy.")


def _replayed(env: Environment, letters: list[Letter], *, again: bool, dry_run: bool) -> list[dict[str, Any]]:
    """What became of each letter; the keys are stable: letter, did, run, reason."""
    from ..triggers.kafka.payloads import Payloads
    from ..triggers.replaying import orders

    events = Payloads(env.store, env.key, lambda _: None).value
    outcomes: list[dict[str, Any]] = []
    wanted: list[Letter] = []
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
    env: Environment, client: Client, letters: list[Letter], events: EventsOf, again: bool
) -> list[dict[str, Any]]:
    from ..triggers.replaying import replay

    starter = await env.starter(client)
    outcomes: list[dict[str, Any]] = []
    for letter in letters:
        try:
            done = await replay(starter, *found(env, letter.trigger), letter, events, again=again)
            outcomes += [_outcome(letter, "started" if one.new else "replayed before", one.run) for one in done]
        except UsageError as error:
            outcomes.append(_outcome(letter, "refused", reason=error.message))
    return outcomes


def _outcome(letter: Letter, did: str, run: str = "", reason: str = "") -> dict[str, Any]:
    return {"letter": letter.id, "did": did, "run": run, "reason": reason}


# -- finding them --------------------------------------------------------------------------------------------------


def _letters(env: Environment, target: str | None, reason: str | None) -> Iterator[Letter]:
    """Of one deployed trigger, or of all. Raises NoSuchDeployment, Unreachable."""
    if target:
        places = [found(env, target)]
    else:
        places = [(one, name) for one in env.registry.deployments() for name in one.spec.triggers]
    seen: set[str] = set()
    for deployment, name in places:
        for letter in _of_trigger(env, deployment, name):
            if letter.id not in seen and (reason is None or reason in letter.reason):
                seen.add(letter.id)
                yield letter


def _of_trigger(env: Environment, deployment: Deployment, name: str) -> Iterator[Letter]:
    from ..triggers.kafka.reading import reading_of

    need("confluent_kafka")
    trigger = deployment.spec.triggers[name]
    reading = reading_of(trigger)
    if reading is not None:
        from ..triggers.kafka.deadletters import read_letters
        from ..triggers.kafka.positions import KafkaPositions
        from ..triggers.replaying import of_topic

        settings = KafkaPositions(env.home, env.profile).settings(reading.connection)
        yield from map(of_topic, read_letters(settings, reading.letters, f"{deployment.workflow}.{name}"))
    elif trigger.type == "object":
        from ..triggers.objects.records import ObjectRecords
        from ..triggers.replaying import of_object

        for refused in ObjectRecords(env.store, env.key, deployment.workflow, name).refused():
            yield of_object(deployment.workflow, name, refused)


def _named(env: Environment, ids: Sequence[str]) -> list[Letter]:
    """The letters of these ids, in their order; every topic is read once. Raises MissingError."""
    known = {one.id: one for one in _letters(env, None, None) if one.id in ids}
    for id in ids:
        if id not in known:
            raise MissingError(f"there is no dead letter {id}", "See: treadle dlq list")
    return [known[id] for id in ids]


# -- showing them --------------------------------------------------------------------------------------------------


def _brief(letter: Letter) -> dict[str, Any]:
    about = {name: getattr(letter, name) for name in ("trigger", "version", "reason")}
    return {"letter": letter.id, **about, "time": words.stamp(letter.time), "place": letter.place}


def _full(letter: Letter) -> dict[str, Any]:
    """Bytes as text, with what is no UTF-8 escaped."""
    import msgspec

    from ..triggers.kafka.deadletters import DeadLetter

    if not isinstance(letter.kept, DeadLetter):
        return {**_brief(letter), "key": None, "headers": [], "value": msgspec.to_builtins(letter.kept.event)}
    record = letter.kept.record
    headers = [[name, _text(value)] for name, value in record.headers]
    return {**_brief(letter), "key": _text(record.key), "headers": headers, "value": _text(record.value)}


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")
