"""A deploy command's request, with package, key and secrets."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from treadle.executors.package.build import Package, build_package, dockerfile
from treadle.executors.package.target import Target, lambda_target, openwhisk_target, this_machine
from treadle.executors.package.treadle_wheels import version
from treadle.executors.worker.environment import KEY_FROM_VARIABLE, KEY_VARIABLE, secret_variable
from treadle.primitives.errors import UsageError
from treadle.primitives.stores.input_files import is_local

from .owner import Owner
from .settings import DeploySettings, LambdaDeploySettings

Provider = Literal["lambda", "openwhisk"]


class DeployRequest(Struct, frozen=True):
    """Everything except the settings of one provider."""

    prefix: str
    """The prefix of the functions' names."""
    sizes: tuple[int, ...]
    """Megabytes."""
    seconds: float
    store: str
    """URL."""
    variables: Mapping[str, str]
    """Most values are secret."""
    package: Package | None
    """None: the code is an image."""
    image: str = ""
    owner: Owner = Owner()

    @property
    def digest(self) -> str:
        """The digest of the code."""
        return self.package.digest if self.package else self.image

    @property
    def description(self) -> str:
        return f"treadle {version()}, code {self.digest[:64]}"


def variables_of(settings: DeploySettings, key: bytes, secret: Callable[[str], str]) -> dict[str, str]:
    """The environment of a function. Raises UsageError when a secret is missing."""
    found = {secret_variable(name): secret(name) for name in settings.secrets}
    for variable, name in getattr(settings, "environment_secrets", {}).items():
        found[variable] = secret(name)
    where = getattr(settings, "key", "")
    return {**settings.environment, **found, **({KEY_FROM_VARIABLE: where} if where else {KEY_VARIABLE: key_text(key)})}


def key_text(key: bytes) -> str:
    """The deployment key in the encoding that functions read."""
    return base64.b64encode(key).decode()


def target_of(provider: Provider, settings: DeploySettings, here: bool) -> Target:
    """The target of the package. Python is the driver's version, since functions taken by value run only on that one.

    `here`: the provider is an emulator on this machine. Raises UsageError if the provider has no such runtime.
    """
    if here:
        return this_machine()
    if provider == "openwhisk":
        return openwhisk_target()
    machine = settings.machine if isinstance(settings, LambdaDeploySettings) else "x86_64"
    return lambda_target(machine=machine)


def code_for(provider: Provider, settings: DeploySettings, here: bool, extra: Mapping[str, bytes]) -> Package | None:
    """The package. None: the code is an image. Raises UsageError when the target has no wheels."""
    if settings.image:
        return None
    return build_package(target_of(provider, settings, here), arrow=settings.arrow, kafka=settings.kafka, extra=extra)


def check_store(url: str, files: bool) -> None:
    """Raises UsageError for a store that functions cannot reach. They share only the store with the driver."""
    if is_local(url) and not files:
        raise UsageError(
            f"the store {url} is a folder of this machine, which functions cannot see",
            "Give the profile a store such as s3://bucket/treadle.",
        )


def write_image(
    provider: Provider, target: Target, settings: DeploySettings, extra: Mapping[str, bytes], folder: Path
) -> Package:
    """Write the recipe of an image and the files that it copies. Raises UsageError when the folder is not empty."""
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty", "Name a new folder.")
    package = build_package(target, arrow=settings.arrow, kafka=settings.kafka, extra=extra)
    folder.mkdir(parents=True, exist_ok=True)
    package.unpack(folder / "package")
    (folder / "Dockerfile").write_text(dockerfile(provider, target), "utf-8")
    about = {"digest": package.digest, "python": target.python, "machine": target.machine}
    (folder / "package.json").write_text(json.dumps(about, indent=2) + "\n", "utf-8")
    return package
