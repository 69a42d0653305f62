"""Functions on AWS Lambda and the role they run under, read and changed by boto3.

Every change waits until Lambda says that it is done, since a function that is being updated refuses the next one
(Lambda developer guide, "Lambda function states").
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from treadle.executors.package.build import LAMBDA, Limits
from treadle.primitives.errors import StoreError, UsageError
from treadle.primitives.stores.aws_chain import aws_region
from treadle.primitives.stores.store import Store

from .aws_keys import KeyPlace, unless_missing
from .aws_role import TRUST, policy
from .aws_wanted import CODE, EVENTS, functions, settings_of
from .request import Request
from .settings import LambdaDeploySettings
from .wanted import VARIABLES, Change, compare, surplus

POLICY = "treadle"
_ROLE_SECONDS = 60.0
"""A role just made is not known everywhere at once (IAM user guide, "Troubleshoot IAM": eventually consistent)."""


class Clients(NamedTuple):
    """boto3's."""

    functions: Any
    roles: Any
    keys: KeyPlace | None = None
    """Where functions read the deployment key, when that is no variable of theirs."""


def open_clients(region: str, endpoint: str, where: str = "", key: str = "") -> Clients:
    """`where`: the place for the deployment key, which is `key`; empty: none.

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
    """One profile's functions."""

    def __init__(
        self,
        clients: Clients,
        request: Request,
        settings: LambdaDeploySettings,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """Raises UsageError for a package that is too large."""
        self._lambda, self._roles, self._keys = clients
        self._request, self._settings, self._pause = request, settings, pause
        self._policy = policy(request.store, settings.data, request.prefix, settings.key)
        if request.package is not None:
            by_store = request.store.startswith("s3://")
            request.package.check(Limits(LAMBDA.provider, 0, LAMBDA.unzipped) if by_store else LAMBDA)

    @property
    def role_name(self) -> str:
        return f"{self._request.prefix}-functions"

    def plan(self) -> list[Change]:
        """What `apply` would do; changes nothing. May raise UsageError and StoreError."""
        with aws_errors():
            role, change = self._planned_role()
            wanted = functions(self._request, self._settings, role)
            changes = [compare(f"function {name}", wanted[name], self._function(name)) for name in wanted]
            left = [Change(f"function {name}", "left") for name in self._surplus(wanted)]
            key = [self._keys.compare()] if self._keys else []
            return [*key, *change, *changes, *left]

    def apply(self, prune: bool) -> list[Change]:
        """Make it so; returns when every function can be called. `prune`: remove sizes that are not wanted any more."""
        with aws_errors():
            key = [self._keys.apply()] if self._keys else []
            role, change = self._planned_role()
            if change:
                role = self._apply_role(change[0], role)
            wanted = functions(self._request, self._settings, role)
            changes = [self._apply_function(name, wanted[name]) for name in wanted]
            return [*key, *change, *changes, *(self._remove(name, prune) for name in self._surplus(wanted))]

    # -- the role

    def _planned_role(self) -> tuple[str, list[Change]]:
        """(ARN, what becomes of the role; nothing when it is somebody else's)."""
        if self._settings.role:
            return self._settings.role, []
        wanted = {"trust": TRUST, "policy": self._policy}
        found = unless_missing(lambda: self._roles.get_role(RoleName=self.role_name)["Role"])
        if found is None:
            return f"(the role {self.role_name})", [Change(f"role {self.role_name}", "new")]
        inline = unless_missing(lambda: self._roles.get_role_policy(RoleName=self.role_name, PolicyName=POLICY))
        there = {"trust": found["AssumeRolePolicyDocument"], "policy": inline and inline["PolicyDocument"]}
        return str(found["Arn"]), [compare(f"role {self.role_name}", wanted, there)]

    def _apply_role(self, change: Change, role: str) -> str:
        trust, document = json.dumps(TRUST), json.dumps(self._policy)
        if change.did == "new":
            about = "treadle: what functions that run tasks may do"
            made = self._roles.create_role(RoleName=self.role_name, AssumeRolePolicyDocument=trust, Description=about)
            role = made["Role"]["Arn"]
        elif change.did == "changed":
            self._roles.update_assume_role_policy(RoleName=self.role_name, PolicyDocument=trust)
        if change.did != "unchanged":
            self._roles.put_role_policy(RoleName=self.role_name, PolicyName=POLICY, PolicyDocument=document)
        return role

    # -- functions

    def _function(self, name: str) -> dict[str, Any] | None:
        found = unless_missing(lambda: self._lambda.get_function(FunctionName=name))
        if found is None:
            return None
        events = unless_missing(lambda: self._lambda.get_function_event_invoke_config(FunctionName=name)) or {}
        variables = found["Configuration"].get("Environment", {}).get("Variables", {})
        image = {"ImageUri": found.get("Code", {}).get("ImageUri")}
        return {**image, **found["Configuration"], VARIABLES: variables, **{key: events.get(key) for key in EVENTS}}

    def _apply_function(self, name: str, wanted: dict[str, Any]) -> Change:
        found = self._function(name)
        change = compare(f"function {name}", wanted, found)
        if found is None:
            self._create(name, wanted)
        else:
            self._update(name, wanted, {key for key in wanted if wanted[key] != found.get(key)})
        if change.did != "unchanged":
            self._lambda.put_function_event_invoke_config(FunctionName=name, **EVENTS)
        return change

    def _create(self, name: str, wanted: dict[str, Any]) -> None:
        about = {"Description": self._request.description, "Architectures": wanted["Architectures"]}
        options = {**settings_of(wanted), **about, "PackageType": wanted["PackageType"], "Code": self._code()}
        self._when_role_is_known(lambda: self._lambda.create_function(FunctionName=name, **options))
        self._lambda.get_waiter("function_active_v2").wait(FunctionName=name)

    def _update(self, name: str, wanted: dict[str, Any], differs: set[str]) -> None:
        updated = self._lambda.get_waiter("function_updated_v2")
        if differs.intersection(CODE):
            machines = {"Architectures": wanted["Architectures"]}
            self._lambda.update_function_code(FunctionName=name, **self._code(), **machines)
            updated.wait(FunctionName=name)
        if differs - {*CODE, *EVENTS}:
            options = {**settings_of(wanted), "Description": self._request.description}
            self._when_role_is_known(lambda: self._lambda.update_function_configuration(FunctionName=name, **options))
            updated.wait(FunctionName=name)

    def _code(self) -> dict[str, Any]:
        """The zip itself, or where it is when it is too large to be sent (CreateFunction, FunctionCode)."""
        package = self._request.package
        if package is None:
            return {"ImageUri": self._request.image}
        if len(package.data) <= LAMBDA.zipped:
            return {"ZipFile": package.data}
        name = f"functions/{package.digest}.zip"
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

    # -- what is not wanted any more

    def _surplus(self, wanted: dict[str, Any]) -> list[str]:
        pages = self._lambda.get_paginator("list_functions").paginate()
        known = (function["FunctionName"] for page in pages for function in page["Functions"])
        return surplus(self._request.prefix, known, wanted)

    def _remove(self, name: str, prune: bool) -> Change:
        if not prune:
            return Change(f"function {name}", "left")
        self._lambda.delete_function(FunctionName=name)
        return Change(f"function {name}", "removed")


@contextmanager
def aws_errors() -> Iterator[None]:
    """What boto3 raises, as UsageError or StoreError."""
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

    try:
        yield
    except ClientError as error:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if status >= 500 or status == 429:
            raise StoreError(f"AWS does not do it now: {error}", "Try again later.", retryable=True) from error
        raise UsageError(f"AWS refuses: {error}", "See that your credentials allow it (docs/lambda.md).") from error
    except NoCredentialsError as error:
        raise UsageError("there are no credentials for AWS", "Set them as for the AWS command line.") from error
    except BotoCoreError as error:
        raise StoreError(f"AWS cannot be reached: {error}", "Check region, endpoint and network.") from error
