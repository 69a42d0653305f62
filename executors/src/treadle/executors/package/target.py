"""The machine a package is for. Python version, architecture and C library decide which wheels it accepts (PEP 600)."""

from __future__ import annotations

import platform
from typing import Literal, NamedTuple, get_args

from treadle.primitives.errors import UsageError

from ..bundle.build import python_version

Machine = Literal["x86_64", "aarch64"]


class Target(NamedTuple):
    """A Linux machine with glibc."""

    python: str
    """Minor version, such as `3.12`."""
    machine: Machine
    glibc: tuple[int, int]

    @property
    def platform_tags(self) -> list[str]:
        """Tags of accepted wheels, newest first; 2.17 has both of its names (PEP 599 and PEP 600)."""
        tags = [f"manylinux_{self.glibc[0]}_{minor}_{self.machine}" for minor in range(self.glibc[1], 16, -1)]
        return [*tags, f"manylinux2014_{self.machine}"]

    def __str__(self) -> str:
        return f"Python {self.python} on {self.machine} with glibc {self.glibc[0]}.{self.glibc[1]}"


LAMBDA_GLIBC = {"3.11": (2, 26), "3.12": (2, 34), "3.13": (2, 34), "3.14": (2, 34)}
"""Lambda's managed runtimes: python3.11 runs on Amazon Linux 2, later ones on Amazon Linux 2023
(docs.aws.amazon.com/lambda/latest/dg/lambda-runtimes.html)."""

OPENWHISK_GLIBC = {"3.11": (2, 36), "3.12": (2, 36)}
"""Images of apache/openwhisk-runtime-python: `FROM python:3.N-bookworm` (core/python3NAction/Dockerfile). An unchanged
installation has 3.11 and 3.10; treadle does not run on 3.10 (ansible/files/runtimes.json of apache/openwhisk)."""


def lambda_target(python: str = "", machine: str = "x86_64") -> Target:
    """A managed runtime of AWS Lambda. Raises UsageError if Lambda does not offer this version of Python."""
    return _provided("AWS Lambda", LAMBDA_GLIBC, python, machine)


def openwhisk_target(python: str = "") -> Target:
    """A Python runtime of Apache OpenWhisk, whose images are for x86_64. Raises UsageError as `lambda_target` does."""
    return _provided("Apache OpenWhisk", OPENWHISK_GLIBC, python, "x86_64")


def use_python(version: str) -> str:
    """A hint with the command that recreates treadle's environment with another Python."""
    command = f"make clean .venv/ready PYTHON=python{version}"
    return f"In treadle's folder, `{command}` makes an environment of Python {version}."


def this_machine() -> Target:
    """The machine of this interpreter. Raises UsageError if it is not Linux with glibc."""
    library, version = platform.libc_ver()
    if library != "glibc":
        raise UsageError("packages are for Linux with glibc, which this machine is not", "Name the target.")
    major, minor = (int(step) for step in version.split(".")[:2])
    return Target(python_version(), _machine(platform.machine()), (major, minor))


def _provided(provider: str, offered: dict[str, tuple[int, int]], python: str, machine: str) -> Target:
    """A provider's target, by default for the driver's Python version, which functions taken by value need."""
    python = python or python_version()
    if python not in offered:
        raise UsageError(
            f"{provider} has no runtime for Python {python}; it has {', '.join(offered)}",
            f"{use_python(max(offered, key=_minor))} Or name an image of your own: `image` of the table `deploy`.",
        )
    return Target(python, _machine(machine), offered[python])


def _minor(python: str) -> int:
    return int(python.partition(".")[2])


def _machine(name: str) -> Machine:
    known: tuple[Machine, ...] = get_args(Machine)
    for machine in known:
        if name in (machine, {"aarch64": "arm64"}.get(machine)):
            return machine
    raise UsageError(f"there are no packages for {name}", f"Choose one of {', '.join(known)}.")
