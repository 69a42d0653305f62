"""The wanted functions on Lambda, as its API describes them. Pure."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from typing import Any

from treadle.executors.aws.invoker import function_name
from treadle.primitives.errors import UsageError

from .desired_state import VARIABLES
from .request import DeployRequest
from .settings import LambdaDeploySettings

HANDLER = "treadle.executors.aws.entry.handler"
EVENTS = {"MaximumRetryAttempts": 0, "MaximumEventAgeInSeconds": 60}
"""Settings of asynchronous calls. Only the dispatcher retries; it calls again if a call has waited for a minute."""
TAGS = "Tags"
_LAMBDA_NAME = {"x86_64": "x86_64", "aarch64": "arm64"}
_VARIABLES_LIMIT = 4096
"""Bytes (Lambda quotas: environment variables)."""


def functions(request: DeployRequest, settings: LambdaDeploySettings, role: str) -> dict[str, dict[str, Any]]:
    """Name -> wanted function. Raises UsageError when the variables are larger than Lambda allows."""
    size = sum(len(name.encode()) + len(value.encode()) for name, value in request.variables.items())
    if size > _VARIABLES_LIMIT:
        raise UsageError(
            f"the variables of the functions have {size} bytes, Lambda takes {_VARIABLES_LIMIT}",
            "Deploy fewer secrets.",
        )
    return {function_name(request.prefix, size): _function(request, settings, role, size) for size in request.sizes}


def _function(request: DeployRequest, settings: LambdaDeploySettings, role: str, size: int) -> dict[str, Any]:
    return {
        **code_of(request),
        "Role": role,
        "MemorySize": size,
        "Timeout": round(request.seconds),
        "EphemeralStorage": {"Size": settings.temporary},
        "Architectures": [_LAMBDA_NAME[settings.machine]],
        "VpcConfig": network(settings.subnets, settings.security_groups),
        TAGS: tags_of(request, settings),
        VARIABLES: dict(request.variables),
        **EVENTS,
    }


def tags_of(request: DeployRequest, settings: LambdaDeploySettings) -> dict[str, str]:
    """The tags of a function and of the role."""
    return {**settings.tags, **request.owner.tags}


def network(subnets: Iterable[str], groups: Iterable[str]) -> dict[str, list[str]]:
    """VpcConfig. Empty lists mean that the function is in no VPC (UpdateFunctionConfiguration)."""
    return {"SubnetIds": sorted(subnets), "SecurityGroupIds": sorted(groups)}


def code_of(request: DeployRequest) -> dict[str, Any]:
    if request.package is None:
        return {"PackageType": "Image", "ImageUri": request.image}
    return {
        "PackageType": "Zip",
        "CodeSha256": base64.b64encode(hashlib.sha256(request.package.data).digest()).decode(),
        "Runtime": f"python{request.package.target.python}",
        "Handler": HANDLER,
    }


CODE = ("CodeSha256", "ImageUri", "PackageType", "Architectures")
"""The keys that UpdateFunctionCode sets."""
SETTINGS = ("Runtime", "Handler", "Role", "MemorySize", "Timeout", "EphemeralStorage", "VpcConfig")
"""The keys that UpdateFunctionConfiguration sets, besides variables."""


def settings_of(wanted: dict[str, Any]) -> dict[str, Any]:
    """The settings in the form of CreateFunction and UpdateFunctionConfiguration."""
    found = {key: wanted[key] for key in SETTINGS if key in wanted}
    return {**found, "Environment": {"Variables": wanted[VARIABLES]}}
