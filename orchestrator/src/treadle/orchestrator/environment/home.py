"""The folder of one home: key, store, state of the embedded server and driver, secrets, caches."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from treadle.primitives.errors import UsageError

_SECRET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_SHARED_MEMORY = Path("/dev/shm")
_TRIES = 10


class Home:
    """`$TREADLE_HOME`, or `~/.treadle`. Everything in it is private to the user: folders 0700, files 0600."""

    path: Path
    key: Path
    """The deployment key (`treadle.primitives.sealing.load_or_create_key`)."""
    store: Path
    """The default store for ledgers, blocks, specs and bundles. A profile may name another."""
    server: Path
    """Database, log and state of the embedded Temporal server."""
    driver: Path
    """Log and state of the detached driver."""
    secrets: Path
    """One file for each secret."""
    cache: Path
    """Files that may be removed at any time."""
    clients: Path
    """A lock that every process using the embedded default shares. The driver ends as idle only while it is free."""
    profiles: Path
    """Named settings (`treadle.orchestrator.environment.profile`)."""

    def __init__(self, path: str | os.PathLike[str] | None = None, environ: Mapping[str, str] = os.environ) -> None:
        """Open the home and create its folders. Raises UsageError when another user owns it or could write to it."""
        self.path = _expanded(Path(path or environ.get("TREADLE_HOME") or "~/.treadle")).absolute()
        self.key = self.path / "key"
        self.store, self.server, self.driver, self.secrets, self.cache = (
            self.path / name for name in ("store", "server", "driver", "secrets", "cache")
        )
        self.clients = self.path / "clients.lock"
        self.profiles = self.path / "profiles.toml"
        self._environ = environ
        _private_folder(self.path)
        for folder in (self.store, self.server, self.driver, self.secrets, self.cache):
            _private_folder(folder)

    @property
    def host_root(self) -> Path:
        """The folder of blocks in this host's shared memory, or in the temporary folder on a host without `/dev/shm`.

        Its parent has the same name for all homes of the user. If another user took that name, this home has a parent
        with a name that cannot be guessed, and records it in its file `shared-memory`.
        """
        from treadle.primitives.stores.shared_memory import is_private  # late: all commands import this module

        usable = _SHARED_MEMORY.is_dir() and os.access(_SHARED_MEMORY, os.W_OK | os.X_OK)
        base = _SHARED_MEMORY if usable else Path(tempfile.gettempdir())
        name = hashlib.sha256(os.fsencode(self.path.resolve())).hexdigest()[:12]
        common = base / f"treadle-{os.geteuid()}"
        return (common if is_private(common) else self._own_parent(base)) / name

    def _own_parent(self, base: Path) -> Path:
        """A parent folder with another name than the common one. A new name is made if there is none, or it is taken
        too.

        Raises UsageError when no folder can be made.
        """
        from treadle.primitives.stores.atomic_files import create_file
        from treadle.primitives.stores.shared_memory import is_private

        record = self.path / "shared-memory"
        for _ in range(_TRIES):
            create_file(record, [f"treadle-{os.geteuid()}-{secrets.token_hex(8)}".encode()])
            parent = base / record.read_text()
            if parent.parent == base and is_private(parent):
                return parent
            record.unlink(missing_ok=True)
        raise UsageError(f"no folder for blocks can be made in {base}", "Look at what other users do there.")

    def former_keys(self) -> list[bytes]:
        """Former deployment keys, the files of `keys/`. Data that passed through Temporal under them stays readable.

        Raises UsageError for a file that is not a key, or that others may read.
        """
        from treadle.primitives import sealing

        return [sealing.load_key(path) for path in sorted((self.path / "keys").glob("*"))]

    def secret(self, name: str) -> str:
        """The secret called `name`: the file `secrets/<name>`, else the variable `TREADLE_SECRET_<NAME>`.

        One newline at the end of a file is not part of the secret. Raises UsageError if neither exists, and for a file
        that others may read.
        """
        if not _SECRET_NAME.fullmatch(name):
            raise UsageError(f"{name!r} is no name for a secret", "Use letters, digits, _, - and . only.")
        from treadle.executors.worker.environment import (
            secret_variable,
        )  # late: all commands import this module

        variable = secret_variable(name)
        file = self.secrets / name
        if (text := _read_private(file)) is not None:
            return text
        if (value := self._environ.get(variable)) is not None:
            return value
        raise UsageError(
            f"there is no secret {name!r}: neither the file {file} nor the variable {variable} exists",
            f"Write it to the file (chmod 600), or set {variable} and run `treadle dev down`, so that a driver that "
            "was started without the variable is replaced.",
        )

    def __repr__(self) -> str:
        return f"Home({str(self.path)!r})"


def room_for_blocks(root: Path) -> int:
    """Bytes that blocks below `root` may fill: half of the free space, or of the memory of this control group if less.

    A control group may have less memory than the shared memory that it sees.
    """
    from treadle.executors.memory_limit import host_memory

    return min(shutil.disk_usage(root.parent.parent).free, host_memory()) // 2


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError as error:  # the user is unknown or has no entry, as in some containers
        raise UsageError(f"nobody knows the home folder in {path}", "Set TREADLE_HOME to a whole path.") from error


def _private_folder(path: Path) -> None:
    try:
        str(path).encode()  # servers, URLs and records accept no other names
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except UnicodeEncodeError:
        raise UsageError(f"the name {str(path)!r} is not UTF-8", "Set TREADLE_HOME to another folder.") from None
    except OSError as error:
        raise UsageError(
            f"the folder {path} cannot be made: {error.strerror}", "Set TREADLE_HOME to another."
        ) from error
    status = path.stat()
    if status.st_uid not in (os.geteuid(), 0):
        raise UsageError(
            f"the folder {path} belongs to user {status.st_uid}, not to you ({os.geteuid()})",
            "Set TREADLE_HOME to a folder of your own.",
        )
    if status.st_mode & 0o022:
        raise UsageError(
            f"the folder {path} has mode {stat.S_IMODE(status.st_mode):04o}: others may write to it",
            f"If nobody did: chmod 700 {path}. Otherwise set TREADLE_HOME to a new folder.",
        )


def _read_private(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_mode & 0o077:
                raise UsageError(
                    f"the secret file {path} has mode {stat.S_IMODE(status.st_mode):04o}: others may have read it",
                    f"If nobody did: chmod 600 {path}. Otherwise change the secret first.",
                )
            return file.read().decode().removesuffix("\n")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"the secret file {path} cannot be read: {error}", "Make it a text file of your own."
        ) from error
