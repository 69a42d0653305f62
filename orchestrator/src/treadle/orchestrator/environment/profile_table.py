"""The table of a profile before it is checked, without the libraries that check it (see `profile`)."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from treadle.primitives.errors import UsageError

from .home import Home

if TYPE_CHECKING:
    from temporalio.envconfig import ClientConfigProfile

QUEUE = "treadle"
"""The default task queue."""
SDK_DEFAULT = "default"
"""The SDK's name for the profile that it uses by default."""


class CommandSettings(NamedTuple):
    """The settings that every command needs."""

    embedded: bool
    """Temporal is the embedded server of the home."""
    queue: str
    """Temporal task queue."""
    store: str
    """URL of the store."""


def default_settings(home: Home, name: str | None, environ: Mapping[str, str] = os.environ) -> CommandSettings | None:
    """The settings of the embedded default. None: a profile or the SDK's own settings must be loaded and checked.

    Raises UsageError for an unknown profile.
    """
    _, table = read_table(home, name, environ)
    if table.keys() - {"store"}:
        return None
    return CommandSettings(True, QUEUE, table.get("store") or home.store.as_uri())


def read_table(home: Home, name: str | None, environ: Mapping[str, str]) -> tuple[str | None, dict[str, Any]]:
    """The name of the profile in force, and its table with the variables that replace parts of it.

    Raises UsageError for an unknown profile and for a file that cannot be read.
    """
    name = name or environ.get("TREADLE_PROFILE") or None
    table = _table(home.profiles, name) if name else {}
    if "temporal" not in table and _sdk_is_configured(environ):
        table["temporal"] = {"config_profile": environ.get("TEMPORAL_PROFILE") or SDK_DEFAULT}
    if store := environ.get("TREADLE_STORE"):
        table["store"] = store
    if peers := environ.get("TREADLE_PEERS"):
        table["peers"] = peers
    return name, table


def sdk_profile(name: str, environ: Mapping[str, str]) -> ClientConfigProfile:
    from temporalio.envconfig import ClientConfigProfile

    try:
        # The default profile, if named, would have to be in a file. Without a name, variables suffice.
        return ClientConfigProfile.load(None if name == SDK_DEFAULT else name, override_env_vars=dict(environ))
    except RuntimeError as error:
        raise UsageError(
            f"Temporal's own configuration is refused: {error}", "Mend TEMPORAL_* or temporal.toml."
        ) from error


def _sdk_is_configured(environ: Mapping[str, str]) -> bool:
    """Returns whether the SDK's own settings name a cluster. The SDK is imported only if it can have settings."""
    file = environ.get("TEMPORAL_CONFIG_FILE") or _default_config_file(environ)
    if not any(key.startswith("TEMPORAL_") for key in environ) and not Path(file).exists():
        return False
    if environ.get("TEMPORAL_PROFILE"):
        return True
    return bool(sdk_profile(SDK_DEFAULT, environ).to_client_connect_config())


def _default_config_file(environ: Mapping[str, str]) -> Path:
    if sys.platform == "darwin":
        return Path("~/Library/Application Support/temporalio/temporal.toml").expanduser()
    folder = environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(folder) / "temporalio" / "temporal.toml"


def _table(file: Path, name: str) -> dict[str, Any]:
    try:
        tables = tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise UsageError(
            f"there is no profile {name!r}: the file {file} does not exist", f"Write it, with a table [{name}]."
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}", "Mend the file.") from None
    found = tables.get(name)
    if not isinstance(found, dict):
        known = ", ".join(sorted(tables)) or "none"
        raise UsageError(f"there is no profile {name!r} in {file}", f"It has: {known}.")
    if "name" in found:
        raise UsageError(f"profile {name!r} of {file}: name: the table itself has it", "Remove `name`.")
    return dict(found)
