"""Another user of the machine sees neither content nor names of a session, a gang and shared objects."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import shutil
import socket
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from eventually import eventually
from orchestrator import gang_functions

from treadle.client import Client, session
from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home
from treadle.primitives.objects import Keepers, Reference

NOBODY = 65534
MARK = "a very private text"
RUN = "quiet-session-name"
GANG = """
apiVersion: treadle/v1
name: private
stages:
  meet:
    type: map
    input: {{range: 2, partitions: 2}}
    per: partition
    uses: gang_functions:holds
    with: {{folder: "{folder}", text: "{text}"}}
    gang: 2
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


class Lively(NamedTuple):
    """Processes of this user at work, the files that they share, and their listening sockets."""

    processes: frozenset[int]
    files: tuple[str, ...]
    sockets: tuple[str, ...]
    key: bytes


class Seen(NamedTuple):
    """Everything that the other user got."""

    opened: list[str]
    """Files and folders, and parts of /proc."""
    commands: bytes
    """The command lines of all processes."""
    names: bytes
    """The addresses of all Unix sockets."""
    answers: dict[str, bytes]
    """Bytes of each listener to a caller without a proof."""


@pytest.fixture(scope="module")
def lively(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lively]:
    folder = tmp_path_factory.mktemp("private")
    home, notes = folder / "home", folder / "notes"
    notes.mkdir()
    home.mkdir()
    (home / "profiles.toml").write_text("[default]\nslots = 3\n")
    shutil.copy(gang_functions.__file__, folder)
    (folder / "private.yaml").write_text(GANG.format(folder=notes, text=MARK))
    try:
        with (
            Client(home=home) as client,
            session(RUN, home=home) as calls,
            Keepers(folder / "objects") as keepers,
        ):
            keepers.object("notes", Reference, MARK)
            shared = calls.put(np.frombuffer((MARK * 100_000).encode(), np.uint8))
            assert calls.submit(len, shared).result(90) == 100_000 * len(MARK)
            run = client.submit(folder / "private.yaml", id="quiet-gang-name")
            eventually(lambda: len(list(notes.iterdir())) == 2)
            driver, server = embedded.running_driver(Home(home)), embedded.running_server(Home(home))
            assert driver is not None
            assert server is not None
            mine = frozenset(_with_children(os.getpid(), driver.pid, server.pid))
            host = Home(home).host_root
            files = (*_below(folder), *_below(host), str(host.parent))
            assert any("values" in one for one in files), "the value is in shared memory"
            yield Lively(mine, files, tuple(_listening(mine)), (home / "key").read_bytes())
            (notes / "go").touch()
            run.wait()
    finally:
        embedded.down(Home(home))


def _with_children(*processes: int) -> Iterator[int]:
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    for process in processes:
        yield process
        yield from _with_children(*(child for child, parent in parents.items() if parent == process))


def _below(folder: Path) -> Iterator[str]:
    for parent, folders, names in os.walk(folder):
        yield from (os.path.join(parent, name) for name in (*folders, *names))


def _listening(processes: frozenset[int]) -> Iterator[str]:
    """The abstract Unix sockets at which these processes listen."""
    inodes = set()
    for process in processes:
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{process}/fd"):
                with contextlib.suppress(OSError):
                    inodes.update(re.findall(r"socket:\[(\d+)\]", os.readlink(f"/proc/{process}/fd/{name}")))
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split(None, 7)
        listens, inode, address = int(fields[3], 16) & 0x10000, fields[6], "".join(fields[7:])
        if inode in inodes and listens and address.startswith("@"):
            yield address[1:]


@pytest.fixture(scope="module")
def seen(lively: Lively) -> Seen:
    ours, theirs = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_look, args=(lively, theirs))
    child.start()
    theirs.close()
    assert ours.poll(60), "the other user has seen nothing"
    found: Seen = ours.recv()
    child.join()
    return found


def _look(lively: Lively, answer: Connection) -> None:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    private = [f"/proc/{one}/{part}" for one in lively.processes for part in ("environ", "mem", "maps", "fd", "cwd/.")]
    commands = b"".join(_read(f"/proc/{one}/cmdline") for one in lively.processes)
    answers = {name: _called(name) for name in lively.sockets}
    answer.send(Seen(_opened([*lively.files, *private]), commands, _read("/proc/net/unix"), answers))
    os._exit(0)


def _opened(paths: Sequence[str]) -> list[str]:
    found = []
    for path in paths:
        with contextlib.suppress(OSError):
            os.close(os.open(path, os.O_RDONLY))
            found.append(path)
    return found


def _read(path: str) -> bytes:
    with contextlib.suppress(OSError):
        return Path(path).read_bytes()
    return b""


def _called(name: str) -> bytes:
    """The answer of a listener to a false proof."""
    found = b""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(5)
        caller.connect(f"\0{name}")
        caller.sendall(b"\0\0\0\x60" + bytes(8) + b"Otreadle wire\x01" + bytes(84))
        end = time.monotonic() + 5
        while (data := caller.recv(65536)) and time.monotonic() < end:
            found += data
    return found


def test_other_user_opens_no_file_and_no_process(seen: Seen) -> None:
    assert seen.opened == []


def test_listeners_answer_other_users_with_a_challenge_only(lively: Lively, seen: Seen) -> None:
    assert len(lively.sockets) >= 4, "driver, two members and a keeper"
    for answer in seen.answers.values():
        assert 0 < len(answer) < 256
        assert not _private(lively, answer)


def test_names_that_other_users_see_hold_nothing_private(lively: Lively, seen: Seen) -> None:
    assert b"treadle" in seen.commands
    for text in (seen.commands, seen.names):
        assert not _private(lively, text)


def _private(lively: Lively, text: bytes) -> list[str]:
    words = {"the key": lively.key, "content": MARK.encode(), "a session": RUN.encode(), "a run": b"quiet-gang-name"}
    return [name for name, word in words.items() if word in text or word.hex().encode() in text]
