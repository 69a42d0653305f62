"""The environment variables of tasks (docs/operating.md, "Environment variables of tasks").

On the embedded default they must not depend on the command that started the driver. So tasks get a fixed base, the
variables named here, and the profile's variables. A command whose values of the named variables differ does not use the
driver (see `marks`).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.executors.worker.environment import secret_variable
from treadle.primitives import sealing

from .home import Home

if TYPE_CHECKING:
    from .profile import Profile

_FOLDERS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PASSED = {
    *("HOME", "USER", "LOGNAME", "TMPDIR", "XDG_CACHE_HOME", "LD_LIBRARY_PATH"),
    *("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"),
}
_PASSED_PREFIXES = ("AWS_", "GOOGLE_", "AZURE_")
"""Settings and credentials of stores."""


def task_variables(profile: Profile) -> dict[str, str]:
    """The variables that executors give to tasks. A driver of `treadle worker` passes on all of its own."""
    if not profile.embedded:
        return {**os.environ, **profile.environment}
    base = {"PATH": f"{Path(sys.executable).parent}:{_FOLDERS}", "LANG": "C.UTF-8"}
    passed = {name: value for name, value in os.environ.items() if _is_passed(name)}
    return {**base, **passed, **profile.environment}


def marks(home: Home, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """A keyed digest of each variable whose value a driver takes from the command that starts it.

    `PYTHONPATH` is left out, since it belongs to the identity of the Python environment.
    """
    key = sealing.load_or_create_key(home.key)
    counted = (name for name in environ if _is_passed(name) or name.startswith(secret_variable("")))
    return {name: _mark(key, environ[name]) for name in sorted(counted) if name != "PYTHONPATH"}


def differing(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """The names of variables whose values differ, or that only one of the mappings has."""
    return [name for name in sorted({*one, *other}) if one.get(name) != other.get(name)]


def _is_passed(name: str) -> bool:
    return name.upper() in _PASSED or name.startswith(_PASSED_PREFIXES)


def _mark(key: bytes, value: str) -> str:
    return hmac.new(key, os.fsencode(value), hashlib.sha256).hexdigest()[:16]
