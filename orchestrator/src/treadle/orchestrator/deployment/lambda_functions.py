"""Functions on AWS Lambda and their role, read and changed by boto3.

Every change waits until Lambda reports that it is complete, since a function that is being updated refuses the next
update (Lambda developer guide, "Lambda function states").
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from treadle.executors.package.build import LAMBDA, PackageLimits
from treadle.primitives.errors import StoreError, UsageError
from treadle.primitives.stores.aws_config import aws_region
from treadle.primitives.stores.store import Store

from .aws_keys import KeyPlace, unless_missing
from .aws_role_api import FunctionsRole
from .desired_state import VARIABLES, Change, compare, surplus
from .lambda_desired_state import CODE, EVENTS, TAGS, functions, network, settings_of
from .request import DeployRequest
from .settings import LambdaDeploySettings

_PACKAGES = "functions"
"""The folder in the store for packages that are too large to send."""
_MINIMAL = "`treadle deploy lambda --policy deployer` prints the policy that is needed"
_ROLE_SECONDS = 60.0
"""A new role is not known everywhere at once (IAM user guide, "Troubleshoot IAM": eventually consistent)."""


class Clients(NamedTuple):
    """The clients of boto3."""

    functions: Any
    roles: Any
    keys: KeyPlace | None = None
    """The place of the deployment key, when it is not in a variable of the functions."""


def open_clients(region: str, endpoint: str, where: str = "", key: str = "") -> Clients:
    """`where`: the place of the deployment key; empty: none. `key`: its value.

    Raises UsageError when boto3 is not installed, or has no region.
    """
    try:
        import boto3.session
        from botocore.exceptions import BotoCoreError
    except ImportError as error:
        raise UsageError("boto3 is not installed", "Install treadle-executors[aws].") from error
    session = boto3.session.Session()
    options: dict[str, Any] = {"region_name": region or aws_region() or None}
    try:
        keys = KeyPlace(session.client(where.partition(":")[0], **options), where, key) if where else None
        lambdas = session.client("lambda", endpoint_url=endpoint or None, **options)
        return Clients(lambdas, session.client("iam", **options), keys)
    except BotoCoreError as error:
        raise UsageError(f"AWS cannot be called: {error}", "Set `region` in the profile, or AWS_REGION.") from error


class LambdaDeployment:
    """The functions of one profile."""

    def __init__(
        self,
        clients: Clients,
        request: DeployRequest,
        settings: LambdaDeploySettings,
        pause: Callable[[float], None] = time.sleep,
        *,
        adopt: bool = False,
    ) -> None:
        """`adopt`: take over another profile's resources. Raises UsageError for a package that is too large."""
        self._lambda, self._keys = clients.functions, clients.keys
        self._request, self._settings, self._pause, self._adopt = request, settings, pause, adopt
        self._role = FunctionsRole(clients.roles, request, settings, adopt=adopt)
        if request.package is not None:
            by_store = request.store.startswith("s3://")
            request.package.check(PackageLimits(LAMBDA.provider, 0, LAMBDA.unzipped) if by_store else LAMBDA)

    def plan(self) -> list[Change]:
        """The changes that `apply` would make; changes nothing. Raises UsageError and StoreError."""
        with aws_errors():
            return self._planned().changes

    def apply(self, prune: bool) -> list[Change]:
        """Make the changes; returns when every function can be called. `prune`: remove surplus sizes."""
        with aws_errors():
            planned = self._planned()  # refuses resources of other owners before any change
            if self._keys:
                self._keys.apply()
            role = self._role.apply(planned.role) if planned.role else self._settings.role
            wanted = functions(self._request, self._settings, role)
            changes = [self._apply_function(name, wanted[name], planned.found[name]) for name in wanted]
            rest = [self._remove(name, prune) for name in planned.surplus]
            return [*planned.key, *([planned.role] if planned.role else []), *changes, *rest]

    def remove(self, dry_run: bool) -> list[Change]:
        """Remove this profile's functions of every size, their role, and their uploaded packages."""
        with aws_errors():
            names = self._surplus(())
            if not dry_run:
                for name in names:
                    self._lambda.delete_function(FunctionName=name)
            role = [] if self._settings.role else self._role.remove(dry_run)
            return [*(Change(f"function {name}", "removed") for name in names), *role, *self._remove_packages(dry_run)]

    def _planned(self) -> _Planned:
        key = [self._keys.compare(self._adopt)] if self._keys else []
        arn, role = (self._settings.role, None) if self._settings.role else self._role.compare()
        wanted = functions(self._request, self._settings, arn)
        found = {name: self._function(name, wanted[name]) for name in wanted}
        changes = [compare(f"function {name}", wanted[name], found[name]) for name in wanted]
        return _Planned(key, role, found, changes, self._surplus(wanted))

    # -- functions

    def _function(self, name: str, wanted: dict[str, Any]) -> dict[str, Any] | None:
        """The function in the form of `functions`. Raises UsageError when it belongs to another profile."""
        found = unless_missing(lambda: self._lambda.get_function(FunctionName=name))
        if found is None:
            return None
        if refused := found.get("TagsError"):  # GetFunction leaves the tags out without the right to read them
            raise UsageError(f"the tags of {name} cannot be read: {refused.get('Message')}", "Allow lambda:ListTags.")
        tags, about = found.get("Tags", {}), found["Configuration"]
        if not self._adopt:
            self._request.owner.check(f"function {name}", tags, "function")
        events = unless_missing(lambda: self._lambda.get_function_event_invoke_config(FunctionName=name)) or {}
        vpc = about.get("VpcConfig") or {}
        return {
            "ImageUri": found.get("Code", {}).get("ImageUri"),
            **about,
            "VpcConfig": network(vpc.get("SubnetIds", ()), vpc.get("SecurityGroupIds", ())),
            VARIABLES: about.get("Environment", {}).get("Variables", {}),
            TAGS: {key: value for key, value in tags.items() if key in wanted[TAGS]},
            **{key: events.get(key) for key in EVENTS},
        }

    def _apply_function(self, name: str, wanted: dict[str, Any], found: dict[str, Any] | None) -> Change:
        change = compare(f"function {name}", wanted, found)
        if found is None:
            self._create(name, wanted)
        else:
            self._update(name, wanted, found)
        if change.did != "unchanged":
            self._lambda.put_function_event_invoke_config(FunctionName=name, **EVENTS)
        return change

    def _create(self, name: str, wanted: dict[str, Any]) -> None:
        about = {"Description": self._request.description, "Architectures": wanted["Architectures"]}
        about |= {"PackageType": wanted["PackageType"], "Code": self._code(), TAGS: wanted[TAGS]}
        options = {**settings_of(wanted), **about}
        self._when_role_is_known(lambda: self._lambda.create_function(FunctionName=name, **options))
        self._lambda.get_waiter("function_active_v2").wait(FunctionName=name)

    def _update(self, name: str, wanted: dict[str, Any], found: dict[str, Any]) -> None:
        differs = {key for key in wanted if wanted[key] != found.get(key)}
        updated = self._lambda.get_waiter("function_updated_v2")
        if TAGS in differs:
            self._lambda.tag_resource(Resource=found["FunctionArn"], Tags=wanted[TAGS])
        if differs.intersection(CODE):
            machines = {"Architectures": wanted["Architectures"]}
            self._lambda.update_function_code(FunctionName=name, **self._code(), **machines)
            updated.wait(FunctionName=name)
        if differs - {*CODE, *EVENTS, TAGS}:
            options = {**settings_of(wanted), "Description": self._request.description}
            self._when_role_is_known(lambda: self._lambda.update_function_configuration(FunctionName=name, **options))
            updated.wait(FunctionName=name)

    def _code(self) -> dict[str, Any]:
        """The zip, or its place in the store if it is too large to send (CreateFunction, FunctionCode)."""
        package = self._request.package
        if package is None:
            return {"ImageUri": self._request.image}
        if len(package.data) <= LAMBDA.zipped:
            return {"ZipFile": package.data}
        name = f"{_PACKAGES}/{package.digest}.zip"
        Store.open(self._request.store).put(name, package.data)
        bucket, _, prefix = self._request.store.removeprefix("s3://").strip("/").partition("/")
        return {"S3Bucket": bucket, "S3Key": f"{prefix}/{name}".lstrip("/")}

    def _when_role_is_known(self, do: Callable[[], Any]) -> None:
        from botocore.exceptions import ClientError

        waited, step = 0.0, 1.0
        while True:
            try:
                do()
                return
            except ClientError as error:
                if "cannot be assumed" not in str(error) or waited >= _ROLE_SECONDS:
                    raise
            self._pause(step)
            waited, step = waited + step, step * 2

    # -- surplus resources

    def _surplus(self, wanted: Iterable[str]) -> list[str]:
        """Names of this profile's functions that are not wanted."""
        pages = self._lambda.get_paginator("list_functions").paginate()
        known = {one["FunctionName"]: one["FunctionArn"] for page in pages for one in page["Functions"]}
        owner = self._request.owner
        return [
            name
            for name in surplus(self._request.prefix, known, wanted)
            if owner.has(self._lambda.list_tags(Resource=known[name])["Tags"])
        ]

    def _remove(self, name: str, prune: bool) -> Change:
        if not prune:
            return Change(f"function {name}", "left")
        self._lambda.delete_function(FunctionName=name)
        return Change(f"function {name}", "removed")

    def _remove_packages(self, dry_run: bool) -> list[Change]:
        """Remove the packages that were too large to send. A function does not need its package any more."""
        if not self._request.store.startswith("s3://"):
            return []
        store = Store.open(self._request.store)
        names = [info.name for info in store.list(_PACKAGES) if info.name.endswith(".zip")]
        if not dry_run:
            store.delete(names)
        return [Change(f"package {name}", "removed") for name in names]


class _Planned(NamedTuple):
    key: list[Change]
    role: Change | None
    """None: treadle does not manage the role."""
    found: dict[str, dict[str, Any] | None]
    functions: list[Change]
    surplus: list[str]

    @property
    def changes(self) -> list[Change]:
        left = [Change(f"function {name}", "left") for name in self.surplus]
        return [*self.key, *([self.role] if self.role else []), *self.functions, *left]


@contextmanager
def aws_errors() -> Iterator[None]:
    """Converts boto3's errors to UsageError or StoreError."""
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

    try:
        yield
    except ClientError as error:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if status >= 500 or status == 429:
            raise StoreError(f"AWS does not do it now: {error}", "Try again later.", retryable=True) from error
        raise UsageError(f"AWS refuses: {error}", f"Allow it: {_MINIMAL}.") from error
    except NoCredentialsError as error:
        raise UsageError("there are no credentials for AWS", "Set them as for the AWS command line.") from error
    except BotoCoreError as error:
        raise StoreError(f"AWS cannot be reached: {error}", "Check region, endpoint and network.") from error
