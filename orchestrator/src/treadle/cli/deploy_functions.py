"""deploy and undeploy of lambda and openwhisk: the functions in which an executor's tasks run.

`lambda` is a keyword of these commands, not a file. They are separate commands, which the command line resolves first.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from treadle.primitives.errors import UsageError

from .common.environment import Environment
from .common.exit_codes import complain, say_json, writing
from .common.options import ProfileOption, TextOrJson, with_options

if TYPE_CHECKING:
    from treadle.orchestrator.deployment.desired_state import Change
    from treadle.orchestrator.deployment.hello import Met
    from treadle.orchestrator.deployment.lambda_functions import LambdaDeployment
    from treadle.orchestrator.deployment.openwhisk import OpenWhiskDeployment
    from treadle.orchestrator.deployment.request import DeployRequest, Provider
    from treadle.orchestrator.environment.profile import Profile
    from treadle.orchestrator.executor_registry.builtin_executors import LambdaSettings, OpenWhiskSettings

TableOption = Annotated[
    str | None,
    typer.Option(
        "--executor", metavar="NAME", help="Executor table of the profile; not needed if only one has this kind."
    ),
]
DryOption = Annotated[bool, typer.Option("--dry-run", help="Print the changes; make none.")]
_EXAMPLES = {
    "lambda": 'kind = "lambda"',
    "openwhisk": 'kind = "openwhisk"\n  endpoint = "https://openwhisk.example.com"',
}


@dataclass(frozen=True)
class DeployOptions:
    """The options of every provider."""

    executor: TableOption = None
    diff: Annotated[bool, typer.Option("--diff", help="Show the differences from the current deployment.")] = False
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Remove functions of sizes that are no longer configured."),
    ] = False
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Take over functions and a role that belong to another profile.")
    ] = False
    dry_run: DryOption = False
    hello: Annotated[
        bool, typer.Option("--hello", help="Then call a function, test its store access, and print what is refused.")
    ] = False
    dockerfile: Annotated[
        Path | None,
        typer.Option(
            "--dockerfile",
            metavar="FOLDER",
            help="Write a Dockerfile and the files it copies to FOLDER; deploy nothing.",
        ),
    ] = None


@with_options
def deploy_lambda(
    how: DeployOptions,
    policy: Annotated[
        Literal["driver", "deployer", "functions"] | None,
        typer.Option("--policy", help="Print the IAM policy for this role; deploy nothing."),
    ] = None,
    template: Annotated[
        Path | None,
        typer.Option(
            "--template",
            metavar="FILE",
            help="Write a CloudFormation template, and the package beside it; deploy nothing.",
        ),
    ] = None,
    output: TextOrJson = "text",
    profile: ProfileOption = None,
) -> None:
    """Create or update the AWS Lambda functions that run tasks, one for each size, and their role."""
    env = Environment(profile)
    settings: LambdaSettings = _settings(env, "lambda", how.executor)
    if how.dockerfile is not None:
        _write_image(env, "lambda", settings, how.dockerfile)
    elif policy is not None:
        _print_policy(env, settings, policy)
    elif template is not None:
        _write_template(_request(env, "lambda", settings, settings.function), settings, template)
    else:
        request = _request(env, "lambda", settings, settings.function)
        deployment = _lambda(env, settings, request, how.adopt)
        changes = deployment.plan() if how.dry_run else deployment.apply(how.prune)
        _report(env, "lambda", settings, request, changes, how, output)


@with_options
def deploy_openwhisk(how: DeployOptions, output: TextOrJson = "text", profile: ProfileOption = None) -> None:
    """Create or update the Apache OpenWhisk actions that run tasks, one for each size."""
    env = Environment(profile)
    settings: OpenWhiskSettings = _settings(env, "openwhisk", how.executor)
    if how.dockerfile is not None:
        _write_image(env, "openwhisk", settings, how.dockerfile)
        return
    request = _request(env, "openwhisk", settings, settings.action)

    def changes(deployment: OpenWhiskDeployment) -> Awaitable[list[Change]]:
        return deployment.plan() if how.dry_run else deployment.apply(how.prune)

    done = _openwhisk(env, settings, request, changes, how.adopt)
    _report(env, "openwhisk", settings, request, done, how, output)


def _report(
    env: Environment,
    provider: Provider,
    settings: LambdaSettings | OpenWhiskSettings,
    request: DeployRequest,
    changes: Sequence[Change],
    how: DeployOptions,
    output: str,
) -> None:
    """Print the changes; then make the first call, if wanted."""
    _print(provider, request, changes, output, diff=how.diff, dry_run=how.dry_run)
    if how.hello and not how.dry_run:
        _say_hello(env, provider, how.executor, settings)


def _print_policy(env: Environment, settings: LambdaSettings, role: Literal["driver", "deployer", "functions"]) -> None:
    from treadle.orchestrator.deployment.aws_policies import policy_of

    say_json(policy_of(role, settings.function, env.profile.store_url(env.home), settings.deploy))


def undeploy_lambda(
    executor: TableOption = None,
    dry_run: DryOption = False,
    output: TextOrJson = "text",
    profile: ProfileOption = None,
) -> None:
    """Remove this profile's functions from AWS Lambda, with their role and uploaded packages."""
    env = Environment(profile)
    settings: LambdaSettings = _settings(env, "lambda", executor)
    request = _bare_request(env, settings, settings.function)
    changes = _lambda(env, settings, request).remove(dry_run)
    left = [f"log groups /aws/lambda/{settings.function}-*", "what runs left in the store (treadle gc)"]
    _print_removed("lambda", changes, [*left, *filter(None, [settings.deploy.key])], output, dry_run=dry_run)


def undeploy_openwhisk(
    executor: TableOption = None,
    dry_run: DryOption = False,
    output: TextOrJson = "text",
    profile: ProfileOption = None,
) -> None:
    """Remove this profile's actions from Apache OpenWhisk."""
    env = Environment(profile)
    settings: OpenWhiskSettings = _settings(env, "openwhisk", executor)
    request = _bare_request(env, settings, settings.action)
    changes = _openwhisk(env, settings, request, lambda deployment: deployment.remove(dry_run))
    _print_removed("openwhisk", changes, ["what runs left in the store (treadle gc)"], output, dry_run=dry_run)


def _lambda(
    env: Environment, settings: LambdaSettings, request: DeployRequest, adopt: bool = False
) -> LambdaDeployment:
    from treadle.orchestrator.deployment.lambda_functions import LambdaDeployment, open_clients
    from treadle.orchestrator.deployment.request import key_text

    clients = open_clients(settings.region, settings.endpoint, settings.deploy.key, key_text(env.key))
    return LambdaDeployment(clients, request, settings.deploy, adopt=adopt)


def _openwhisk(
    env: Environment,
    settings: OpenWhiskSettings,
    request: DeployRequest,
    do: Callable[[OpenWhiskDeployment], Awaitable[list[Change]]],
    adopt: bool = False,
) -> list[Change]:
    import asyncio

    from treadle.orchestrator.deployment.openwhisk import OpenWhiskDeployment
    from treadle.orchestrator.executor_registry.builtin_executors import openwhisk_client

    client = openwhisk_client(settings, env.home.secret)

    async def done() -> list[Change]:
        async with client:
            return await do(OpenWhiskDeployment(client, request, env.key, adopt=adopt))

    return asyncio.run(done())


# -- a first call ----------


def _say_hello(
    env: Environment, provider: Provider, executor: str | None, settings: LambdaSettings | OpenWhiskSettings
) -> None:
    """Print each step and its duration. Raises UsageError for the first step that was refused."""
    import asyncio

    from treadle.orchestrator.deployment.hello import say_hello
    from treadle.orchestrator.executor_registry.registry import open_places

    store = env.profile.store_url(env.home)
    name = executor or _table_name(env, provider)
    found = asyncio.run(say_hello(open_places(env.home, env.profile)[name], store))
    for one in found:
        typer.echo(f"{one.what}: {one.error or f'{one.milliseconds:.0f} ms'}")
    refused = [one for one in found if one.error]
    if refused:
        raise UsageError(f"{refused[0].what} was refused", _remedy(provider, refused, store, settings))
    typer.echo("all of it works")


def _remedy(
    provider: Provider, refused: Sequence[Met], store: str, settings: LambdaSettings | OpenWhiskSettings
) -> str:
    from treadle.orchestrator.deployment.aws_policies import statements_for
    from treadle.orchestrator.executor_registry.builtin_executors import LambdaSettings

    actions = {one.action for one in refused} - {""}
    if provider != "lambda" or not actions or not isinstance(settings, LambdaSettings):
        return "See the error; the store's credentials are `environment_secrets` of the table `deploy`."
    whose = refused[0].whose
    wanted = statements_for("driver" if whose == "driver" else "functions", settings.function, store, settings.deploy)
    shown = [each for each in wanted if actions.intersection(_listed(each["Action"]))]
    party = "your own identity" if whose == "driver" else "the role of the functions"
    return f"Add to the policy of {party}:\n{json.dumps(shown, indent=2)}"


def _listed(actions: str | list[str]) -> list[str]:
    return [actions] if isinstance(actions, str) else actions


# -- requests ----------


def _settings(env: Environment, provider: Provider, executor: str | None) -> Any:
    """The settings in the executor's table. Raises UsageError if no table fits, or several do."""
    from treadle.orchestrator.executor_registry.builtin_executors import KINDS

    table = env.profile.executors[_table_name(env, provider, executor)]
    return KINDS[provider].settings({key: value for key, value in table.items() if key != "kind"})


def _table_name(env: Environment, provider: Provider, executor: str | None = None) -> str:
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
    return name


def _request(
    env: Environment, provider: Provider, settings: LambdaSettings | OpenWhiskSettings, prefix: str
) -> DeployRequest:
    from treadle.orchestrator.deployment.owner import owner_of
    from treadle.orchestrator.deployment.request import DeployRequest, check_store, code_for, variables_of
    from treadle.orchestrator.environment.kafka_connections import with_connections

    store = env.profile.store_url(env.home)
    check_store(store, settings.files)
    secret = with_connections(env.profile.kafka, env.home.secret)  # a task may read a range of events
    variables = {**_region(provider, env.profile), **variables_of(settings.deploy, env.key, secret)}
    package = code_for(provider, settings.deploy, settings.files, _entry(provider))
    sizes = tuple(sorted(set(settings.sizes)))
    owner = owner_of(env.key, env.profile.name or "")
    return DeployRequest(prefix, sizes, settings.timeout, store, variables, package, settings.deploy.image, owner)


def _bare_request(env: Environment, settings: LambdaSettings | OpenWhiskSettings, prefix: str) -> DeployRequest:
    """A request without package and secrets, sufficient to remove a deployment."""
    from treadle.orchestrator.deployment.owner import owner_of
    from treadle.orchestrator.deployment.request import DeployRequest

    owner = owner_of(env.key, env.profile.name or "")
    store = env.profile.store_url(env.home)
    return DeployRequest(prefix, tuple(settings.sizes), settings.timeout, store, {}, None, "none", owner)


def _region(provider: Provider, profile: Profile) -> dict[str, str]:
    """The region variable. Lambda sets it itself, and rejects it in a request."""
    return {"AWS_REGION": profile.region} if provider == "openwhisk" and profile.region else {}


def _entry(provider: Provider) -> dict[str, bytes]:
    from treadle.executors.openwhisk.action import ENTRY

    return ENTRY if provider == "openwhisk" else {}


# -- output to files ----------


def _write_image(
    env: Environment, provider: Provider, settings: LambdaSettings | OpenWhiskSettings, folder: Path
) -> None:
    from treadle.orchestrator.deployment.request import target_of, write_image

    target = target_of(provider, settings.deploy, settings.files)
    package = write_image(provider, target, settings.deploy, {}, folder)
    complain(f"{folder}/Dockerfile, for {target}; {package.unzipped / 2**20:.0f} MiB in {folder}/package")
    complain(f"  docker build -t NAME {folder}, push it, and set deploy.image = NAME in {env.home.profiles}")


def _write_template(request: DeployRequest, settings: LambdaSettings, file: Path) -> None:
    import yaml

    from treadle.orchestrator.deployment.cloudformation import template

    made = json.loads(json.dumps(template(request, settings.deploy)))  # without shared objects: no YAML aliases
    text = yaml.safe_dump(made, sort_keys=False, width=120)
    zipped = file.with_suffix(".zip")
    with writing():
        file.write_text(text, "utf-8")
        if request.package is not None:
            zipped.write_bytes(request.package.data)
    complain(f"{file}, and the package in {zipped}" if request.package else str(file))


# -- output ----------


def _print(
    provider: Provider, request: DeployRequest, changes: Sequence[Change], output: str, *, diff: bool, dry_run: bool
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


def _print_removed(
    provider: Provider, changes: Sequence[Change], left: Sequence[str], output: str, *, dry_run: bool
) -> None:
    if output == "json":
        say_json({"provider": provider, "dryRun": dry_run, "resources": changes, "left": left})
        return
    for change in changes:
        typer.echo(f"{change.resource}: {'would be removed' if dry_run else 'removed'}")
    if not changes:
        complain("there is nothing of this profile")
    complain("left: " + "; ".join(left))


def _code(request: DeployRequest) -> dict[str, Any]:
    if (package := request.package) is None:
        return {"image": request.image}
    sizes = {"bytes": len(package.data), "unzippedBytes": package.unzipped}
    return {"digest": package.digest, "python": package.target.python, "machine": package.target.machine, **sizes}
