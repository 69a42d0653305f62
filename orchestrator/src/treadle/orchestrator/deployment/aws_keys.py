"""The deployment key of functions on Lambda: a secret of Secrets Manager, or a parameter of Systems Manager.

API references: Secrets Manager, CreateSecret, PutSecretValue, GetSecretValue; Systems Manager, PutParameter and
GetParameter with type SecureString.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from treadle.primitives.errors import UsageError

from .desired_state import Change

_MISSING = ("ResourceNotFoundException", "ParameterNotFound", "NoSuchEntity", "NoSuchEntityException", "404")
"""Error codes of AWS for a resource that does not exist. They differ by service."""
_ABOUT = "treadle: the deployment key, which seals runs"


class KeyPlace:
    """One secret or parameter. Its value is compared, never shown."""

    def __init__(self, client: Any, where: str, key: str) -> None:
        """`client`: boto3's client of the service before the colon in `where`. `key`: the wanted value."""
        self._client, self._key = client, key
        self._service, _, self._name = where.partition(":")

    def compare(self, adopt: bool = True) -> Change:
        """The change that `apply` would make. Without `adopt`, raises UsageError when it holds another deployment's
        key."""
        found = self._found()
        did = "new" if found is None else "unchanged" if found == self._key else "changed"
        kind = "parameter" if self._service == "ssm" else "secret"
        if did == "changed" and not adopt:
            hint = "Name another place in deploy.key, or replace the key that is there with --adopt."
            raise UsageError(f"the {kind} {self._name} holds another deployment key", hint)
        return Change(f"{kind} {self._name}", did, ("value: changed",) if did == "changed" else ())  # type: ignore[arg-type]

    def apply(self) -> Change:
        """Create or change it."""
        change = self.compare()
        if change.did == "unchanged":
            return change
        if self._service == "ssm":
            options: dict[str, Any] = {"Type": "SecureString", "Overwrite": True, "Description": _ABOUT}
            self._client.put_parameter(Name=self._name, Value=self._key, **options)
        elif change.did == "new":
            self._client.create_secret(Name=self._name, SecretString=self._key, Description=_ABOUT)
        else:
            self._client.put_secret_value(SecretId=self._name, SecretString=self._key)
        return change

    def _found(self) -> str | None:
        if self._service == "ssm":
            found = unless_missing(lambda: self._client.get_parameter(Name=self._name, WithDecryption=True))
            return None if found is None else str(found["Parameter"]["Value"])
        found = unless_missing(lambda: self._client.get_secret_value(SecretId=self._name))
        return None if found is None else str(found.get("SecretString", ""))  # a secret of bytes has none


def unless_missing(read: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """The result of a boto3 call. None: the resource does not exist."""
    from botocore.exceptions import ClientError

    try:
        return read()
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") in _MISSING:
            return None
        raise
