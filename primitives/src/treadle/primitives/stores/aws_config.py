"""AWS credentials, region and endpoint from the files that the AWS tools share (`~/.aws/config`, `~/.aws/credentials`).

obstore reads variables, and knows the roles of containers and instances. Profiles, SSO, assumed roles and
`credential_process` are read by botocore, which comes with boto3. Without those files nothing is imported.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import urlsplit

from ..addresses import is_loopback
from ..errors import UsageError

_FILES = {"AWS_CONFIG_FILE": "~/.aws/config", "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials"}
_CREDENTIALS = ("access_key_id", "skip_signature", "credential_provider")
_CREDENTIAL_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SKIP_SIGNATURE")
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_COPYING = ("copy_if_not_exists", "aws_copy_if_not_exists", "AWS_COPY_IF_NOT_EXISTS")
"""Names of the option or variable that sets an S3 store's own way of copying to a free name."""
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_LIFE = timedelta(minutes=10)
"""Seconds after which credentials are read again: the files may have changed. botocore renews credentials 15 to 10
minutes before they expire (botocore.credentials.RefreshableCredentials).
"""
_MARGIN = timedelta(minutes=1)


class CredentialsError(Exception):
    """The shared files lead to no credentials. obstore carries the message into its own error."""


class Credentials(TypedDict):
    """Credentials in obstore's form."""

    access_key_id: str
    secret_access_key: str
    token: str | None
    expires_at: datetime


def shared_files() -> bool:
    """Return whether this process can see a settings file of the AWS tools."""
    return any(Path(os.environ.get(variable) or path).expanduser().exists() for variable, path in _FILES.items())


def aws_region() -> str:
    """The region of AWS_REGION, AWS_DEFAULT_REGION, or the shared files, in this order; empty: none is set.

    boto3 alone does not read AWS_REGION. Raises UsageError for an AWS_PROFILE that the files do not have.
    """
    named = next(filter(None, map(os.environ.get, _REGIONS)), "")
    found = None if named else _shared()
    return named or (found.region if found else "")


def s3_settings(options: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """Return (options completed from variables and files, credential provider or None) for an S3 store.

    `options` and variables take precedence over the files. Raises UsageError as `aws_region` does.
    """
    options, provider = _with_shared(options)
    if not any(name in options or name in os.environ for name in _COPYING):
        options[_COPYING[0]] = "multipart"
    endpoint = next(filter(None, [options.get("endpoint"), *map(os.environ.get, _ENDPOINTS)]), "")
    return options | ({"endpoint": endpoint} if endpoint else {}), provider


def _with_shared(options: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    given = {name.lower().removeprefix("aws_") for name in options}
    with_keys = given.intersection(_CREDENTIALS) or any(map(os.environ.get, _CREDENTIAL_VARIABLES))
    with_region = "region" in given or any(map(os.environ.get, _REGIONS))
    if (with_keys and with_region) or (found := _shared()) is None:
        return dict(options), None
    added = {} if with_region or not found.region else {"region": found.region}
    if found.endpoint and "endpoint" not in given and not any(map(os.environ.get, _ENDPOINTS)):
        added["endpoint"] = found.endpoint
    return {**options, **added}, None if with_keys else found


def plain_http(endpoint: str) -> dict[str, bool]:
    """The client option that plain HTTP needs. Raises UsageError where it is not allowed."""
    if not endpoint.startswith("http://"):
        return {}
    allowed = os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("true", "1")
    if not allowed and not is_loopback(urlsplit(endpoint).hostname or ""):
        text = f"the endpoint {endpoint} is plain HTTP and not on loopback"
        raise UsageError(text, "Use https://, or set AWS_ALLOW_HTTP=true.")
    return {"allow_http": True}


class SharedSettings:
    """The settings of one profile in the shared files. Calling it returns credentials. Safe for several threads."""

    def __init__(self) -> None:
        session = _session()
        try:
            scoped = session.get_scoped_config()
            self.region = str(session.get_config_variable("region") or "")
        except _errors() as error:
            raise UsageError(
                f"the settings of AWS cannot be used: {error}", "Correct AWS_PROFILE or the file."
            ) from error
        self.endpoint = _endpoint(session.full_config, scoped)
        self._lock = threading.Lock()
        self._kept: Credentials | None = None

    def __call__(self) -> Credentials:
        """Credentials that are valid now. Raises CredentialsError."""
        with self._lock:
            if self._kept is None or self._kept["expires_at"] <= datetime.now(UTC):
                self._kept = _credentials()
            return self._kept


def _shared() -> SharedSettings | None:
    """None: the files are missing, or botocore is not installed."""
    if not shared_files():
        return None
    if find_spec("botocore") is None:
        if os.environ.get("AWS_PROFILE"):
            raise UsageError("AWS_PROFILE is set, and boto3 is not installed", "pip install 'treadle-executors[aws]'")
        return None
    names = (*_FILES, *_REGIONS, "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "HOME")
    return _settings(tuple(os.environ.get(name, "") for name in names))


@lru_cache(maxsize=8)
def _settings(environment: tuple[str, ...]) -> SharedSettings:  # noqa: ARG001 (it is the key of the cache)
    return SharedSettings()


def _session() -> Any:
    """A new one reads the files again."""
    import botocore.session

    return botocore.session.Session()


def _errors() -> tuple[type[Exception], ...]:
    from botocore.exceptions import BotoCoreError, ClientError

    return BotoCoreError, ClientError


def _endpoint(files: Mapping[str, Any], profile: Mapping[str, Any]) -> str:
    """`endpoint_url` of the profile's `services` section for S3, or of the profile (AWS SDKs reference guide,
    "Service-specific endpoints")."""
    service = files.get("services", {}).get(profile.get("services", ""), {}).get("s3", {})
    return str(service.get("endpoint_url") or profile.get("endpoint_url") or "")


def _credentials() -> Credentials:
    try:
        found = _session().get_credentials()
        if found is None:
            raise CredentialsError("the files of AWS lead to no credentials")
        frozen = found.get_frozen_credentials()
    except _errors() as error:
        raise CredentialsError(" ".join(str(error).split())) from error
    latest = datetime.now(UTC) + _LIFE
    expires = getattr(found, "_expiry_time", None)
    expiry = expires.astimezone(UTC) if expires else latest  # obstore takes no other class of time zone
    return Credentials(
        access_key_id=frozen.access_key,
        secret_access_key=frozen.secret_key,
        token=frozen.token,
        expires_at=min(latest, expiry - _MARGIN),
    )
