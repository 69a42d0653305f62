"""The documents of the deployed actions, one for each size. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from ..package.build import Package
from .entry import MEMORY_VARIABLE

ENTRY = {"__main__.py": b"from treadle.executors.openwhisk.entry import ready\n\nmain = ready()\n"}
"""The additional file in a package for OpenWhisk (actions-python.md, "Packaging Python actions in zip files")."""
LOGS = 1
"""Megabytes of log; the output of user code is in the reports."""
PACKAGE, SETTINGS = "treadle-package", "treadle-settings"
"""Annotations that identify the deployed content: the digest of the package, and a digest of the settings."""


def code_of(package: Package) -> dict[str, Any]:
    """The `exec` of a zip in the runtime of the package's Python."""
    code = base64.b64encode(package.data).decode()
    return {"kind": f"python:{package.target.python}", "code": code, "binary": True, "main": "main"}


def image_of(image: str) -> dict[str, Any]:
    """The `exec` of an image that contains the libraries (actions-docker.md, "Extending Existing Runtimes")."""
    return {"kind": "blackbox", "image": image, "code": ENTRY["__main__.py"].decode(), "binary": False, "main": "main"}


def action_document(
    execute: Mapping[str, Any],
    digest: str,
    settings: str,
    *,
    size: int,
    seconds: float,
    environment: Mapping[str, str],
    tags: Mapping[str, str],
) -> dict[str, Any]:
    """The document for PUT. `size` is in megabytes; `settings` is a digest of the other settings, including the
    environment; `tags` become annotations.

    `environment` becomes parameters marked `init`, which the runtime sets before the action starts. They are `final`:
    otherwise the first caller of a container could give it another key (annotations.md).
    """
    variables = {**environment, MEMORY_VARIABLE: str(size)}
    return {
        "exec": dict(execute),
        "limits": {"timeout": round(seconds * 1000), "memory": size, "logs": LOGS, "concurrency": 1},
        "parameters": [{"key": key, "value": value, "init": True} for key, value in sorted(variables.items())],
        "annotations": [
            {"key": PACKAGE, "value": digest},
            {"key": SETTINGS, "value": settings},
            {"key": "provide-api-key", "value": False},
            {"key": "final", "value": True},
            *({"key": key, "value": value} for key, value in tags.items()),
        ],
    }
