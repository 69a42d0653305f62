"""The role of the functions on Lambda, read and changed by boto3 (IAM API reference)."""

from __future__ import annotations

import json
from typing import Any

from .aws_keys import unless_missing
from .desired_state import Change, compare
from .lambda_desired_state import TAGS, tags_of
from .request import DeployRequest
from .role_policies import TRUST, policy
from .settings import LambdaDeploySettings

POLICY = "treadle"


class FunctionsRole:
    """The role `<prefix>-functions`. Its methods raise boto3's errors."""

    def __init__(
        self, client: Any, request: DeployRequest, settings: LambdaDeploySettings, *, adopt: bool = False
    ) -> None:
        """`client`: boto3's client for IAM. `adopt`: take the role over from another profile."""
        self._client, self._owner, self._adopt = client, request.owner, adopt
        self.name = f"{request.prefix}-functions"
        self._tags = tags_of(request, settings)
        self._policy = policy(
            request.store, settings.data, request.prefix, settings.key, network=bool(settings.subnets)
        )
        self._arn = f"(the role {self.name})"

    def compare(self) -> tuple[str, Change]:
        """(ARN, the change that `apply` would make). Raises UsageError when the role belongs to another profile."""
        wanted = {"trust": TRUST, "policy": self._policy, TAGS: self._tags}
        found = unless_missing(lambda: self._client.get_role(RoleName=self.name)["Role"])
        if found is None:
            return self._arn, Change(f"role {self.name}", "new")
        tags = _tags_of(found)
        if not self._adopt:
            self._owner.check(f"role {self.name}", tags, "function")
        self._arn = str(found["Arn"])
        inline = unless_missing(lambda: self._client.get_role_policy(RoleName=self.name, PolicyName=POLICY))
        there = {"trust": found["AssumeRolePolicyDocument"], "policy": inline and inline["PolicyDocument"]}
        there[TAGS] = {key: value for key, value in tags.items() if key in self._tags}
        return self._arn, compare(f"role {self.name}", wanted, there)

    def apply(self, change: Change) -> str:
        """Make the change that `compare` returned. Returns the ARN."""
        trust, document = json.dumps(TRUST), json.dumps(self._policy)
        tags = [{"Key": key, "Value": value} for key, value in self._tags.items()]
        if change.did == "new":
            about = "treadle: what functions that run tasks may do"
            options = {"AssumeRolePolicyDocument": trust, "Description": about, TAGS: tags}
            self._arn = str(self._client.create_role(RoleName=self.name, **options)["Role"]["Arn"])
        elif change.did == "changed":
            self._client.update_assume_role_policy(RoleName=self.name, PolicyDocument=trust)
            self._client.tag_role(RoleName=self.name, Tags=tags)
        if change.did != "unchanged":
            self._client.put_role_policy(RoleName=self.name, PolicyName=POLICY, PolicyDocument=document)
        return self._arn

    def remove(self, dry_run: bool) -> list[Change]:
        """Remove the role if it exists and belongs to this profile. Its inline policies must go first (DeleteRole)."""
        found = unless_missing(lambda: self._client.get_role(RoleName=self.name)["Role"])
        if found is None or not self._owner.has(_tags_of(found)):
            return []
        if not dry_run:
            unless_missing(lambda: self._client.delete_role_policy(RoleName=self.name, PolicyName=POLICY))
            self._client.delete_role(RoleName=self.name)
        return [Change(f"role {self.name}", "removed")]


def _tags_of(role: dict[str, Any]) -> dict[str, str]:
    return {each["Key"]: each["Value"] for each in role.get(TAGS, ())}
