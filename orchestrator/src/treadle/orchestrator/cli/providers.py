"""deploy lambda, deploy openwhisk: the functions that tasks of an executor run in.

Words of `deploy`, not files: commands of their own, which the command line finds before it looks for a file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treadle.primitives.errors import UsageError

from .common.environment import Environment
from .common.exits import complain, say_json, writing
from .common.options import ProfileOption, TextOrJson

if TYPE_CHECKING:
    from ..deployment.request import Provider, Request
    from ..deployment.wanted import Change
    from ..places.kinds import LambdaSettings, OpenWhiskSettings

TableOption = Annotated[
    str | None,
    typer.Option("--executor", metavar="NAME", help="Table of the profile; not needed while one is of this kind."),
]
DiffOption = Annotated[bool, typer.Option("--diff", help="Show what differs from what is there.")]
PruneOption = Annotated[bool, typer.Option("--prune", help="Remove functions of sizes that are not wanted any more.")]
DryOption = Annotated[bool, typer.Option("--dry-run", help="Say what would be done; change nothing.")]
ImageOption = Annotated[
    Path | None,
    typer.Option("--dockerfile", metavar="FOLDER", help="Write a Dockerfile and what it copies there; deploy nothing."),
]
TemplateOption = Annotated[
    Path | None,
    typer.Option(
        "--template",
        metavar="FILE",
        help="Write a CloudFormation template there, the package beside it; deploy nothing.",
    ),
]
_EXAMPLES = {
    "lambda": 'kind = "lambda"',
    "openwhisk": 'kind = "openwhisk"\n  endpoint = "https://openwhisk.example.com"',
}


def deploy_lambda(
    executor: TableOption = None,
    diff: DiffOption = False,
    prune: PruneOption = False,
    dry_run: DryOption = False,
    template: TemplateOption = None,
    dockerfile: ImageOption = None,
    output: TextOrJson = "text",
    profile: ProfileOption = None,
) -> None:
    """Make or update the functions of AWS Lambda that run tasks, one of each size, and their role."""
    env = Environment(profile)
    settings: LambdaSettings = _settings(env, "lambda", executor)
    if dockerfile is not None:
        _write_image(env, "lambda", settings, dockerfile)
        return
    request = _request(env, "lambda", settings, settings.function)
    if template is not None:
        _write_template(request, settings, template)
        return
    from ..deployment.aws import LambdaDeployment, open_clients
    from ..deployment.request import key_text

    clients = open_clients(settings.region, settings.endpoint, settings.deploy.key, key_text(env.key))
    deployment = LambdaDeployment(clients, request, settings.deploy)
    changes = deployment.plan() if dry_run else deployment.apply(prune)
    _print("lambda", request, changes, output, diff=diff, dry_run=dry_run)


def deploy_openwhisk(
    executor: TableOption = None,
    diff: DiffOption = False,
    prune: PruneOption = False,
    dry_run: DryOption = False,
    dockerfile: ImageOption = None,
    output: TextOrJson = "text",
    profile: ProfileOption = None,
) -> None:
    """Make or update the actions of Apache OpenWhisk that run tasks, one of each size."""
    import asyncio

    env = Environment(profile)
    settings: OpenWhiskSettings = _settings(env, "openwhisk", executor)
    if dockerfile is not None:
        _write_image(env, "openwhisk", settings, dockerfile)
        return
    request = _request(env, "openwhisk", settings, settings.action)
    changes = asyncio.run(_openwhisk(env, settings, request, prune=prune, dry_run=dry_run))
    _print("openwhisk", request, changes, output, diff=diff, dry_run=dry_run)


async def _openwhisk(
    env: Environment, settings: OpenWhiskSettings, request: Request, *, prune: bool, dry_run: bool
) -> list[Change]:
    from treadle.executors.openwhisk.client import Client

    from ..deployment.openwhisk import OpenWhiskDeployment

    key = env.home.secret(settings.key_secret)
    client = Client(settings.endpoint, key, namespace=settings.namespace, allow_http=settings.allow_http)
    async with client:
        deployment = OpenWhiskDeployment(client, request, env.key)
        return await (deployment.plan() if dry_run else deployment.apply(prune))


# -- what is asked for ----------


def _settings(env: Environment, provider: Provider, executor: str | None) -> Any:
    """The table of the executor. Raises UsageError when it is not clear which one is meant, or none is."""
    from ..places.kinds import KINDS

    tables = {name: table for name, table in env.profile.executors.items() if table.get("kind", name) == provider}
    if executor is None and len(tables) > 1:
        raise UsageError(
            f"several executors of the profile are of kind {provider}: {', '.join(tables)}", "Choose with --executor."
        )
    name = executor or next(iter(tables), None)
    if name is None or name not in tables:
        where = f"[{env.profile.name or 'PROFILE'}.executors.{executor or provider}]"
        raise UsageError(
            f"the profile has no executor {executor or f'of kind {provider}'}",
            f"Add to {env.home.profiles}:\n  {where}\n  {_EXAMPLES[provider]}",
        )
    return KINDS[provider].settings({key: value for key, value in tables[name].items() if key != "kind"})


def _request(
    env: Environment, provider: Provider, settings: LambdaSettings | OpenWhiskSettings, prefix: str
) -> Request:
    from ..deployment.request import Request, check_store, code_for, variables_of
    from ..environment.connections import with_connections

    store = env.profile.store_url(env.home)
    check_store(store, settings.files)
    secret = with_connections(env.profile.kafka, env.home.secret)  # a task may read a range of events
    variables = variables_of(settings.deploy, env.key, secret)
    package = code_for(provider, settings.deploy, settings.files, _entry(provider))
    sizes = tuple(sorted(set(settings.sizes)))
    return Request(prefix, sizes, settings.timeout, store, variables, package, settings.deploy.image)


def _entry(provider: Provider) -> dict[str, bytes]:
    from treadle.executors.openwhisk.action import ENTRY

    return ENTRY if provider == "openwhisk" else {}


# -- files instead ----------


def _write_image(
    env: Environment, provider: Provider, settings: LambdaSettings | OpenWhiskSettings, folder: Path
) -> None:
    from ..deployment.request import target_of, write_image

    target = target_of(provider, settings.deploy, settings.files)
    package = write_image(provider, target, settings.deploy, {}, folder)
    complain(f"{folder}/Dockerfile, for {target}; {package.unzipped / 2**20:.0f} MiB in {folder}/package")
    complain(f"  docker build -t NAME {folder}, push it, and set deploy.image = NAME in {env.home.profiles}")


def _write_template(request: Request, settings: LambdaSettings, file: Path) -> None:
    import yaml

    from ..deployment.template import template

    made = json.loads(json.dumps(template(request, settings.deploy)))  # without parts in common: no YAML aliases
    text = yaml.safe_dump(made, sort_keys=False, width=120)
    zipped = file.with_suffix(".zip")
    with writing():
        file.write_text(text, "utf-8")
        if request.package is not None:
            zipped.write_bytes(request.package.data)
    complain(f"{file}, and the package in {zipped}" if request.package else str(file))


# -- telling ----------


def _print(
    provider: Provider, request: Request, changes: Sequence[Change], output: str, *, diff: bool, dry_run: bool
) -> None:
    if output == "json":
        about = {"provider": provider, "dryRun": dry_run, "code": _code(request)}
        say_json({**about, "resources": changes})
        return
    for change in changes:
        said = "not wanted any more: remove it with --prune" if change.did == "left" else change.did
        typer.echo(f"{change.resource}: {'would be ' if dry_run and change.did in ('new', 'changed') else ''}{said}")
        if diff or dry_run:
            typer.echo("".join(f"  {line}\n" for line in change.differs), nl=False)
    if dry_run:
        complain("nothing was changed")


def _code(request: Request) -> dict[str, Any]:
    if (package := request.package) is None:
        return {"image": request.image}
    sizes = {"bytes": len(package.data), "unzippedBytes": package.unzipped}
    return {"digest": package.digest, "python": package.target.python, "machine": package.target.machine, **sizes}
